"""Deleting a thread, and what becomes of the threads whose history begins in it (DESIGN §9.3).

Everything that can be refused is refused before the first file changes: running turns, threads that another process
writes to. A crash in between leaves threads that open: copies are made before the original goes, dependents go before
what they depend on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from unspool_server.errors import DependentThreads, LogMissing, ThreadBusy
from unspool_server.sessions.branches.materialising import materialise_all
from unspool_server.sessions.branches.rollout_path import path_of
from unspool_server.sessions.registry import Sessions
from unspool_server.store.contract import LogStore, RolloutInfo


@dataclass(frozen=True, slots=True)
class Deleted:
    """Ids of the threads that are gone, in order, and of those that got a copy of what they inherited."""

    deleted: tuple[str, ...]
    materialised: tuple[str, ...] = ()


async def delete_thread(sessions: Sessions, thread_id: str, dependents: str = "refuse") -> Deleted:
    """Unload a thread and remove its logs.

    Args:
        dependents: `refuse`, `cascade` or `materialize`, as `thread/delete` says.

    Raises:
        LogMissing: No log, or a thread that never had one.
        DependentThreads: Others build on it and are to keep it.
        ThreadBusy, WriterHeld: A dependent is running, or another process writes to it. Nothing was deleted.
        WriteFailed: The system refused.
    """
    return await sessions.finished(_delete(sessions, thread_id, dependents))


async def _delete(sessions: Sessions, thread_id: str, dependents: str) -> Deleted:
    async with sessions.alone(thread_id):
        return await _delete_alone(sessions, thread_id, dependents)


async def _delete_alone(sessions: Sessions, thread_id: str, dependents: str) -> Deleted:
    session = sessions.get(thread_id)
    if session is not None and (session.facts.ephemeral or session.log.deferred):
        raise LogMissing(thread_id)
    store = sessions.env.store
    found = await _dependents(store, thread_id)
    await _refuse_foreign(sessions, thread_id, found)
    match dependents:
        case "cascade":
            return await _cascade(sessions, thread_id, found)
        case "materialize":
            return await _materialise(sessions, thread_id, found)
    if direct := await store.dependents(thread_id):
        raise DependentThreads(thread_id, direct)
    await sessions.unload_for_move(thread_id)
    await store.delete(thread_id)
    return Deleted((thread_id,))


async def _refuse_foreign(sessions: Sessions, thread_id: str, dependents: Sequence[str]) -> None:
    """Threads of other tenants are neither deleted nor copied nor named; only another program can have made them."""
    tenant = await sessions.tenant_of(thread_id)
    own = [one for one in dependents if await sessions.tenant_of(one) == tenant]
    if len(own) < len(dependents):
        raise DependentThreads(thread_id, own)


async def _dependents(store: LogStore, thread_id: str) -> list[str]:
    """Threads with a rollout that builds on one of this thread's, however far; each before what it builds on."""
    near = _direct(await store.rollouts())
    ordered: list[str] = []
    seen = {thread_id}
    waiting = [(thread_id, iter(near.get(thread_id, ())))]
    while waiting:
        current, others = waiting[-1]
        other = next((one for one in others if one not in seen), None)
        if other is None:
            ordered.append(current)
            waiting.pop()
        else:
            seen.add(other)
            waiting.append((other, iter(near.get(other, ()))))
    return ordered[:-1]


def _direct(infos: Sequence[RolloutInfo]) -> dict[str, dict[str, None]]:
    """Thread id -> threads that have a rollout with its base in one of that thread's."""
    owners = {info.rollout_id: info.thread_id for info in infos}
    near: dict[str, dict[str, None]] = {}
    for info in infos:
        owner = owners.get(info.base.rollout_id) if info.base is not None else None
        if owner is not None and owner != info.thread_id:
            near.setdefault(owner, {})[info.thread_id] = None
    return near


def _refuse_running(sessions: Sessions, thread_ids: Sequence[str]) -> None:
    for one in thread_ids:
        session = sessions.get(one)
        if session is not None and session.turn is not None:
            raise ThreadBusy(f"cannot delete while a turn of thread {one} is in progress", session.turn.id)


async def _cascade(sessions: Sessions, thread_id: str, dependents: Sequence[str]) -> Deleted:
    _refuse_running(sessions, dependents)
    store = sessions.env.store
    for one in (*dependents, thread_id):
        if sessions.get(one) is None:
            await _require_free(store, one)
    for one in (*dependents, thread_id):
        await sessions.unload_for_move(one)
    await store.delete(thread_id, before=dependents)
    return Deleted((*dependents, thread_id))


async def _require_free(store: LogStore, thread_id: str) -> None:
    """Raise WriterHeld when another process writes to the thread, before anything is unloaded for it."""
    info = await store.find(thread_id)
    if not info.archived:
        log = await store.open(thread_id)
        await log.close()


async def _materialise(sessions: Sessions, thread_id: str, dependents: Sequence[str]) -> Deleted:
    _refuse_running(sessions, dependents)
    store = sessions.env.store
    own = {info.rollout_id for info in await store.rollouts(thread_id)}
    if not own:
        raise LogMissing(thread_id)
    if sessions.get(thread_id) is None:
        await _require_free(store, thread_id)
    needed: list[str] = []
    for one in dependents:
        steps = await path_of(store, await sessions.info(one))
        if any(step.info.rollout_id in own for step in steps):
            needed.append(one)
    await materialise_all(sessions, needed)
    await sessions.unload_for_move(thread_id)
    await store.delete(thread_id, released=dependents)
    return Deleted((thread_id,), tuple(needed))
