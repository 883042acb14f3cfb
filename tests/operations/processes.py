"""Real daemon processes on a home, to be signalled and asked. Every one of them is gone at the end of its test."""

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from click.testing import CliRunner
from unspool_server.cli.main import main

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0


def environment() -> dict[str, str]:
    """That of a process that finds our packages wherever it starts."""
    path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients"))
    return {**os.environ, "PYTHONPATH": path}


def command(*words: str) -> list[str]:
    """`unspool WORDS` of this working copy."""
    return [sys.executable, "-m", "unspool_server.cli.main", *words]


@asynccontextmanager
async def process(*words: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run `unspool WORDS` with pipes; killed at the end if it has not ended."""
    running = await asyncio.create_subprocess_exec(
        *command(*words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(),
        limit=1 << 24,
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


async def ended(running: asyncio.subprocess.Process) -> int:
    """Wait for the end; the exit status, or minus the signal."""
    async with asyncio.timeout(WAIT_S):
        return await running.wait()


async def run(*words: str) -> tuple[int, str, str]:
    """Run a command to its end, in a thread of this process: status, stdout, stderr."""
    result = await asyncio.to_thread(CliRunner().invoke, main, list(words))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


async def line(stream: asyncio.StreamReader | None, pattern: str) -> re.Match[str]:
    """Read lines until one fits."""
    assert stream is not None
    async with asyncio.timeout(WAIT_S):
        while read := await stream.readline():
            if found := re.search(pattern, read.decode()):
                return found
    raise AssertionError(f"no line with {pattern}")


@asynccontextmanager
async def serving(home: Path, *more: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A daemon on a free port, and its address without the scheme."""
    words: Sequence[str] = ("app-server", "--listen", "ws://127.0.0.1:0", "--home", str(home), *more)
    async with process(*words) as running:
        found = await line(running.stderr, r"listening on: ws://(\S+)")
        yield running, found[1]


@asynccontextmanager
async def unix(home: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A daemon on the home's own socket."""
    async with process("app-server", "--listen", "unix://", "--home", str(home)) as running:
        await line(running.stderr, "listening on: unix://")
        yield running
