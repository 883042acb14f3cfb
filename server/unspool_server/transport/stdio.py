"""JSON lines over standard input and output (`wire` §1).

Blocking reads and writes run in two threads of their own, so that terminals, pipes, files and sockets all serve, and
so that no descriptor is made non-blocking, which would reach into whatever process shares it. The threads are daemons:
one that waits for input does not hold up the end of the process.
"""

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from unspool_server.connection import Connection, Shared
from unspool_server.transport.framing import MAX_MESSAGE_BYTES, LineBuffer
from unspool_server.transport.pump import Incoming, pump

T = TypeVar("T")

GRACE_S = 10.0
"""How long requests may still run after the end of input; then they are cancelled, with an answer."""

_CHUNK_BYTES = 64 * 1024


async def serve_stdio(
    shared: Shared,
    input_fd: int,
    output_fd: int,
    *,
    grace_s: float = GRACE_S,
    max_message_bytes: int = MAX_MESSAGE_BYTES,
) -> None:
    """Serve one client over two descriptors until its input ends and every answer is written.

    A client that closed our output ends it as well. The descriptors stay open.
    """
    lines = LineBuffer(max_message_bytes)
    with _Lane("stdin") as reading, _Lane("stdout") as writing:
        ended = False

        async def read() -> Iterable[Incoming] | None:
            nonlocal ended
            if ended:
                return None
            chunk = await reading.call(lambda: os.read(input_fd, _CHUNK_BYTES))
            ended = not chunk
            return lines.receive_eof() if ended else lines.receive_data(chunk)

        async def write(batch: Sequence[bytes]) -> None:
            await writing.call(lambda: _write_all(output_fd, b"\n".join(batch) + b"\n"))

        await pump(Connection(shared), read, write, grace_s=grace_s)


def claim_standard_streams() -> tuple[int, int]:
    """Keep the real standard input and output for the protocol; call it before anything can print.

    From then on everything else that reads standard input finds it empty, and everything that is written to standard
    output, by Python, libraries or child processes, goes to standard error.

    Returns:
        The descriptors to give to `serve_stdio`; child processes do not inherit them.
    """
    sys.stdout.flush()
    input_fd, output_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return input_fd, output_fd


def _write_all(fd: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


class _Lane:
    """A daemon thread that runs blocking calls one after the other."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"unspool {name}", daemon=True)

    def __enter__(self) -> "_Lane":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._calls.put(None)

    async def call(self, function: Callable[[], T]) -> T:
        """Run a function in the thread. A call that was cancelled meanwhile goes on there, its result is lost."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except OSError as error:
                _post(loop, future, partial(future.set_exception, error))
            else:
                _post(loop, future, partial(future.set_result, result))

        self._calls.put(run)
        return await future

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _post(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[T]", settle: Callable[[], None]) -> None:
    """Settle a future from another thread, unless nobody waits for it any more."""
    with contextlib.suppress(RuntimeError):  # the loop was closed while the thread was waiting
        loop.call_soon_threadsafe(lambda: None if future.done() else settle())
