"""The orderly end of a daemon: no new turns, time for those that run, everything written, every client told.

    asked to stop -> `server/draining` -> running turns end, or are interrupted at the deadline -> logs are written and
    closed -> each client gets what it is owed, then `connection/closing` with its cursors, then the end

`/readyz` says 503 from the first step on. Nothing a client was told is lost: its cursors go on at the next daemon.
"""

import asyncio
import logging
from collections.abc import Mapping

from unspool_protocol.notifications import ConnectionClosingNotification, ServerDrainingNotification

from unspool_server.connection import Connection, Shared
from unspool_server.events.encoding import now_ms
from unspool_server.handlers.services import Services
from unspool_server.telemetry.logs import event

FAREWELL_S = 3.0
"""How long one client may take for its last answers, and then for reading them. It is not waited for any longer: its
cursors bring back what it did not read."""

CLOSE_CODE = 1012
"""WebSocket: service restart; clients come back after a moment."""

logger = logging.getLogger("unspool.drain")


async def drain(shared: Shared, services: Services) -> bool:
    """Bring everything to its end while clients are still connected; listeners are closed afterwards.

    Returns:
        Whether all logs were written.
    """
    lifecycle, sessions, timeout_s = shared.lifecycle, services.sessions, services.env.config.drain_timeout_secs
    lifecycle.draining = True
    running = sessions.running()
    event(logger, "draining", reason=lifecycle.reason, turns=running, timeout_s=timeout_s)
    services.hub.broadcast("server/draining", ServerDrainingNotification(deadline_ms=int(timeout_s * 1000)))
    if not await sessions.turns_ended(timeout_s):
        event(logger, "turns are interrupted", level=logging.WARNING, turns=sessions.running())
    await sessions.close()
    connections = list(shared.connections)
    await asyncio.gather(*(_see_off(one, services) for one in connections))
    level = logging.ERROR if sessions.undrained else logging.INFO
    event(logger, "drained", level=level, connections=len(connections), undrained_threads=sessions.undrained)
    return not sessions.undrained


async def _see_off(connection: Connection, services: Services) -> None:
    """Let one client have its answers and its last word."""

    def farewell() -> bytes | None:
        cursors = services.hub.cursors(connection)
        return None if cursors is None else closing_message(services, "shutdown", cursors)

    await connection.wind_up(farewell, timeout_s=FAREWELL_S, close_code=CLOSE_CODE)
    await connection.wait_closed(FAREWELL_S)


def closing_message(services: Services, reason: str, cursors: Mapping[str, str]) -> bytes:
    """The encoded `connection/closing`."""
    told = ConnectionClosingNotification.model_validate({"reason": reason, "cursors": cursors})
    return services.hub.encoder.encode("connection/closing", told, cursor=None, emitted_at_ms=now_ms())
