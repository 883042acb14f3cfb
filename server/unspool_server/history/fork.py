"""Where a fork cuts its source, and what a child gets when the cut lies inside a turn (04 §6)."""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.log import NewRecord, Record, RecordType

from .boundaries import fork_boundaries, is_real_user_message
from .fields import text_of
from .reconstruct import open_turn
from .state import Item

INTERRUPTION_TEXT = (
    "The turn was interrupted before it was finished. Commands and tools that were running may have done part of their "
    "work; look at the present state before going on."
)
"""Body of the interruption marker (07 §4: its wording is free)."""


def cut_before_turn(records: Sequence[Record], turn_id: str) -> int | None:
    """Index before which a child's history ends when the turn is excluded; None when it has no start record."""
    for index, record in enumerate(records):
        if record.event == "task_started" and text_of(record.payload, "turn_id") == turn_id:
            return index
    return None


def cut_after_turn(records: Sequence[Record], turn_id: str) -> int | None:
    """Index before which a child's history ends when the turn is the last one; None when it has no start record.

    A turn without end reaches to the next turn's start, or to the end of the log.
    """
    start = cut_before_turn(records, turn_id)
    if start is None:
        return None
    for index in range(start + 1, len(records)):
        match records[index].event:
            case "task_started":
                return index
            case "task_complete" | "turn_aborted":
                if text_of(records[index].payload, "turn_id") in (turn_id, None):
                    return index + 1
            case _:
                pass
    return len(records)


def cut_keeping_last(records: Sequence[Record], boundaries: int) -> int:
    """Index from which the last `boundaries` fork boundaries are kept; 0 when there are fewer (00 row 8)."""
    positions = fork_boundaries(records)
    if boundaries <= 0:
        return len(records)
    return positions[-boundaries] if boundaries <= len(positions) else 0


def cut_before_user_message(records: Sequence[Record], number: int) -> int:
    """Index of the `number`-th real user message (0-based); out of range everything is kept (04 §6).

    When the log ends inside a turn, out of range means: before that turn.
    """
    positions = [
        index
        for index, record in enumerate(records)
        if record.type == RecordType.RESPONSE_ITEM and is_real_user_message(record.payload)
    ]
    if 0 <= number < len(positions):
        return positions[number]
    running = open_turn(records)
    start = None if running is None else cut_before_turn(records, running)
    return len(records) if start is None else start


def unfinished_turn(records: Sequence[Record]) -> str | None:
    """Whether a history ends inside a turn (04 §6).

    Returns:
        The turn's id; `""` when old records tell of no turns and the last user message has no end after it; else None.
    """
    running = open_turn(records)
    if running is not None:
        return running
    if any(record.event in ("task_started", "task_complete") for record in records):
        return None
    for record in reversed(records):
        if record.event == "turn_aborted":
            return None
        if record.event == "user_message" or _is_user_item(record):
            return ""
    return None


def _is_user_item(record: Record) -> bool:
    return record.type == RecordType.RESPONSE_ITEM and is_real_user_message(record.payload)


def interruption_marker(item_id: str | None = None) -> Item:
    """The user-role item that tells the model of an interruption (07 §4)."""
    text = f"<turn_aborted>\n{INTERRUPTION_TEXT}\n</turn_aborted>"
    item: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    if item_id is not None:
        item["id"] = item_id
    return item


def interruption_records(
    turn_id: str, *, item_id: str | None = None, times: Mapping[str, Any] | None = None
) -> list[NewRecord]:
    """What a child of an unfinished turn gets: the marker item and the turn's end (04 §6).

    Args:
        turn_id: `unfinished_turn`'s answer; `""` leaves the id out.
        times: Further members of the event (`completed_at`, `duration_ms`), since no clock is read here.
    """
    event: dict[str, Any] = {"type": "turn_aborted", "reason": "interrupted", **(times or {})}
    if turn_id:
        event["turn_id"] = turn_id
    return [
        NewRecord(RecordType.RESPONSE_ITEM, interruption_marker(item_id)),
        NewRecord(RecordType.EVENT_MSG, event),
    ]
