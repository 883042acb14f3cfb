"""The branch primitive on a live thread, and what cuts with it: rollback and revert (DESIGN §4; 04 §4, §5).

A branch is a new rollout of the same thread that begins at a position in an older one. Nothing is edited or lost.
Threads with a legacy log keep it: a rollback is a marker. Going back to earlier points is in `restoring.py`.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record

from unspool_server.errors import NotMaterialised, RequestError, Unsupported
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.queue import carried
from unspool_server.history.rollback import check_num_turns, rollback_marker
from unspool_server.history.tenancy import tenant_member
from unspool_server.history.turn_pages import TurnSlice
from unspool_server.sessions.clock import iso_now, new_id
from unspool_server.sessions.loading import load, turns_back
from unspool_server.sessions.records import event_record
from unspool_server.sessions.session import Session
from unspool_server.sessions.views.summaries import first_text
from unspool_server.store.contract import NewRollout

_LINKS = frozenset({"history_base", "forked_from_id", "forked_from_ordinal_exclusive", "timestamp"})
"""Header members that a further rollout of the same thread does not take over (01 §3.1)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a branch is made; written into its header and told to clients.

    Attributes:
        turn_ids: Visible turns that go; `restored_turn_ids` are those that come back.
    """

    word: str
    turn_ids: Sequence[str] = ()
    restored_turn_ids: Sequence[str] = ()


async def rollback(session: Session, num_turns: object) -> list[ClientEvent]:
    """Take the newest `num_turns` turns that have a boundary out of the history. Runs inside a step, idle only.

    Returns:
        The events to show once the answer has left.

    Raises:
        ThreadBusy, TurnsOutOfRange, NotMaterialised, WriteFailed: nothing was changed.
    """
    session.require_idle("rollback")
    return await _leave(session, await newest_turns(session, num_turns), "rollback")


async def revert(session: Session, before_turn_id: str) -> list[ClientEvent]:
    """Take a turn and all later ones out of the history (04 §5). Runs inside a step; a running turn was ended before.

    Raises:
        Unsupported: A legacy or ephemeral thread.
        RequestError: `turn not found`.
    """
    return await _leave(session, await turns_from(session, before_turn_id), "revert")


async def turns_from(session: Session, before_turn_id: str) -> list[TurnSlice]:
    """The turns that a revert removes, newest first. Raises as `revert` does; nothing is changed."""
    if session.facts.ephemeral:
        raise Unsupported("ephemeral threads do not support thread/revert")
    if session.mode == HistoryMode.LEGACY:
        raise Unsupported("thread/revert only supports paginated threads")
    await materialised(session)
    removed: list[TurnSlice] = []
    async with aclosing(turns_back(session.store, session.log.info)) as turns:
        async for one in turns:
            removed.append(one)
            if one.turn.id == before_turn_id:
                return removed
    raise RequestError(f"turn not found: {before_turn_id}", data={"reason": "turnNotFound"})


async def newest_turns(session: Session, num_turns: object) -> list[TurnSlice]:
    """The turns that a rollback removes, newest first; turns without a boundary between them go along.

    Raises:
        TurnsOutOfRange, NotMaterialised, WriteFailed: nothing is changed in any case.
    """
    wanted = check_num_turns(num_turns)
    await materialised(session)
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


async def materialised(session: Session) -> None:
    """Bring a thread's log to its medium. Raises NotMaterialised for one that never ran, WriteFailed."""
    if session.log.deferred:
        raise NotMaterialised(f"no rollout found for thread id {session.thread_id}")
    await session.log.flush()


async def _leave(session: Session, removed: Sequence[TurnSlice], word: str) -> list[ClientEvent]:
    turn_ids = [one.turn.id for one in reversed(removed)]
    if session.mode == HistoryMode.LEGACY:
        whole = [record async for record in session.store.read(session.log.info.rollout_id)]
        marker = rollback_marker(whole, removed[-1].start, turn_ids)
        return await append_legacy(session, [marker])
    return await branch(session, removed[-1].start, Reason(word, turn_ids))


async def branch(session: Session, base: Position | None, reason: Reason) -> list[ClientEvent]:
    """Continue the thread from `base` in a new rollout. Settings and name are not undone (04 §5)."""
    await session.terminals.kill_all()  # they belong to the past that is left, and have their end there
    left = Position(session.log.info.rollout_id, session.log.next_ordinal)
    header = NewRollout(
        thread_id=session.thread_id,
        rollout_id=new_id(),
        mode=session.mode,
        payload=_header_payload(session.history.header),
        extra={
            "unspool": {
                **tenant_member(session.facts.tenant),
                "branch": reason.word,
                "turns": len(reason.turn_ids),
                "turnIds": list(reason.turn_ids),
                **({"restoredTurnIds": list(reason.restored_turn_ids)} if reason.restored_turn_ids else {}),
                "left": {"rolloutId": left.rollout_id, "endOrdinal": left.ordinal},
                "origin": _origin(session),
                **carried(session.queue, session.thread_id),
            }
        },
    )
    store = session.store
    session.applied = None
    tail = [*session.settings_to_record(session.settings), *_name_again(session), *session.marks_again(reading=False)]
    log = await store.branch(header, await _base(session, base), session.marked(tail), replaces=session.log)
    history = await load(store, log.info)
    first = await first_text(store, log.info)
    if first is not None:
        session.facts.preview = first
    return session.switch_log(log, history)


def _name_again(session: Session) -> list[NewRecord]:
    """The name once more: the record that gave it may lie in what is left."""
    name = session.facts.name
    if name is None:
        return []
    return [event_record("thread_name_updated", thread_id=session.thread_id, thread_name=name)]


def _origin(session: Session) -> dict[str, Any]:
    """When the thread began and what it was forked from: a branch's own header tells neither (01 §3.1)."""
    header = session.history.header
    ours = header.extra.get("unspool")
    known = ours.get("origin") if isinstance(ours, dict) else None
    if isinstance(known, dict):
        return known
    origin = {"timestamp": header.payload.get("timestamp"), "forkedFromId": session.facts.forked_from_id}
    if isinstance(ours, dict) and "inheritedUsage" in ours:
        origin["inheritedUsage"] = ours["inheritedUsage"]
    return origin


def _header_payload(header: Record) -> dict[str, Any]:
    kept = {key: value for key, value in header.payload.items() if key not in _LINKS}
    return {**kept, "timestamp": iso_now()}


async def _base(session: Session, base: Position | None) -> Position | None:
    """None where nothing but the first header would be left before the cut (01 §3.1)."""
    if base is None or base.ordinal > 1:
        return base
    first = await session.store.rollout(base.rollout_id)
    return base if first.base is not None else None


async def append_legacy(session: Session, records: Sequence[NewRecord]) -> list[ClientEvent]:
    """Append a marker or a restore; it may change what records far back mean, so the history is read anew (03 §7)."""
    await session.terminals.kill_all()
    events = session.take_in(
        await session.log.append(session.marked(records), expected_ordinal=session.log.next_ordinal)
    )
    session.history = await load(session.store, session.log.info)
    session.refold()
    return events
