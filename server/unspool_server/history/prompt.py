"""From raw history to the items of a request: a pure function, so that request k+1 starts with request k (03 §6, 06).

Only calls and outputs are completed here (07 §9) and members that belong to the log are left out. Ids, texts and order
stay as recorded; history itself keeps its orphans.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .state import Item

LOG_ONLY_KEYS = frozenset({"internal_chat_message_metadata_passthrough", "metadata"})
"""Members of recorded items that no model service is sent."""

OUTPUT_OF: Mapping[str, str] = {
    "function_call": "function_call_output",
    "local_shell_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "tool_search_call": "tool_search_output",
}
"""The output that serves a call; kinds do not mix."""

_OUTPUTS = frozenset(OUTPUT_OF.values())

_DROPPED_TYPES = frozenset({"ghost_snapshot"})


def prompt_items(history: Iterable[Item]) -> list[Item]:
    """The items to send for a history, without the base instructions.

    Every call without an output gets one directly behind it; outputs without their call are left out, except
    those of an external event, which name no call. Late, early and doubled outputs stay as they are.
    """
    items = [item for item in history if item.get("type") not in _DROPPED_TYPES and item.get("role") != "system"]
    calls, outputs = _pairs(items)
    return list(_completed(items, calls, outputs))


def base_item(text: str) -> Item:
    """The base instructions as the leading developer item.

    Its id follows from the text, so forks and restarts send it unchanged (06 §4).
    """
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "id": f"msg_{digest}", "role": "developer", "content": content}


_Key = tuple[str, str]


def _pairs(items: Sequence[Item]) -> tuple[frozenset[_Key], frozenset[_Key]]:
    """Kind of output and call id of every call, and of every output."""
    calls = {(OUTPUT_OF[kind], call_id) for kind, call_id in _named(items) if kind in OUTPUT_OF}
    outputs = {(kind, call_id) for kind, call_id in _named(items) if kind in _OUTPUTS}
    return frozenset(calls), frozenset(outputs)


def _named(items: Sequence[Item]) -> Iterator[_Key]:
    for item in items:
        kind, call_id = item.get("type"), call_id_of(item)
        if isinstance(kind, str) and call_id is not None:
            yield kind, call_id


def call_id_of(item: Item) -> str | None:
    """The id that ties call and output; a local shell call of old logs may only have its own."""
    for key in ("call_id", "id") if item.get("type") == "local_shell_call" else ("call_id",):
        found = item.get(key)
        if isinstance(found, str):
            return found
    return None


def _completed(items: Sequence[Item], calls: frozenset[_Key], outputs: frozenset[_Key]) -> Iterator[Item]:
    for item in items:
        kind, call_id = str(item.get("type")), call_id_of(item)
        if kind in _OUTPUTS and call_id is not None and (kind, call_id) not in calls:
            continue
        yield {key: value for key, value in item.items() if key not in LOG_ONLY_KEYS}
        served = OUTPUT_OF.get(kind)
        if served is not None and call_id is not None and (served, call_id) not in outputs:
            yield _aborted(served, call_id)


def _aborted(kind: str, call_id: str) -> Item:
    if kind == "tool_search_output":
        return {"type": kind, "call_id": call_id, "status": "completed", "execution": "client", "tools": []}
    return {"type": kind, "call_id": call_id, "output": "aborted"}
