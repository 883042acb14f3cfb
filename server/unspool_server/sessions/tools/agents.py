"""Tools with which the model starts agents and talks with them; names and answers are those of the reference.

What agents are and where their answers go is `sessions/agents/agents.py`'s.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unspool_protocol.items import CollabAgentToolCallItem, ItemStatus, SubAgentActivityItem

from unspool_server.errors import UnspoolError
from unspool_server.sessions.agents.host import AgentError, NewAgent
from unspool_server.sessions.tools.contract import ToolResult

if TYPE_CHECKING:
    from unspool_server.sessions.session import Session
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.turn import Turn

NAMESPACE = "collaboration"
DESCRIPTION = "Tools for spawning and managing sub-agents."
DEFAULT_WAIT_MS, MAX_WAIT_MS = 30_000, 3_600_000

_TEXT = {"type": "string"}
_TOOLS: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "followup_task": (
        "Give an agent a further task. It begins a turn if the agent has none; a running agent gets it with its next "
        "step.",
        {"target": _TEXT, "message": _TEXT},
        ("target", "message"),
    ),
    "interrupt_agent": (
        "End what an agent is doing now and tell its status before. It stays available for messages and tasks.",
        {"target": _TEXT},
        ("target",),
    ),
    "list_agents": ("List the agents of this tree with their status.", {"path_prefix": _TEXT}, ()),
    "send_message": (
        "Tell an agent something without giving it a task: it begins no turn.",
        {"target": _TEXT, "message": _TEXT},
        ("target", "message"),
    ),
    "spawn_agent": (
        "Start an agent that works on a task of its own beside you. Its final answer comes to you as a message. Name "
        "it with lowercase letters, digits and underscores. With fork_turns `all` it knows what was said before this "
        "turn, with `none` only its task.",
        {
            "task_name": _TEXT,
            "message": _TEXT,
            "fork_turns": {"type": "string", "enum": ["all", "none"]},
            "model": _TEXT,
            "reasoning_effort": _TEXT,
        },
        ("task_name", "message"),
    ),
    "wait_agent": (
        "Wait until an agent answers or something else arrives. The answer itself follows as a message. Takes a time "
        "limit in milliseconds, by default 30000.",
        {"timeout_ms": {"type": "number"}},
        (),
    ),
}


@dataclass(frozen=True, slots=True)
class AgentTool:
    """One of them."""

    name: str
    namespace: str | None = NAMESPACE

    def declaration(self) -> dict[str, Any]:
        """As a function."""
        words, properties, required = _TOOLS[self.name]
        schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
        return {
            "type": "function",
            "name": self.name,
            "description": words,
            "strict": False,
            "parameters": schema,
        }

    async def run(self, turn: "Turn", call: "OpenCall", arguments: Any) -> ToolResult:
        """Do it; what cannot be done is said to the model."""
        required = _TOOLS[self.name][2]
        given = arguments if isinstance(arguments, Mapping) else {}
        missing = next((name for name in required if not isinstance(given.get(name), str) or not given[name]), None)
        if missing is not None:
            return ToolResult(f"`{missing}` must be a text")
        try:
            return await _RUN[self.name](turn, call, given)
        except AgentError as error:
            return ToolResult(str(error))
        except UnspoolError as error:
            return ToolResult(f"the agent cannot be reached: {error}")


def agent_tools(session: "Session") -> Iterator[AgentTool]:
    """The tools, where the configuration offers them and the thread may start agents of its own."""
    options = session.env.config.agents
    if options.enabled and session.env.agents.depth(session) < options.max_depth:
        for name in _TOOLS:
            yield AgentTool(name)


async def _spawn(turn: "Turn", call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    fork, model, effort = given.get("fork_turns") == "all", _word(given, "model"), _word(given, "reasoning_effort")
    wanted = NewAgent(given["task_name"], given["message"], fork, model, effort)
    path, thread_id = await turn.session.env.agents.spawn(turn, wanted)
    settings = turn.plan.settings
    told = {"model": model or settings.model, "reasoning_effort": effort or settings.effort}
    return ToolResult(_json({"task_name": path}), _activity(call, "started", path, thread_id, **told))


async def _follow_up(turn: "Turn", call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    path, thread_id = await turn.session.env.agents.send(turn, given["target"], given["message"], trigger=True)
    return ToolResult("", _activity(call, "interacted", path, thread_id))


async def _send(turn: "Turn", call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    path, thread_id = await turn.session.env.agents.send(turn, given["target"], given["message"], trigger=False)
    return ToolResult("", _activity(call, "interacted", path, thread_id))


async def _interrupt(turn: "Turn", call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    path, thread_id, before = await turn.session.env.agents.interrupt(turn, given["target"])
    return ToolResult(_json({"previous_status": before}), _activity(call, "interrupted", path, thread_id))


async def _list(turn: "Turn", _call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    prefix = _word(given, "path_prefix") or ""
    found = await turn.session.env.agents.statuses(turn.session)
    listed = [{"agent_name": path, "agent_status": found[path]} for path in sorted(found) if path.startswith(prefix)]
    return ToolResult(_json({"agents": listed}))


async def _wait(turn: "Turn", call: "OpenCall", given: Mapping[str, Any]) -> ToolResult:
    wanted = given.get("timeout_ms", DEFAULT_WAIT_MS)
    limit_ms = min(max(wanted, 0), MAX_WAIT_MS) if isinstance(wanted, int | float) else DEFAULT_WAIT_MS
    item = CollabAgentToolCallItem(id=call.call_id, sender_thread_id=turn.session.thread_id)
    turn.show_started(item)
    done = item.model_copy(update={"status": ItemStatus.COMPLETED})
    if not turn.pending and not turn.session.env.agents.any_running(turn.session):
        return ToolResult(_json({"message": "No agent is running.", "timed_out": False}), done)
    try:
        async with asyncio.timeout(limit_ms / 1000):
            await turn.arrived.wait()
    except TimeoutError:
        return ToolResult(_json({"message": "Wait timed out.", "timed_out": True}), done)
    return ToolResult(_json({"message": "Wait completed.", "timed_out": False}), done)


_RUN = {
    "followup_task": _follow_up,
    "interrupt_agent": _interrupt,
    "list_agents": _list,
    "send_message": _send,
    "spawn_agent": _spawn,
    "wait_agent": _wait,
}


def _activity(call: "OpenCall", kind: Any, path: str, thread_id: str, **more: Any) -> SubAgentActivityItem:
    return SubAgentActivityItem(id=call.call_id, kind=kind, agent_thread_id=thread_id, agent_path=path, **more)


def _word(given: Mapping[str, Any], name: str) -> str | None:
    value = given.get(name)
    return value if isinstance(value, str) and value else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
