"""Clients of a daemon of this process under any principal."""

from typing import Any

import orjson
from unspool_server.access.principal import Principal, Scope
from unspool_server.connection import Shared
from unspool_server.transport.memory import MemoryTransport

from tests.interaction.house import LocalDaemon
from tests.interaction.wire import Client, Message


class CallerWire:
    """The in-memory transport of somebody who was let in."""

    def __init__(self, shared: Shared, principal: Principal) -> None:
        self._transport = MemoryTransport(shared, principal)
        self._transport.start()

    async def send(self, message: Message | bytes) -> None:
        await self._transport.send(message if isinstance(message, bytes) else orjson.dumps(message))

    async def recv(self) -> Message:
        received: Message = await self._transport.recv()
        return received

    async def close(self) -> None:
        await self._transport.close()


def principal(name: str, tenant: str = "", scope: Scope = Scope.ADMIN) -> Principal:
    """Somebody with one scope."""
    return Principal(name, tenant, frozenset({scope}))


async def caller(daemon: LocalDaemon, who: Principal, **capabilities: Any) -> Client:
    """A client after its handshake; close it."""
    client = Client(CallerWire(daemon.shared, who))
    given = {"experimentalApi": True, **capabilities}
    await client.call("initialize", {"clientInfo": {"name": who.name, "version": "1"}, "capabilities": given})
    return client
