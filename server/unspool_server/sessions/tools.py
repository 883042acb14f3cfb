"""Tool calls of a turn: which tools the model is offered, and how a call becomes an output.

Tools run at the client (`dynamicTools` -> `item/tool/call`, `wire` §6). A call that nobody can run gets an output that
says so, since history must stay valid for the next request (07 §5).
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import DynamicToolCallItem, ItemStatus
from unspool_protocol.log import NewRecord

from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.records import item_record
from unspool_server.sessions.settings import is_usable_cwd

if TYPE_CHECKING:
    from unspool_server.sessions.turn import Turn

_OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


@dataclass(slots=True)
class OpenCall:
    """A recorded call whose output is not recorded yet."""

    item: Mapping[str, Any]
    began: float = field(default_factory=time.monotonic)
    started_at_ms: int = field(default_factory=now_ms)

    @property
    def call_id(self) -> str:
        """The id that ties call and output together."""
        return str(self.item["call_id"])

    def output(self, output: Any) -> dict[str, Any]:
        """The output item of this call."""
        prefix = "fco" if self.item["type"] == "function_call" else "ctco"
        kind = _OUTPUTS[self.item["type"]]
        return {"type": kind, "id": f"{prefix}_{new_id()}", "call_id": self.call_id, "output": output}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave: the output for the model and the item for clients (None: nothing was run)."""

    output: Any
    item: DynamicToolCallItem | None = None


def declarations(dynamic_tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The thread's tools as a request declares them."""
    return [_declaration(tool) for tool in dynamic_tools]


def _declaration(tool: Mapping[str, Any]) -> dict[str, Any]:
    if tool.get("type") == "namespace":
        inner = [_declaration(one) for one in tool.get("tools") or ()]
        return {"type": "namespace", "name": tool["name"], "description": tool.get("description", ""), "tools": inner}
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool.get("description", ""),
        "strict": False,
        "parameters": tool.get("inputSchema") or {"type": "object", "properties": {}},
    }


def _known(turn: "Turn", namespace: Any, name: Any) -> bool:
    for tool in turn.session.facts.dynamic_tools:
        if tool.get("type") == "namespace":
            if tool.get("name") == namespace and any(one.get("name") == name for one in tool.get("tools") or ()):
                return True
        elif namespace is None and tool.get("name") == name:
            return True
    return False


def note_call(turn: "Turn", item: Mapping[str, Any]) -> None:
    """Remember a recorded call, so that it gets an output whatever happens."""
    if item.get("type") in _OUTPUTS and isinstance(item.get("call_id"), str):
        turn.calls[item["call_id"]] = OpenCall(item)


async def run_calls(turn: "Turn") -> None:
    """Run the open calls of a round side by side and record their outputs in the order they finish."""
    if not turn.calls:
        return
    running = [asyncio.create_task(_run_call(turn, call)) for call in turn.calls.values()]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_call(turn: "Turn", call: OpenCall) -> None:
    result = await _result(turn, call)
    await turn.session.step(partial(_record_output, turn, call, result))


async def _record_output(turn: "Turn", call: OpenCall, result: ToolResult) -> None:
    call_done = call.output(result.output)
    records: list[NewRecord] = []
    if result.item is not None:
        turn.live.pop(result.item.id, None)
        records.append(turn.item_event(result.item, call.started_at_ms, now_ms()))
    records.append(item_record(turn.attributed(call_done, now_ms())))
    await turn.session.record(*records)
    call.item = {**call.item, "answered": True}


async def _result(turn: "Turn", call: OpenCall) -> ToolResult:
    name, namespace = call.item.get("name"), call.item.get("namespace")
    if call.item["type"] == "custom_tool_call":
        return ToolResult(f"unsupported custom tool call: {name}")
    if not _known(turn, namespace, name):
        return ToolResult(f"unsupported call: {name}")
    if not is_usable_cwd(turn.plan.settings.cwd):
        turn.session.warn(
            f"The tool {name} was not run: the thread's working directory is no path of this system.",
            code="cwdMissing",
            effect="Give a cwd when you start the next turn.",
        )
        return ToolResult("the tool was not run: the thread has no working directory on this system")
    try:
        arguments = json.loads(call.item.get("arguments") or "{}")
    except ValueError as error:
        return ToolResult(f"failed to parse function arguments: {error}")
    item = DynamicToolCallItem(
        id=call.call_id, namespace=namespace, tool=str(name), arguments=arguments, status=ItemStatus.IN_PROGRESS
    )
    turn.show_started(item)
    request = {
        "threadId": turn.session.thread_id,
        "turnId": turn.id,
        "callId": call.call_id,
        "namespace": namespace,
        "tool": name,
        "arguments": arguments,
    }
    answer = await turn.session.env.sink.ask(turn.session.thread_id, turn.id, "item/tool/call", request)
    return _answered(item, answer, call)


def _answered(item: DynamicToolCallItem, answer: Mapping[str, Any], call: OpenCall) -> ToolResult:
    duration_ms = int((time.monotonic() - call.began) * 1000)
    result = answer.get("result")
    if not isinstance(result, Mapping) or not isinstance(result.get("contentItems"), list):
        reason = "dynamic tool request failed"
        changes: dict[str, Any] = {"status": ItemStatus.FAILED, "success": False, "duration_ms": duration_ms}
        shown = ({"type": "inputText", "text": reason},)
        return ToolResult(reason, item.model_copy(update={**changes, "content_items": shown}))
    success = result.get("success") is not False
    content = [part for part in result["contentItems"] if isinstance(part, Mapping)]
    changes = {
        "status": ItemStatus.COMPLETED if success else ItemStatus.FAILED,
        "success": success,
        "content_items": tuple(content),
        "duration_ms": duration_ms,
    }
    return ToolResult(_model_output(content), item.model_copy(update=changes))


def _model_output(content: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """A single text is the output itself, as in the reference; anything else is a list of parts."""
    parts = [_model_part(part) for part in content]
    return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts


def _model_part(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("type") == "inputImage":
        return {"type": "input_image", "image_url": part.get("imageUrl", "")}
    return {"type": "input_text", "text": str(part.get("text", ""))}


def aborted_outputs(turn: "Turn") -> list[NewRecord]:
    """Outputs for calls that an interrupt found running, in call order (07 §4)."""
    records = []
    for call in turn.calls.values():
        if not call.item.get("answered"):
            text = f"Wall time: {time.monotonic() - call.began:.1f} seconds\naborted by user"
            records.append(item_record(turn.attributed(call.output(text), now_ms())))
    turn.calls.clear()
    return records
