"""From a planned tree to drafts and their records; what an entry means is the converter's word."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unspool_protocol.log import NewRecord

from ..history.item_shapes import DAMAGE
from .draft import DraftBase, Mark, ThreadDraft
from .identity import derived_id
from .report import FileReport
from .story import Story
from .tree import Branch, Node, plan, unplaced

Tell = Callable[[Story, Node, bool], None]
"""Tells a story one entry. The flag says that only an answer that is still missing is wanted of it."""

TimeOf = Callable[[Node], int]


@dataclass(frozen=True, slots=True)
class Part:
    """What the branches of one tree have in common.

    Attributes:
        scope: What ids are derived from: format, session and part.
        wanted_id: The id that the tree's present shall have.
        names: Names of branches by the id of an entry that is theirs alone; `None` names the present.
    """

    scope: tuple[str, ...]
    cwd: str
    header: Mapping[str, Any]
    wanted_id: str | None = None
    names: Mapping[str | None, str] | None = None
    forked_from: str | None = None
    parent: str | None = None


class TreeSession:
    """See `draft.Converted`: the trees of one source file."""

    def __init__(self, tell: Tell, time_of: TimeOf, report: FileReport) -> None:
        self._told = tell
        self._report = report
        self._time_of = time_of
        self._drafts: list[ThreadDraft] = []
        self._branches: list[tuple[Part, Branch]] = []
        self._marks: dict[int, set[int]] = {}
        self._stories: dict[tuple[int, int], Any] = {}

    @property
    def drafts(self) -> Sequence[ThreadDraft]:
        """The threads to be, bases first."""
        return self._drafts

    def add(self, part: Part, nodes: Sequence[Node], present: Node) -> list[Node]:
        """Plan a tree whose present is the path to a node; returns the nodes that no branch needs."""
        first = len(self._drafts)
        branches = plan(nodes, present)
        for branch in branches:
            base = None
            if branch.base is not None and branch.base_branch is not None:
                base = DraftBase(first + branch.base_branch, branch.base.index)
                self._marks.setdefault(base.draft, set()).add(base.node)
            self._drafts.append(self._draft(part, branch, base, present=branch is branches[0]))
            self._branches.append((part, branch))
        return unplaced(nodes, branches)

    def _draft(self, part: Part, branch: Branch, base: DraftBase | None, *, present: bool) -> ThreadDraft:
        ms = self._time_of(branch.own[0])
        name, session, *rest = part.scope
        origin = {"from": name, "session": session}
        if rest:
            origin["part"] = ":".join(rest)
        if not present:
            # Named by its first entry: the leaf moves when the source goes on.
            origin["branch"] = branch.own[0].id
        spare = self._spare_id(ms, part, branch.own[0] if not present else None)
        draft = ThreadDraft(None, spare, ms, part.header, origin, base, parent=part.parent)
        return replace(draft, wanted_id=part.wanted_id, forked_from=part.forked_from) if present else draft

    @staticmethod
    def _spare_id(ms: int, part: Part, first: Node | None) -> str:
        return derived_id(ms, *part.scope, "thread", *(() if first is None else (first.id,)))

    def records(self, draft: int, thread_id: str) -> Iterator[NewRecord | Mark]:
        """The records of a draft."""
        part, branch = self._branches[draft]
        made = self._drafts[draft]
        story = Story(part.scope, thread_id, part.cwd, made.ms)
        if made.base is not None:
            story.go_on(self._stories[made.base.draft, made.base.node])
        story.at(branch.own[0].id, made.ms)
        name = self._name(part, branch, present="branch" not in made.origin)
        if name is not None:
            story.named(name)
        for node in branch.regained:
            self._tell(story, node, True)
        wanted = self._marks.get(draft, set())
        for node in branch.own:
            self._tell(story, node, False)
            yield from story.take()
            if node.index in wanted:
                self._stories[draft, node.index] = story.state()
                yield Mark(node.index)
        yield from story.finish()

    def _tell(self, story: Story, node: Node, only_missing: bool) -> None:
        """Tell an entry; one of a shape that nobody would expect is a loss, as far as it was not understood."""
        try:
            self._told(story, node, only_missing)
        except DAMAGE:
            self._report.lose("entry", "Its content has an unusual shape.", line=node.line, item_id=node.id)

    def _name(self, part: Part, branch: Branch, *, present: bool) -> str | None:
        names = part.names or {}
        own = next((names[node.id] for node in reversed(branch.own) if node.id in names), None)
        return (names.get(None) or own) if present else own
