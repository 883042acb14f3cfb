"""Runs a driver: a small program that uses one real client as its users would and says what it found.

A driver prints one JSON line for each check: `{"check": name}` when it held, with `"error"` when it did not. Checks run
in order and one that fails does not keep the later ones from running.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DRIVERS = Path(__file__).parent / "drivers"
DRIVER_S = 180


@dataclass(frozen=True, slots=True)
class Report:
    """What a driver said: each check with the reason why it failed, or an empty text."""

    checks: Mapping[str, str]
    stderr: str

    def held(self, name: str) -> None:
        """Fail unless the check was made and held."""
        assert name in self.checks, f"the driver did not come to {name!r}\n{self.stderr[-4000:]}"
        assert not self.checks[name], f"{name}: {self.checks[name]}\n{self.stderr[-4000:]}"


def drive(command: Sequence[str], env: Mapping[str, str], cwd: Path) -> Report:
    """Run a driver to its end, bounded."""
    process = subprocess.run(
        command,
        env={**os.environ, **env},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DRIVER_S,
        check=False,
    )
    found: dict[str, str] = {}
    for line in process.stdout.splitlines():
        if line.startswith('{"check"'):
            told = json.loads(line)
            found[told["check"]] = told.get("error", "")
    return Report(found, f"exit {process.returncode}\n{process.stdout[-2000:]}\n{process.stderr}")


def program_in(folder: Path) -> Path:
    """An executable `unspool` that runs this checkout, for clients that want a path."""
    script = folder / "unspool"
    parts = ":".join(str(DRIVERS.parents[2] / part) for part in ("server", "protocol", "clients"))
    lines = ("#!/bin/sh", f"export PYTHONPATH={parts}", f'exec {sys.executable} -m unspool_server.cli.main "$@"')
    script.write_text("\n".join(lines) + "\n")
    script.chmod(0o755)
    return script
