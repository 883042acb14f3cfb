"""Hand-made logs in a home, and what model and clients see of them."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspool_server.history.prompt import prompt_items
from unspool_server.sessions.session import Session

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client

THREAD = "01900000-0000-7000-8000-0000000000aa"
CASES = Path(__file__).parents[1] / "fixtures" / "bugs"


def log_path(house: House, thread_id: str = THREAD) -> Path:
    """Where a log of that thread lies."""
    return house.home / "sessions/2026/01/05" / f"rollout-2026-01-05T10-00-00-{thread_id}.jsonl"


def place(house: House, name: str) -> Path:
    """Put a case into the home."""
    path = log_path(house)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(CASES / f"{name}.jsonl", path)
    return path


def lines_of(name: str) -> list[bytes]:
    """The lines of a case."""
    return (CASES / f"{name}.jsonl").read_bytes().split(b"\n")[:-1]


def write_lines(house: House, lines: list[bytes]) -> Path:
    """Put a log with these lines into the home."""
    path = log_path(house)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


async def resume(client: Client, thread_id: str = THREAD, **params: Any) -> Any:
    """Open the thread with the offline model."""
    return await client.call("thread/resume", {"threadId": thread_id, "modelProvider": "offline", **params})


def warnings(client: Client, since: int = 0) -> dict[str, Mapping[str, Any]]:
    """Warnings that came, by code."""
    return {m["params"]["code"]: m["params"] for m in client.seen[since:] if m.get("method") == "warning"}


def model_texts(session: Session) -> list[str]:
    """The texts of what the model would be sent, context left out."""
    texts = []
    for item in prompt_items(session.history.state.history):
        content = item.get("content")
        text = "".join(str(part.get("text", "")) for part in content) if isinstance(content, list | tuple) else ""
        if text and not text.startswith("<") and item.get("role") != "developer":
            texts.append(text)
    return texts


def said(daemon: LocalDaemon, thread_id: str = THREAD) -> list[str]:
    """The same for a loaded thread."""
    return model_texts(daemon.session(thread_id))


def decoded(lines: list[bytes]) -> list[dict[str, Any]]:
    """Lines as JSON."""
    return [json.loads(line) for line in lines]
