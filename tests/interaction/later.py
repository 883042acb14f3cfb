"""The daemon's timer in the hands of a test."""

import asyncio
from collections.abc import Callable

from tests.interaction.house import LocalDaemon


class Later:
    """Stands in for the daemon's timer: what was asked for happens when a test says so, or as soon as it can."""

    def __init__(self, daemon: LocalDaemon, *, at_once: bool = False) -> None:
        self.asked: list[Callable[[], None]] = []
        self._daemon, self._at_once = daemon, at_once
        daemon.services.env.later = self._later

    def _later(self, _delay_s: float, call: Callable[[], None]) -> asyncio.TimerHandle:
        self.asked.append(call)
        return asyncio.get_running_loop().call_later(0 if self._at_once else 3600, call)

    async def ring(self, thread_id: str) -> None:
        """The time has come; returns when what was to happen is in the log."""
        asked, self.asked = self.asked, []
        for call in asked:
            call()
        await asyncio.sleep(0)
        session = self._daemon.session(thread_id)
        await session.step(session.log.flush)
