"""`exec --json`: a thread's events as the lines that `codex exec --json` prints, measured on it.

Pure: events in, lines out. Lines are `thread.started`, `turn.started`, `item.started|updated|completed`,
`turn.completed`, `turn.failed` and `error`; items are numbered in the order in which they are first seen.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from unspool_client import Event

Json = dict[str, Any]

NOTICES = frozenset({"warning", "deprecationNotice", "configWarning"})
"""Shown as items of type `error`, as the reference does."""


class JsonLines:
    """Turns the events of one run into lines.

    Attributes:
        last_message: The newest agent message, None before the first.
        failed: Whether an error or a failed turn was seen.
    """

    def __init__(self) -> None:
        self.last_message: str | None = None
        self.failed = False
        self._numbers: dict[str, str] = {}
        self._next = 0
        self._usage: Mapping[str, Any] = {}
        self._error = ""
        self._plan: Json | None = None

    def start(self, setup: Mapping[str, Any]) -> list[Json]:
        """The first line; `setup` is the answer to thread/start, resume or fork."""
        return [{"type": "thread.started", "thread_id": setup["thread"]["id"]}]

    def take(self, event: Event) -> list[Json]:
        """The lines of one event, mostly one or none."""
        params = event.params
        match event.method:
            case "turn/started":
                return [{"type": "turn.started"}]
            case "item/started":
                return self._item("item.started", params["item"])
            case "item/completed":
                return self._item("item.completed", params["item"])
            case "turn/plan/updated":
                return self._plan_updated(params.get("plan") or ())
            case "thread/tokenUsage/updated":
                self._usage = (params.get("tokenUsage") or {}).get("total") or {}
            case "error":
                return self._failed(params.get("error") or {})
            case "turn/completed":
                return self._ended(params["turn"])
            case method if method in NOTICES:
                message = notice(params)
                return [_line("item.completed", {"id": self._number(), "type": "error", "message": message})]
        return []

    def _item(self, kind: str, item: Mapping[str, Any]) -> list[Json]:
        if item.get("type") == "agentMessage" and kind == "item.completed" and not item.get("partial"):
            self.last_message = item.get("text", "")
        shape = SHAPES.get(str(item.get("type")))
        if shape is None or (kind == "item.started" and item["type"] in ("agentMessage", "reasoning")):
            return []
        fields = shape(item)
        if fields is None:
            return []
        return [_line(kind, {"id": self._number(item.get("id")), **fields})]

    def _plan_updated(self, steps: Sequence[Mapping[str, Any]]) -> list[Json]:
        items = [{"text": step.get("step", ""), "completed": step.get("status") == "completed"} for step in steps]
        kind = "item.started" if self._plan is None else "item.updated"
        number = self._number() if self._plan is None else self._plan["id"]
        self._plan = {"id": number, "type": "todo_list", "items": items}
        return [_line(kind, self._plan)]

    def _failed(self, error: Mapping[str, Any]) -> list[Json]:
        message, details = str(error.get("message", "")), error.get("additionalDetails")
        self._error = f"{message} ({details})" if details else message
        self.failed = True
        return [{"type": "error", "message": self._error}]

    def _ended(self, turn: Mapping[str, Any]) -> list[Json]:
        lines = [_line("item.completed", self._plan)] if self._plan is not None else []
        self._plan = None
        if turn["status"] == "completed":
            self.failed = False
            return [*lines, {"type": "turn.completed", "usage": usage(self._usage)}]
        self.failed = True
        if turn["status"] == "failed":
            message = (turn.get("error") or {}).get("message") or self._error
            return [*lines, {"type": "turn.failed", "error": {"message": message}}]
        return lines

    def _number(self, item_id: object = None) -> str:
        """`item_N`: the same for all events of an item."""
        known = self._numbers.get(item_id) if isinstance(item_id, str) else None
        if known is None:
            known = f"item_{self._next}"
            self._next += 1
            if isinstance(item_id, str):
                self._numbers[item_id] = known
        return known


def usage(total: Mapping[str, Any]) -> Json:
    """Tokens of the whole thread; what the server does not tell is 0."""
    return {
        "input_tokens": total.get("inputTokens", 0),
        "cached_input_tokens": total.get("cachedInputTokens", 0),
        "cache_write_input_tokens": total.get("cacheWriteInputTokens", 0),
        "output_tokens": total.get("outputTokens", 0),
        "reasoning_output_tokens": total.get("reasoningOutputTokens", 0),
    }


def notice(params: Mapping[str, Any]) -> str:
    """The text of a warning or deprecation notice."""
    text = params.get("message") or params.get("summary") or ""
    details = params.get("details")
    return f"{text} ({details})" if details else str(text)


def _line(kind: str, item: Json) -> Json:
    return {"type": kind, "item": item}


def _status(item: Mapping[str, Any]) -> str:
    status = str(item.get("status", ""))
    return "in_progress" if status == "inProgress" else status


def _message(item: Mapping[str, Any]) -> Json:
    return {"type": "agent_message", "text": item.get("text", "")}


def _reasoning(item: Mapping[str, Any]) -> Json | None:
    text = "\n".join(item.get("summary") or ())
    return {"type": "reasoning", "text": text} if text.strip() else None


def _command(item: Mapping[str, Any]) -> Json:
    return {
        "type": "command_execution",
        "command": item.get("command", ""),
        "aggregated_output": item.get("aggregatedOutput") or "",
        "exit_code": item.get("exitCode"),
        "status": _status(item),
    }


def _file_change(item: Mapping[str, Any]) -> Json:
    def kind(change: Mapping[str, Any]) -> object:
        told = change.get("kind")
        return told.get("type") if isinstance(told, Mapping) else told

    changes = [{"path": change.get("path"), "kind": kind(change)} for change in item.get("changes") or ()]
    return {"type": "file_change", "changes": changes, "status": _status(item)}


def _mcp_call(item: Mapping[str, Any]) -> Json:
    names = ("server", "tool", "arguments", "result", "error")
    return {"type": "mcp_tool_call", **{name: item.get(name) for name in names}, "status": _status(item)}


def _web_search(item: Mapping[str, Any]) -> Json:
    return {"type": "web_search", "query": item.get("query", ""), "action": item.get("action")}


SHAPES: Mapping[str, Callable[[Mapping[str, Any]], Json | None]] = {
    "agentMessage": _message,
    "reasoning": _reasoning,
    "commandExecution": _command,
    "fileChange": _file_change,
    "mcpToolCall": _mcp_call,
    "webSearch": _web_search,
}
"""Item types that have lines; user messages, compactions and types of the future have none."""
