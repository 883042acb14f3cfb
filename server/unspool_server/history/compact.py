"""What a compaction makes of a history, and the record that says so (04 §3, 07 §6).

Asking a model for the summary, writing and installing are the session's work.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.log import NewRecord, RecordType

from ..errors import InvalidParams
from .boundaries import SUMMARY_PREFIX, starts_with_summary_prefix
from .fields import text_of
from .kept_messages import keep_user_messages, user_message
from .replay import NO_SUMMARY, boundary_positions
from .rollback import resume_metadata
from .state import Item, PreviousSettings, Window

_OUTPUT_SUFFIX = "_output"


def summary_text(summary: str) -> str:
    """The text that stands in history and in `compacted.message`: prefix, line feed, summary (07 §6.2)."""
    return summary if starts_with_summary_prefix(summary) else f"{SUMMARY_PREFIX}\n{summary}"


def summary_item(summary: str, *, item_id: str | None = None) -> Item:
    """The summary as a user message."""
    return _identified(user_message(summary_text(summary)), item_id)


def replacement_after_summary(
    history: Sequence[Item],
    summary: str | Item,
    context_items: Sequence[Item],
    steered: Sequence[Item] = (),
) -> list[Item]:
    """The new history: kept user messages, fresh context before the last one of them, then the summary (07 §6.2).

    Args:
        history: The uncut history, raw.
        summary: The model's text, with or without prefix, or the opaque `compaction` item of a service.
        context_items: The full context of the moment (developer bundle, environment); old context goes.
        steered: Input that was still waiting when the compaction started; follows the summary.
    """
    kept = [item for _, item in keep_user_messages(history)]
    last = [summary_item(summary) if isinstance(summary, str) else summary]
    return [*kept[:-1], *context_items, *kept[-1:], *last, *steered]


def legacy_rebuild(history: Sequence[Item], message: str) -> list[Item]:
    """What a compaction without replacement history means: real user messages, then its text (03 §5.2)."""
    return [*(item for _, item in keep_user_messages(history)), user_message(message or NO_SUMMARY)]


def keep_last_replacement(
    history: Sequence[Item], summary: str, keep_last: object, *, item_id: str | None = None
) -> list[Item]:
    """A caller's summary as a developer message, then the history from the keep_last-th last boundary on (04 §3.4).

    Fewer boundaries: all of it is kept. A cut that would part a call from its output moves to before the call.

    Raises:
        InvalidParams: `keep_last` is no integer >= 0.
    """
    if isinstance(keep_last, bool) or not isinstance(keep_last, int) or keep_last < 0:
        raise InvalidParams("keepLast must be an integer >= 0", data={"field": "keepLast"})
    boundaries = boundary_positions(history)
    if keep_last == 0:
        cut = len(history)
    elif keep_last > len(boundaries):
        cut = 0
    else:
        cut = _with_whole_calls(history, boundaries[-keep_last])
    note: Item = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": summary}]}
    return [_identified(note, item_id), *history[cut:]]


def _with_whole_calls(history: Sequence[Item], cut: int) -> int:
    """Move a cut back until no output behind it has its call before it."""
    calls: dict[str, int] = {}
    for index, item in enumerate(history[:cut]):
        call_id = text_of(item, "call_id")
        if call_id is not None and not _is_output(item):
            calls.setdefault(call_id, index)
    index = len(history) - 1
    while index >= cut:
        call_id = text_of(history[index], "call_id") if _is_output(history[index]) else None
        if call_id is not None:
            cut = min(cut, calls.get(call_id, cut))
        index -= 1
    return cut


def _is_output(item: Item) -> bool:
    return (text_of(item, "type") or "").endswith(_OUTPUT_SUFFIX)


def compacted_record(
    *,
    message: str,
    replacement: Sequence[Item],
    window: Window,
    previous_settings: PreviousSettings | Mapping[str, Any] | None,
    last_started_turn_id: str | None,
    metadata: Sequence[Mapping[str, Any]] | None = None,
    latest_usage: Mapping[str, Any] | None = None,
    response_id: str | None = None,
    extra: Mapping[str, Any] | None = None,
) -> NewRecord:
    """The checkpoint record (01 §3.3).

    Args:
        message: The whole summary text; empty for an opaque compaction.
        window: The window that this compaction opens (`next_window`).
        metadata: Side data, one entry per item of `replacement`; left out when None.
        latest_usage: Payload of the newest `token_usage_record`.

    Raises:
        ValueError: `metadata` has another length: readers would have to pass the record over.
    """
    if metadata is not None and len(metadata) != len(replacement):
        raise ValueError("one metadata entry per item is needed")
    optional = {
        "replacement_history_metadata": None if metadata is None else list(metadata),
        "first_window_id": window.first_id,
        "previous_window_id": window.previous_id,
        "window_id": window.id,
        "compaction_response_id": response_id,
        "latest_token_usage_record": latest_usage,
    }
    payload = {
        "message": message,
        "replacement_history": list(replacement),
        "window_number": window.number,
        **{name: value for name, value in optional.items() if value is not None},
        "resume_metadata": resume_metadata(previous_settings, last_started_turn_id),
    }
    return NewRecord(RecordType.COMPACTED, payload, extra=extra)


def next_window(window: Window, window_id: str) -> Window:
    """The window after this one; `window_id` is a new UUIDv7 (07 §6.2)."""
    return Window(window.number + 1, window.first_id or window.id or window_id, window.id, window_id)


def _identified(item: Item, item_id: str | None) -> Item:
    return item if item_id is None else {**item, "id": item_id}
