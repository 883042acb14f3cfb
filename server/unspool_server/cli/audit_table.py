"""An audited log as a table for people: one row for each line, with what became of it in each view."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from unspool_server.cli.thread_tables import PIPE_WIDTH

VIEWS = ("model", "client", "baseline")
IN_FORCE = "in"
NOT_OF_THIS_KIND = "·"
"""Stands for records whose kind never counts in a view; they are no loss."""


def print_audit(branch: str | None, entries: Sequence[Mapping[str, Any]]) -> None:
    """The lines of a branch, a heading for each rollout, and how to read the columns."""
    console = Console()
    console = console if console.is_terminal else Console(width=PIPE_WIDTH)
    if not entries:
        console.print("no lines")
        return
    table = Table("line", "time", "what", *VIEWS, "content", box=None, pad_edge=False)
    for column in table.columns[:6]:
        column.no_wrap = True
    table.columns[6].overflow = "fold"
    rollout = None
    for entry in entries:
        if entry["rolloutId"] != rollout:
            rollout = entry["rolloutId"]
            table.add_row("", "", "", "", "", "", Text(f"rollout {rollout}", style="bold"))
        table.add_row(*_row(entry))
        if entry.get("raw") is not None:
            table.add_row("", "", "", "", "", "", Text(entry["raw"], style="dim"))
    console.print(table)
    console.print(
        Text(f"\nviews of rollout {branch}; in: in force · {NOT_OF_THIS_KIND}: not of this kind", style="dim")
    )
    console.print(Text("a reason with @line names the record that put the line out", style="dim"))


def _row(entry: Mapping[str, Any]) -> list[Text]:
    what = str(entry.get("event") or entry.get("type") or "unreadable")
    fault = f" [{entry['fault']}]" if entry.get("fault") and entry.get("type") else ""
    lost = not entry.get("type")
    return [
        Text(str(entry["ordinal"]), style="red" if lost else ""),
        Text(str(entry.get("timestamp") or "")[11:19]),
        Text(what + fault, style="red" if lost or fault else ""),
        *(_fate(entry, view) for view in VIEWS),
        Text(" ".join(str(entry["label"]).split())),
    ]


def _fate(entry: Mapping[str, Any], view: str) -> Text:
    fate = entry[view]
    if fate["inForce"]:
        return Text(IN_FORCE, style="green")
    reason = str(fate.get("reason") or "out")
    if reason.startswith("never"):
        return Text(NOT_OF_THIS_KIND, style="dim")
    by = fate.get("by")
    if by is None:
        return Text(reason, style="yellow")
    # Only the end of an id differs between rollouts of one time.
    elsewhere = "" if by["rolloutId"] == entry["rolloutId"] else f"…{str(by['rolloutId'])[-6:]}:"
    return Text(f"{reason} @{elsewhere}{by['ordinal']}", style="yellow")
