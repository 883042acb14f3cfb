"""Looking at a home that perhaps nobody serves: settings, disk, logs, locks. Changes nothing (`unspool doctor`)."""

import os
import shutil
from pathlib import Path
from typing import Any

from unspool_server.cli.options import ServerOptions
from unspool_server.config_base import ConfigError
from unspool_server.config_file import load_config, resolve_home
from unspool_server.store.files import LocalShelf
from unspool_server.store.locks import held_threads

LOW_SPACE_BYTES = 256 * 1024 * 1024
"""Less free space than this is a fault: a few busy threads fill it within a day."""


def home_report(options: ServerOptions) -> dict[str, Any]:
    """What there is, and under `faults` what needs a person, each in one sentence."""
    home = resolve_home(options.home)
    faults, notes = _settings(options, home)
    report: dict[str, Any] = {"home": str(home), "server": "none at the home's socket"}
    if not home.is_dir():
        return {**report, "logs": {}, "held": {}, "notes": [*notes, "nothing was kept there yet"], "faults": faults}
    free = shutil.disk_usage(home).free
    if free < LOW_SPACE_BYTES:
        faults.append(f"only {free} bytes are free on the disk of the home")
    if not os.access(home, os.W_OK | os.X_OK):
        faults.append("the home cannot be written by this user")
    sessions = home / "sessions"
    held = held_threads(home, sessions)
    return {**report, "freeBytes": free, "logs": _logs(home), "held": held, "notes": notes, "faults": faults}


def _settings(options: ServerOptions, home: Path) -> tuple[list[str], list[str]]:
    try:
        _, warnings = load_config(
            home, file=options.config_file, overrides=options.overrides, strict=options.strict_config
        )
    except ConfigError as error:
        return [error.message], []
    return [], warnings


def _logs(home: Path) -> dict[str, int]:
    """How many logs and threads there are, and how much they take. What is in them is `unspool verify`'s question."""
    shelf = LocalShelf(home)
    entries = shelf.scan()
    sizes = [stat[0] for stat in shelf.stat_all(entries) if stat is not None]
    threads = {entry.thread_id for entry in entries}
    return {"files": len(entries), "threads": len(threads), "bytes": sum(sizes)}
