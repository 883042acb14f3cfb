"""Tools of MCP servers as a thread's tools: which it has, and how a call of one goes (`mcpToolCall` items).

Connections and names are `unspool_server.mcp`'s, the output's form is `mcp_output.py`'s, asking the user
`mcp_approval.py`'s.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import ItemStatus, McpToolCallItem

from unspool_server.errors import ModelError
from unspool_server.mcp.connection import McpConnection
from unspool_server.mcp.naming import namespaces, tool_names
from unspool_server.mcp.offer import McpFailure
from unspool_server.sessions.sink import EventSink
from unspool_server.sessions.tools.contract import ToolResult
from unspool_server.sessions.tools.mcp_approval import refusal
from unspool_server.sessions.tools.mcp_output import model_output

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.turn import Turn


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of one server; `spec` is its entry as the server gave it."""

    connection: McpConnection
    spec: Mapping[str, Any]
    namespace: str | None
    name: str

    def declaration(self) -> dict[str, Any]:
        """As a function; a schema without properties gets none, since model services insist on the member."""
        schema = dict(self.spec.get("inputSchema") or {})
        schema.pop("$schema", None)
        return {
            "type": "function",
            "name": self.name,
            "description": self.spec.get("description") or "",
            "strict": False,
            "parameters": {**schema, "type": "object", "properties": schema.get("properties") or {}},
        }

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Ask for approval where that is called for, then call the server."""
        annotations = self.spec.get("annotations") or {}
        item = McpToolCallItem(
            id=call.call_id,
            server=self.connection.name,
            tool=str(self.spec["name"]),
            arguments=arguments,
            read_only_hint=annotations.get("readOnlyHint"),
            status=ItemStatus.IN_PROGRESS,
        )
        turn.show_started(item)
        reason = await refusal(turn, self.connection, self.spec, arguments)
        if reason is not None:
            return _failed(turn, call, item, reason, 0)
        began = time.monotonic()
        try:
            result = await self._call(turn, item)
        except McpFailure as failure:
            reason = f"tool call error: tool call failed for `{item.server}/{item.tool}`\n\nCaused by:\n    {failure}"
            return _failed(turn, call, item, reason, _ms_since(began))
        status = ItemStatus.FAILED if result.get("isError") else ItemStatus.COMPLETED
        shown = item.model_copy(update={"status": status, "result": result, "duration_ms": _ms_since(began)})
        return ToolResult(_output(turn, call, result), shown)

    async def _call(self, turn: "Turn", item: McpToolCallItem) -> dict[str, Any]:
        if not isinstance(item.arguments, Mapping):
            raise McpFailure("the arguments are no object")
        meta = {"callId": item.id, "threadId": turn.session.thread_id, "turnId": turn.id}
        tell = partial(_tell_progress, turn, item.id)
        return await self.connection.call(item.tool, dict(item.arguments), meta=meta, on_progress=tell)


def mcp_tools(session: "Session") -> Iterator[McpTool]:
    """The tools of the thread's servers that are known by now, in the order of servers' and tools' names."""
    connections = _connections(session)
    spaces = namespaces([connection.name for connection in connections])
    for connection in connections:
        if connection.offer is None:
            continue
        offered = {str(tool["name"]): tool for tool in connection.offer.tools if connection.config.offers(tool["name"])}
        space = spaces[connection.name]
        names = tool_names(space, offered)
        for raw in sorted(offered, key=names.__getitem__):
            yield McpTool(connection, offered[raw], space, names[raw])


def mcp_descriptions(session: "Session") -> dict[str, str]:
    """What servers say of themselves, by namespace."""
    connections = _connections(session)
    spaces = namespaces([connection.name for connection in connections])
    described = {}
    for connection in connections:
        space = spaces[connection.name]
        instructions = connection.offer.instructions if connection.offer is not None else None
        described[space] = instructions or f"Tools in the {space} namespace."
    return described


async def start_servers(session: "Session") -> None:
    """Start what the thread's servers need starting, side by side, and wait until each runs or has failed.

    Raises:
        ModelError: A server that the configuration requires cannot be used.
    """
    connections = _connections(session)
    if not connections:
        return
    await asyncio.gather(*(connection.ready() for connection in connections))
    missing = [one for one in connections if one.config.required and one.state != "ready"]
    if missing:
        reasons = "; ".join(str(one.error) for one in missing)
        raise ModelError(f"required MCP servers failed to initialize: {reasons}")


def show_startup(sink: EventSink, thread_id: str, connection: McpConnection) -> None:
    """Tell a thread's subscribers how the start of one of its servers goes."""
    told = {
        "threadId": thread_id,
        "name": connection.name,
        "environmentId": None,
        "status": connection.state,
        "error": connection.error,
        "failureReason": None,
    }
    sink.publish(thread_id, "mcpServer/startupStatus/updated", told)


def _connections(session: "Session") -> list[McpConnection]:
    tables = session.env.config.mcp_servers
    return session.env.mcp.of_thread(session.thread_id, tables) if tables else []


def _failed(turn: "Turn", call: "OpenCall", item: McpToolCallItem, reason: str, duration_ms: int) -> ToolResult:
    changes = {"status": ItemStatus.FAILED, "error": {"message": reason}, "duration_ms": duration_ms}
    output = _output(turn, call, {"content": [{"type": "text", "text": reason}]})
    return ToolResult(output, item.model_copy(update=changes))


def _output(turn: "Turn", call: "OpenCall", result: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    limit = turn.session.env.config.tool_output_token_limit
    return model_output(result, wall_s=time.monotonic() - call.began, token_limit=limit)


def _tell_progress(turn: "Turn", item_id: str, message: str) -> None:
    turn.session.publish("item/mcpToolCall/progress", {"turnId": turn.id, "itemId": item_id, "message": message})


def _ms_since(began: float) -> int:
    return int((time.monotonic() - began) * 1000)
