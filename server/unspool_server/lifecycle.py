"""Whether the daemon goes on: where it listens, whether it was asked to stop, whether it lets turns begin.

Owns no step of the drain (`cli/drain.py`): it is the one word that those who refuse and those who report look at.
"""

import asyncio
import os
import time
from dataclasses import dataclass, field

from unspool_server.errors import ShuttingDown


@dataclass(slots=True)
class Lifecycle:
    """One daemon's. Lives on one event loop.

    Attributes:
        started_at: Seconds since the epoch.
        listeners: Where clients reach it, as they would write it.
        stopping: Set once somebody asked for the end.
        reason: Who asked: a signal's name or `server/shutdown`.
        draining: New turns are refused, running ones get time to end.
    """

    started_at: float = field(default_factory=time.time)
    listeners: list[str] = field(default_factory=list)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    reason: str = ""
    draining: bool = False
    _began: float = field(default_factory=time.monotonic)

    @property
    def uptime_s(self) -> float:
        """Seconds that the daemon has lived."""
        return time.monotonic() - self._began

    @property
    def pid(self) -> int:
        """The process that answers, whatever some file says."""
        return os.getpid()

    def stop(self, reason: str) -> None:
        """Ask for the end; only the first time counts."""
        self.reason = self.reason or reason
        self.stopping.set()

    def admit_turn(self) -> None:
        """Raises ShuttingDown while no new turn may begin."""
        if self.draining:
            raise ShuttingDown
