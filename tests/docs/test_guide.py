"""The programs of the guide run as they stand and show what the guide says."""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.test_readme_example import served

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide.md"
WAIT_S = 60
EVENTS = ["userMessage", "agentMessage"]


def programs() -> dict[str, str]:
    """The files of the guide by name."""
    found = re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)
    return dict(found)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The programs, and an `unspool` of this checkout beside them."""
    for name, text in programs().items():
        (tmp_path / name).write_text(text, "utf-8")
    paths = ":".join(str(ROOT / part) for part in ("server", "protocol", "clients"))
    script = tmp_path / "bin" / "unspool"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {sys.executable} -m unspool_server.cli.main "$@"\n')
    script.chmod(0o755)
    (tmp_path / "home").mkdir()
    return tmp_path


def environment(folder: Path) -> Mapping[str, str]:
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "UNSPOOL_HOME": str(folder / "home")}


async def output(folder: Path, *command: str) -> list[str]:
    """What a program prints; it must end well."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(WAIT_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


async def node(folder: Path) -> list[str]:
    """Node with its own WebSocket, which version 20 has behind a flag."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    version = (await output(folder, found, "--version"))[0]
    major = int(version.removeprefix("v").partition(".")[0])
    if major < 20:
        pytest.skip(f"node {version} has no WebSocket")
    return [found] if major >= 22 else [found, "--experimental-websocket"]


async def test_the_editors_program_shows_a_turn_and_comes_back_without_loss(folder: Path) -> None:
    command = await node(folder)
    async with served(folder / "home") as address:
        shown = await output(folder, *command, "editor.mjs", address, str(folder / "home"))
    assert shown == ["Hello from the editor. [completed]", "0 events were missed", *EVENTS]


async def test_the_desktop_apps_program_talks_to_a_daemon_of_its_own(folder: Path) -> None:
    shown = await output(folder, *await node(folder), "desktop.mjs")
    assert shown == ["Hello from the app.", "true", "3 branches, nothing lost"]


async def test_the_ci_script_prints_an_answer_and_goes_on(folder: Path) -> None:
    assert await output(folder, "sh", "ci.sh") == ["Explain the failing test.", "1"]


async def test_the_python_program_of_the_guide_prints_an_answer(folder: Path) -> None:
    shown = await output(folder, sys.executable, "-W", "error", "ci.py")
    assert shown == ["completed Summarise the change."]


def test_every_program_of_the_guide_is_run() -> None:
    assert set(programs()) == {"unspool.mjs", "editor.mjs", "desktop.mjs", "ci.sh", "ci.py"}
