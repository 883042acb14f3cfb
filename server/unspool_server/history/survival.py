"""The fate of every record: in force, or out and by what (DESIGN §1.2; 03 §5, §9.1).

Rollback markers act on the model's history as the log tells it, in order. What goes for clients is what goes for the
model: from the first removed item to the marker, and back to the start of that item's turn.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from unspool_protocol.log import HistoryMode, Record, RecordType

from .boundaries import is_contextual_user, is_instruction_boundary
from .checkpoints import checkpoint_of, rolled_back_turns
from .fields import object_of, role_of, text_of
from .in_force import in_force, spread
from .items import history_item
from .replay import ReplayedHistory
from .state import Item, Out, Span

Fate = tuple[Out, int | None] | None
"""None for a record in force, else why it is out and the index of the record that put it out."""


def client_survival(records: Sequence[Record], mode: HistoryMode) -> Sequence[Span]:
    """Which records count for what clients see: rollbacks and restores remove, compactions hide nothing (03 §9.1).

    Args:
        records: As for `reconstruct`, the whole log. A bounded part has no markers, so everything in it is in force.
        mode: Kept for symmetry with `reconstruct`; markers mean the same in both modes (03 §9.1).
    """
    kept = in_force(records)
    if len(kept) == len(records):
        return spans_of(rollback_fates(records))
    return spread(spans_of(rollback_fates([records[index] for index in kept])), kept, len(records))


def spans_of(fates: Sequence[Fate]) -> tuple[Span, ...]:
    """Join neighbours with the same fate."""
    spans: list[Span] = []
    start = 0
    for fate, group in groupby(fates):
        end = start + sum(1 for _ in group)
        spans.append(Span(start, end) if fate is None else Span(start, end, fate[0], fate[1]))
        start = end
    return tuple(spans)


def markers_of(records: Sequence[Record]) -> list[int]:
    """Indices of the rollback markers, oldest first."""
    return [index for index, record in enumerate(records) if rolled_back_turns(record)]


def rollback_fates(records: Sequence[Record]) -> list[Fate]:
    """The fate of every record as far as rollback markers decide it; `records` are those in force (`in_force`)."""
    if not any(rolled_back_turns(record) or record.type == RecordType.ROLLED_BACK for record in records):
        return [None] * len(records)
    return _replay(records)[1]


def uncompacted_history(records: Sequence[Record]) -> ReplayedHistory:
    """The model's history as if no compaction had a replacement: what rollback markers count in (03 §5).

    Args:
        records: Those in force.
    """
    return _replay(records)[0]


def _replay(records: Sequence[Record]) -> tuple[ReplayedHistory, list[Fate]]:
    history = ReplayedHistory()
    fates: list[Fate] = [None] * len(records)
    for index, record in enumerate(records):
        item = history_item(record)
        if item is not None:
            history.append(item, index)
            continue
        cut = _cut_by(records, history, index, record)
        if cut is not None:
            _put_out(records, fates, cut, index)
    return history, fates


def _cut_turns(records: Sequence[Record], history: ReplayedHistory, turns: int) -> int | None:
    """Apply a marker; returns where the turns that clients lose begin.

    Context that the model loses with a turn may stand in the turn before, as the marker of an interruption does; that
    turn stays whole for clients.
    """
    boundaries = [entry.source for entry in history.entries if entry.boundary]
    cut = history.drop_last(turns)
    if cut is None:
        return None
    first = boundaries[-min(turns, len(boundaries))]
    ends = [index for index in range(cut, first) if records[index].event in ("task_complete", "turn_aborted")]
    if ends:
        return ends[-1] + 1
    # The turn before may have lost its end to a restore or a crash; the removed turn begins with its start record.
    starts = [index for index in range(cut, first) if records[index].event == "task_started"]
    return starts[-1] if starts else cut


def _cut_by(records: Sequence[Record], history: ReplayedHistory, index: int, record: Record) -> int | None:
    """Apply a record that is no item to the history; returns the index of the first record whose item went."""
    turns = rolled_back_turns(record)
    if turns:
        return _cut_turns(records, history, turns)
    checkpoint = checkpoint_of(record)
    if checkpoint is None:
        return None
    if checkpoint.replacement is None:
        history.rebuild(checkpoint.message, index)
    elif record.type == RecordType.ROLLED_BACK:
        return _cut_to(history, checkpoint.replacement)
    return None


def _cut_to(history: ReplayedHistory, replacement: Sequence[Item]) -> int | None:
    """A recorded rollback with a whole history: what it still shares with the history before is what survived."""
    shared = 0
    for entry, item in zip(history.entries, replacement, strict=False):
        if not _same(entry.item, item):
            break
        shared += 1
    if shared >= len(history.entries):
        return None
    source = history.entries[shared].source
    del history.entries[shared:]
    return source


def _same(one: Item, other: Item) -> bool:
    try:
        return one == other
    except RecursionError:
        return False


def _put_out(records: Sequence[Record], fates: list[Fate], cut: int, marker: int) -> None:
    for index in [*_turn_head(records, fates, cut), *range(cut, marker)]:
        if fates[index] is None:
            fates[index] = (Out.ROLLBACK, marker)


_ENDS = ("task_complete", "turn_aborted", "thread_rolled_back")
_WITH_INPUT = (RecordType.TURN_CONTEXT, RecordType.WORLD_STATE)


def _turn_head(records: Sequence[Record], fates: Sequence[Fate], cut: int) -> Iterable[int]:
    """Records before the cut that belong to the turn being removed.

    Back to its `task_started`; context items on the way that survive in the history stay. A turn that keeps
    an item of its own, or has no start record, only loses the records directly before its input.
    """
    head: list[int] = []
    for index in range(cut - 1, -1, -1):
        record = records[index]
        if fates[index] is not None or record.event in _ENDS or _is_fixed(record):
            break
        item = history_item(record)
        if item is None:
            head.append(index)
        elif not _is_context(item):
            break
        if record.event == "task_started":
            return head
    return [index for index in _adjacent(head, cut) if _comes_with_input(records[index])]


def _is_fixed(record: Record) -> bool:
    return record.type == RecordType.SESSION_META or checkpoint_of(record) is not None


def _is_context(item: Item) -> bool:
    return not is_instruction_boundary(item) and (role_of(item) == "developer" or is_contextual_user(item))


def _adjacent(head: Sequence[int], cut: int) -> list[int]:
    """The leading part of a descending list that lies directly before the cut."""
    return [index for distance, index in enumerate(head, start=1) if index == cut - distance]


def _comes_with_input(record: Record) -> bool:
    if record.type in _WITH_INPUT or record.event in ("user_message", "thread_settings_applied"):
        return True
    item = object_of(record.payload, "item") if record.event == "item_completed" else None
    return item is not None and text_of(item, "type") == "UserMessage"
