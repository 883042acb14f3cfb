"""The tree around a thread: forks, spawned agents and segments, found from headers alone; boundaries a page at a time.

Nothing here loads a thread. Names and previews come from the catalogue.
"""

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from unspool_protocol.audit_methods import (
    LineageBoundary,
    LineageEdge,
    LineageThread,
    ThreadLineageParams,
    ThreadLineageResult,
)
from unspool_protocol.log import HistoryMode, Position
from unspool_protocol.positions import LogPosition

from unspool_server.errors import LogCorrupt, LogMissing
from unspool_server.history.lineage import Boundary, BoundaryScan, boundaries_of
from unspool_server.history.tenancy import tenant_of
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.views.auditing import bad_cursor
from unspool_server.sessions.views.summaries import seconds_of
from unspool_server.store.contract import LogStore, RolloutInfo

DEFAULT_BOUNDARIES = 20
"""Boundaries of each thread where the caller does not say."""

MAX_BOUNDARIES = 1000
"""Boundaries of each thread at most; a larger limit is taken as this."""


async def lineage(sessions: Sessions, params: ThreadLineageParams, thread_id: str) -> ThreadLineageResult:
    """Everything that is connected with a thread; or, given a cursor, the next boundaries of one thread.

    Raises:
        LogMissing: No log of the thread.
        InvalidParams: The cursor is none of ours.
    """
    limit = min(DEFAULT_BOUNDARIES if params.boundary_limit is None else params.boundary_limit, MAX_BOUNDARIES)
    session = sessions.get(thread_id)
    store = session.store if session is not None else sessions.env.store
    tree = _Tree.of(_of_one_tenant(await store.rollouts(), thread_id))
    if thread_id not in tree.rollouts:
        raise LogMissing(thread_id)
    if params.cursor is not None:
        owner, below = _decode(params.cursor)
        if owner not in tree.connected(thread_id) or owner not in tree.rollouts:
            raise bad_cursor(params.cursor)
        return ThreadLineageResult(threads=(await _Teller(sessions, store, tree, limit).thread(owner, below),))
    connected = tree.connected(thread_id)
    teller = _Teller(sessions, store, tree, limit)
    threads = [await teller.thread(one) for one in connected]
    threads.sort(key=lambda thread: (thread.created_at or 0, thread.thread_id))
    edges = [edge for edge in tree.edges if edge.to_thread_id in connected]
    return ThreadLineageResult(threads=tuple(threads), edges=tuple(edges))


def _of_one_tenant(infos: Sequence[RolloutInfo], thread_id: str) -> list[RolloutInfo]:
    """The rollouts of threads with the same owner as one thread's; another program's headers name none."""
    owners: dict[str, str] = {}
    for info in infos:
        owners[info.thread_id] = owners.get(info.thread_id) or tenant_of(info.header)
    return [info for info in infos if owners[info.thread_id] == owners.get(thread_id)]


@dataclass(slots=True)
class _Tree:
    """All threads of a store with what connects them.

    Attributes:
        rollouts: Of each thread, oldest first.
        near: Of each thread, those that an edge leads to, in either direction.
    """

    rollouts: dict[str, list[RolloutInfo]] = field(default_factory=dict)
    edges: list[LineageEdge] = field(default_factory=list)
    near: dict[str, dict[str, None]] = field(default_factory=dict)

    @classmethod
    def of(cls, infos: Sequence[RolloutInfo]) -> "_Tree":
        tree = cls()
        owners = {info.rollout_id: info.thread_id for info in infos}
        for info in infos:
            tree.rollouts.setdefault(info.thread_id, []).append(info)
            for edge in _edges(info, owners, first=len(tree.rollouts[info.thread_id]) == 1):
                tree.edges.append(edge)
                tree.near.setdefault(edge.from_thread_id, {})[edge.to_thread_id] = None
                tree.near.setdefault(edge.to_thread_id, {})[edge.from_thread_id] = None
        return tree

    def connected(self, thread_id: str) -> dict[str, None]:
        """The thread and all that can be reached from it."""
        found = {thread_id: None}
        waiting = [thread_id]
        while waiting:
            for other in self.near.get(waiting.pop(), ()):
                if other not in found:
                    found[other] = None
                    waiting.append(other)
        return found


def _edges(info: RolloutInfo, owners: Mapping[str, str], *, first: bool) -> list[LineageEdge]:
    header = info.header.payload if info.header is not None else {}
    to = {"to_thread_id": info.thread_id, "to_rollout_id": info.rollout_id}
    base = info.base
    at = None if base is None else LogPosition(rollout_id=base.rollout_id, ordinal=base.ordinal)
    if not first:
        return [LineageEdge(kind="segment", from_thread_id=info.thread_id, at=at, **to)]
    edges: list[LineageEdge] = []
    origin = _id(header.get("forked_from_id")) or (owners.get(base.rollout_id) if base is not None else None)
    if origin is not None and origin != info.thread_id:
        edges.append(LineageEdge(kind="fork", from_thread_id=origin, at=at, **to))
    spawner = _id(header.get("parent_thread_id")) or _spawner(header.get("source"))
    if spawner is not None and spawner != info.thread_id:
        edges.append(LineageEdge(kind="subAgent", from_thread_id=spawner, **to))
    return edges


def _spawner(source: Any) -> str | None:
    """The parent that the source of a spawned thread names: `{"subagent": {"thread_spawn": {"parent_thread_id"}}}`."""
    for key in ("subagent", "thread_spawn"):
        source = source.get(key) if isinstance(source, dict) else None
    return _id(source.get("parent_thread_id")) if isinstance(source, dict) else None


def _id(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


@dataclass(frozen=True, slots=True)
class _Teller:
    """Describes threads of a tree with at most `limit` boundaries each."""

    sessions: Sessions
    store: LogStore
    tree: _Tree
    limit: int

    async def thread(self, thread_id: str, below: Position | None = None) -> LineageThread:
        """One thread with its newest boundaries, or those before a position."""
        infos = self.tree.rollouts.get(thread_id)
        session = self.sessions.get(thread_id)
        if not infos:
            return LineageThread(thread_id=thread_id, loaded=session is not None, missing=True)
        present = session.log.info if session is not None else infos[-1]
        summary = await self.sessions.env.catalogue.get(thread_id)
        found = await _boundaries(self.store, present, self.limit + 1, below) if self.limit else []
        more = len(found) > self.limit
        name, preview = (summary.name, summary.preview) if summary is not None else (None, "")
        return LineageThread(
            thread_id=thread_id,
            name=session.facts.name if session is not None else name,
            preview=session.facts.preview if session is not None else preview,
            created_at=seconds_of(infos[0].header),
            archived=present.archived,
            loaded=session is not None,
            rollout_ids=tuple(info.rollout_id for info in infos),
            boundaries=tuple(_wire(one) for one in found[: self.limit]),
            boundary_cursor=_encode(thread_id, found[self.limit - 1].position) if more else None,
        )


async def _boundaries(store: LogStore, info: RolloutInfo, count: int, below: Position | None) -> list[Boundary]:
    """The newest boundaries before a position; a paginated log is read only as far as they reach."""
    try:
        if info.mode == HistoryMode.LEGACY:
            whole = [record async for record in store.read(info.rollout_id)]
            found = boundaries_of(whole, info.mode)
            return [one for one in found if below is None or one.position.ordinal < below.ordinal][:count]
        return await _boundaries_back(store, info, count, below)
    except LogCorrupt:
        return []


async def _boundaries_back(store: LogStore, info: RolloutInfo, count: int, below: Position | None) -> list[Boundary]:
    scan = BoundaryScan()
    found: list[Boundary] = []
    end = None if below is None else below.ordinal
    async with aclosing(store.read_backward(info.rollout_id, end=end)) as records:
        async for record in records:
            found += scan.feed(record)
            if len(found) >= count:
                return found[:count]
    return (found + scan.finish())[:count]


def _wire(one: Boundary) -> LineageBoundary:
    return LineageBoundary(
        kind="agent" if one.by_agent else "user",
        turn_id=one.turn_id,
        position=LogPosition(rollout_id=one.position.rollout_id, ordinal=one.position.ordinal),
        cut=LogPosition(rollout_id=one.cut.rollout_id, ordinal=one.cut.ordinal),
        preview=one.preview,
    )


def _encode(thread_id: str, position: Position) -> str:
    content = json.dumps([thread_id, position.rollout_id, position.ordinal])
    return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def _decode(text: str) -> tuple[str, Position]:
    try:
        content = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
        thread_id, rollout_id, ordinal = content
    except (binascii.Error, UnicodeDecodeError, ValueError, TypeError, RecursionError):
        raise bad_cursor(text) from None
    if not isinstance(thread_id, str) or not isinstance(rollout_id, str) or type(ordinal) is not int or ordinal < 0:
        raise bad_cursor(text)
    return thread_id, Position(rollout_id, ordinal)
