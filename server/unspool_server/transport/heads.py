"""HTTP before it becomes a WebSocket: uvicorn's protocol, with an end for whoever does not come out with a request.

Such a connection has shown no token and is counted nowhere yet, so that it must not stay. Owns no rule about what is
asked (`gate.py`).
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 10.0
"""Seconds that the head of a request may take, from the connection or from its first byte on."""


class HeadProtocol(H11Protocol):
    """What uvicorn makes for each connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Somebody is there."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Part of a request, a whole one, or an upgrade, which is another protocol's from then on."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._late is None:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        """No words to a peer that said none."""
        self._late = None
        self.transport.abort()
