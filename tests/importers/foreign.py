"""Sessions of other programs, written by hand in their formats."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Line = dict[str, Any]

CLAUDE_SESSION = "8f1c2d3e-4a5b-4c6d-8e7f-0123456789ab"
PI_SESSION = "3b9d8c7e-6f5a-4b3c-9d2e-abcdef012345"
CWD = "/tmp"


def write(path: Path, lines: Iterable[Mapping[str, Any] | str]) -> Path:
    """Write lines; texts stand as they are."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines), "utf-8")
    return path


def stamp(second: int) -> str:
    """A time in July 2025."""
    return f"2025-07-03T10:{second // 60:02d}:{second % 60:02d}.250Z"


class Claude:
    """Builds the lines of a Claude Code session; each entry follows the one before unless told otherwise."""

    def __init__(self, session: str = CLAUDE_SESSION) -> None:
        self.session = session
        self.lines: list[Line | str] = []
        self.newest: str | None = None
        self._second = 0

    def entry(self, kind: str, uuid: str, *, parent: str | None = "", **members: Any) -> str:
        """Add an entry; gives its uuid."""
        above = self.newest if parent == "" else parent
        self._second += 1
        common = {
            "parentUuid": above,
            "isSidechain": False,
            "userType": "external",
            "cwd": CWD,
            "sessionId": self.session,
            "version": "2.0.55",
            "gitBranch": "main",
        }
        line = {**common, "type": kind, "uuid": uuid, "timestamp": stamp(self._second), **members}
        self.lines.append(line)
        self.newest = uuid
        return uuid

    def user(self, uuid: str, content: Any, **members: Any) -> str:
        """The user's message, or results of tools."""
        return self.entry("user", uuid, message={"role": "user", "content": content}, **members)

    def said(self, uuid: str, *blocks: Line, answer: str | None = None, **members: Any) -> str:
        """A piece of an answer."""
        message = {
            "id": answer or f"msg_{uuid}",
            "type": "message",
            "role": "assistant",
            "model": "claude-sonnet-4-5",
            "content": list(blocks),
            "usage": {"input_tokens": 3, "output_tokens": 4},
        }
        return self.entry("assistant", uuid, message=message, **members)

    def result(self, uuid: str, call: str, content: Any, **members: Any) -> str:
        """A tool's answer."""
        return self.user(uuid, [{"type": "tool_result", "tool_use_id": call, "content": content}], **members)


def text(words: str) -> Line:
    """A text block."""
    return {"type": "text", "text": words}


def use(call: str, name: str, **arguments: Any) -> Line:
    """A call of a tool."""
    return {"type": "tool_use", "id": call, "name": name, "input": arguments}


class Pi:
    """Builds the lines of a Pi session."""

    def __init__(self, session: str = PI_SESSION, version: int = 3, **header: Any) -> None:
        self.lines: list[Line | str] = [
            {"type": "session", "version": version, "id": session, "timestamp": stamp(0), "cwd": CWD, **header}
        ]
        self.newest: str | None = None
        self._second = 0

    def entry(self, kind: str, entry_id: str, *, parent: str | None = "", **members: Any) -> str:
        """Add an entry; gives its id."""
        above = self.newest if parent == "" else parent
        self._second += 1
        self.lines.append(
            {"type": kind, "id": entry_id, "parentId": above, "timestamp": stamp(self._second), **members}
        )
        self.newest = entry_id
        return entry_id

    def message(self, entry_id: str, role: str, content: Any = None, *, parent: str | None = "", **members: Any) -> str:
        """Add a message."""
        message = {"role": role, **({} if content is None else {"content": content}), **members}
        return self.entry("message", entry_id, parent=parent, message=message)
