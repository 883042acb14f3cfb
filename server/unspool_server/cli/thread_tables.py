"""Threads and turns as tables for people."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

SHOWN_CHARS = 200
PIPE_WIDTH = 240


def print_threads(threads: Sequence[Mapping[str, Any]]) -> None:
    """One line per thread."""
    console = _console()
    if not threads:
        console.print("no threads")
        return
    table = Table("id", "updated", "folder", "name or first words", box=None, pad_edge=False)
    for column in table.columns[:2]:
        column.no_wrap = True
    table.columns[2].overflow = "fold"
    for thread in threads:
        title = thread.get("name") or thread.get("preview") or ""
        table.add_row(thread["id"], _time(thread.get("updatedAt")), Text(str(thread.get("cwd", ""))), _line(title))
    console.print(table)


def print_thread(thread: Mapping[str, Any]) -> None:
    """A thread's facts, then its turns."""
    console = _console()
    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column()
    facts.add_column(overflow="fold")
    for label, value in (
        ("id", thread["id"]),
        ("name", thread.get("name")),
        ("folder", thread.get("cwd")),
        ("model", " ".join(str(part) for part in (thread.get("modelProvider"), thread.get("model")) if part)),
        ("created", _time(thread.get("createdAt"))),
        ("updated", _time(thread.get("updatedAt"))),
        ("forked from", thread.get("forkedFromId")),
        ("log", thread.get("path")),
    ):
        if value:
            facts.add_row(Text(label, style="bold"), Text(str(value)))
    console.print(facts)
    for turn in thread.get("turns") or ():
        console.print(Text(f"\nturn {turn['id']} {turn.get('status')}", style="bold"))
        for item in turn.get("items") or ():
            words = _words(item)
            kind = Text(f"  {item.get('type')}{': ' if words else ''}", style="dim")
            console.print(kind + _line(words))


def _console() -> Console:
    """As wide as the terminal; wide enough for ids and paths where the output is a pipe or a file."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)


def _words(item: Mapping[str, Any]) -> str:
    if item.get("type") == "userMessage":
        return " ".join(part.get("text", f"[{part.get('type')}]") for part in item.get("content") or ())
    for key in ("text", "command", "tool", "query"):
        if item.get(key):
            return str(item[key])
    return " ".join(item.get("summary") or ())


def _line(text: str) -> Text:
    """One line without markup, cut where it gets too long."""
    flat = " ".join(text.split())
    return Text(flat if len(flat) <= SHOWN_CHARS else flat[: SHOWN_CHARS - 1] + "…")


def _time(seconds: object) -> str:
    if not isinstance(seconds, int | float):
        return ""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
