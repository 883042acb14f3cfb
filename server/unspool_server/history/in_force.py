"""Restores inside one log: which records a legacy thread's restores leave in force (DESIGN §4).

A legacy thread stays in its file, so going back to an earlier point is a record as well: from it on the log reads as if
everything between that point and the record were not there. Restores may be restored in turn. Readers that only know
the format see a compaction with the history of that point. Owns no rollback markers (`survival.py`).
"""

from collections.abc import Sequence
from itertools import groupby

from unspool_protocol.log import Record, RecordType

from .checkpoints import Restore, checkpoint_of
from .state import Out, Span


def restore_of(record: Record) -> Restore | None:
    """Where a restoring checkpoint goes back to; None for every other record."""
    checkpoint = checkpoint_of(record) if record.type == RecordType.COMPACTED else None
    return checkpoint.restores if checkpoint is not None else None


def in_force(records: Sequence[Record], end: int | None = None) -> list[int]:
    """Indices of the records that count, in order, as the log stood before index `end` (None: all of it).

    The log is read as a path: each record follows the one before it, a restore follows the point that it names.
    """
    end = len(records) if end is None else end
    if not any(restore_of(records[index]) is not None for index in range(end)):
        return list(range(end))
    before: list[int] = []
    newest = -1
    newest_at: list[int] = []
    for index in range(end):
        newest_at.append(newest)
        restore = restore_of(records[index])
        if restore is not None:
            newest = newest_at[_target(records, index, restore)]
        before.append(newest)
        newest = index
    path: list[int] = []
    while newest >= 0:
        path.append(newest)
        newest = before[newest]
    return path[::-1]


def _target(records: Sequence[Record], index: int, restore: Restore) -> int:
    """Index of the record before which a restore goes; in a copy of the log the distance tells it.

    In a bounded part that does not reach so far back, everything but the header goes: the restore is its own base.
    """
    own = records[index].rollout_id == restore.position.rollout_id
    if not own:
        return max(min(index - restore.back, index), min(1, index))
    for place in range(1, index):
        record = records[place]
        if record.rollout_id == restore.position.rollout_id and record.ordinal >= restore.position.ordinal:
            return place
    return index


def spread(spans: Sequence[Span], kept: Sequence[int], total: int) -> tuple[Span, ...]:
    """Spans over the records in force as spans over all `total` records; what lies between was put out by a restore."""
    fates: list[tuple[Out | None, int | None]] = [(None, None)] * total
    for span in spans:
        by = None if span.by is None else kept[span.by]
        for place in range(span.start, span.end):
            fates[kept[place]] = (span.out, by)
    newer = total
    for index in reversed(kept):
        for gone in range(index + 1, newer):
            fates[gone] = (Out.ROLLBACK, newer if newer < total else None)
        newer = index
    joined: list[Span] = []
    start = 0
    for (out, by), group in groupby(fates):
        end = start + sum(1 for _ in group)
        joined.append(Span(start, end, out, by))
        start = end
    return tuple(joined)


def newest_cut(records: Sequence[Record], kept: Sequence[int], cuts: Sequence[int]) -> int | None:
    """Index of the newest record in force that took something away and can be undone: a marker or a restore.

    Args:
        kept: `in_force(records)`.
        cuts: Indices of the rollback markers.
    """
    markers = frozenset(cuts)
    for index in reversed(kept):
        restore = restore_of(records[index])
        if index in markers or (restore is not None and restore.reason != "undo"):
            return index
    return None


def restore_fields(restore: Restore) -> dict[str, object]:
    """The member `unspool` of a restoring checkpoint."""
    return {
        "restores": {
            "rolloutId": restore.position.rollout_id,
            "ordinal": restore.position.ordinal,
            "back": restore.back,
            "reason": restore.reason,
            "turnIds": list(restore.turn_ids),
            "restoredTurnIds": list(restore.restored_turn_ids),
            **({} if restore.next_item is None else {"nextItem": restore.next_item}),
        }
    }
