"""What differs between two points of a thread's past, or of two threads of one lineage. Pure; reads no log.

Items are the same when the same record brought them, whatever their text says; for items of a checkpoint their place in
it counts as well. A copy of a log (legacy fork) is made comparable by its caller, who says which record each copy
stands for (`DiffSide.places`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from unspool_protocol.log import HistoryMode, Position, Record
from unspool_protocol.turns import Turn

from .reconstruct import explained
from .settings import EffectiveSettings, effective_settings
from .state import Item, Window

_UNCOMPARED = frozenset({"token_info"})
"""Facts that `EffectiveSettings` carries along and that are no settings."""


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One of the two points.

    Attributes:
        records: Everything before it, oldest first; at least as much as reconstruction needs, own header in front.
        places: For each record, its position in the log that it was first written to.
        turns: Visible turns, oldest first.
    """

    records: Sequence[Record]
    mode: HistoryMode
    places: Sequence[Position]
    turns: Sequence[Turn] = ()


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item of a raw history, the record that brought it, and its number among those of that record."""

    item: Item
    place: Position
    number: int = 0

    @property
    def key(self) -> tuple[Position, int]:
        """What makes it the same item."""
        return self.place, self.number


@dataclass(frozen=True, slots=True)
class Replacement:
    """Items that a record which is new in the second point took away, and those that it brought."""

    by: Position
    removed: tuple[PlacedItem, ...]
    added: tuple[PlacedItem, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """The outcome; settings are wire-like names with their old and new value, the window is its number."""

    added: tuple[PlacedItem, ...] = ()
    removed: tuple[PlacedItem, ...] = ()
    replaced: tuple[Replacement, ...] = ()
    kept: int = 0
    settings: Mapping[str, tuple[Any, Any]] | None = None
    turns_added: tuple[str, ...] = ()
    turns_removed: tuple[str, ...] = ()
    turns_changed: tuple[str, ...] = ()
    windows: tuple[Window, Window] = (Window(), Window())


def placed_history(side: DiffSide) -> tuple[list[PlacedItem], int | None, Window]:
    """A side's raw history with places, the index of the checkpoint that it begins with, and its window."""
    state, origins = explained(side.records, side.mode)
    numbers: dict[int, int] = {}
    items: list[PlacedItem] = []
    for item, source in zip(state.history, origins.history, strict=True):
        numbers[source] = numbers.get(source, -1) + 1
        items.append(PlacedItem(item, side.places[source], numbers[source]))
    return items, origins.base, state.window


def difference(old: DiffSide, new: DiffSide) -> Difference:
    """Compare two points."""
    before, _, old_window = placed_history(old)
    after, base, new_window = placed_history(new)
    old_items = {one.key: one for one in before}
    new_items = {one.key: one for one in after}
    added = [one for one in after if one.key not in old_items]
    removed = [one for one in before if one.key not in new_items]
    changed = [one for one in after if one.key in old_items and not _same(old_items[one.key].item, one.item)]
    replaced = [Replacement(one.place, (old_items[one.key],), (one,)) for one in changed]
    by = None if base is None else new.places[base]
    if by is not None and by not in old.places:
        behind = frozenset(new.places[: base or 0])
        gone = tuple(one for one in removed if one.place in behind)
        came = tuple(one for one in added if one.place == by)
        replaced.insert(0, Replacement(by, gone, came))
        removed = [one for one in removed if one.place not in behind]
        added = [one for one in added if one.place != by]
    return Difference(
        tuple(added),
        tuple(removed),
        tuple(replaced),
        len(new_items.keys() & old_items.keys()) - len(changed),
        settings_changes(effective_settings(old.records), effective_settings(new.records)),
        *turn_changes(old.turns, new.turns),
        windows=(old_window, new_window),
    )


def settings_changes(old: EffectiveSettings, new: EffectiveSettings) -> dict[str, tuple[Any, Any]]:
    """Settings with different values, by the names of `EffectiveSettings`."""
    pairs = {
        field.name: (getattr(old, field.name), getattr(new, field.name))
        for field in fields(EffectiveSettings)
        if field.name not in _UNCOMPARED
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def turn_changes(old: Sequence[Turn], new: Sequence[Turn]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Ids of turns that were added, removed, or are part of both with another content."""
    before = {turn.id: turn for turn in old}
    after = {turn.id: turn for turn in new}
    return (
        tuple(turn_id for turn_id in after if turn_id not in before),
        tuple(turn_id for turn_id in before if turn_id not in after),
        tuple(turn_id for turn_id, turn in after.items() if turn_id in before and before[turn_id] != turn),
    )


def copied_places(copy: Sequence[Record], source: Sequence[Record], places: Sequence[Position]) -> list[Position]:
    """Places for a legacy fork's records: its header is its own, then it copies its source line by line.

    Args:
        copy: The fork's records, own header in front.
        source: The source's records, header included.
        places: The places of the source's records.
    """
    found = [record.position for record in copy]
    for index in range(min(len(copy) - 1, len(source))):
        if copy[index + 1].raw != source[index].raw:
            break
        found[index + 1] = places[index]
    return found


def _same(one: Item, other: Item) -> bool:
    try:
        return one == other
    except RecursionError:
        return False
