"""The forward replay: model history as a list of items that remember which record they came from (03 §5).

Owns appending, the legacy rebuild and the cut of a rollback marker; which checkpoint to begin with and which records
to apply is decided by its callers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .boundaries import (
    is_contextual_developer,
    is_contextual_user,
    is_instruction_boundary,
    is_model_switch_text,
)
from .fields import list_of, object_of, role_of, text_of
from .kept_messages import keep_user_messages, user_message
from .state import Item

NO_SUMMARY = "(no summary available)"
"""Stands in for the empty message of a legacy compaction, without prefix (07 §6.2)."""


@dataclass(slots=True)
class Entry:
    """One item of the history and the index of the record that it came from."""

    item: Item
    source: int
    _boundary: bool | None = None

    @property
    def boundary(self) -> bool:
        """Whether rollbacks count the item (03 §2); asked again for every marker, so it is kept."""
        if self._boundary is None:
            self._boundary = is_instruction_boundary(self.item)
        return self._boundary


@dataclass(slots=True)
class ReplayedHistory:
    """Model history while it is being replayed."""

    entries: list[Entry] = field(default_factory=list)

    @property
    def items(self) -> tuple[Item, ...]:
        """The items alone."""
        return tuple(entry.item for entry in self.entries)

    def append(self, item: Item, source: int) -> None:
        """Add an item at the end."""
        self.entries.append(Entry(item, source))

    def install(self, items: Iterable[Item], source: int) -> None:
        """Begin with the replacement history of a checkpoint."""
        self.entries = [Entry(item, source) for item in items]

    def rebuild(self, message: str, source: int) -> list[int]:
        """Apply a compaction without replacement history: real user messages, then the stored summary (03 §5.2).

        Returns:
            Sources of the items that are no longer part of the history.
        """
        kept = keep_user_messages([entry.item for entry in self.entries])
        left = {index for index, _ in kept}
        gone = [entry.source for index, entry in enumerate(self.entries) if index not in left]
        entries = [Entry(item, self.entries[index].source) for index, item in kept]
        self.entries = [*entries, Entry(user_message(message or NO_SUMMARY), source)]
        return gone

    def drop_last(self, turns: int) -> int | None:
        """Cut off the last `turns` instruction turns with the context that was injected before them (03 §5).

        What precedes the first boundary survives; there only the model switch of its turn goes, which is told anew.

        Returns:
            The source of the first item that went, None when nothing did.
        """
        if turns == 0:
            return None
        boundaries = [index for index, entry in enumerate(self.entries) if entry.boundary]
        if not boundaries:
            return None
        first = boundaries[0]
        cut = first if turns >= len(boundaries) else boundaries[-turns]
        while cut > first and _goes_with_turn(self.entries[cut - 1].item):
            cut -= 1
        source = self.entries[cut].source
        turn_id = _turn_of(self.entries[first].item) if cut == first else None
        del self.entries[cut:]
        if turn_id is not None:
            self.entries = [kept for entry in self.entries if (kept := _without_switch(entry, turn_id)) is not None]
        return source


def boundary_positions(items: Sequence[Item]) -> list[int]:
    """Indices of the items that rollbacks count (03 §2)."""
    return [index for index, item in enumerate(items) if is_instruction_boundary(item)]


def _goes_with_turn(item: Item) -> bool:
    return is_contextual_user(item) or is_contextual_developer(item)


def _turn_of(item: Item) -> str | None:
    passthrough = object_of(item, "internal_chat_message_metadata_passthrough")
    return text_of(passthrough, "turn_id") if passthrough is not None else None


def _without_switch(entry: Entry, turn_id: str) -> Entry | None:
    """The entry without model-switch parts if it is a developer item of that turn; None when nothing is left."""
    if role_of(entry.item) != "developer" or _turn_of(entry.item) != turn_id:
        return entry
    content = list_of(entry.item, "content") or ()
    kept = [part for part in content if not _is_switch(part)]
    if len(kept) == len(content):
        return entry
    return Entry({**entry.item, "content": kept}, entry.source) if kept else None


def _is_switch(part: Any) -> bool:
    text = text_of(part, "text") if isinstance(part, Mapping) else None
    return text is not None and is_model_switch_text(text)
