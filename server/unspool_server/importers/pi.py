"""Pi sessions (`~/.pi/agent/sessions/**/TIME_ID.jsonl`, versions 1 to 3) as threads of ours.

The first line is the header; every other line is an entry of one tree by `id` and `parentId` (version 1 knows neither:
each entry follows the one before). The newest entry's path is the present.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .content import Lose, part_of, parts_of
from .identity import as_uuid, milliseconds_of
from .report import FileReport
from .source import Entry, SourceFile, SourceLine, object_at, text_at
from .story import Story, items_told
from .tree import Node
from .tree_session import Part, TreeSession

FORMAT = "pi"

_TOLD = frozenset({"message", "compaction", "branch_summary", "custom_message"})
_SETTINGS = frozenset({"model_change", "thinking_level_change", "session_info"})
_WHY = {
    "label": "Bookmarks have no counterpart.",
    "custom": "State of extensions has no counterpart.",
}
_BRANCH_SUMMARY = (
    "The following is a summary of a branch that this conversation came back from:\n\n<summary>\n{}</summary>"
)
"""As the source tells it to its model."""


@dataclass(slots=True)
class _Scan:
    """What a first pass over a file found."""

    header: Entry = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    ids: dict[str, Node] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    positions: list[Node | None] = field(default_factory=list)
    name: str | None = None


class Pi:
    """Converts one file."""

    def __init__(self, source: SourceFile, report: FileReport) -> None:
        self._source = source
        self._report = report
        self._found = _Scan()

    def convert(self) -> TreeSession | None:
        """The threads of the file; None when it has no header or nothing behind it."""
        for line in self._source:
            if line.fault is not None:
                self._report.lose(line.fault, "The line is damaged.", line=line.number)
            for index, entry in enumerate(line.objects):
                self._scan(line, index, entry)
        found = self._found
        if not found.header or not found.nodes:
            return None
        session_id = text_at(found.header, "id") or self._source.path.stem
        cwd = text_at(found.header, "cwd") or ""
        names: Mapping[str | None, str] = {None: found.name} if found.name else {}
        header = {"cwd": cwd, "originator": "pi"}
        converted = TreeSession(self._tell, lambda node: found.times[node.line], self._report)
        converted.add(
            Part((FORMAT, session_id), cwd, header, as_uuid(session_id), names, forked_from=self._parent_session()),
            found.nodes,
            found.nodes[-1],
        )
        return converted

    def _parent_session(self) -> str | None:
        """The session that this one was forked from; its path is told, whose last piece holds the id."""
        path = text_at(self._found.header, "parentSession") or text_at(self._found.header, "branchedFrom")
        match = re.search(r"_([0-9a-fA-F-]{36})\.jsonl$", path or "")
        return as_uuid(match[1]) if match else None

    def _scan(self, line: SourceLine, index: int, entry: Entry) -> None:
        found, kind = self._found, entry["type"]
        if kind == "session":
            if found.header:
                self._report.lose(kind, "A file has one header.", line=line.number, item_id=entry.get("id"))
            else:
                found.header = entry
            found.positions.append(None)
            return
        entry_id = text_at(entry, "id")
        linear = _version(found.header) < 2 or entry_id is None
        node_id = entry_id or f"line {line.number}"
        if node_id in found.ids:
            self._report.lose(kind, "Another entry has the same id.", line=line.number, item_id=entry_id)
            return
        newest = found.times[found.nodes[-1].line] if found.nodes else milliseconds_of(found.header.get("timestamp"))
        found.times[line.number] = milliseconds_of(entry.get("timestamp")) or newest or 0
        node = Node(
            index=len(found.nodes),
            id=node_id,
            offset=line.offset,
            line=line.number,
            part=index,
            parent=self._parent(line, entry, linear=linear),
            weighty=kind in _TOLD,
            calls=_calls(entry),
            results=_results(entry),
        )
        found.nodes.append(node)
        found.ids[node_id] = node
        found.positions.append(node)
        if kind == "session_info":
            found.name = text_at(entry, "name") or found.name
        elif kind not in _TOLD | _SETTINGS:
            why = _WHY.get(kind, "This kind of entry has no counterpart.")
            self._report.lose(kind, why, line=line.number, item_id=entry_id)

    def _parent(self, line: SourceLine, entry: Entry, *, linear: bool) -> int | None:
        found = self._found
        before = found.nodes[-1].index if found.nodes else None
        named = text_at(entry, "parentId")
        if linear:
            return before
        if named is None:
            return None
        if named in found.ids:
            return found.ids[named].index
        why = "The parent is missing; the entry was put behind the one before it."
        self._report.lose("parentId", why, line=line.number, item_id=named)
        return before

    def _tell(self, story: Story, node: Node, only_missing: bool) -> None:
        entry = self._source.entry(node.offset, node.part)
        story.at(node.id, self._found.times[node.line])

        def lose(what: str, why: str) -> None:
            if not only_missing:
                self._report.lose(what, why, line=node.line, item_id=node.id)

        kind = entry["type"]
        if only_missing and not node.results:
            return
        if kind == "message":
            self._tell_message(story, object_at(entry, "message"), lose, quiet=only_missing)
        elif kind == "custom_message":
            _tell_custom(story, entry, lose)
        elif kind == "branch_summary" and text_at(entry, "summary"):
            story.context([{"text": _BRANCH_SUMMARY.format(entry["summary"])}])
        elif kind == "compaction":
            story.compacted(text_at(entry, "summary") or "", self._kept(story, node, entry))
        elif kind == "model_change":
            story.uses(text_at(entry, "modelId"))
        elif kind == "thinking_level_change":
            story.uses(None, text_at(entry, "thinkingLevel"))

    def _kept(self, story: Story, node: Node, entry: Entry) -> list[Mapping[str, Any]]:
        """Items of the entries from the first kept one up to the compaction."""
        first = self._found.ids.get(text_at(entry, "firstKeptEntryId") or "")
        number = entry.get("firstKeptEntryIndex")
        if first is None and isinstance(number, int) and 0 <= number < len(self._found.positions):
            first = self._found.positions[number]
        path: list[Node] = []
        at = node.parent
        while at is not None:
            path.append(self._found.nodes[at])
            at = self._found.nodes[at].parent
        path.reverse()
        if first not in path:
            return []
        kept = path[path.index(first) :]

        def tell(part: Story) -> None:
            for each in kept:
                if self._source.entry(each.offset, each.part)["type"] != "compaction":
                    self._tell(part, each, False)

        return items_told((FORMAT, str(self._found.header.get("id"))), story.cwd, story.ms, tell)

    def _tell_message(self, story: Story, message: Entry, lose: Lose, *, quiet: bool) -> None:
        tellers: Mapping[str, Callable[[Story, Entry, Lose], None]] = {
            "user": _tell_user,
            "assistant": self._tell_answer,
            "bashExecution": _tell_shell,
            "custom": _tell_custom,
            "hookMessage": _tell_custom,
        }
        role = text_at(message, "role") or ""
        if role == "toolResult":
            call_id = _call_id(message.get("toolCallId"))
            parts = parts_of(message.get("content"), lambda kind, why: lose(f"toolResult.{kind}", why))
            ok = message.get("isError") is not True
            if (call_id is None or not story.result(call_id, parts, ok=ok)) and not quiet:
                lose("toolResult", "It answers no call that is open.")
            if message.get("details") not in (None, {}):
                self._report.reduced["toolResult.details"] += 1
        elif role in tellers:
            tellers[role](story, message, lose)
        else:
            lose(f"message.{role}" if role else "message", "This kind of message has no counterpart.")

    def _tell_answer(self, story: Story, message: Entry, lose: Lose) -> None:
        story.uses(text_at(message, "model"))
        if "usage" in message:
            self._report.reduced["usage"] += 1
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
            self._tell_block(story, block if isinstance(block, dict) else {}, lose)
        reason = message.get("stopReason")
        if reason == "error":
            story.broke(text_at(message, "errorMessage") or "the model's service failed")
        elif reason == "aborted":
            story.interrupted()

    def _tell_block(self, story: Story, block: Entry, lose: Lose) -> None:
        kind = block.get("type")
        call_id = _call_id(block.get("id"))
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            if block.get("thinkingSignature"):
                self._report.reduced["thinking.signature"] += 1
            if block["thinking"]:
                story.thinking(block["thinking"])
            else:
                lose("thinking", "Only its signature was kept in the source.")
        elif kind == "toolCall" and call_id is not None and isinstance(block.get("name"), str):
            arguments = block.get("arguments")
            command = text_at(arguments, "command") if block["name"] == "bash" and isinstance(arguments, dict) else None
            if not story.call(call_id, block["name"], arguments, command=command):
                lose("toolCall", "A call of that id is open already.")
        elif (part := part_of(block)) is not None and "text" in part:
            if part["text"]:
                story.said(part["text"])
        else:
            lose(str(kind or "content"), "This kind of content has no counterpart.")


def _tell_user(story: Story, message: Entry, lose: Lose) -> None:
    parts = parts_of(message.get("content"), lose)
    if parts:
        story.user(parts)
    else:
        lose("message", "The message is empty.")


def _tell_custom(story: Story, message: Entry, lose: Lose) -> None:
    parts = parts_of(message.get("content"), lose)
    if parts:
        story.context(parts)


def _tell_shell(story: Story, message: Entry, lose: Lose) -> None:
    command = text_at(message, "command")
    if command is None:
        lose("message.bashExecution", "It names no command.")
        return
    code = message.get("exitCode")
    story.shell(
        command,
        text_at(message, "output") or "",
        code if isinstance(code, int) else None,
        hidden=message.get("excludeFromContext") is True,
        cancelled=message.get("cancelled") is True,
    )
    if message.get("truncated") is True:
        lose("message.bashExecution.fullOutput", "The whole output lies in a file outside the session.")


def _version(header: Entry) -> int:
    version = header.get("version")
    return version if isinstance(version, int) else 1


def _call_id(value: object) -> str | None:
    """The id of a call; some services' ids have a second half, which is the item's own id."""
    return value.split("|", 1)[0] if isinstance(value, str) and value else None


def _calls(entry: Entry) -> tuple[str, ...]:
    content = object_at(entry, "message").get("content")
    blocks = content if isinstance(content, list) else ()
    ids = (_call_id(block.get("id")) for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall")
    return tuple(call_id for call_id in ids if call_id is not None)


def _results(entry: Entry) -> tuple[str, ...]:
    call_id = _call_id(object_at(entry, "message").get("toolCallId"))
    return () if call_id is None else (call_id,)
