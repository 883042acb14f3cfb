"""Connections of the kinds that the recordings were made over, to a daemon in this process."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
from unspool_server.connection import Shared
from unspool_server.transport.stdio import serve_stdio
from unspool_server.transport.unix import UnixListener
from unspool_server.transport.websocket import listen_tcp
from websockets.asyncio.client import connect, unix_connect

from tests.interaction.house import WebSocketWire
from tests.interaction.wire import Message, Wire


class PipeWire:
    """Lines through two pipes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def open(self) -> "PipeWire":
        """Serve the far ends of the pipes."""
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        self._fds = (their_input, their_output)
        self._serving = asyncio.create_task(serve_stdio(self._shared, *self._fds), name="recorded stdio")
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=1 << 24)
        reading = asyncio.StreamReaderProtocol(self._reader)
        self._incoming, _ = await loop.connect_read_pipe(lambda: reading, os.fdopen(our_input, "rb", 0))
        self._outgoing, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, os.fdopen(our_output, "wb", 0))
        return self

    async def send(self, message: Message | bytes) -> None:
        body = message if isinstance(message, bytes) else orjson.dumps(message)
        self._outgoing.write(body + b"\n")

    async def recv(self) -> Message:
        line = await self._reader.readline()
        if not line:
            raise EOFError
        received: Message = orjson.loads(line)
        return received

    async def close(self) -> None:
        self._outgoing.close()
        await self._serving
        self._incoming.close()
        for fd in self._fds:
            os.close(fd)


class TextFrameWire(WebSocketWire):
    """Frames as a client sends them; `send_binary` for those that no client should."""

    async def send_binary(self, content: bytes) -> None:
        await self._socket.send(content)


class Door:
    """Opens connections of one kind."""

    def __init__(self, shared: Shared, address: str | Path | None) -> None:
        self._shared, self._address = shared, address

    async def open(self) -> Wire:
        """A new connection."""
        if self._address is None:
            return await PipeWire(self._shared).open()
        if isinstance(self._address, Path):
            return TextFrameWire(await unix_connect(str(self._address), "ws://localhost/", compression=None))
        return TextFrameWire(await connect(self._address, compression=None))


@asynccontextmanager
async def door(shared: Shared, transport: str, folder: Path) -> AsyncIterator[Door]:
    """A way in: `stdio`, `websocket` or `unix`."""
    if transport == "websocket":
        async with listen_tcp(shared, "127.0.0.1", 0) as listener:
            yield Door(shared, f"ws://127.0.0.1:{listener.address[1]}/")
    elif transport == "unix":
        async with UnixListener(shared, folder / "socket"):
            yield Door(shared, folder / "socket")
    else:
        yield Door(shared, None)
