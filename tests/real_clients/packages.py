"""The clients under test, at the versions they were tried with, installed beside the checkout and kept (`.clients/`).

A package that cannot be had is no failure of ours: `Unavailable` says in a line why, and its tests are skipped.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".clients"

PYTHON_SDK = "openai-codex==0.163.0"
APP_SERVER_SDK = "codex-app-server-sdk==0.4.1"
CODEX = "@openai/codex@0.171.0"
TYPESCRIPT_SDK = "@openai/codex-sdk@0.163.0"
AUTOBAHN = "autobahntestsuite==0.8.2"
AI_SDK = ("ai-sdk-provider-codex-cli@2.2.1", "ai@7", "zod@4")

_INSTALL_S = 300


class Unavailable(Exception):
    """A client cannot be had on this machine."""


def python_with(requirement: str, *, at_least: tuple[int, int] = (3, 10)) -> Path:
    """An interpreter that has the package. Raises Unavailable."""
    folder = KEPT / requirement.replace("==", "-")
    python = folder / "bin" / "python"
    with _once(folder) as missing:
        if missing:
            _run([str(_interpreter(at_least)), "-m", "venv", str(folder)])
            _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", requirement])
    return python


def python2_with(requirement: str) -> tuple[Path, Path]:
    """An interpreter of Python 2.7, and the folder of packages that has the requirement. Raises Unavailable."""
    folder = KEPT / requirement.replace("==", "-")
    python = next((each for each in _named("python2.7") if _runs(each)), None)
    if python is None:
        raise Unavailable("Python 2.7 is not installed")
    with _once(folder) as missing:
        if missing:
            folder.mkdir(parents=True)
            quiet = ("-q", "--disable-pip-version-check")
            _run([str(python), "-m", "pip", "install", *quiet, "--target", str(folder), requirement])
    return python, folder


def node_with(*packages: str) -> Path:
    """A folder whose `node_modules` has the packages. Raises Unavailable."""
    if shutil.which("npm") is None:
        raise Unavailable("npm is not installed")
    folder = KEPT / packages[0].replace("/", "-").replace("@", "-").strip("-")
    with _once(folder) as missing:
        if missing:
            folder.mkdir(parents=True)
            (folder / "package.json").write_text('{"private": true, "type": "module"}')
            _run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages])
    return folder


def codex() -> Path:
    """The real Codex program. Raises Unavailable."""
    return node_with(CODEX) / "node_modules" / ".bin" / "codex"


def program(name: str) -> str:
    """A program of this machine. Raises Unavailable."""
    found = shutil.which(name)
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


@contextmanager
def _once(folder: Path) -> Iterator[bool]:
    """Whether the folder has to be made; one process at a time, and a half-made one is made anew."""
    KEPT.mkdir(exist_ok=True)
    with (KEPT / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / ".complete"
        missing = not done.exists()
        if missing and folder.exists():
            shutil.rmtree(folder)
        yield missing
        done.touch()


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"`{' '.join(command)}` did not run: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise Unavailable(f"`{' '.join(command)}` failed: {last}")


def _interpreter(at_least: tuple[int, int]) -> Path:
    """This interpreter, or a newer one of the machine that really runs. Raises Unavailable."""
    if sys.version_info >= at_least:
        return Path(sys.executable)
    for minor in range(at_least[1], at_least[1] + 4):
        for found in _named(f"python{at_least[0]}.{minor}"):
            if _runs(found):
                return found
    raise Unavailable(f"no Python >= {'.'.join(map(str, at_least))}")


def _runs(python: Path) -> bool:
    return not subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode


def _named(name: str) -> Iterator[Path]:
    """On the PATH, or among the versions that pyenv keeps and does not put there."""
    found = shutil.which(name)
    if found:
        yield Path(found)
    yield from sorted(Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser().glob(f"versions/*/bin/{name}"))
