"""Whether a call of an MCP tool may go out: what the tool says of itself, the thread's policy, and the user's word.

The rules are the reference's: tools that only read, or neither destroy nor reach out, run; others run by themselves
only where nothing is sandboxed and nothing is asked, and are asked for with `mcpServer/elicitation/request` elsewhere.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unspool_protocol.requests import MCP_ELICITATION
from unspool_protocol.settings import DangerFullAccess, ExternalSandbox

from unspool_server.mcp.connection import McpConnection
from unspool_server.sessions.settings import ThreadSettings
from unspool_server.sessions.tools.waiting import waiting

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

_POLICY_NEVER = "MCP tool call requires approval, but approval policy is never"
_REJECTED = "user rejected MCP tool call"
_CANCELLED = "user cancelled MCP tool call"


async def refusal(turn: "Turn", connection: McpConnection, spec: Mapping[str, Any], arguments: Any) -> str | None:
    """Why the call must not go out, for the model; None when it may."""
    tool = str(spec["name"])
    mode = connection.config.approval_of(tool)
    granted = turn.session.granted
    key = ("mcp", connection.name, tool)
    if mode == "approve" or key in granted:
        return None
    if mode == "auto" and not may_change_something(spec.get("annotations") or {}):
        return None
    settings = turn.plan.settings
    if settings.approval_policy == "never":
        return None if _is_unconfined(settings) and mode == "auto" else _POLICY_NEVER
    answer = await _ask(turn, _request(turn, connection.name, spec, arguments))
    if answer.get("action") == "accept":
        if (answer.get("_meta") or {}).get("persist") in ("session", "always"):
            granted.add(key)
        return None
    return _REJECTED if answer.get("action") == "decline" else _CANCELLED


def may_change_something(annotations: Mapping[str, Any]) -> bool:
    """Whether a tool's hints leave room for harm; a tool without hints may do anything (MCP, tool annotations)."""
    if annotations.get("destructiveHint") is True:
        return True
    if annotations.get("readOnlyHint") is True:
        return False
    return annotations.get("destructiveHint") is not False or annotations.get("openWorldHint") is not False


async def _ask(turn: "Turn", request: Mapping[str, Any]) -> Mapping[str, Any]:
    session = turn.session
    with waiting(turn, "waitingOnApproval"):
        answer = await session.env.sink.ask(session.thread_id, turn.id, MCP_ELICITATION, request)
    result = answer.get("result")
    return result if isinstance(result, Mapping) else {}


def _request(turn: "Turn", server: str, spec: Mapping[str, Any], arguments: Any) -> dict[str, Any]:
    tool = str(spec["name"])
    shown = {"tool_title": spec.get("title"), "tool_annotations": spec.get("annotations")}
    shown |= {"tool_description": spec.get("description")}
    given = arguments if isinstance(arguments, Mapping) else {}
    return {
        "threadId": turn.session.thread_id,
        "turnId": turn.id,
        "serverName": server,
        "environmentId": None,
        "mode": "form",
        "_meta": {
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session"],
            "tool_name": tool,
            **{name: value for name, value in shown.items() if value is not None},
            "tool_params": arguments,
            "tool_params_display": [{"name": key, "value": given[key], "display_name": key} for key in given],
        },
        "message": f'Allow the {server} MCP server to run tool "{tool}"?',
        "requestedSchema": {"type": "object", "properties": {}},
    }


def _is_unconfined(settings: ThreadSettings) -> bool:
    return isinstance(settings.sandbox, DangerFullAccess | ExternalSandbox)
