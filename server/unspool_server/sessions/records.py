"""How a live thread spells its records; shapes as the reference writes them (01 §3, §5)."""

from collections.abc import Mapping
from typing import Any

from unspool_protocol.items import ThreadItem
from unspool_protocol.log import HistoryMode, NewRecord, RecordType

from unspool_server.history.item_shapes import item_record_payload
from unspool_server.history.legacy_events import legacy_event_payload


def event_record(kind: str, **payload: Any) -> NewRecord:
    """An `event_msg` record (01 §3.6)."""
    return NewRecord(RecordType.EVENT_MSG, {"type": kind, **payload})


def item_record(payload: Mapping[str, Any]) -> NewRecord:
    """A `response_item` record: the item as the model sees it."""
    return NewRecord(RecordType.RESPONSE_ITEM, payload)


def attributed(item: Mapping[str, Any], turn_id: str, created_ms: int | None = None) -> dict[str, Any]:
    """A Responses item with the turn it belongs to, as the log keeps it (01 §3.2)."""
    passthrough: dict[str, Any] = {"turn_id": turn_id}
    if created_ms is not None:
        passthrough["create_time"] = created_ms / 1000
    return {**item, "internal_chat_message_metadata_passthrough": passthrough}


def shown_item_record(
    item: ThreadItem, *, thread_id: str, turn_id: str, mode: HistoryMode, started_ms: int, completed_ms: int
) -> NewRecord:
    """The client-visible record of a finished item, in the thread's log mode (01 §3.6)."""
    if mode == HistoryMode.LEGACY:
        legacy = legacy_event_payload(item, turn_id)
        if legacy is not None:
            return NewRecord(RecordType.EVENT_MSG, legacy)
    return NewRecord(RecordType.EVENT_MSG, item_record_payload(thread_id, turn_id, item, started_ms, completed_ms))


def task_started(turn_id: str, started_at: int, context_window: int, *, trigger: str | None = None) -> NewRecord:
    """A turn begins; `started_at` in seconds, the window as the reference shows it (95 %, 07 §6.3).

    Args:
        trigger: What made the client start it, as it said.
    """
    said = {"turn_attribution": {"turn_id": turn_id, "turn_trigger": trigger, "root_turn_id": turn_id}}
    return event_record(
        "task_started",
        turn_id=turn_id,
        root_turn_id=turn_id,
        started_at=started_at,
        model_context_window=context_window * 95 // 100,
        collaboration_mode_kind="default",
        **(said if trigger is not None else {}),
    )


def task_complete(turn_id: str, last_message: str | None, times: Mapping[str, Any], **more: Any) -> NewRecord:
    """A turn ended by itself, with `error` in `more` when it failed."""
    return event_record(
        "task_complete", root_turn_id=turn_id, turn_id=turn_id, last_agent_message=last_message, **more, **times
    )


def turn_aborted(turn_id: str, times: Mapping[str, Any]) -> NewRecord:
    """A turn was interrupted."""
    return event_record("turn_aborted", root_turn_id=turn_id, turn_id=turn_id, reason="interrupted", **times)
