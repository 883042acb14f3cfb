"""What the client's view says of records: events, errors and token counts in the wire's words (`wire` §5). Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import Record
from unspool_protocol.turns import ThreadTokenUsage, TokenUsage, TurnError

from .fields import EMPTY, object_of, text_of
from .item_shapes import camel_keys, camel_word

TURN_STARTS = frozenset({"task_started", "turn_started"})
"""Events that start a turn; the source's spelling is accepted beside the wire's (01 §3.6)."""

TURN_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted"})
"""Events that end one."""


@dataclass(frozen=True, slots=True)
class ClientEvent:
    """A notification derived from a record, and its place among the thread's events."""

    method: str
    params: WireModel | Mapping[str, Any]
    cursor: EventCursor


def turn_error(payload: Mapping[str, Any] | None) -> TurnError | None:
    """The error of an `error` event or of a `task_complete` record; codes are snake_case in logs."""
    message = text_of(payload, "message") if payload else None
    if payload is None or message is None:
        return None
    code = payload.get("codex_error_info")
    info = camel_keys(code) if isinstance(code, Mapping) else camel_word(code) if isinstance(code, str) else None
    return TurnError(message=message, codex_error_info=info, additional_details=text_of(payload, "additional_details"))


def inherited_usage(header: Record) -> TokenUsage | None:
    """The tokens that a fork's totals began with, as its header tells; None for other threads and foreign forks."""
    ours = object_of(header.extra, "unspool") or EMPTY
    held = object_of(ours, "inheritedUsage") or object_of(object_of(ours, "origin") or EMPTY, "inheritedUsage")
    try:
        return None if held is None else TokenUsage.model_validate(held)
    except ValidationError:
        return None


def token_usage(info: Mapping[str, Any]) -> ThreadTokenUsage | None:
    """The usage in the `info` member of a `token_count` event."""
    try:
        return ThreadTokenUsage(
            total=TokenUsage.model_validate(info.get("total_token_usage")),
            last=TokenUsage.model_validate(info.get("last_token_usage")),
            model_context_window=info.get("model_context_window"),
        )
    except ValidationError:
        return None
