"""Which item a record adds to the model's history, in the form the model gets (03 §5.2, 07 §5)."""

from collections.abc import Mapping
from typing import Any

from unspool_protocol.log import Record, RecordType

from .fields import count_of, flag_of, role_of, text_of
from .state import Item
from .tokens import BYTES_PER_TOKEN, cut_middle, tokens_of_bytes, utf8

OUTPUT_LIMIT_BYTES = 10_000
"""Limit of a tool output for a model that names none (07 §5)."""

_LOAD_LIMIT_BYTES = OUTPUT_LIMIT_BYTES * 12 // 10
_OUTPUT_TYPES = ("function_call_output", "custom_tool_call_output")


def is_kept_item(item: object) -> bool:
    """Whether a Responses item may stand in a history: snapshots and system messages never do (01 §2, §3.2)."""
    if not isinstance(item, Mapping):
        return False
    kind = item.get("type")
    return isinstance(kind, str) and kind != "ghost_snapshot" and role_of(item) != "system"


def history_item(record: Record) -> Item | None:
    """The item that a `response_item` or `inter_agent_communication` record adds, None for any other record."""
    if record.type == RecordType.RESPONSE_ITEM:
        if not is_kept_item(record.payload):
            return None
        if record.payload["type"] in _OUTPUT_TYPES:
            return _with_short_output(record.payload, record.metadata)
        return record.payload
    if record.type == RecordType.INTER_AGENT:
        return agent_message(record.payload)
    return None


def agent_message(payload: Mapping[str, Any]) -> Item | None:
    """The model form of an inter-agent record; None when it holds no message."""
    author, recipient = text_of(payload, "author") or "", text_of(payload, "recipient") or ""
    text, encrypted = text_of(payload, "content"), text_of(payload, "encrypted_content")
    if encrypted is not None:
        kind = "NEW_TASK" if flag_of(payload, "trigger_turn") else "MESSAGE"
        lead = f"Message Type: {kind}\nTask name: {recipient}\nSender: {author}\nPayload:\n"
        content = [
            {"type": "input_text", "text": lead},
            {"type": "encrypted_content", "encrypted_content": encrypted},
        ]
    elif text is not None:
        content = [{"type": "input_text", "text": text}]
    else:
        return None
    item: dict[str, Any] = {"type": "agent_message", "author": author, "recipient": recipient, "content": content}
    for key in ("id", "internal_chat_message_metadata_passthrough"):
        if payload.get(key) is not None:
            item[key] = payload[key]
    return item


def _with_short_output(item: Item, metadata: Mapping[str, Any] | None) -> Item:
    """Cut an output that is larger than it could have been written: 1.2 times the limit, or the recorded one."""
    override = count_of(metadata, "fallback_token_limit_override") if isinstance(metadata, Mapping) else None
    limit = _LOAD_LIMIT_BYTES if override is None else override * BYTES_PER_TOKEN
    output = item.get("output")
    if isinstance(output, str):
        short: Any = _shorten(output, limit, override)
        return item if short is output else {**item, "output": short}
    if not isinstance(output, list | tuple):
        return item
    parts, left, changed = [], limit, False
    for part in output:
        text = part.get("text") if isinstance(part, Mapping) else None
        if isinstance(text, str):
            short = _shorten(text, left, override)
            left = max(left - len(utf8(text)), 0)
            if short is not text:
                changed = True
                parts.append({**part, "text": short})
                continue
        parts.append(part)
    return {**item, "output": parts} if changed else item


def _shorten(text: str, limit: int, override: int | None) -> str:
    size = len(utf8(text))
    if size <= limit:
        return text
    if override is None:
        return cut_middle(text, limit, f"…{size - limit} chars truncated…")
    return cut_middle(text, limit, f"…{tokens_of_bytes(size - limit)} tokens truncated…")
