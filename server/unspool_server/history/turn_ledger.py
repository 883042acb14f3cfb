"""The finished turns of a view, whole or, once forgotten, as id and item count (05 §1)."""

from collections.abc import Collection
from dataclasses import dataclass, field

from .turn_draft import TurnDraft


@dataclass(slots=True)
class TurnLedger:
    """Finished turns, oldest first: forgotten ones, then `finished` ones."""

    finished: list[TurnDraft] = field(default_factory=list)
    _forgotten: list[tuple[str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._forgotten) + len(self.finished)

    @property
    def item_count(self) -> int:
        """How many items all turns hold."""
        return sum(count for _, count in self._entries())

    @property
    def newest_id(self) -> str | None:
        """The id of the newest turn, or None."""
        if self.finished:
            return self.finished[-1].id
        return self._forgotten[-1][0] if self._forgotten else None

    def find(self, turn_id: str) -> TurnDraft | None:
        """The turn with this id while it is not forgotten."""
        return next((draft for draft in reversed(self.finished) if draft.id == turn_id), None)

    def knows(self, turn_id: str) -> bool:
        """Whether there was such a turn, forgotten or not."""
        return any(known == turn_id for known, _ in self._entries())

    def forget(self) -> None:
        """Keep of every finished turn only what a later rollback marker needs."""
        self._forgotten += [(draft.id, len(draft.items)) for draft in self.finished]
        self.finished.clear()

    def remove(self, turn_ids: Collection[object]) -> None:
        """Remove turns by id."""
        self.finished = [draft for draft in self.finished if draft.id not in turn_ids]
        self._forgotten = [entry for entry in self._forgotten if entry[0] not in turn_ids]

    def cut(self, first: int, keep: int | None) -> tuple[str, ...]:
        """Remove the turns from number `first` on; of that one, `keep` items stay when a number is given.

        Returns:
            The ids of the turns that went.
        """
        start = first if keep is None else first + 1
        gone = tuple(turn_id for turn_id, _ in self._entries()[start:])
        known = len(self._forgotten)
        if keep is not None and first < known:
            self._forgotten[first] = (self._forgotten[first][0], keep)
        elif keep is not None and first - known < len(self.finished):
            del self.finished[first - known].items[keep:]
            self.finished[first - known].partial.clear()
        del self.finished[max(start - known, 0) :]
        del self._forgotten[start:]
        return gone

    def _entries(self) -> list[tuple[str, int]]:
        return [*self._forgotten, *((draft.id, len(draft.items)) for draft in self.finished)]
