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


def cut_keeping_last(records: Sequence[Record], boundaries: int) -> int:
    """Index from which the last `boundaries` fork boundaries are kept; 0 when there are fewer (00 row 8)."""
    positions = fork_boundaries(records)
    if boundaries <= 0:
        return len(records)
    return positions[-boundaries] if boundaries <= len(positions) else 0


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
