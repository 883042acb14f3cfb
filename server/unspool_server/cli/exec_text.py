"""A run's events as text for people; the transcript that `exec` writes to stderr.

Pure: events in, lines out.
"""

from collections.abc import Mapping
from typing import Any

import click
from unspool_client import Event

from unspool_server import __version__
from unspool_server.cli.exec_json import NOTICES, notice

RULE = "--------"


class TextLines:
    """Turns the events of one run into lines of text.

    Args:
        show_users: Also show user messages as they come; `exec` shows its prompt by itself.
    """

    def __init__(self, *, show_users: bool = False) -> None:
        self._show_users = show_users
        self._total: Mapping[str, Any] = {}
        self._error = ""

    def start(self, setup: Mapping[str, Any], prompt: str | None) -> list[str]:
        """The head of the transcript; `setup` is the answer to thread/start, resume or fork."""
        thread, sandbox = setup["thread"], setup.get("sandbox")
        facts = {
            "workdir": setup.get("cwd"),
            "model": setup.get("model"),
            "provider": setup.get("modelProvider"),
            "approval": setup.get("approvalPolicy"),
            "sandbox": _sandbox(sandbox if isinstance(sandbox, Mapping) else {}),
            "reasoning effort": setup.get("reasoningEffort") or "none",
            "session id": thread["id"],
        }
        head = [f"Unspool v{__version__}", RULE]
        head += [f"{click.style(name + ':', bold=True)} {value}" for name, value in facts.items()]
        said = [click.style("user", fg="cyan"), prompt] if prompt is not None else []
        return [*head, RULE, *said]

    def take(self, event: Event) -> list[str]:
        """The lines of one event."""
        params = event.params
        match event.method:
            case "item/completed":
                return self._item(params["item"])
            case "thread/tokenUsage/updated":
                self._total = (params.get("tokenUsage") or {}).get("total") or {}
            case "error":
                self._error = str((params.get("error") or {}).get("message", ""))
                return [click.style(f"ERROR: {self._error}", fg="red")]
            case "turn/completed":
                return self._ended(params["turn"])
            case "thread/reverted":
                return [click.style(f"thread {params.get('reason') or 'reverted'}", fg="magenta")]
            case method if method in NOTICES:
                return [click.style(f"warning: {notice(params)}", fg="yellow")]
        return []

    def _item(self, item: Mapping[str, Any]) -> list[str]:
        match item.get("type"):
            case "userMessage" if self._show_users:
                texts = [part.get("text", "") for part in item.get("content") or () if part.get("type") == "text"]
                return [click.style("user", fg="cyan"), "\n".join(texts)]
            case "agentMessage":
                return [click.style("agent", fg="magenta", italic=True), item.get("text", "")]
            case "reasoning":
                return ["\n".join(item["summary"])] if item.get("summary") else []
            case "commandExecution":
                return _command(item)
            case "dynamicToolCall" | "mcpToolCall":
                return [click.style("tool", fg="magenta", italic=True), f"{item.get('tool')} {item.get('status')}"]
            case "fileChange":
                paths = [str(change.get("path")) for change in item.get("changes") or ()]
                return [click.style("edit", fg="magenta", italic=True), *paths]
            case "contextCompaction":
                return [click.style("context compacted", fg="magenta")]
        return []

    def _ended(self, turn: Mapping[str, Any]) -> list[str]:
        if turn["status"] == "interrupted":
            return [click.style("interrupted", fg="red")]
        if turn["status"] == "failed":
            message = (turn.get("error") or {}).get("message", "")
            return [] if message == self._error else [click.style(f"ERROR: {message}", fg="red")]
        used = self._total.get("inputTokens", 0) - self._total.get("cachedInputTokens", 0)
        return [click.style("tokens used", fg="magenta"), f"{used + self._total.get('outputTokens', 0):,}"]


def _command(item: Mapping[str, Any]) -> list[str]:
    head = f"{click.style(item.get('command', ''), bold=True)} in {item.get('cwd', '')}"
    status, code = item.get("status"), item.get("exitCode")
    outcome = "succeeded" if status == "completed" else f"exited {code}" if code is not None else str(status)
    color = "green" if status == "completed" else "red"
    took = f" in {item['durationMs']}ms" if item.get("durationMs") is not None else ""
    output = item.get("aggregatedOutput") or ""
    return [
        click.style("exec", fg="magenta", italic=True),
        head,
        click.style(f" {outcome}{took}:", fg=color),
        *([output.rstrip("\n")] if output else []),
    ]


def _sandbox(policy: Mapping[str, Any]) -> str:
    names = {"dangerFullAccess": "danger-full-access", "readOnly": "read-only", "workspaceWrite": "workspace-write"}
    kind = str(policy.get("type", "unknown"))
    return names.get(kind, kind)
