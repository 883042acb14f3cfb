"""The item events of legacy logs: `user_message`, `agent_message`, `exec_command_end` and their like (05 §1).

Pure conversions in both directions. A legacy event carries no item id, except call ids; events that we write carry ours
in `item_id`, which other readers of the format pass over, so that a replayed item keeps the id it had when it was live.
"""

from collections.abc import Callable, Mapping
from typing import Any

from unspool_protocol.items import (
    THREAD_ITEM,
    AgentMessageItem,
    CommandExecutionItem,
    ContextCompactionItem,
    DynamicToolCallItem,
    McpToolCallItem,
    ReasoningItem,
    ThreadItem,
    UserMessageItem,
    WebSearchItem,
)

from .item_shapes import (
    DAMAGE,
    Shape,
    camel_word,
    command_shapes,
    file_changes,
    mcp_result,
    milliseconds,
    recorded_duration,
    recorded_item,
    typed_camel,
)

REASONING_EVENTS: Mapping[str, str] = {"agent_reasoning": "summary", "agent_reasoning_raw_content": "content"}
"""Reasoning events and the member of the reasoning item that each extends."""


def legacy_item(payload: Mapping[str, Any], fallback_id: str, at_ms: int | None) -> ThreadItem | None:
    """The item that a legacy event adds; None for other events, empty messages and ill-shaped payloads.

    Args:
        fallback_id: The item's id when the event has none of its own.
        at_ms: When the record was written; the item's times.
    """
    convert = _FROM_EVENT.get(str(payload.get("type")))
    if convert is None:
        return None
    try:
        shape = convert(payload)
        if shape is None:
            return None
        own = payload.get("item_id") or payload.get("call_id")
        shape |= {"id": own if isinstance(own, str) else fallback_id, "startedAtMs": at_ms, "completedAtMs": at_ms}
        return THREAD_ITEM.validate_python(shape)
    except DAMAGE:
        return None


def legacy_event_payload(item: ThreadItem, turn_id: str = "") -> Shape | None:
    """The `event_msg` payload under which a legacy log keeps an item; None when the format has no event for it."""
    match item:
        case UserMessageItem():
            return _user_event(item)
        case AgentMessageItem():
            return {"type": "agent_message", "message": item.text, "phase": item.phase, "item_id": item.id}
        case ReasoningItem():
            return {"type": "agent_reasoning", "text": "\n\n".join(item.summary or item.content), "item_id": item.id}
        case ContextCompactionItem():
            return {"type": "context_compacted", "item_id": item.id}
        case CommandExecutionItem():
            return _command_event(item, turn_id)
        case DynamicToolCallItem():
            return _dynamic_call_event(item, turn_id)
        case McpToolCallItem():
            return _mcp_event(item, turn_id)
        case WebSearchItem():
            action = recorded_item(item).get("action") or {"type": "other"}
            return {"type": "web_search_end", "call_id": item.id, "query": item.query, "action": action}
        case _:
            return None


def _user_event(item: UserMessageItem) -> Shape:
    parts = [part.model_dump(by_alias=True, mode="json") for part in item.content]
    elements = [element for part in parts if part["type"] == "text" for element in part["text_elements"]]
    return {
        "type": "user_message",
        "message": item.text,
        "images": [part["url"] for part in parts if part["type"] == "image"],
        "local_images": [part["path"] for part in parts if part["type"] == "localImage"],
        "text_elements": elements,
        "item_id": item.id,
        **({"client_id": item.client_id} if item.client_id is not None else {}),
    }


def _command_event(item: CommandExecutionItem, turn_id: str) -> Shape:
    shape = recorded_item(item)
    output = item.aggregated_output or ""
    return {
        **{key: value for key, value in shape.items() if key != "id"},
        "type": "exec_command_end",
        "call_id": item.id,
        "turn_id": turn_id,
        "cwd": item.cwd,
        "stdout": output,
        "stderr": "",
        "exit_code": -1 if item.exit_code is None else item.exit_code,
        "duration": recorded_duration(item.duration_ms or 0),
        "formatted_output": output,
    }


def _dynamic_call_event(item: DynamicToolCallItem, turn_id: str) -> Shape:
    return {
        "type": "dynamic_tool_call_response",
        "call_id": item.id,
        "turn_id": turn_id,
        "namespace": item.namespace,
        "tool": item.tool,
        "arguments": item.arguments,
        "content_items": [dict(part) for part in item.content_items or ()],
        "success": bool(item.success),
        "error": None,
        "duration": recorded_duration(item.duration_ms or 0),
    }


def _mcp_event(item: McpToolCallItem, turn_id: str) -> Shape:
    hint = {} if item.read_only_hint is None else {"read_only_hint": item.read_only_hint}
    result = {"Ok": item.result} if item.error is None else {"Err": item.error["message"]}
    return {
        "type": "mcp_tool_call_end",
        "call_id": item.id,
        "turn_id": turn_id,
        "invocation": {"server": item.server, "tool": item.tool, "arguments": item.arguments},
        **hint,
        "duration": recorded_duration(item.duration_ms or 0),
        "result": result,
    }


def _user(payload: Mapping[str, Any]) -> Shape:
    text = payload["message"]
    content: list[Shape] = []
    if text.strip():
        content.append({"type": "text", "text": text, "text_elements": payload.get("text_elements") or []})
    content += [{"type": "image", "url": url} for url in payload.get("images") or ()]
    content += [{"type": "localImage", "path": path} for path in payload.get("local_images") or ()]
    return {"type": "userMessage", "clientId": payload.get("client_id"), "content": content}


def _agent(payload: Mapping[str, Any]) -> Shape | None:
    if not payload["message"]:
        return None
    return {"type": "agentMessage", "text": payload["message"], "phase": payload.get("phase")}


def _reasoning(payload: Mapping[str, Any]) -> Shape | None:
    member = REASONING_EVENTS[payload["type"]]
    return {"type": "reasoning", member: [payload["text"]]} if payload["text"] else None


def _command(payload: Mapping[str, Any]) -> Shape:
    shape = command_shapes({**payload, "source": payload.get("source") or "agent"})
    if "status" not in payload:
        shape["status"] = "completed" if payload.get("exit_code") == 0 else "failed"
    return {**shape, "type": "commandExecution"}


def _patch(payload: Mapping[str, Any]) -> Shape:
    status = camel_word(payload.get("status")) or ("completed" if payload.get("success") else "failed")
    return {"type": "fileChange", "changes": file_changes(payload.get("changes")), "status": status}


def _mcp(payload: Mapping[str, Any]) -> Shape:
    invocation, result = payload["invocation"], payload.get("result") or {}
    given = result.get("Ok") or {}
    failed = "Err" in result or bool(given.get("is_error") or given.get("isError"))
    return {
        "type": "mcpToolCall",
        "server": invocation["server"],
        "tool": invocation["tool"],
        "arguments": invocation.get("arguments"),
        "readOnlyHint": payload.get("read_only_hint"),
        "status": "failed" if failed else "completed",
        "result": mcp_result(result.get("Ok")),
        "error": {"message": result["Err"]} if "Err" in result else None,
        "durationMs": milliseconds(payload.get("duration")),
    }


def _dynamic_call(payload: Mapping[str, Any]) -> Shape:
    return {
        "type": "dynamicToolCall",
        "namespace": payload.get("namespace"),
        "tool": payload["tool"],
        "arguments": payload.get("arguments"),
        "status": "completed" if payload.get("success") else "failed",
        "contentItems": payload.get("content_items"),
        "success": payload.get("success"),
        "durationMs": milliseconds(payload.get("duration")),
    }


def _search(payload: Mapping[str, Any]) -> Shape:
    return {"type": "webSearch", "query": payload.get("query") or "", "action": typed_camel(payload.get("action"))}


def _image(payload: Mapping[str, Any]) -> Shape:
    return {"type": "imageView", "path": str(payload["path"])}


def _entered_review(payload: Mapping[str, Any]) -> Shape:
    return {"type": "enteredReviewMode", "review": payload.get("user_facing_hint") or "Review requested."}


def _exited_review(payload: Mapping[str, Any]) -> Shape:
    found = (payload.get("review_output") or {}).get("overall_explanation")
    return {"type": "exitedReviewMode", "review": found or "Reviewer failed to output a response."}


def _compaction(_: Mapping[str, Any]) -> Shape:
    return {"type": "contextCompaction"}


_FROM_EVENT: Mapping[str, Callable[[Mapping[str, Any]], Shape | None]] = {
    "user_message": _user,
    "agent_message": _agent,
    "agent_reasoning": _reasoning,
    "agent_reasoning_raw_content": _reasoning,
    "exec_command_end": _command,
    "patch_apply_end": _patch,
    "mcp_tool_call_end": _mcp,
    "dynamic_tool_call_response": _dynamic_call,
    "web_search_end": _search,
    "view_image_tool_call": _image,
    "entered_review_mode": _entered_review,
    "exited_review_mode": _exited_review,
    "context_compacted": _compaction,
}

LEGACY_ITEM_EVENTS = frozenset(_FROM_EVENT)
"""Names of the events that `legacy_item` understands."""
