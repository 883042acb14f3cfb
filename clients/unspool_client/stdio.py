"""A daemon as a child process: one JSON object per line over its stdin and stdout (`wire` §1).

Lines are split on byte 0x0A only and have no limit below the protocol's own; stderr is read all the time, so that a
chatty child never blocks, and its last part goes into error texts.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from unspool_client.channels import MAX_MESSAGE_BYTES
from unspool_client.errors import ConnectFailed, ConnectionLost

_CHUNK_BYTES = 256 * 1024
_STDERR_TAIL_BYTES = 8 * 1024

StderrSink = Callable[[bytes], None]
"""Receives the child's stderr in chunks as they come."""


def default_command() -> list[str]:
    """`unspool app-server` from the search path, else the same by module name in this interpreter."""
    found = shutil.which("unspool")
    return [found, "app-server"] if found else [sys.executable, "-m", "unspool_server.cli.main", "app-server"]


class LineBuffer:
    """Cuts a byte stream into lines. Empty lines are dropped, a carriage return before the line feed is cut off."""

    def __init__(self, max_bytes: int = MAX_MESSAGE_BYTES) -> None:
        self._partial = bytearray()
        self._max_bytes = max_bytes

    def receive(self, chunk: bytes) -> list[bytes]:
        """Take bytes in, give the lines that are complete now.

        Raises:
            ConnectionLost: A line is longer than the protocol allows.
        """
        *complete, rest = chunk.split(b"\n")
        lines = []
        for piece in complete:
            line = bytes(self._partial) + piece if self._partial else piece
            self._partial.clear()
            if line.strip():
                lines.append(line.removesuffix(b"\r"))
        self._partial += rest
        if len(self._partial) > self._max_bytes:
            raise ConnectionLost(f"a line is longer than {self._max_bytes} bytes")
        return lines


class StdioChannel:
    """The channel of one child process. Closing it closes stdin, waits, then terminates, then kills."""

    def __init__(self, process: asyncio.subprocess.Process, *, stderr: StderrSink | None, grace_s: float) -> None:
        self._process = process
        self._grace_s = grace_s
        self._buffer = LineBuffer()
        self._lines: deque[bytes] = deque()
        self._tail = bytearray()
        self._problem = ""
        self._closing: asyncio.Task[None] | None = None
        self._stderr = asyncio.create_task(self._read_stderr(stderr), name="unspool-client-stderr")

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def send(self, message: bytes) -> None:
        """Write one line."""
        stdin = self._process.stdin
        if stdin is None or stdin.is_closing():
            raise ConnectionLost("the server's stdin is closed")
        try:
            stdin.write(message + b"\n")
            await stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise ConnectionLost("the server closed its stdin") from error

    async def receive(self) -> bytes | None:
        """The next line, or None after the child closed its stdout."""
        stdout = self._process.stdout
        while not self._lines:
            chunk = await stdout.read(_CHUNK_BYTES) if stdout is not None else b""
            if not chunk:
                return None
            try:
                self._lines.extend(self._buffer.receive(chunk))
            except ConnectionLost as error:
                self._problem = str(error)
                return None
        return self._lines.popleft()

    async def close(self) -> None:
        """End the child; no process and no task is left afterwards, also when the caller is cancelled."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._stop(), name="unspool-client-stop")
        await asyncio.shield(self._closing)

    def lost_because(self) -> str:
        """The exit status where it is known, and the end of the child's stderr."""
        status = self._process.returncode
        facts = [self._problem, "the server process ended" if status is None else f"the server exited with {status}"]
        tail = self._tail.decode(errors="replace").strip()
        return "; ".join(fact for fact in facts if fact) + (f"; its stderr ends with:\n{tail}" if tail else "")

    async def _stop(self) -> None:
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                await process.stdin.wait_closed()
        for end in (process.terminate, process.kill, None):
            if await self._ended() or end is None:
                break
            with contextlib.suppress(ProcessLookupError):
                end()
        await process.wait()
        # A grandchild may have inherited stderr and keep it open: what came by now is enough.
        await asyncio.wait({self._stderr}, timeout=0.5)
        self._stderr.cancel()
        await asyncio.wait({self._stderr})
        # Reading ends here even if a grandchild holds the pipes.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    async def _ended(self) -> bool:
        """Whether the child ends within the grace period. Its output is drained meanwhile, or it might never end."""
        drain = asyncio.create_task(self._drain(), name="unspool-client-drain")
        try:
            async with asyncio.timeout(self._grace_s):
                await self._process.wait()
            return True
        except TimeoutError:
            return False
        finally:
            drain.cancel()
            await asyncio.wait({drain})

    async def _drain(self) -> None:
        stdout = self._process.stdout
        with contextlib.suppress(RuntimeError):  # the connection's reader is still at it
            while stdout is not None and await stdout.read(_CHUNK_BYTES):
                pass

    async def _read_stderr(self, sink: StderrSink | None) -> None:
        stream = self._process.stderr
        while stream is not None and (chunk := await stream.read(_CHUNK_BYTES)):
            self._tail += chunk
            del self._tail[:-_STDERR_TAIL_BYTES]
            if sink is not None:
                sink(chunk)


async def open_stdio(
    command: Sequence[str] | None = None,
    *,
    home: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    stderr: StderrSink | None = None,
    grace_s: float = 5.0,
) -> StdioChannel:
    """Start a daemon and talk to it over its standard streams.

    Args:
        command: Program and arguments; `default_command()` where none is given.
        home: The daemon's home, passed as `UNSPOOL_HOME`.
        env: Variables on top of this process's own.
        grace_s: How long the child may take to end by itself, and again after SIGTERM.

    Raises:
        ConnectFailed: The program cannot be started.
    """
    words = list(command) if command is not None else default_command()
    variables = {**os.environ, **(env or {})}
    if home is not None:
        variables["UNSPOOL_HOME"] = str(home)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *words, stdin=pipe, stdout=pipe, stderr=pipe, env=variables, cwd=cwd, limit=_CHUNK_BYTES
        )
    except OSError as error:
        raise ConnectFailed(f"cannot start {words[0]}: {error.strerror}", retryable=False) from error
    return StdioChannel(process, stderr=stderr, grace_s=grace_s)
