"""A few words that tell people what a record is; for audits and lists. Decides nothing, never raises."""

from collections.abc import Mapping
from typing import Any

from unspool_protocol.log import Record, RecordType

from .checkpoints import checkpoint_of, rolled_back_turns
from .fields import count_of, list_of, object_of, role_of, text_of, texts_of
from .items import agent_message

LABEL_CHARS = 120
"""Longest label; longer texts are cut."""


def label_of(record: Record) -> str:
    """One line about a record."""
    match record.type:
        case RecordType.SESSION_META:
            words = _header(record)
        case RecordType.RESPONSE_ITEM:
            words = item_label(record.payload)
        case RecordType.INTER_AGENT:
            words = item_label(agent_message(record.payload) or record.payload)
        case RecordType.EVENT_MSG:
            words = _event(record)
        case RecordType.TURN_CONTEXT:
            words = " ".join(("context", *_named(record.payload, "turn_id", "model", "cwd")))
        case RecordType.WORLD_STATE:
            words = "environment" if record.payload.get("full") is True else "environment changes"
        case RecordType.INTER_AGENT_METADATA:
            words = "agent message that starts a turn" if record.payload.get("trigger_turn") else "agent message"
        case RecordType.PARTIAL_MESSAGE:
            words = f"text so far of {text_of(record.payload, 'item_id') or '?'}"
        case _:
            words = _checkpoint(record) or record.type
    return short(words)


def short(text: str, limit: int = LABEL_CHARS) -> str:
    """A text on one line, cut where it gets too long."""
    # Cut first: outputs may be megabytes, and white space alone must not make a label long.
    flat = " ".join(text[: 4 * limit].split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def item_label(item: Mapping[str, Any]) -> str:
    """One line about a Responses item."""
    kind = text_of(item, "type") or "item without a type"
    match kind:
        case "message":
            return f"{role_of(item) or 'message'}: {' '.join(texts_of(item)) or '(no text)'}"
        case "agent_message":
            return f"agent {text_of(item, 'author') or '?'}: {' '.join(texts_of(item)) or '(encrypted)'}"
        case "function_call" | "custom_tool_call":
            given = text_of(item, "arguments") or text_of(item, "input") or ""
            return f"call {text_of(item, 'name') or '?'} {short(given)}"
        case "function_call_output" | "custom_tool_call_output":
            return f"output of {text_of(item, 'call_id') or '?'}: {_output(item.get('output'))}"
        case "reasoning":
            parts = list_of(item, "summary") or ()
            texts = [text_of(part, "text") or "" for part in parts if isinstance(part, Mapping)]
            return " ".join(("reasoning", *texts))
        case _:
            return kind


def _output(output: Any) -> str:
    if isinstance(output, str):
        return short(output)
    return " ".join(short(text) for text in texts_of({"content": output}))


def _header(record: Record) -> str:
    ours = object_of(record.extra, "unspool")
    word = text_of(ours, "branch") if ours else None
    if word is not None:
        return f"header of a branch ({word})"
    if record.payload.get("forked_from_id") is not None:
        return f"header of a fork of {record.payload['forked_from_id']}"
    return "header of a branch" if record.payload.get("history_base") is not None else "header"


def _event(record: Record) -> str:
    name, payload = record.event or "event", record.payload
    turns = rolled_back_turns(record)
    if turns:
        return f"rollback of {turns}"
    item = object_of(payload, "item")
    if name == "item_completed" and item is not None:
        return f"{name} {text_of(item, 'type') or '?'}"
    told = _named(payload, "turn_id", "reason", "thread_name", "message", "text")
    return " ".join((name, *(short(part) for part in told)))


def _checkpoint(record: Record) -> str | None:
    checkpoint = checkpoint_of(record)
    if checkpoint is None:
        return f"{record.type} that cannot be read" if record.type == RecordType.COMPACTED else None
    if checkpoint.restores is not None:
        return "undo of a rollback"
    if checkpoint.replacement is None:
        return f"compaction: {short(checkpoint.message)}"
    window = count_of(record.payload, "window_number")
    place = "" if window is None else f", window {window}"
    return f"{record.type} to {len(checkpoint.replacement)} items{place}"


def _named(payload: Mapping[str, Any], *keys: str) -> list[str]:
    return [value for key in keys if (value := text_of(payload, key))]
