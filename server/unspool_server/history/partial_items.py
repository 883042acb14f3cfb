"""Text of messages and reasoning that clients saw and that never became whole: how it is recorded, how it is read.

A record holds what was added since the one before it, so that a long message costs its length and not its square. Such
text is no boundary, no answer and never model input. When it is recorded is decided by the turn, where it is shown by
the client view.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unspool_protocol.items import THREAD_ITEM, AgentMessageItem, ReasoningItem, ThreadItem
from unspool_protocol.log import NewRecord, RecordType

from .fields import count_of, list_of, text_of

Place = tuple[str, int]
"""Which text of an item: `("text", 0)`, or a part of the `summary` or of the `content` of reasoning."""

MOST_PARTS = 1000
"""Parts of reasoning that a record may name; a larger number in a foreign record is passed over."""


@dataclass(frozen=True, slots=True)
class Added:
    """A piece of text and where it goes: behind `offset` characters of that text."""

    place: Place
    offset: int
    text: str


def texts_in(item: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Every text of an item that grows while it is streamed, by its place; nothing for other types of items."""
    if item.get("type") == "agentMessage":
        yield ("text", 0), item.get("text") or ""
    elif item.get("type") == "reasoning":
        for member in ("summary", "content"):
            for index, text in enumerate(item.get(member) or ()):
                yield (member, index), text


def growth(item: Mapping[str, Any], known: Mapping[Place, int]) -> list[Added]:
    """What an item's texts have more than the lengths that are known."""
    return [
        Added(place, known.get(place, 0), text[known.get(place, 0) :])
        for place, text in texts_in(item)
        if len(text) > known.get(place, 0)
    ]


def partial_record(turn_id: str, item: Mapping[str, Any], added: Sequence[Added]) -> NewRecord:
    """The record of what an item grew by."""
    pieces = [{"part": a.place[0], "index": a.place[1], "offset": a.offset, "text": a.text} for a in added]
    payload = {"turn_id": turn_id, "item_id": item["id"], "item_type": item["type"], "added": pieces}
    phase = {"phase": item["phase"]} if item.get("phase") else {}
    return NewRecord(RecordType.PARTIAL_MESSAGE, payload | phase)


def grown(item: ThreadItem | None, payload: Mapping[str, Any], at_ms: int | None) -> ThreadItem | None:
    """An item with what a record adds to it (None: an item that begins with this record).

    Returns:
        None where the record says nothing that can be shown.
    """
    shape = item.model_dump(by_alias=True, mode="json") if item is not None else _fresh(payload, at_ms)
    if shape is None:
        return None
    for piece in list_of(payload, "added") or ():
        if isinstance(piece, Mapping):
            _add(shape, piece)
    return THREAD_ITEM.validate_python(shape) if any(text for _, text in texts_in(shape)) else None


def is_partial(item: ThreadItem) -> bool:
    """Whether an item is text that was cut off, or is not whole yet."""
    return isinstance(item, AgentMessageItem | ReasoningItem) and getattr(item, "partial", False) is True


def _fresh(payload: Mapping[str, Any], at_ms: int | None) -> dict[str, Any] | None:
    item_id, kind = text_of(payload, "item_id"), text_of(payload, "item_type")
    if not item_id or kind not in ("agentMessage", "reasoning"):
        return None
    shape = {"id": item_id, "type": kind, "partial": True, "startedAtMs": at_ms}
    return shape | ({"text": "", "phase": text_of(payload, "phase")} if kind == "agentMessage" else {})


def _add(shape: dict[str, Any], piece: Mapping[str, Any]) -> None:
    """Put a piece in its place. A record that was written twice changes nothing; behind a lost one text goes on."""
    part, text = text_of(piece, "part"), text_of(piece, "text")
    index, offset = count_of(piece, "index") or 0, count_of(piece, "offset") or 0
    if text is None or index >= MOST_PARTS:
        return
    if part == "text" and shape["type"] == "agentMessage":
        shape["text"] = shape["text"][:offset] + text
    elif part in ("summary", "content") and shape["type"] == "reasoning":
        parts = [*shape.get(part, ())]
        parts += [""] * (index + 1 - len(parts))
        parts[index] = parts[index][:offset] + text
        shape[part] = parts
