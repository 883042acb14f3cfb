"""A WebSocket client made by hand, for frames that no library sends."""

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from unspool_server.transport.websocket import Listener

WAIT_S = 10.0

CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, masked: bool = True) -> bytes:
    """One frame as a client sends it (RFC 6455 §5.2)."""
    head = bytes([fin << 7 | rsv << 4 | opcode])
    size, bit = len(payload), masked << 7
    if size < 126:
        head += bytes([bit | size])
    elif size < 1 << 16:
        head += bytes([bit | 126]) + struct.pack("!H", size)
    else:
        head += bytes([bit | 127]) + struct.pack("!Q", size)
    # A mask of zeros is a mask, and spares the work.
    return head + (bytes(4) if masked else b"") + payload


@dataclass(slots=True)
class RawClient:
    """After the handshake."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    accepted: str

    async def send(self, *frames: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(b"".join(frames))
        await asyncio.wait_for(self.writer.drain(), WAIT_S)

    async def recv(self) -> tuple[int, bytes]:
        """The next frame: opcode and payload. Raises IncompleteReadError or OSError when there is none."""
        async with asyncio.timeout(WAIT_S):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 15, await self.reader.readexactly(size)

    async def recv_text(self) -> bytes:
        """The next text, control frames passed over."""
        while True:
            opcode, payload = await self.recv()
            assert opcode != CLOSE, payload
            if opcode == TEXT:
                return payload

    async def closed_with(self) -> tuple[int, str]:
        """Wait for the close frame and the end of the stream behind it: code and reason."""
        while True:
            opcode, payload = await self.recv()
            if opcode == CLOSE:
                await self.ended()
                return struct.unpack("!H", payload[:2])[0], payload[2:].decode()

    async def ended(self) -> None:
        """Wait until the server has ended the stream, in order or not. What comes before that is passed over."""
        async with asyncio.timeout(WAIT_S):
            with contextlib.suppress(OSError):
                while await self.reader.read(1 << 16):
                    pass


@asynccontextmanager
async def raw_client(listener: Listener, *, offer: str = "", receive_bytes: int = 0) -> AsyncIterator[RawClient]:
    """Connect and upgrade.

    Args:
        offer: `Sec-WebSocket-Extensions`; what the server agreed to is in `accepted`.
        receive_bytes: The kernel's receive buffer.
    """
    host, port = listener.address
    connected = socket.socket()
    if receive_bytes:
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connected.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connected, (host, port))
    reader, writer = await asyncio.open_connection(sock=connected, limit=1 << 16)
    lines = [
        "GET / HTTP/1.1",
        f"Host: {host}:{port}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {os.urandom(16).hex()[:22]}==",
        *([f"Sec-WebSocket-Extensions: {offer}"] if offer else []),
    ]
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)).decode()
        assert " 101 " in head.splitlines()[0], head
        names = dict(line.lower().split(": ", 1) for line in head.splitlines()[1:] if ": " in line)
        yield RawClient(reader, writer, names.get("sec-websocket-extensions", ""))
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await asyncio.wait_for(writer.wait_closed(), WAIT_S)
