"""How fast the past is told to one client: at once, in its own time, or step by step (DESIGN §6).

A pace belongs to one subscription and makes nobody else wait. It knows times of events, not the events.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Sleep = Callable[[float], Awaitable[None]]
"""Waits for so many seconds; tests put a clock of their own here."""

LONGEST_WAIT_S = 5.0
"""A replay in its own time waits no longer than this between two events, however long the pause was."""

MOST_STEPS = 1_000_000
"""Steps that may be granted ahead."""


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """How a client wants to hear of the past.

    Attributes:
        item_kinds: Types of items whose `item/…` events are told; None for all. Other events are always told.
        factor: How much faster than it happened; None means at once.
        stepwise: Each event waits until the client grants it.
        announced: The client is told when the replay is over.
    """

    item_kinds: frozenset[str] | None = None
    factor: float | None = None
    stepwise: bool = False
    announced: bool = False

    def tells(self, kind: str | None) -> bool:
        """Whether an event about an item of this type (None: about no item) is told."""
        return kind is None or self.item_kinds is None or kind in self.item_kinds

    def pace(self, sleep: Sleep) -> "Pace | None":
        """The pace that these options ask for; None for as fast as the client reads."""
        if not self.stepwise and self.factor is None:
            return None
        return Pace(self.factor, sleep)


class Pace:
    """Lets one replay go on event by event.

    Args:
        factor: See `ReplayOptions`; None means stepwise.
    """

    def __init__(self, factor: float | None, sleep: Sleep) -> None:
        self._factor, self._sleep = factor, sleep
        self._told_at_ms: int | None = None
        self._granted = 0
        self._more = asyncio.Event()

    @property
    def stepwise(self) -> bool:
        """Whether it waits to be granted steps."""
        return self._factor is None

    def grant(self, count: int) -> None:
        """Let so many further events pass."""
        self._granted = min(self._granted + count, MOST_STEPS)
        self._more.set()

    async def due(self, at_ms: int) -> None:
        """Wait until an event that was first told at this time (milliseconds since the epoch) may be told."""
        if self._factor is not None:
            before = at_ms if self._told_at_ms is None else self._told_at_ms
            wait_s = min(max(at_ms - before, 0) / 1000 / self._factor, LONGEST_WAIT_S)
            if wait_s:
                await self._sleep(wait_s)
            return
        while not self._granted:
            self._more.clear()
            await self._more.wait()

    def told(self, at_ms: int) -> None:
        """The event is on its way; a wait that was broken off before costs no step."""
        self._told_at_ms = at_ms
        self._granted = max(0, self._granted - 1)
