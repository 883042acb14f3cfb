"""The records of a fork that keeps only the newest boundaries of its source (03 §2, 04 §6).

The child gets copies, not a reference: its log begins with the first kept turn. An empty checkpoint behind that turn's
start record clears the baseline, since the context that the dropped turns were shown is gone; the next turn tells it
anew. Context items before the first kept boundary go as well.
"""

from collections.abc import Sequence

from unspool_protocol.log import HistoryMode, NewRecord, Record, RecordType

from .boundaries import fork_boundaries, is_contextual_user
from .checkpoints import checkpoint_of, rolled_back_turns
from .event_shapes import TURN_ENDS, TURN_STARTS
from .fields import object_of, role_of, text_of
from .fork import cut_keeping_last
from .items import history_item
from .survival import client_survival
from .whole_view import rolled_back_indices


def kept_records(records: Sequence[Record], mode: HistoryMode, boundaries: int) -> list[Record] | None:
    """The records to copy, oldest first; None when the thread has no more boundaries than are to be kept.

    What a rollback or a restore put out is left out, with the markers that did it.

    Args:
        records: Those before the fork's end, at least back to the start of the turn of the oldest kept boundary.
    """
    gone = rolled_back_indices(client_survival(records, mode))
    living = [
        record
        for index, record in enumerate(records)
        if index not in gone and not rolled_back_turns(record) and record.type != RecordType.SESSION_META
    ]
    if not is_enough(living, boundaries):
        return None
    first = cut_keeping_last(living, boundaries)
    return [*_lead(living, first), *_without_old_baseline(living[first:])]


def is_enough(newest: Sequence[Record], boundaries: int) -> bool:
    """Whether the newest records of a log, oldest first, hold that many boundaries and one more before them."""
    return len(fork_boundaries(newest)) > boundaries


def with_cleared_baseline(kept: Sequence[Record], checkpoint: NewRecord) -> list[NewRecord]:
    """The child's records: copies, with the clearing checkpoint inside the first turn so that it shows as no turn."""
    copies = [NewRecord(one.type, one.payload, one.metadata, dict(one.extra) or None) for one in kept]
    place = 1 if kept and kept[0].event in TURN_STARTS else 0
    return [*copies[:place], checkpoint, *copies[place:]]


def _lead(records: Sequence[Record], boundary: int) -> list[Record]:
    """What belongs to the boundary but stands before it: its turn's start, and the event that shows it to clients."""
    lead: list[Record] = []
    beside = True
    for index in range(boundary - 1, -1, -1):
        record = records[index]
        if record.event in TURN_ENDS:
            break
        if record.event in TURN_STARTS:
            lead.append(record)
            break
        if (record.type == RecordType.INTER_AGENT_METADATA and index == boundary - 1) or (
            beside and _shows_input(record)
        ):
            lead.append(record)
        beside = beside and not _is_content(record)
    return lead[::-1]


def _shows_input(record: Record) -> bool:
    item = object_of(record.payload, "item") if record.event == "item_completed" else None
    return record.event == "user_message" or (item is not None and text_of(item, "type") == "UserMessage")


def _is_content(record: Record) -> bool:
    item = history_item(record)
    return item is not None and role_of(item) != "developer" and not is_contextual_user(item)


def _without_old_baseline(records: Sequence[Record]) -> list[Record]:
    """Without claims of what the model was shown, up to the first checkpoint: behind it they hold again."""
    kept: list[Record] = []
    cleared = False
    for record in records:
        cleared = cleared or checkpoint_of(record) is not None
        if cleared or record.type not in (RecordType.TURN_CONTEXT, RecordType.WORLD_STATE):
            kept.append(record)
    return kept
