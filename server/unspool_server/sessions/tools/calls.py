"""Tool calls of a turn: how each recorded call comes to an output, whatever happens.

A call that nobody can run gets an output that says so, since history must stay valid for the next request (07 §5).
What tools do is in modules of their own.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from unspool_protocol.log import NewRecord

from unspool_server.nesting import too_deep
from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.records import item_record
from unspool_server.sessions.tools.contract import ToolItem, ToolResult
from unspool_server.sessions.tools.toolbox import Toolbox
from unspool_server.sessions.turns.usage import take_untold
from unspool_server.telemetry import metrics, traces

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

_OUTPUTS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


@dataclass(slots=True)
class OpenCall:
    """A recorded call.

    Attributes:
        answered: Once its output is recorded as well.
        left: The finished item that a tool leaves behind when it is cut short; recorded before the output.
    """

    item: Mapping[str, Any]
    began: float = field(default_factory=time.monotonic)
    started_at_ms: int = field(default_factory=now_ms)
    answered: bool = False
    left: ToolItem | None = None

    @property
    def call_id(self) -> str:
        """The id that ties call and output together."""
        return str(self.item["call_id"])

    def output(self, output: Any) -> dict[str, Any]:
        """The output item of this call."""
        prefix = "fco" if self.item["type"] == "function_call" else "ctco"
        kind = _OUTPUTS[self.item["type"]]
        return {"type": kind, "id": f"{prefix}_{new_id()}", "call_id": self.call_id, "output": output}


def note_call(turn: "Turn", item: Mapping[str, Any]) -> None:
    """Remember a recorded call, so that it gets an output whatever happens."""
    if item.get("type") in _OUTPUTS and isinstance(item.get("call_id"), str):
        turn.calls[item["call_id"]] = OpenCall(item)


async def run_calls(turn: "Turn") -> None:
    """Run the open calls of a round side by side and record their outputs in the order they finish."""
    if not turn.calls:
        return
    toolbox = Toolbox(turn.session)
    running = [asyncio.create_task(_run_call(turn, toolbox, call)) for call in turn.calls.values()]
    try:
        await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _run_call(turn: "Turn", toolbox: Toolbox, call: OpenCall) -> None:
    with traces.span("tool call", tool=str(call.item.get("name")), call=call.call_id):
        result = await _result(turn, toolbox, call)
    metrics.TOOL_CALLS.add()
    await turn.session.step(partial(_record_output, turn, call, result))


async def _record_output(turn: "Turn", call: OpenCall, result: ToolResult) -> None:
    records: list[NewRecord] = []
    if result.item is not None:
        records.append(_finished(turn, call, result.item))
    records.append(item_record(turn.attributed(call.output(result.output), now_ms())))
    if all(one.answered or one is call for one in turn.calls.values()):
        records += take_untold(turn)
    await turn.session.record(*records)
    call.answered = True


def _finished(turn: "Turn", call: OpenCall, item: ToolItem) -> NewRecord:
    """The record of a finished item; it began when clients were told so."""
    live = turn.live.pop(item.id, None)
    return turn.item_event(item, call.started_at_ms if live is None else live.started_at_ms, now_ms())


async def _result(turn: "Turn", toolbox: Toolbox, call: OpenCall) -> ToolResult:
    name, namespace = call.item.get("name"), call.item.get("namespace")
    if call.item["type"] == "custom_tool_call":
        return ToolResult(f"unsupported custom tool call: {name}")
    tool = toolbox.find(namespace, name)
    if tool is None:
        return ToolResult(f"unsupported call: {name}")
    try:
        arguments = orjson.loads(call.item.get("arguments") or "{}")
    except ValueError as error:
        return ToolResult(f"failed to parse function arguments: {error}")
    if too_deep(arguments):
        return ToolResult("failed to parse function arguments: they are nested too deeply")
    return await tool.run(turn, call, arguments)


def aborted_outputs(turn: "Turn") -> list[NewRecord]:
    """Outputs for calls that an interrupt found running, in call order (07 §4), and the count behind them."""
    records = []
    for call in turn.calls.values():
        if not call.answered:
            if call.left is not None:
                records.append(_finished(turn, call, call.left))
            text = f"Wall time: {time.monotonic() - call.began:.1f} seconds\naborted by user"
            records.append(item_record(turn.attributed(call.output(text), now_ms())))
    turn.calls.clear()
    return [*records, *take_untold(turn)]
