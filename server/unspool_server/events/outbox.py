"""What one connection is still to be sent: a single ordered, bounded queue of ready messages.

The transport's writer takes batches with `get`. The outbox knows no thread: a refused event stays with the subscription
it belongs to, which is then a cursor that is behind (DESIGN §1.5).
"""

import asyncio
from collections import deque
from collections.abc import Callable

from unspool_server.events.encoding import with_jsonrpc

MAX_MESSAGES = 256
"""Messages that may wait for one client; more would only move the backlog from the log into memory."""

MAX_BYTES = 1024 * 1024
"""Bytes that may wait for one client, in events; answers are always taken."""


class Outbox:
    """Answers, server requests and events for one connection, in the order in which they were produced.

    Attributes:
        jsonrpc: Messages carry the `jsonrpc` member; set by `initialize`. Applies to messages as they are taken.
        on_space: Called after a batch was taken, when an event had been refused before.
    """

    def __init__(self, max_messages: int = MAX_MESSAGES, max_bytes: int = MAX_BYTES) -> None:
        self.jsonrpc = False
        self.on_space: Callable[[], None] | None = None
        self._max_messages, self._max_bytes = max_messages, max_bytes
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._refused = False
        self._closed = False
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def waiting_bytes(self) -> int:
        """Bytes queued and not yet taken."""
        return self._bytes

    @property
    def closed(self) -> bool:
        """Whether nothing is accepted any more."""
        return self._closed

    def put(self, body: bytes) -> None:
        """Queue an answer or a server request; always accepted, except after `close`, when nobody will read it."""
        if self._closed:
            return
        self._queue.append(body)
        self._bytes += len(body)
        self._wake.set()

    def offer(self, body: bytes) -> bool:
        """Queue an event if there is room. A message larger than the whole box passes when it is empty.

        Returns:
            False when full or closed; then `on_space` is called once there is room.
        """
        full = len(self._queue) >= self._max_messages or self._bytes + len(body) > self._max_bytes
        if self._closed or (full and self._queue):
            self._refused = True
            return False
        self.put(body)
        return True

    async def get(self) -> list[bytes]:
        """Wait for messages and take all that are ready; an empty list means closed and drained."""
        while not self._queue and not self._closed:
            self._wake.clear()
            await self._wake.wait()
        return self.take()

    def take(self) -> list[bytes]:
        """Take what is ready now, without waiting."""
        batch = [with_jsonrpc(body) for body in self._queue] if self.jsonrpc else list(self._queue)
        self._queue.clear()
        self._bytes = 0
        if self._refused and not self._closed:
            self._refused = False
            if self.on_space is not None:
                self.on_space()
        return batch

    def close(self) -> None:
        """Accept nothing more; what is queued can still be taken."""
        self._closed = True
        self._wake.set()
