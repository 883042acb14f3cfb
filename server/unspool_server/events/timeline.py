"""Where a thread's rollouts hang together: chains of bases, and places on them (01 §8, DESIGN §6).

Rollouts, oldest first, are a thread's timeline. Reading the newest one through its bases shows the present; what was
rolled back hangs off it. Positions only; nothing here reads records but to find an end.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import Record

from unspool_server.errors import LogMissing
from unspool_server.store.contract import LogStore, RolloutInfo


@dataclass(frozen=True, slots=True)
class Part:
    """A rollout's share of a chain: its own records with start <= ordinal < end (None: to its present end).

    Attributes:
        header: The rollout's own first record, where the store knows it.
    """

    rollout_id: str
    start: int
    end: int | None
    header: Record | None = None

    def holds(self, cursor: EventCursor) -> bool:
        """Whether the cursor's record is in this part, as far as positions tell."""
        inside = self.start <= cursor.ordinal and (self.end is None or cursor.ordinal < self.end)
        return self.rollout_id == cursor.rollout_id and inside


class Timeline:
    """The rollouts of one thread as they are now; load it anew for every question."""

    def __init__(self, store: LogStore, own: Sequence[RolloutInfo]) -> None:
        self.own = tuple(own)
        self._store = store
        self._known = {info.rollout_id: info for info in own}

    @classmethod
    async def load(cls, store: LogStore, thread_id: str) -> Self:
        """Without a log the timeline is empty."""
        try:
            return cls(store, await store.rollouts(thread_id))
        except LogMissing:
            return cls(store, ())

    def copy_of(self, cursor: EventCursor) -> EventCursor:
        """The same place in the newest copy that a thread was given of what it inherited (ordinals are kept)."""
        for info in reversed(self.own):
            for rollout_id, end in copied_parts(info):
                if cursor.rollout_id == rollout_id and cursor.ordinal < end:
                    return EventCursor(info.rollout_id, cursor.ordinal, cursor.counter)
        return cursor

    @property
    def oldest_whole(self) -> int:
        """Index of the newest copy among the rollouts; what is older than it may have lost its base."""
        return next((i for i in range(len(self.own) - 1, -1, -1) if copied_parts(self.own[i])), 0)

    async def chain(self, tip: RolloutInfo) -> list[Part]:
        """The parts that a rollout's history consists of, oldest first."""
        parts: list[Part] = []
        info: RolloutInfo | None = tip
        rollout_id, end = tip.rollout_id, None
        while True:
            base = info.base if info is not None else None
            header = info.header if info is not None else None
            parts.append(Part(rollout_id, base.ordinal if base else 0, end, header))
            if info is None or base is None:
                return parts[::-1]
            rollout_id, end = base.rollout_id, base.ordinal
            info = await self._rollout(info, rollout_id)

    async def holder(self, cursor: EventCursor, *, newest: int | None = None) -> int | None:
        """Index of the newest of the thread's rollouts whose history holds the cursor; None: it is no place of ours.

        Args:
            newest: Look at this one and older ones only.
        """
        for index in range(len(self.own) - 1 if newest is None else newest, -1, -1):
            if any(part.holds(cursor) for part in await self.chain(self.own[index])):
                return index
        return None

    async def end(self, info: RolloutInfo) -> int:
        """The ordinal after a rollout's newest record."""
        async with closing(self._store.read_backward(info.rollout_id)) as records:
            async for record in records:
                return record.ordinal + 1
        return 0

    async def _rollout(self, child: RolloutInfo, rollout_id: str) -> RolloutInfo | None:
        """A base rollout: of the same thread, of the parent that the header names, or of any thread."""
        parent = child.header.payload.get("forked_from_id") if child.header else None
        for thread_id in (parent if isinstance(parent, str) else rollout_id, None):
            if rollout_id in self._known:
                break
            self._known |= {info.rollout_id: info for info in await self._store.rollouts(thread_id)}
        return self._known.get(rollout_id)


def copied_parts(info: RolloutInfo) -> list[tuple[str, int]]:
    """What a rollout is a copy of: rollout ids, and the ordinal at which each of them was left."""
    ours = info.header.extra.get("unspool") if info.header is not None else None
    copied = ours.get("copied") if isinstance(ours, dict) else None
    parts = [part for part in copied if isinstance(part, dict)] if isinstance(copied, list) else []
    found = [(part.get("rolloutId"), part.get("endOrdinal")) for part in parts]
    return [(name, end) for name, end in found if isinstance(name, str) and isinstance(end, int)]


@asynccontextmanager
async def closing(records: AsyncIterator[Record]) -> AsyncIterator[AsyncIterator[Record]]:
    """Close a store's reader at once when reading stops early, not whenever it is collected."""
    try:
        yield records
    finally:
        close = getattr(records, "aclose", None)
        if close is not None:
            await close()


def before_header(info: RolloutInfo) -> EventCursor:
    """The place just before a rollout's own first record."""
    return EventCursor(info.rollout_id, info.base.ordinal if info.base else 0, -1)
