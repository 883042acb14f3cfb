"""What a service sends, made fit for log and wire: whole characters, items of the shape that their type promises.

Everything here goes back to the service with the next request, and services refuse requests with odd items: one that is
taken in as it came would end every later turn of the thread. Knows no dialect.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from unspool_server.model.contract import ItemDone, ItemStarted, ModelEvent, ReasoningDelta, ResponseDone, TextDelta

LONGEST_ERROR = 8000
"""Characters of a failure's text that are shown and recorded; some services answer with whole pages."""
MOST_TOKENS = 2**48
"""No count of one response is that large; sums of what is below stay within 64 bits."""
UNNAMED = "unnamed"
"""For a call that names no tool."""


def whole_text(text: str) -> str:
    """The text with the halves of characters joined, and U+FFFD for a half that stands alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def shown_error(text: str) -> str:
    """A failure's text as it may be shown: in whole characters and of bearable length."""
    if len(text) > LONGEST_ERROR:
        text = f"{text[:LONGEST_ERROR]}… ({len(text) - LONGEST_ERROR} characters more)"
    return whole_text(text)


def tokens(raw: object, key: str) -> int:
    """A count of tokens; 0 where the service tells none that can be."""
    value = raw.get(key) if isinstance(raw, Mapping) else None
    return value if type(value) is int and 0 < value < MOST_TOKENS else 0


class Received:
    """The events of one response, each made whole in its turn."""

    def __init__(self) -> None:
        self._halves: dict[tuple[str, str, int], str] = {}
        self._call_ids: dict[str, object] = {}

    def take(self, event: ModelEvent) -> Iterator[ModelEvent]:
        """The event as it may be recorded and shown; nothing for a piece that waits for its other half."""
        match event:
            case TextDelta():
                if delta := self._joined((event.item_id, "text", 0), event.delta):
                    yield replace(event, delta=delta)
            case ReasoningDelta():
                delta = self._joined((event.item_id, event.kind, event.index), event.delta)
                if delta or not event.delta:
                    yield replace(event, delta=delta)
            case ItemStarted():
                yield ItemStarted(_whole(event.item))
            case ItemDone():
                if (item := self._own_call(_whole(sound_item(event.item)))) is not None:
                    yield ItemDone(item)
            case ResponseDone():
                yield replace(event, response_id=whole_text(event.response_id))

    def _joined(self, place: tuple[str, str, int], delta: str) -> str:
        """A piece of text; the first half of a character at its end is kept for the next piece."""
        text = self._halves.pop(place, "") + delta
        if text and "\ud800" <= text[-1] <= "\udbff":
            self._halves[place], text = text[-1], text[:-1]
        return whole_text(text)

    def _own_call(self, item: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """A call under an id that no other call of the response has; None for a call that was told before."""
        call_id = item.get("call_id")
        if item.get("type") not in _CALLS or not isinstance(call_id, str):
            return item
        if call_id not in self._call_ids:
            self._call_ids[call_id] = item.get("id")
            return item
        if self._call_ids[call_id] == item.get("id"):
            return None
        return {**item, "call_id": f"call_{uuid.uuid4().hex}"}


_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_NOTHING = {"arguments": "{}", "input": ""}


def sound_item(item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The item with what its type must have; items of unknown types are nobody's business."""
    match item.get("type"):
        case "message":
            changes = _message(item)
        case "reasoning":
            changes = {} if isinstance(item.get("summary"), list) else {"summary": []}
            if not isinstance(item.get("content"), list | None):
                changes["content"] = None
        case "function_call" | "custom_tool_call":
            changes = _call(item)
        case _:
            return item
    return {**item, **changes} if changes else item


def _message(item: Mapping[str, Any]) -> dict[str, Any]:
    """What a model says is the assistant's, and consists of parts."""
    changes: dict[str, Any] = {} if item.get("role") == "assistant" else {"role": "assistant"}
    content = item.get("content")
    if isinstance(content, str):
        changes["content"] = [{"type": "output_text", "text": content}]
    elif not isinstance(content, list):
        changes["content"] = []
    elif not all(isinstance(part, Mapping) for part in content):
        changes["content"] = [part for part in content if isinstance(part, Mapping)]
    return changes


def _call(item: Mapping[str, Any]) -> dict[str, Any]:
    """A call names a tool, has an id that its output can name, and its arguments are text."""
    changes: dict[str, Any] = {}
    if not isinstance(item.get("call_id"), str) or not item["call_id"]:
        changes["call_id"] = f"call_{uuid.uuid4().hex}"
    if not isinstance(item.get("name"), str) or not item["name"]:
        changes["name"] = UNNAMED
    if not isinstance(item.get("namespace"), str | None):
        changes["namespace"] = None
    given = _CALLS[item["type"]]
    if not isinstance(item.get(given), str):
        changes[given] = _NOTHING[given] if item.get(given) is None else json.dumps(item[given])
    return changes


def _whole(value: Any) -> Any:
    """A JSON value in whole characters."""
    try:
        orjson.dumps(value)
    except TypeError:
        return _in_whole_characters(value)
    return value


def _in_whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, list):
        return [_in_whole_characters(one) for one in value]
    if isinstance(value, Mapping):
        return {_in_whole_characters(key): _in_whole_characters(one) for key, one in value.items()}
    return value
