"""Contexts and differences of threads as tables for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

SHOWN_CHARS = 160
PIPE_WIDTH = 240


def print_context(found: Mapping[str, Any]) -> None:
    """What the model sees, item by item, with estimated tokens."""
    console = _console()
    table = Table("place", "tokens", "item", box=None, pad_edge=False)
    for entry in (found["baseInstructions"], *found["items"]):
        place = entry["position"]
        table.add_row(_place(place) if place else "·", str(entry["tokens"]), _line(words(entry["item"])))
    console.print(table)
    window, settings = found["window"], found["settings"]
    console.print(f"total {found['totalTokens']} tokens, window {window['number']}, model {settings.get('model')}")
    shown = [name for name, value in found["baseline"].items() if value is not None]
    console.print(f"already shown: {', '.join(shown) if shown else 'nothing, the next turn tells its context anew'}")


def print_diff(found: Mapping[str, Any]) -> None:
    """One line for each item, setting and turn that differs."""
    console = _console()
    shared = found["commonAncestor"]
    console.print(f"from {_place(found['from'])} to {_place(found['to'])}")
    console.print(f"common past up to {_place(shared) if shared else 'nothing'}, {found['items']['kept']} items kept")
    items = found["items"]
    _print_items(console, "-", items["removed"])
    for one in items["replaced"]:
        console.print(f"replaced by {_place(one['by'])}")
        _print_items(console, "  -", one["removed"])
        _print_items(console, "  +", one["added"])
    _print_items(console, "+", items["added"])
    for change in found["settings"]:
        console.print(Text(f"{change['name']}: {change['old']} -> {change['new']}"))
    for sign, name in (("-", "removed"), ("+", "added"), ("~", "changed")):
        for turn_id in found["turns"][name]:
            console.print(f"{sign} turn {turn_id}")


def _print_items(console: Console, sign: str, items: Sequence[Mapping[str, Any]]) -> None:
    for one in items:
        console.print(Text(f"{sign} {_place(one['position'])} ") + _line(words(one["item"])))


def words(item: Mapping[str, Any]) -> str:
    """What an item is and says, in one line."""
    who = item.get("role") or item.get("type") or "item"
    content = item.get("content")
    parts = content if isinstance(content, list) else [content]
    texts = [str(part.get("text", "")) if isinstance(part, Mapping) else str(part or "") for part in parts]
    said = " ".join(texts) or str(item.get("output") or item.get("arguments") or item.get("name") or "")
    return f"{who}: {said}"


def _line(text: str) -> Text:
    flat = " ".join(text.split())
    return Text(flat if len(flat) <= SHOWN_CHARS else f"{flat[: SHOWN_CHARS - 1]}…")


def _place(position: Mapping[str, Any]) -> str:
    return f"{position['rolloutId']}:{position['ordinal']}"


def _console() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=PIPE_WIDTH)
