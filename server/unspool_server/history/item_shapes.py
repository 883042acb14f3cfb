"""Recorded items (the log's shape) to thread items (the wire's shape) and back (01 §3.6, `wire` §5).

Both directions are pure. Ill-shaped input yields None and never raises; members that neither side tells apart are kept,
their names turned from snake_case to camelCase or back. Does not own which turn an item belongs to (`client_view`).
"""

import shlex
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pydantic import ValidationError
from pydantic.alias_generators import to_camel, to_snake
from unspool_protocol.items import THREAD_ITEM, ThreadItem

from .shell_words import split_words

Shape = dict[str, Any]

DAMAGE = (ValidationError, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What a payload of the wrong shape raises while it is taken apart."""


def wire_item(
    recorded: Mapping[str, Any], started_at_ms: int | None = None, completed_at_ms: int | None = None
) -> ThreadItem | None:
    """Convert the `item` of an `item_completed` record; None when it is ill-shaped or has no id."""
    kind = recorded.get("type")
    if not isinstance(kind, str) or not isinstance(recorded.get("id"), str):
        return None
    try:
        shape = _TO_WIRE.get(kind, _other_to_wire)(recorded)
        shape |= {"id": recorded["id"], "type": kind[:1].lower() + kind[1:]}
        shape |= {"startedAtMs": started_at_ms, "completedAtMs": completed_at_ms}
        return THREAD_ITEM.validate_python(shape)
    except DAMAGE:
        return None


def recorded_item(item: ThreadItem) -> Shape:
    """Convert a thread item to the `item` member of an `item_completed` record; its times are not part of it."""
    wire: Shape = item.model_dump(by_alias=True, mode="json", exclude={"started_at_ms", "completed_at_ms"})
    kind: str = wire["type"]
    shape = _TO_LOG.get(kind, _other_to_log)(wire)
    return {"type": kind[:1].upper() + kind[1:], "id": wire["id"], **_present(shape)}


def item_record_payload(
    thread_id: str, turn_id: str, item: ThreadItem, started_at_ms: int, completed_at_ms: int
) -> Shape:
    """The payload of the `event_msg` record that says an item is complete (paginated logs, 01 §3.6)."""
    return {
        "type": "item_completed",
        "thread_id": thread_id,
        "turn_id": turn_id,
        "item": recorded_item(item),
        "started_at_ms": started_at_ms,
        "completed_at_ms": completed_at_ms,
    }


def milliseconds(duration: Any) -> int | None:
    """A recorded duration `{secs, nanos}` in whole milliseconds; None for anything else."""
    if not isinstance(duration, Mapping):
        return None
    secs, nanos = duration.get("secs", 0), duration.get("nanos", 0)
    if not isinstance(secs, int) or not isinstance(nanos, int):
        return None
    return secs * 1000 + nanos // 1_000_000


def recorded_duration(duration_ms: int | None) -> Shape | None:
    """The reverse of `milliseconds`."""
    if duration_ms is None:
        return None
    return {"secs": duration_ms // 1000, "nanos": duration_ms % 1000 * 1_000_000}


def local_path(cwd: Any) -> str:
    """A recorded folder, which is a `file:` URL in newer logs, as a path."""
    text = cwd if isinstance(cwd, str) else ""
    return unquote(urlsplit(text).path) if text.startswith("file://") else text


def camel_word(word: Any) -> Any:
    """A snake_case value such as `in_progress` as clients spell it; anything but text stays as it is."""
    return to_camel(word) if isinstance(word, str) and "_" in word else word


def camel_keys(value: Any) -> Any:
    """Member names of nested objects from snake_case to camelCase."""
    if isinstance(value, Mapping):
        return {camel_word(key): camel_keys(inner) for key, inner in value.items()}
    return [camel_keys(inner) for inner in value] if isinstance(value, list | tuple) else value


def snake_keys(value: Any) -> Any:
    """Member names of nested objects from camelCase to snake_case."""
    if isinstance(value, Mapping):
        return {to_snake(key) if isinstance(key, str) else key: snake_keys(inner) for key, inner in value.items()}
    return [snake_keys(inner) for inner in value] if isinstance(value, list | tuple) else value


def typed_camel(value: Any) -> Any:
    """An object with a `type` word: its names and that word in camelCase."""
    if not isinstance(value, Mapping):
        return value
    return {**camel_keys(value), "type": camel_word(value.get("type"))}


def typed_snake(value: Any) -> Any:
    """The reverse of `typed_camel`."""
    if not isinstance(value, Mapping):
        return value
    kind = value.get("type")
    return {**snake_keys(value), "type": to_snake(kind) if isinstance(kind, str) else kind}


def command_shapes(recorded: Mapping[str, Any]) -> Shape:
    """The members of a `commandExecution` item from a recorded command, whole item or old end event alike."""
    command = recorded["command"]
    return {
        "command": command if isinstance(command, str) else shlex.join(command),
        "cwd": local_path(recorded.get("cwd")),
        "processId": recorded.get("process_id"),
        "source": camel_word(recorded.get("source") or "agent"),
        "status": camel_word(recorded.get("status") or "completed"),
        "commandActions": [_action_to_wire(action) for action in recorded.get("parsed_cmd") or ()],
        "aggregatedOutput": recorded.get("aggregated_output") or None,
        "exitCode": recorded.get("exit_code"),
        "durationMs": milliseconds(recorded.get("duration")),
    }


def file_changes(changes: Any) -> list[Shape]:
    """The changes of a `fileChange` item from the recorded map path -> change."""
    if not isinstance(changes, Mapping):
        return list(changes or ())
    return [
        {"path": path, "kind": _change_kind(change), "diff": change.get("unified_diff") or change.get("content") or ""}
        for path, change in changes.items()
    ]


def _change_kind(change: Mapping[str, Any]) -> Shape:
    kind = change["type"]
    return {"type": kind, "move_path": change.get("move_path")} if kind == "update" else {"type": kind}


def _present(shape: Shape) -> Shape:
    return {key: value for key, value in shape.items() if value is not None}


def _action_to_wire(action: Mapping[str, Any]) -> Shape:
    shape: Shape = typed_camel(action)
    if "cmd" in shape:
        shape["command"] = shape.pop("cmd")
    return shape


def _action_to_log(action: Mapping[str, Any]) -> Shape:
    shape: Shape = typed_snake(action)
    if "command" in shape:
        shape["cmd"] = shape.pop("command")
    return shape


def _input_to_wire(part: Mapping[str, Any]) -> Shape:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": part["text"], "text_elements": part.get("text_elements") or []}
    if kind == "image":
        return {"type": "image", "url": part.get("image_url") or part.get("url") or ""}
    shape: Shape = typed_camel(part)
    return shape


def _input_to_log(part: Mapping[str, Any]) -> Shape:
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"], "text_elements": part.get("text_elements") or []}
    if part.get("type") == "image":
        return {"type": "image", "image_url": part["url"]}
    shape: Shape = typed_snake(part)
    return shape


def _user_to_wire(recorded: Mapping[str, Any]) -> Shape:
    content = [_input_to_wire(part) for part in recorded["content"]]
    return {"clientId": recorded.get("client_id"), "content": content}


def _user_to_log(wire: Shape) -> Shape:
    return {"client_id": wire.get("clientId"), "content": [_input_to_log(part) for part in wire["content"]]}


def _agent_to_wire(recorded: Mapping[str, Any]) -> Shape:
    text = "".join(part["text"] for part in recorded["content"] if part.get("type") in {"Text", "text"})
    return {"text": text, "phase": recorded.get("phase")}


def _agent_to_log(wire: Shape) -> Shape:
    return {"content": [{"type": "Text", "text": wire["text"]}], "phase": wire.get("phase")}


def _reasoning_to_wire(recorded: Mapping[str, Any]) -> Shape:
    return {"summary": recorded.get("summary_text") or [], "content": recorded.get("raw_content") or []}


def _reasoning_to_log(wire: Shape) -> Shape:
    return {"summary_text": wire["summary"], "raw_content": wire["content"]}


def _command_to_log(wire: Shape) -> Shape:
    try:
        command = split_words(wire["command"])
    except ValueError:
        command = [wire["command"]]
    cwd: str = wire["cwd"]
    return {
        "process_id": wire.get("processId"),
        "command": command,
        "cwd": f"file://{quote(cwd)}" if cwd.startswith("/") else cwd,
        "parsed_cmd": [_action_to_log(action) for action in wire["commandActions"]],
        "source": to_snake(wire["source"]),
        "status": to_snake(wire["status"]),
        "aggregated_output": wire.get("aggregatedOutput") or "",
        "exit_code": wire.get("exitCode"),
        "duration": recorded_duration(wire.get("durationMs")),
    }


def _change_to_wire(recorded: Mapping[str, Any]) -> Shape:
    status = camel_word(recorded.get("status") or "completed")
    return {"changes": file_changes(recorded["changes"]), "status": status}


def _change_to_log(wire: Shape) -> Shape:
    changes = {}
    for change in wire["changes"]:
        kind = change["kind"]["type"]
        body = "unified_diff" if kind == "update" else "content"
        changes[change["path"]] = {"type": kind, body: change.get("diff", "")}
        if kind == "update":
            changes[change["path"]]["move_path"] = change["kind"].get("move_path")
    return {"changes": changes, "status": to_snake(wire["status"])}


def _call_to_wire(recorded: Mapping[str, Any]) -> Shape:
    """Tool calls: names change case; arguments, results and content items (camelCase in logs) stay as they are."""
    shape: Shape = {camel_word(key): value for key, value in recorded.items()}
    shape["status"] = camel_word(recorded.get("status") or "completed")
    shape["durationMs"] = milliseconds(shape.pop("duration", None))
    return shape


def _call_to_log(wire: Shape) -> Shape:
    shape = {to_snake(key): value for key, value in wire.items()}
    shape["status"] = to_snake(wire["status"])
    shape["duration"] = recorded_duration(shape.pop("duration_ms", None))
    return {key: value for key, value in shape.items() if key not in {"id", "type"}}


def _mcp_to_wire(recorded: Mapping[str, Any]) -> Shape:
    return {**_call_to_wire(recorded), "result": mcp_result(recorded.get("result"))}


def _mcp_to_log(wire: Shape) -> Shape:
    """As the reference writes it: this type's members keep their case, and what is unknown is left out."""
    keys = ("server", "tool", "arguments", "readOnlyHint")
    shape = {key: wire[key] for key in keys if wire.get(key) is not None}
    shape["status"] = to_snake(wire["status"])
    shape |= {key: wire[key] for key in ("result", "error") if wire.get(key) is not None}
    return {**shape, "duration": recorded_duration(wire.get("durationMs"))}


def mcp_result(recorded: Any) -> Shape | None:
    """The result of a tool server's call as clients see it: that it was an error is the item's status."""
    if not isinstance(recorded, Mapping):
        return None
    kept = ("content", "structuredContent", "_meta")
    return {"content": [], **{key: recorded.get(key) for key in kept if key != "content" or key in recorded}}


def _search_to_wire(recorded: Mapping[str, Any]) -> Shape:
    return {"query": recorded.get("query") or "", "action": typed_camel(recorded.get("action"))}


def _search_to_log(wire: Shape) -> Shape:
    return {"query": wire["query"], "action": typed_snake(wire.get("action"))}


def _other_to_wire(recorded: Mapping[str, Any]) -> Shape:
    return {camel_word(key): value for key, value in recorded.items()}


def _other_to_log(wire: Shape) -> Shape:
    return {to_snake(key): value for key, value in wire.items() if key not in {"id", "type"}}


_TO_WIRE: Mapping[str, Callable[[Mapping[str, Any]], Shape]] = {
    "UserMessage": _user_to_wire,
    "AgentMessage": _agent_to_wire,
    "Reasoning": _reasoning_to_wire,
    "CommandExecution": command_shapes,
    "FileChange": _change_to_wire,
    "McpToolCall": _mcp_to_wire,
    "DynamicToolCall": _call_to_wire,
    "WebSearch": _search_to_wire,
}

_TO_LOG: Mapping[str, Callable[[Shape], Shape]] = {
    "userMessage": _user_to_log,
    "agentMessage": _agent_to_log,
    "reasoning": _reasoning_to_log,
    "commandExecution": _command_to_log,
    "fileChange": _change_to_log,
    "mcpToolCall": _mcp_to_log,
    "dynamicToolCall": _call_to_log,
    "webSearch": _search_to_log,
}
