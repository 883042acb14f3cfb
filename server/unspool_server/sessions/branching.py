"""The branch primitive on a live thread: rollback, revert, and the undo of either (DESIGN §4; 04 §4, §5).

A branch is a new rollout of the same thread that begins at a position in an older one. Nothing is edited or lost.
Threads with a legacy log keep it: a marker, and for its undo a checkpoint that says what it restores.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record

from unspool_server.errors import NotMaterialised, RequestError, Unsupported
from unspool_server.history.client_view import ClientEvent
from unspool_server.history.rollback import check_num_turns, legacy_restore, rollback_marker
from unspool_server.history.turn_pages import TurnSlice
from unspool_server.sessions.clock import iso_now, new_id
from unspool_server.sessions.loading import load, turns_back
from unspool_server.sessions.session import Session
from unspool_server.store.contract import NewRollout

_LINKS = frozenset({"history_base", "forked_from_id", "forked_from_ordinal_exclusive", "timestamp"})
"""Header members that a further rollout of the same thread does not take over (01 §3.1)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a branch is made; written into its header and told to clients."""

    word: str
    turn_ids: Sequence[str] = ()


async def rollback(session: Session, num_turns: object) -> list[ClientEvent]:
    """Take the newest `num_turns` turns that have a boundary out of the history. Runs inside a step, idle only.

    Returns:
        The events to show once the answer has left.

    Raises:
        ThreadBusy, TurnsOutOfRange, NotMaterialised, WriteFailed: nothing was changed.
    """
    session.require_idle("rollback")
    wanted = check_num_turns(num_turns)
    removed = await _newest_turns(session, wanted)
    return await _leave(session, removed, "rollback")


async def revert(session: Session, before_turn_id: str) -> list[ClientEvent]:
    """Take a turn and all later ones out of the history (04 §5). Runs inside a step; a running turn was ended before.

    Raises:
        Unsupported: A legacy or ephemeral thread.
        RequestError: `turn not found`.
    """
    if session.mode == HistoryMode.LEGACY or session.facts.ephemeral:
        raise Unsupported("thread/revert only supports paginated threads")
    await _materialised(session)
    removed: list[TurnSlice] = []
    async with aclosing(turns_back(session.store, session.log.info)) as turns:
        async for one in turns:
            removed.append(one)
            if one.turn.id == before_turn_id:
                return await _leave(session, removed, "revert")
    raise RequestError(f"turn not found: {before_turn_id}", data={"reason": "turnNotFound"})


async def _newest_turns(session: Session, wanted: int) -> list[TurnSlice]:
    """The newest turns down to the `wanted`-th one with a boundary; turns without one between them go along."""
    await _materialised(session)
    removed: list[TurnSlice] = []
    found = 0
    async with aclosing(turns_back(session.store, session.log.info)) as turns:
        async for one in turns:
            removed.append(one)
            found += one.has_boundary
            if found == wanted:
                return removed
    check_num_turns(wanted, found)
    return removed


async def _materialised(session: Session) -> None:
    if session.log.deferred:
        raise NotMaterialised(f"no rollout found for thread id {session.thread_id}")
    await session.log.flush()


async def _leave(session: Session, removed: Sequence[TurnSlice], word: str) -> list[ClientEvent]:
    turn_ids = [one.turn.id for one in reversed(removed)]
    if session.mode == HistoryMode.LEGACY:
        whole = [record async for record in session.store.read(session.log.info.rollout_id)]
        marker = rollback_marker(whole, removed[-1].start, turn_ids)
        return await _append_legacy(session, [marker])
    return await branch(session, removed[-1].start, Reason(word, turn_ids))


async def branch(session: Session, base: Position | None, reason: Reason) -> list[ClientEvent]:
    """Continue the thread from `base` in a new rollout. Settings stay in force, they are not undone (04 §5)."""
    left = Position(session.log.info.rollout_id, session.log.next_ordinal)
    header = NewRollout(
        thread_id=session.thread_id,
        rollout_id=new_id(),
        mode=session.mode,
        payload=_header_payload(session.history.header),
        extra={
            "unspool": {
                "branch": reason.word,
                "turns": len(reason.turn_ids),
                "turnIds": list(reason.turn_ids),
                "left": {"rolloutId": left.rollout_id, "endOrdinal": left.ordinal},
                "origin": _origin(session),
            }
        },
    )
    store = session.store
    session.applied = None
    tail = session.settings_to_record(session.settings)
    log = await store.branch(header, await _base(session, base), tail, replaces=session.log)
    history = await load(store, log.info)
    return session.switch_log(log, history)


def _origin(session: Session) -> dict[str, Any]:
    """When the thread began and what it was forked from: a branch's own header tells neither (01 §3.1)."""
    header = session.history.header
    ours = header.extra.get("unspool")
    known = ours.get("origin") if isinstance(ours, dict) else None
    if isinstance(known, dict):
        return known
    return {"timestamp": header.payload.get("timestamp"), "forkedFromId": session.facts.forked_from_id}


def _header_payload(header: Record) -> dict[str, Any]:
    kept = {key: value for key, value in header.payload.items() if key not in _LINKS}
    return {**kept, "timestamp": iso_now()}


async def _base(session: Session, base: Position | None) -> Position | None:
    """None where nothing but the first header would be left before the cut (01 §3.1)."""
    if base is None or base.ordinal > 1:
        return base
    first = await session.store.rollout(base.rollout_id)
    return base if first.base is not None else None


async def undo(session: Session) -> list[ClientEvent]:
    """Bring back what the newest rollback or revert not yet undone took away. Runs inside a step, idle only.

    What was recorded since stays in its own rollout, and can be brought back the same way.

    Raises:
        ThreadBusy, WriteFailed: nothing was changed.
        RequestError: There is nothing to undo.
    """
    session.require_idle("undo a rollback")
    await _materialised(session)
    if session.mode == HistoryMode.LEGACY:
        return await _undo_legacy(session)
    left = await _left_by_newest_cut(session)
    if left is None:
        raise RequestError("there is no rollback to undo", data={"reason": "nothingToUndo"})
    return await branch(session, left, Reason("undo"))


async def _left_by_newest_cut(session: Session) -> Position | None:
    """Where the present was before the newest cut; undone cuts are passed over by way of what they went back to."""
    store = session.store
    info = session.log.info
    while info.header is not None:
        ours = info.header.extra.get("unspool")
        word = ours.get("branch") if isinstance(ours, dict) else None
        if isinstance(ours, dict) and word in ("rollback", "revert"):
            return _left(ours)
        if info.base is None:
            return await _left_by_reference(session, info.rollout_id) if word is None else None
        if word is None and info.thread_id == session.thread_id and info.rollout_id != session.thread_id:
            return await _left_by_reference(session, info.rollout_id)
        base = await store.rollout(info.base.rollout_id)
        if base.thread_id != session.thread_id:
            return None
        info = base
    return None


def _left(ours: dict[str, Any]) -> Position | None:
    left = ours.get("left")
    if not isinstance(left, dict):
        return None
    rollout_id, ordinal = left.get("rolloutId"), left.get("endOrdinal")
    return Position(rollout_id, ordinal) if isinstance(rollout_id, str) and isinstance(ordinal, int) else None


async def _left_by_reference(session: Session, rollout_id: str) -> Position | None:
    """A revert that another program made says not what it left: it was the rollout before this one."""
    older = await session.store.rollouts(session.thread_id)
    index = next((place for place, info in enumerate(older) if info.rollout_id == rollout_id), 0)
    if index == 0:
        return None
    before = older[index - 1]
    async with aclosing(session.store.read_backward(before.rollout_id)) as records:
        async for record in records:
            return Position(before.rollout_id, record.ordinal + 1)
    return None


async def _undo_legacy(session: Session) -> list[ClientEvent]:
    whole = [record async for record in session.store.read(session.log.info.rollout_id)]
    restore: Sequence[NewRecord] | None = legacy_restore(whole, window_id=new_id())
    if restore is None:
        raise RequestError("there is no rollback to undo", data={"reason": "nothingToUndo"})
    return await _append_legacy(session, restore)


async def _append_legacy(session: Session, records: Sequence[NewRecord]) -> list[ClientEvent]:
    """Append a marker or its undo; it may change what records far back mean, so the history is read anew (03 §7)."""
    events = session.take_in(await session.log.append(records, expected_ordinal=session.log.next_ordinal))
    session.history = await load(session.store, session.log.info)
    session.refold()
    return events
