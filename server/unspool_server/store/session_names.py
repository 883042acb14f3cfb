"""Names of threads in the reference's `session_index.jsonl`: `{id, thread_name, updated_at}` lines, newest wins."""

import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Protocol

import aiofiles
import aiofiles.os
import orjson


class Names(Protocol):
    """Where names are kept besides the logs."""

    async def read(self) -> dict[str, str]:
        """Thread id -> name."""

    async def write(self, thread_id: str, name: str) -> None:
        """Keep a name. Raises OSError."""


class MemoryNames:
    """Names of ephemeral threads."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    async def read(self) -> dict[str, str]:
        """Thread id -> name."""
        return self._names

    async def write(self, thread_id: str, name: str) -> None:
        """Keep a name."""
        self._names[thread_id] = name


class SessionIndex:
    """The file in a home. Other processes append to it, so it is read again when it has changed."""

    def __init__(self, path: Path, clock: Callable[[], datetime]) -> None:
        self._path = path
        self._clock = clock
        self._stamp: tuple[int, int] | None = None
        self._names: dict[str, str] = {}

    async def read(self) -> dict[str, str]:
        """Thread id -> newest name; lines that make no sense are passed over."""
        try:
            status = await aiofiles.os.stat(self._path)
            stamp = (status.st_size, status.st_mtime_ns)
            if stamp != self._stamp:
                async with aiofiles.open(self._path, "rb") as file:
                    content = await file.read()
                self._names = dict(pair for line in content.split(b"\n") if (pair := _parse(line)))
                self._stamp = stamp
        except OSError:
            self._names, self._stamp = {}, None
        return self._names

    async def write(self, thread_id: str, name: str) -> None:
        """Append a line, closing a torn one first. Raises OSError."""
        line = orjson.dumps({"id": thread_id, "thread_name": name, "updated_at": self._clock().isoformat()})
        await aiofiles.os.makedirs(self._path.parent, exist_ok=True)
        async with aiofiles.open(self._path, "ab+") as file:
            end = await file.seek(0, os.SEEK_END)
            torn = False
            if end:
                await file.seek(end - 1)
                torn = await file.read(1) != b"\n"
            await file.write((b"\n" if torn else b"") + line + b"\n")


def _parse(line: bytes) -> tuple[str, str] | None:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(value, dict):
        return None
    thread_id, name = value.get("id"), value.get("thread_name")
    return (thread_id, name) if isinstance(thread_id, str) and isinstance(name, str) else None
