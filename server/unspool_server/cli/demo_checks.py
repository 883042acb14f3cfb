"""What the demo looks at to check its claims: turns as clients see them, events, and the bytes of the logs."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from unspool_client import Event, ThreadHandle

from unspool_server.cli.demo_telling import Telling

Turns = list[Mapping[str, Any]]
Files = dict[Path, bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """How a question went: the turn's status, its last message, and the pieces in which that came in."""

    turn_id: str
    status: str
    text: str
    pieces: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the turn was completed with an answer."""
        return self.status == "completed" and bool(self.text)


async def ask(telling: Telling, thread: ThreadHandle, question: str) -> Asked:
    """Run a turn and print the answer as it comes in."""
    telling.quote("you", question)
    pieces: list[str] = []
    text, status = "", "lost"
    async with thread.events("now") as stream:
        turn = await thread.start_turn(question)
        async for event in stream:
            if event.turn_id != turn.id:
                continue
            if event.method == "item/agentMessage/delta":
                telling.piece(event.params["delta"], first="" if pieces else "model")
                pieces.append(event.params["delta"])
            elif event.method == "item/completed" and event.params["item"]["type"] == "agentMessage":
                text = event.params["item"]["text"]
            elif event.method == "turn/completed":
                status = event.params["turn"]["status"]
                break
    telling.end_pieces()
    return Asked(turn.id, status, text, tuple(pieces))


async def shown(thread: ThreadHandle) -> Turns:
    """The thread's turns as any client sees them, oldest first."""
    return [turn.model_dump(mode="json", by_alias=True) async for turn in thread.turns()]


def said(turns: Turns) -> list[str]:
    """The user's sentences, oldest first."""
    users = [item for turn in turns for item in turn["items"] if item["type"] == "userMessage"]
    return ["".join(part.get("text", "") for part in item["content"]) for item in users]


def facts(events: Sequence[Event]) -> list[tuple[str, str | None, Mapping[str, Any]]]:
    """What makes an event the same as another: its kind, its place, its content."""
    return [(event.method, event.cursor, event.params) for event in events]


def tokens_sent(events: Sequence[Event]) -> int:
    """Input tokens of the newest request."""
    usages = [event.params["tokenUsage"] for event in events if event.method == "thread/tokenUsage/updated"]
    return int(usages[-1]["last"]["inputTokens"])


def logs(home: Path) -> Files:
    """All logs with their bytes."""
    return {path: path.read_bytes() for path in sorted((home / "sessions").rglob("*.jsonl"))}


def only_grown(before: Files, after: Files) -> bool:
    """Whether every log that was there still begins with the bytes that it had."""
    return all(after.get(path, b"").startswith(content) for path, content in before.items())


def last_summary(home: Path, thread_id: str) -> str:
    """The text of the newest summary in a thread's logs, empty when there is none."""
    contents = [content for path, content in logs(home).items() if thread_id in path.name]
    lines = [line for content in contents for line in content.splitlines() if b'"compacted"' in line]
    return str(json.loads(lines[-1])["payload"]["message"]) if lines else ""


def place_codex_log(home: Path) -> Path:
    """Copy the log that ships with this package to where Codex would have put it; gives its path."""
    folder = files("unspool_server.cli") / "demo_log"
    (log,) = [entry for entry in folder.iterdir() if entry.name.endswith(".jsonl")]
    year, month, day = re.findall(r"\d+", log.name)[:3]
    target: Path = home / "sessions" / year / month / day / log.name
    target.parent.mkdir(parents=True, exist_ok=True)
    with as_file(log) as source:
        shutil.copyfile(source, target)
    return target
