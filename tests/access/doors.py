"""Knocking at a listener: one upgrade with any headers, and what came back."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

WAIT_S = 10.0
_UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@dataclass(frozen=True, slots=True)
class Knock:
    """An answer: status, body where there is one, and everything that came."""

    status: int
    body: bytes
    whole: bytes


async def knock(address: Any, headers: Mapping[str, str] | None = None, *, start: str = "GET / HTTP/1.1") -> Knock:
    """Try an upgrade; `Host` is the address unless the headers say another, or `""` to leave it out."""
    given = {"Host": f"{address[0]}:{address[1]}", **_UPGRADE, **(headers or {})}
    lines = [start, *(f"{name}: {value}" for name, value in given.items() if name != "Host" or value)]
    reader, writer = await asyncio.open_connection(address[0], address[1])
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WAIT_S)
        status = int(head.split()[1])
        body = b"" if status == 101 else await asyncio.wait_for(reader.read(), WAIT_S)
    finally:
        writer.close()
        await writer.wait_closed()
    return Knock(status, body, head + body)


def bearer(token: str) -> dict[str, str]:
    """The header with a token."""
    return {"Authorization": f"Bearer {token}"}
