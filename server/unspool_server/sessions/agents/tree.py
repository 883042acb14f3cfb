"""Where threads stand that other threads have started: read from headers, and listed from the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import ThreadSummary

from unspool_server.sessions.environment import Environment
from unspool_server.store.contract import ListQuery

ROOT = "/root"
"""Path of a thread that no other one has started; agents stand below it by their names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thread stands in its tree; `root_id` and `parent_id` are threads, `parent_id` None at the root."""

    root_id: str
    path: str = ROOT
    parent_id: str | None = None
    depth: int = 0


def place_of(header: Mapping[str, Any], thread_id: str) -> Place:
    """What a header says of a thread's place; a fork of an agent is a root of its own."""
    parent, spawn = header.get("parent_thread_id"), _spawn(header.get("source"))
    if not isinstance(parent, str) or not isinstance(spawn.get("agent_path"), str):
        return Place(thread_id)
    depth = spawn.get("depth")
    root = header.get("session_id")
    return Place(str(root or parent), spawn["agent_path"], parent, depth if isinstance(depth, int) else 1)


async def agents_of(env: Environment, root_id: str) -> dict[str, str]:
    """Threads of a tree by their paths, the root left out."""
    page = await env.catalogue.list(ListQuery(source_kinds=["subAgentThreadSpawn"], descending=False))
    places = {one.thread_id: _place_of_summary(one) for one in page.items}
    return {
        place.path: thread_id
        for thread_id, place in places.items()
        if place.root_id == root_id and place.parent_id is not None
    }


async def descendants(env: Environment, thread_id: str, *, archived: bool, depth: int | None = None) -> frozenset[str]:
    """Threads that a thread has started, that those have started, and so on; at most `depth` steps down."""
    page = await env.catalogue.list(ListQuery(source_kinds=["subAgent"], archived=archived))
    children: dict[str, list[str]] = {}
    for one in page.items:
        if (parent := one.parent_thread_id or _spawn(one.source).get("parent_thread_id")) is not None:
            children.setdefault(parent, []).append(one.thread_id)
    found: set[str] = set()
    level = [thread_id]
    while level and depth != 0:
        level = [child for one in level for child in children.get(one, ()) if child not in found]
        found.update(level)
        depth = None if depth is None else depth - 1
    return frozenset(found - {thread_id})


def _place_of_summary(summary: ThreadSummary) -> Place:
    told = {"source": summary.source, "parent_thread_id": summary.parent_thread_id, "session_id": summary.session_id}
    return place_of(told, summary.thread_id)


def _spawn(source: Any) -> Mapping[str, Any]:
    for name in ("subagent", "thread_spawn"):
        source = source.get(name) if isinstance(source, Mapping) else None
    return source if isinstance(source, Mapping) else {}
