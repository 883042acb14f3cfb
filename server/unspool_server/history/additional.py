"""Context that clients add to a turn: which pieces the model has to be told (07 §9). Pure.

A piece is told when the newest one of its key that the history still shows says something else, so a restart, a
rollback and a compaction all decide as memory would.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from unspool_protocol.turn_methods import AdditionalContext

from .state import Item

_NAMESPACE = "agent"
_TOLD = ("type", "role", "content", "name", "namespace", "output")


def due_additions(history: Sequence[Item], wanted: Mapping[str, AdditionalContext]) -> list[Item]:
    """The items to record before the message, in the order of their keys; they have no ids yet."""
    items = [(key, _item(key, wanted[key])) for key in sorted(wanted)]
    return [item for key, item in items if _told(history, key, wanted[key].name) != item]


def _item(key: str, piece: AdditionalContext) -> dict[str, Any]:
    if piece.kind == "application":
        text = f"<{key}>{piece.value}</{key}>"
        return {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}
    return {
        "type": "function_call_output",
        "name": piece.name or key,
        "namespace": _NAMESPACE,
        "output": piece.value,
    }


def _told(history: Sequence[Item], key: str, name: str | None) -> Item | None:
    """The newest item of this key, without what the log adds to it."""
    for item in reversed(history):
        if _is_developers(item, key) or _is_untrusted(item, name or key):
            return {member: item[member] for member in _TOLD if member in item}
    return None


def _is_developers(item: Item, key: str) -> bool:
    content = item.get("content")
    if item.get("role") != "developer" or not isinstance(content, Sequence) or len(content) != 1:
        return False
    text = content[0].get("text") if isinstance(content[0], Mapping) else None
    return isinstance(text, str) and text.startswith(f"<{key}>") and text.endswith(f"</{key}>")


def _is_untrusted(item: Item, name: str) -> bool:
    return (
        item.get("type") == "function_call_output"
        and item.get("call_id") is None
        and (item.get("namespace"), item.get("name")) == (_NAMESPACE, name)
    )
