"""Going back on a live thread: restore to any point of any branch, and the undo of cuts (DESIGN §4).

A cut is a rollback, a revert or a restore. Undo goes back to where the thread was just before the newest cut of its
present history. What was recorded since that cut is left in its own branch, to be restored by position; what had been
undone before stays undone, so undo after undo goes back cut by cut until none is left.
Threads with a legacy log keep it: a checkpoint says which line the log reads on from (`history.in_force`).
"""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from unspool_protocol.log import HistoryMode, Position, Record
from unspool_protocol.positions import LogPosition

from unspool_server.errors import RequestError
from unspool_server.history.calls import with_ours
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.queue import carried
from unspool_server.history.rollback import legacy_restore, legacy_undo_place
from unspool_server.history.turn_pages import turn_slices
from unspool_server.history.whole_view import folded_view
from unspool_server.sessions.branches.branching import Reason, append_legacy, branch, materialised
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.loading import turns_back
from unspool_server.sessions.session import Session
from unspool_server.sessions.views.positions import Point, chain_of, common_part, is_before, refuse_parted_call, resolve

_CUTS = ("rollback", "revert", "restore")
"""Reasons of branches that an undo undoes."""


async def restore(session: Session, at: LogPosition) -> list[ClientEvent]:
    """Make any earlier point of any branch the thread's present. Runs inside a step, idle only.

    A point inside a turn gives that turn back as interrupted, just as if the process had died there.

    Returns:
        The events to show once the answer has left.

    Raises:
        ThreadBusy, NotMaterialised, InvalidParams (`positionInvalid`), RequestError (`cutsCall`), WriteFailed: nothing
            was changed.
    """
    session.require_idle("restore")
    await materialised(session)
    point = await resolve(session.store, session.log.info, at, end_ordinal=session.log.next_ordinal)
    await refuse_parted_call(session.store, point, await point.history(session.store))
    return await _go_to(session, point, "restore")


async def undo(session: Session) -> list[ClientEvent]:
    """Go back to before the newest cut (see the module's head). Runs inside a step, idle only.

    Raises:
        ThreadBusy, WriteFailed: nothing was changed.
        RequestError: There is nothing to undo.
    """
    session.require_idle("undo a rollback")
    await materialised(session)
    left = await (_before_newest_cut(session) if session.mode == HistoryMode.LEGACY else _left_by_newest_cut(session))
    if left is None:
        raise RequestError("there is no rollback to undo", data={"reason": "nothingToUndo"})
    at = LogPosition(rollout_id=left.rollout_id, ordinal=left.ordinal)
    point = await resolve(session.store, session.log.info, at, end_ordinal=session.log.next_ordinal)
    return await _go_to(session, point, "undo")


async def _go_to(session: Session, point: Point, word: str) -> list[ClientEvent]:
    if session.mode == HistoryMode.LEGACY:
        return await _go_back_in_log(session, point.position.ordinal, word)
    gone, back = await _turns_between(session, point)
    return await branch(session, point.position, Reason(word, gone, back))


# -- what was left -----------------------------------------------------------------------------------------------------


async def _left_by_newest_cut(session: Session) -> Position | None:
    """Where the present was before the newest cut; undone cuts are passed over by way of what they went back to."""
    store = session.store
    info = session.log.info
    while info.header is not None:
        ours = info.header.extra.get("unspool")
        word = ours.get("branch") if isinstance(ours, dict) else None
        if isinstance(ours, dict) and word in _CUTS:
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


async def _before_newest_cut(session: Session) -> Position | None:
    whole = [record async for record in session.store.read(session.log.info.rollout_id)]
    place = legacy_undo_place(whole)
    return None if place is None else whole[place].position


# -- which turns go and come back --------------------------------------------------------------------------------------


async def _turns_between(session: Session, point: Point) -> tuple[list[str], list[str]]:
    """Visible turns that go, and those that come back; only what is behind the common past is read."""
    now = await resolve(session.store, session.log.info, None, end_ordinal=session.log.next_ordinal)
    chains = await chain_of(session.store, now), await chain_of(session.store, point)
    shared = common_part(*chains)
    common = [] if shared is None else _upto(chains[0], shared)
    gone, back = [await _turns_behind(session, place, common) for place in (now, point)]
    return [one for one in gone if one not in back], [one for one in back if one not in gone]


def _upto(chain: list[Position], shared: Position) -> list[Position]:
    older = [part for part in chain if part.rollout_id != shared.rollout_id]
    place = next(index for index, part in enumerate(chain) if part.rollout_id == shared.rollout_id)
    return [*older[:place], shared]


async def _turns_behind(session: Session, point: Point, common: list[Position]) -> list[str]:
    """Ids of the turns behind what is common, oldest first, and of the one before them, which may be cut in two."""
    found: list[str] = []
    async with aclosing(turns_back(session.store, point.readable, end_ordinal=point.position.ordinal)) as turns:
        async for one in turns:
            found.append(one.turn.id)
            if is_before(one.start, common):
                break
    return found[::-1]


# -- legacy logs -------------------------------------------------------------------------------------------------------


async def _go_back_in_log(session: Session, ordinal: int, word: str) -> list[ClientEvent]:
    """Append a checkpoint from which on the log reads as it did before a line of it."""
    whole = [record async for record in session.store.read(session.log.info.rollout_id)]
    place = next((index for index, record in enumerate(whole) if record.ordinal >= ordinal), len(whole))
    now, then = _turn_ids(session, whole), _turn_ids(session, whole[:place])
    view = folded_view(whole[:place], session.thread_id, session.mode)
    records = legacy_restore(
        whole,
        place,
        reason=word,
        turn_ids=[one for one in now if one not in then],
        restored_turn_ids=[one for one in then if one not in now],
        next_item=int(view.next_item_id.removeprefix("item-")),
        window_id=new_id(),
    )
    queue = carried(session.queue, session.thread_id)
    return await append_legacy(session, [with_ours(record, **queue) for record in records])


def _turn_ids(session: Session, records: Sequence[Record]) -> list[str]:
    return [one.turn.id for one in turn_slices(records, session.thread_id, session.mode)]
