"""A client in the same process: messages cross two bounded queues and the very same `Connection`."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import orjson

from unspool_server.access.principal import OWNER, Principal
from unspool_server.connection import Connection, Shared
from unspool_server.envelope import encode
from unspool_server.transport.pump import Incoming, pump

_QUEUED_MESSAGES = 16
"""What stands for the buffers of a pipe: a client that does not read stops the writer after so many messages."""


class MemoryTransport:
    """The client's side. Used as an async context manager, or with `start` and `close`."""

    def __init__(self, shared: Shared, principal: Principal = OWNER) -> None:
        self.connection = Connection(shared, principal)
        self._to_server: asyncio.Queue[bytes | str | None] = asyncio.Queue(_QUEUED_MESSAGES)
        self._to_client: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED_MESSAGES)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve the connection."""
        self._task = asyncio.create_task(self._run(), name=f"memory connection {self.connection.id}")

    async def send(self, message: Mapping[str, Any] | bytes | str) -> None:
        """Send one message; bytes and text go as they are. Waits while the server does not read."""
        await self._to_server.put(message if isinstance(message, bytes | str) else encode(message))

    async def recv(self) -> Any:
        """Wait for the next message and decode it. Raises EOFError when the server closed the connection."""
        return orjson.loads(await self.recv_bytes())

    async def recv_bytes(self) -> bytes:
        """Wait for the next message, as it was encoded. Raises EOFError when the server closed the connection."""
        body = await self._to_client.get()
        if body is None:
            self._to_client.put_nowait(None)
            raise EOFError("the connection is closed")
        return body

    async def end_input(self) -> None:
        """Send nothing more; the server finishes what it was asked for and then closes."""
        await self._to_server.put(None)

    async def close(self) -> None:
        """Go away at once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self) -> None:
        try:
            await pump(self.connection, self._read, self._write, grace_s=5.0)
        finally:
            if self._to_client.full():
                self._to_client.get_nowait()
            self._to_client.put_nowait(None)

    async def _read(self) -> Iterable[Incoming] | None:
        message = await self._to_server.get()
        return None if message is None else (message,)

    async def _write(self, batch: Sequence[bytes]) -> None:
        for body in batch:
            await self._to_client.put(body)
