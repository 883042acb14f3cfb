"""What a connection runs over: whole messages as bytes, in order, both ways.

Owns the contract and the in-memory channel. Messages carry no line feed and no framing of any kind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from unspool_client.errors import ConnectionLost

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""The largest message that is accepted; there is no other limit on a line or frame."""


class Channel(Protocol):
    """An open, ordered, two-way stream of messages."""

    async def send(self, message: bytes) -> None:
        """Send one message; waits while the peer is behind.

        Raises:
            ConnectionLost: The channel is closed.
        """

    async def receive(self) -> bytes | None:
        """The next message, or None once the channel has ended. Called by one task only."""

    async def close(self) -> None:
        """End the channel in order. May be called more than once; a waiting `receive` gives None."""

    def lost_because(self) -> str:
        """Why the channel ended, for error texts: a close code, an exit status, the end of stderr."""


ChannelFactory = Callable[[], Awaitable[Channel]]
"""Opens a new channel; called again for every reconnect. Raises `ConnectFailed` or OSError."""


class MemoryChannel:
    """One end of an in-process channel; closing either end ends both, after what was sent has been received."""

    def __init__(self, incoming: "asyncio.Queue[bytes | None]", outgoing: "asyncio.Queue[bytes | None]") -> None:
        self._incoming, self._outgoing = incoming, outgoing
        self._closed = False
        self._ended = False
        self.peer: MemoryChannel | None = None

    async def send(self, message: bytes) -> None:
        """Hand the message to the other end."""
        if self._closed or (self.peer is not None and self.peer._closed):
            raise ConnectionLost("the channel is closed")
        await self._outgoing.put(message)

    async def receive(self) -> bytes | None:
        """The next message from the other end."""
        if self._ended or (self._closed and self._incoming.empty()):
            return None
        message = await self._incoming.get()
        self._ended = message is None
        return message

    async def close(self) -> None:
        """End both directions."""
        if self._closed:
            return
        self._closed = True
        for queue in (self._outgoing, self._incoming):
            queue.put_nowait(None)

    def lost_because(self) -> str:
        """Nothing more is known here."""
        return "the other end closed the channel"


def memory_pair() -> tuple[MemoryChannel, MemoryChannel]:
    """Two ends of one channel: the client's and the server's."""
    there: asyncio.Queue[bytes | None] = asyncio.Queue()
    back: asyncio.Queue[bytes | None] = asyncio.Queue()
    client, server = MemoryChannel(back, there), MemoryChannel(there, back)
    client.peer, server.peer = server, client
    return client, server
