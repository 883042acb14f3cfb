"""Rollouts in memory: ephemeral threads and tests. The same rules as on disk, over another medium."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from ..errors import WriterHeld
from .memory_blob import MemoryBlob
from .names import Entry
from .rollouts import RolloutStore, utc_now
from .shelf import Blob, Shelf

T = TypeVar("T")


class MemoryLease:
    """See `shelf.Lease`."""

    def __init__(self, holders: set[str], epochs: dict[str, int], thread_id: str) -> None:
        self._holders, self._epochs, self._thread_id = holders, epochs, thread_id
        self._epoch = 0
        self.renew()

    @property
    def epoch(self) -> int:
        """Rises with every writer of the thread."""
        return self._epoch

    def renew(self) -> int:
        """Begin a new epoch."""
        self._epoch = self._epochs[self._thread_id] = self._epochs.get(self._thread_id, 0) + 1
        return self._epoch

    def release(self) -> None:
        """Give the right back."""
        self._holders.discard(self._thread_id)


@dataclass(slots=True)
class _Held:
    entry: Entry
    content: bytearray
    sides: dict[str, bytes] = field(default_factory=dict)


class MemoryShelf:
    """See `shelf.Shelf`. Several stores may share one, as several processes share a folder."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self._holders: set[str] = set()
        self._epochs: dict[str, int] = {}

    async def run(self, call: Callable[[], T]) -> T:
        """Run at once, but let others run in between as a worker thread would."""
        await asyncio.sleep(0)
        return call()

    def scan(self) -> list[Entry]:
        """Every rollout."""
        return [held.entry for held in self._held.values()]

    def changed(self) -> bool:
        """Looking again costs nothing here."""
        return True

    def path(self, entry: Entry) -> Path | None:
        """Memory has no paths."""
        return None

    def stat(self, entry: Entry) -> tuple[int, int]:
        """Size; content never changes without it."""
        return len(self._find(entry).content), 0

    def stat_all(self, entries: Sequence[Entry]) -> list[tuple[int, int] | None]:
        """The same of many rollouts, None for those that are gone."""
        return [self.stat(entry) if entry.rollout_id in self._held else None for entry in entries]

    def open(self, entry: Entry, *, writable: bool = False) -> Blob:
        """The shared buffer."""
        return MemoryBlob(self._find(entry).content)

    def unpack(self, entry: Entry) -> Entry:
        """Nothing is compressed here."""
        return entry

    def publish(self, entry: Entry, content: bytes, *, sync: bool) -> None:
        """Create a rollout. Raises FileExistsError."""
        if entry.rollout_id in self._held:
            raise FileExistsError(entry.rollout_id)
        self._held[entry.rollout_id] = _Held(entry, bytearray(content))

    def move(self, entry: Entry, *, archived: bool) -> Entry:
        """Mark as archived or not."""
        held = self._find(entry)
        held.entry = replace(held.entry, archived=archived)
        return held.entry

    def remove(self, entry: Entry) -> None:
        """Forget a rollout."""
        self._held.pop(entry.rollout_id, None)

    def read_side(self, entry: Entry, name: str) -> bytes | None:
        """A cache kept with the rollout."""
        return self._find(entry).sides.get(name)

    def write_side(self, entry: Entry, name: str, content: bytes) -> None:
        """Replace such a cache."""
        self._find(entry).sides[name] = content

    def lease(self, thread_id: str) -> MemoryLease:
        """Take the right to write. Raises WriterHeld."""
        if thread_id in self._holders:
            raise WriterHeld(thread_id, "this process")
        self._holders.add(thread_id)
        return MemoryLease(self._holders, self._epochs, thread_id)

    def _find(self, entry: Entry) -> _Held:
        held = self._held.get(entry.rollout_id)
        if held is None:
            raise FileNotFoundError(entry.rollout_id)
        return held


class MemoryStore(RolloutStore):
    """A log store without disk.

    Args:
        shelf: To share content between stores, or to inject faults.
    """

    def __init__(self, *, shelf: Shelf | None = None, clock: Callable[[], datetime] = utc_now) -> None:
        super().__init__(shelf or MemoryShelf(), clock=clock)
