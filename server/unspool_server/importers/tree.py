"""Sessions that are trees: which entries make up the present, and which leaves become forks.

Entries know their parent only. The newest leaf's path is the present; every other leaf with messages of its own becomes
a fork of the thread that holds the nearest entry of its path. Some entries hang beside the path although the model saw
them there: results of calls on the path, and parts of an answer that was written as several entries.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence, Set
from dataclasses import dataclass, field


@dataclass(slots=True)
class Node:
    """One entry, without its content.

    Attributes:
        parent: The index of the parent among the nodes, None for a root.
        weighty: Holds something that a user or model said; a leaf needs one such entry to become a fork.
        group: Entries of one answer share it.
        calls, results: Ids of the calls it makes and of those that it answers.
    """

    index: int
    id: str
    offset: int
    line: int
    part: int = 0
    parent: int | None = None
    weighty: bool = False
    group: str | None = None
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(slots=True)
class Branch:
    """One thread to be: the nodes that are its own, in order, behind a node of another branch (or nothing).

    Attributes:
        regained: Answers to calls before `base` that hang elsewhere; they come first, where they are still missing.
        leaf: The node that the branch leads to.
    """

    leaf: Node
    own: list[Node]
    base: Node | None = None
    base_branch: int | None = None
    regained: list[Node] = field(default_factory=list)


def plan(nodes: Sequence[Node], present: Node) -> list[Branch]:
    """The branches of a tree, the present first, bases before what hangs on them.

    Args:
        nodes: In the order of the file, parents by index. Circles among them are cut.
        present: The node whose path is the present.
    """
    _cut_circles(nodes)
    beside = _Beside(nodes)
    parents = {node.parent for node in nodes}
    leaves = [node for node in reversed(nodes) if node.index not in parents and node is not present]
    branches: list[Branch] = []
    placed: dict[int, int] = {}
    merged: set[int] = set()
    for leaf in (present, *leaves):
        base, own = _own_path(nodes, leaf, placed)
        if branches and not any(node.weighty and node.index not in merged for node in own):
            continue
        inherited = [] if base is None else _own_path(nodes, base, {})[1]
        chain = {node.index for node in (*inherited, *own)}
        extra = [node for node in beside.of(own, chain, groups=True) if node.index not in placed]
        branch = Branch(leaf, _woven(own, extra), base, None if base is None else placed[base.index])
        known = {node.index for node in branch.own}
        branch.regained = [node for node in beside.of(inherited, chain) if node.index not in known]
        placed.update((node.index, len(branches)) for node in own)
        merged.update(node.index for node in extra)
        branches.append(branch)
    return branches


def unplaced(nodes: Sequence[Node], branches: Iterable[Branch]) -> list[Node]:
    """Nodes that are part of no branch."""
    placed = {node.index for branch in branches for node in (*branch.own, *branch.regained)}
    return [node for node in nodes if node.index not in placed]


class _Beside:
    """Finds what belongs to a path without lying on it."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._results: dict[str, list[Node]] = defaultdict(list)
        self._groups: dict[str, list[Node]] = defaultdict(list)
        for node in nodes:
            for call_id in node.results:
                self._results[call_id].append(node)
            if node.group is not None:
                self._groups[node.group].append(node)

    def of(self, part: Sequence[Node], chain: Set[int], *, groups: bool = False) -> list[Node]:
        """Nodes beside the path `chain` that belong to the nodes of `part`."""
        found: dict[int, Node] = {}
        if groups:
            for group in {node.group for node in part if node.group is not None}:
                found |= {node.index: node for node in self._groups[group] if node.index not in chain}
        for node in (*part, *list(found.values())):
            for call_id in node.calls:
                results = self._results[call_id]
                if results and not any(result.index in chain or result.index in found for result in results):
                    found[results[0].index] = results[0]
        return sorted(found.values(), key=lambda node: node.index)


def _own_path(nodes: Sequence[Node], leaf: Node, placed: Container[int]) -> tuple[Node | None, list[Node]]:
    """The nodes that lead to a leaf, from behind the newest one that is placed already; and that one."""
    own: list[Node] = []
    at: Node | None = leaf
    while at is not None and at.index not in placed:
        own.append(at)
        at = None if at.parent is None else nodes[at.parent]
    own.reverse()
    return at, own


def _woven(own: list[Node], extra: list[Node]) -> list[Node]:
    """Put each extra node where it came in time, but behind its parent and never before its call."""
    woven = list(own)
    for node in extra:
        before = [
            at
            for at, other in enumerate(woven)
            if other.index == node.parent or not set(other.calls).isdisjoint(node.results)
        ]
        first = max(before, default=-1)
        place = next((at for at in range(first + 1, len(woven)) if woven[at].index > node.index), len(woven))
        woven.insert(place, node)
    return woven


def _cut_circles(nodes: Sequence[Node]) -> None:
    """Make the first node of every circle a root; only damaged files have any."""
    done: set[int] = set()
    for node in nodes:
        seen: set[int] = set()
        at: Node | None = node
        while at is not None and at.index not in done:
            seen.add(at.index)
            if at.parent is not None and at.parent in seen:
                at.parent = None
            at = None if at.parent is None else nodes[at.parent]
        done |= seen
