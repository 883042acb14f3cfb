"""Claude Code sessions (`~/.claude/projects/**/SESSION.jsonl`) as threads of ours.

One line holds one entry; entries with a `uuid` form trees by `parentUuid` (across a compaction by `logicalParentUuid`).
An answer is written as one entry per block, results of parallel calls may hang beside the path. Entries of sub-agents
(`isSidechain`) are trees of their own, in the same file or in `agent-ID.jsonl` files. The format is not documented by
its makers: what is not known here is a loss, never a failure.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .content import Lose, part_of, parts_of, text_of_parts
from .identity import as_uuid, milliseconds_of
from .report import FileReport
from .source import Entry, SourceFile, SourceLine, object_at, text_at
from .story import Part, Story, items_told
from .tree import Node
from .tree_session import Part as TreePart
from .tree_session import TreeSession

FORMAT = "claude"

KINDS = frozenset({
    "user", "assistant", "system", "summary", "attachment", "progress", "custom-title", "ai-title", "agent-name",
    "file-history-snapshot", "queue-operation", "last-prompt", "permission-mode", "mode", "pr-link", "tag",
})  # fmt: skip
"""Types of lines by which a file is recognised."""

_WHY = {
    "file-history-snapshot": "Backups of files lie outside the session.",
    "queue-operation": "The queue of input is bookkeeping of the program.",
    "progress": "Progress of tools and hooks is not kept in threads.",
    "last-prompt": "The text in the input field is bookkeeping of the program.",
    "attachment": "Context that the program attaches by itself has no counterpart.",
    "system": "Notices of the program are not kept in threads.",
}
_UNKNOWN = "This kind of entry has no counterpart."
_TITLES = {"custom-title": "customTitle", "ai-title": "aiTitle"}
_JOINS = ("<local-command-", "<bash-stdout>", "<bash-stderr>", "<system-reminder>", "<task-notification>")
"""Starts of texts in the user's name that belong to what is running and that no user wrote."""
_INTERRUPTED = "[Request interrupted by user"


@dataclass(slots=True)
class _Scan:
    """What a first pass over a file found."""

    parts: dict[str, list[Node]] = field(default_factory=dict)
    ids: dict[str, Node] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    sessions: dict[str, int] = field(default_factory=dict)
    newest_ms: int = 0
    branch: str | None = None
    cwd: str = ""
    forked_from: str | None = None


def summary_lines(source: SourceFile) -> Iterator[tuple[SourceLine, str, str]]:
    """Lines that name a leaf, which may lie in another file: (line, the leaf's uuid, the name)."""
    for line in source.lines(b'"summary"'):
        for entry in line.objects:
            if entry["type"] == "summary":
                leaf, name = text_at(entry, "leafUuid"), text_at(entry, "summary")
                if leaf is not None and name:
                    yield line, leaf, name


class ClaudeCode:
    """Converts one file.

    Args:
        names: Leaf -> name, gathered from every file at hand (`summary_lines`).
    """

    def __init__(self, source: SourceFile, report: FileReport, names: Mapping[str, str]) -> None:
        self._source = source
        self._report = report
        self._names = names
        self._found = _Scan()
        self.used_names: set[str] = set()

    def convert(self) -> TreeSession | None:
        """The threads of the file; None when it holds no entry of a session."""
        for line in self._source:
            if line.fault is not None:
                self._report.lose(line.fault, "The line is damaged.", line=line.number)
            for index, entry in enumerate(line.objects):
                self._scan(line, index, entry)
        found = self._found
        if not found.ids:
            return None
        session_id = self._session_id()
        converted = TreeSession(self._tell, lambda node: found.times[node.line], self._report)
        for part in sorted(found.parts, key=lambda part: found.parts[part][0].line if part else 0):
            nodes = found.parts[part]
            newest = next((node for node in reversed(nodes) if node.weighty or node.results), nodes[-1])
            for node in converted.add(self._part(session_id, part, nodes), nodes, newest):
                if node.results:
                    self._report.lose("tool_result", "Its call is answered otherwise.", line=node.line, item_id=node.id)
        return converted

    def _session_id(self) -> str:
        """The session that most entries belong to; the file's name decides where it is one of them."""
        sessions = self._found.sessions
        stem = self._source.path.stem
        if stem in sessions or (as_uuid(stem) and not sessions):
            return stem
        return max(sessions, key=lambda each: sessions[each], default=stem)

    def _part(self, session_id: str, part: str, nodes: Sequence[Node]) -> TreePart:
        found = self._found
        header: dict[str, Any] = {"cwd": found.cwd, "originator": "claude_code"}
        if found.branch:
            header["git"] = {"branch": found.branch}
        names: dict[str | None, str] = {}
        for node in nodes:
            if node.id in self._names:
                names[node.id] = self._names[node.id]
                self.used_names.add(node.id)
        if part:
            return TreePart((FORMAT, session_id, part), found.cwd, header, names=names, parent=session_id)
        title = found.titles.get("custom-title") or found.titles.get("ai-title")
        if title is not None:
            names[None] = title
        wanted = as_uuid(session_id)
        scope = (FORMAT, session_id)
        return TreePart(scope, found.cwd, header, wanted, names, forked_from=found.forked_from)

    def _scan(self, line: SourceLine, index: int, entry: Entry) -> None:
        kind: str = entry["type"]
        if kind in _TITLES:
            title = text_at(entry, _TITLES[kind])
            if title:
                self._found.titles[kind] = title
            return
        if kind == "summary":
            return
        uuid = text_at(entry, "uuid")
        usable = kind in ("user", "assistant") and isinstance(object_at(entry, "message").get("content"), str | list)
        if uuid is None or (kind in ("user", "assistant") and not usable):
            why = _WHY.get(kind, _UNKNOWN) if kind not in ("user", "assistant") else "The message has no id or content."
            self._report.lose(kind, why, line=line.number, item_id=uuid or entry.get("messageId"))
        if uuid is None:
            return
        if uuid in self._found.ids:
            first = self._found.ids[uuid]
            if self._source.entry(first.offset, first.part) != entry:
                self._report.lose(kind, "Another entry has the same id.", line=line.number, item_id=uuid)
            return
        self._enter(line, index, entry, uuid)

    def _enter(self, line: SourceLine, index: int, entry: Entry, uuid: str) -> None:
        found, kind = self._found, entry["type"]
        self._note_session(entry)
        found.newest_ms = milliseconds_of(entry.get("timestamp")) or found.newest_ms
        found.times[line.number] = found.newest_ms
        part, parent = self._parent(line, entry, uuid)
        nodes = found.parts.setdefault(part, [])
        blocks = _blocks(entry) if kind in ("user", "assistant") else []
        calls, results = _ids(blocks, "tool_use", "id"), _ids(blocks, "tool_result", "tool_use_id")
        queued = object_at(entry, "attachment").get("type") == "queued_command"
        said = kind == "assistant" or (kind == "user" and not results) or _is_boundary(entry) or queued
        node = Node(
            index=len(nodes),
            id=uuid,
            offset=line.offset,
            line=line.number,
            part=index,
            parent=parent,
            weighty=said,
            group=text_at(object_at(entry, "message"), "id") if kind == "assistant" else None,
            calls=calls,
            results=results,
        )
        nodes.append(node)
        found.ids[uuid] = node
        self._lose_at_once(line, entry, uuid)

    def _note_session(self, entry: Entry) -> None:
        found = self._found
        session = text_at(entry, "sessionId")
        if session is not None:
            found.sessions[session] = found.sessions.get(session, 0) + 1
        found.cwd = found.cwd or text_at(entry, "cwd") or ""
        found.branch = text_at(entry, "gitBranch") or found.branch
        found.forked_from = found.forked_from or text_at(object_at(entry, "forkedFrom"), "sessionId")

    def _parent(self, line: SourceLine, entry: Entry, uuid: str) -> tuple[str, int | None]:
        """The tree that an entry belongs to, and its parent's index there."""
        found = self._found
        named = text_at(entry, "parentUuid") or text_at(entry, "logicalParentUuid")
        side = entry.get("isSidechain") is True
        above = found.ids.get(named) if named is not None else None
        part = ""
        if side:
            agent = text_at(entry, "agentId")
            holder = self._part_of(above) if above is not None else None
            part = f"agent:{agent}" if agent else holder or f"sidechain:{uuid}"
        nodes = found.parts.get(part, [])
        if above is not None and above.index < len(nodes) and nodes[above.index] is above:
            return part, above.index
        if named is not None and above is None and nodes:
            why = "The parent is missing; the entry was put behind the one before it."
            self._report.lose("parentUuid", why, line=line.number, item_id=named)
        follows = named is not None or _is_boundary(entry) or entry.get("isCompactSummary") is True
        return part, nodes[-1].index if nodes and follows else None

    def _part_of(self, node: Node) -> str | None:
        """The sub-agent's tree that holds a node; None for the session's own."""
        for part, nodes in self._found.parts.items():
            if part and node.index < len(nodes) and nodes[node.index] is node:
                return part
        return None

    def _lose_at_once(self, line: SourceLine, entry: Entry, uuid: str) -> None:
        """What is lost whatever becomes of the entry's branch."""
        kind = entry["type"]
        if kind in ("user", "assistant") or _is_boundary(entry):
            return
        if kind == "attachment":
            inner = text_at(object_at(entry, "attachment"), "type")
            if inner == "queued_command":
                return
            kind = f"attachment.{inner}" if inner else kind
        elif kind == "system":
            kind = f"system.{entry.get('subtype')}" if text_at(entry, "subtype") else kind
        why = _WHY.get(entry["type"], _UNKNOWN)
        self._report.lose(kind, why, line=line.number, item_id=uuid)

    def _tell(self, story: Story, node: Node, only_missing: bool) -> None:
        entry = self._source.entry(node.offset, node.part)
        story.at(node.id, self._found.times[node.line])
        story.cwd = text_at(entry, "cwd") or story.cwd
        kind, quiet = entry["type"], only_missing

        def lose(what: str, why: str) -> None:
            if not quiet:
                self._report.lose(what, why, line=node.line, item_id=node.id)

        if kind == "assistant" and not only_missing:
            self._tell_answer(story, entry, lose)
        elif kind == "user" and (node.results or not only_missing):
            self._tell_user(story, entry, lose, only_missing=only_missing)
        elif kind == "attachment" and not only_missing:
            attachment = object_at(entry, "attachment")
            if attachment.get("type") == "queued_command":
                parts = parts_of(attachment.get("prompt"), lose)
                if parts:
                    story.user(parts, steers=True)

    def _tell_user(self, story: Story, entry: Entry, lose: Lose, *, only_missing: bool) -> None:
        content = object_at(entry, "message").get("content")
        if entry.get("isCompactSummary") is True:
            summary = text_of_parts(parts_of(content, lose))
            story.compacted(summary, self._kept(story, entry, lose))
            return
        rest: list[Part] = []
        for block in _blocks(entry):
            if block.get("type") == "tool_result":
                self._tell_result(story, block, entry, lose, quiet=only_missing)
            else:
                rest += parts_of([block], lose)
        if only_missing or not rest:
            return
        text = text_of_parts(rest).lstrip()
        if text.startswith(_INTERRUPTED) and len(rest) == 1:
            if not story.interrupted():
                story.context(rest)
        elif entry.get("isMeta") is True or _ids(_blocks(entry), "tool_result", "tool_use_id"):
            self._report.reduced["user message as context"] += 1
            story.context(rest)
        elif text.startswith(_JOINS):
            story.context(rest)
        else:
            story.user(rest)

    def _kept(self, story: Story, entry: Entry, lose: Lose) -> list[Mapping[str, Any]]:
        """Items of the messages that a compaction says it has kept."""
        boundary = self._found.ids.get(text_at(entry, "parentUuid") or "")
        if boundary is None:
            return []
        above = self._source.entry(boundary.offset, boundary.part)
        nodes = self._preserved(object_at(above, "compactMetadata"), lose)

        def tell(part: Story) -> None:
            for node in nodes:
                self._tell(part, node, False)

        return items_told((FORMAT, self._session_id()), story.cwd, story.ms, tell) if nodes else []

    def _preserved(self, metadata: Entry, lose: Lose) -> list[Node]:
        """The entries that a compaction names as kept: one by one, or from a head to a tail."""
        ids = self._found.ids
        named = object_at(metadata, "preservedMessages").get("uuids")
        nodes: list[Node] = []
        for uuid in named if isinstance(named, list) else ():
            if isinstance(uuid, str) and uuid in ids:
                nodes.append(ids[uuid])
            else:
                lose("compact_boundary.preservedMessages", "A kept message is not in the file.")
        segment = object_at(metadata, "preservedSegment")
        head, tail = text_at(segment, "headUuid"), text_at(segment, "tailUuid")
        if nodes or head is None or tail is None:
            return nodes
        at = ids.get(tail)
        tree = next((part for part in self._found.parts.values() if at is not None and at in part), [])
        while at is not None:
            nodes.append(at)
            if at.id == head:
                return nodes[::-1]
            at = None if at.parent is None else tree[at.parent]
        lose("compact_boundary.preservedSegment", "The kept messages are not in the file.")
        return []

    def _tell_result(self, story: Story, block: Entry, entry: Entry, lose: Lose, *, quiet: bool) -> None:
        call_id = text_at(block, "tool_use_id")
        content = block.get("content")
        parts = parts_of([] if content is None else content, lambda kind, why: lose(f"tool_result.{kind}", why))
        ok = block.get("is_error") is not True
        if (call_id is None or not story.result(call_id, parts, ok=ok)) and not quiet:
            lose("tool_result", "It answers no call that is open.")

    def _tell_answer(self, story: Story, entry: Entry, lose: Lose) -> None:
        message = object_at(entry, "message")
        synthetic = entry.get("isApiErrorMessage") is True
        model = text_at(message, "model")
        if model is not None and not model.startswith("<"):
            story.uses(model)
        if "usage" in message:
            self._report.reduced["usage"] += 1
        for block in _blocks(entry):
            self._tell_block(story, block, lose, shown_only=synthetic)

    def _tell_block(self, story: Story, block: Entry, lose: Lose, *, shown_only: bool) -> None:
        kind = block.get("type")
        if kind == "thinking" and isinstance(block.get("thinking"), str):
            if "signature" in block:
                self._report.reduced["thinking.signature"] += 1
            if block["thinking"]:
                story.thinking(block["thinking"])
            else:
                lose("thinking", "Only its signature was kept in the source.")
        elif kind == "tool_use" and isinstance(block.get("id"), str) and isinstance(block.get("name"), str):
            arguments = block.get("input")
            command = text_at(arguments, "command") if block["name"] == "Bash" and isinstance(arguments, dict) else None
            if not story.call(block["id"], block["name"], arguments, command=command):
                lose("tool_use", "A call of that id is open already.")
        elif (part := part_of(block)) is not None and "text" in part:
            if part["text"]:
                story.said(part["text"], shown_only=shown_only)
        else:
            why = "It is encrypted." if kind == "redacted_thinking" else "This kind of content has no counterpart."
            lose(str(kind or "content"), why)


def _blocks(entry: Entry) -> list[Entry]:
    content = object_at(entry, "message").get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def _ids(blocks: Sequence[Entry], kind: str, key: str) -> tuple[str, ...]:
    return tuple(block[key] for block in blocks if block.get("type") == kind and isinstance(block.get(key), str))


def _is_boundary(entry: Entry) -> bool:
    return entry["type"] == "system" and entry.get("subtype") == "compact_boundary"


def is_agent_file(path: Path) -> bool:
    """Whether a file holds a sub-agent's entries only; its session's own file must come first."""
    return path.name.startswith("agent-")
