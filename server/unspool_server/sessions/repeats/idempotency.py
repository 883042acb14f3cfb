"""Calls that may come again: the same key, the same answer, and nothing happens twice.

A call that changes a thread leaves its mark in the thread's log, in the same unit as its change (`history/calls.py`),
so that kill -9 leaves both or neither. Calls without a thread's log are in `home_calls.py`. What a repeated call is
answered is built from the log, where the first answer was: no answers are stored.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import orjson
import xxhash
from unspool_protocol.base import KeyedParams
from unspool_protocol.log import Position
from unspool_protocol.turns import Turn as WireTurn

from unspool_server.errors import KeyReused
from unspool_server.history.calls import CallMark, mark_record
from unspool_server.history.checkpoints import rolled_back_turns
from unspool_server.history.in_force import restore_of
from unspool_server.history.turn_pages import turn_slices, without_items
from unspool_server.sessions.loading import find_turn
from unspool_server.sessions.repeats.known_calls import KnownCalls
from unspool_server.sessions.session import Session
from unspool_server.store.contract import Log, LogStore

T = TypeVar("T")


def keyed_call(method: str, params: KeyedParams, *, scope: str = "", thread_id: str = "") -> CallMark | None:
    """What makes a request the same call as another one; None for a request without a key.

    Args:
        scope: Whose keys these are; callers with different scopes never meet each other's (one tenant: empty).
        thread_id: Empty for calls that are not about a thread of their own (`thread/start`).
    """
    if params.idempotency_key is None:
        return None
    return CallMark(thread_id, scope, method, params.idempotency_key, digest_of(params))


def digest_of(params: KeyedParams) -> str:
    """A check value over everything that a request says beside its key; null members do not count."""
    told: Any = params.model_dump(by_alias=True, mode="json", exclude={"idempotency_key"}, exclude_none=True)
    return xxhash.xxh3_128_hexdigest(orjson.dumps(told, option=orjson.OPT_SORT_KEYS))


def check_same(known: CallMark, call: CallMark) -> None:
    """Refuse a key that was used for a request with other parameters. Raises KeyReused."""
    if known.digest != call.digest:
        raise KeyReused(call.method, call.key)


async def once(
    session: Session,
    call: CallMark | None,
    change: Callable[[], Awaitable[T]],
    again: Callable[[CallMark], Awaitable[T | None]],
) -> T:
    """Carry out a change of a thread unless this call did so before. Runs inside a step, so a repeat waits its turn.

    The first unit of records that `change` writes as a whole gets the call's mark (`Session.marked`); a change that
    writes none leaves a record that says that the call was accepted. A change that fails leaves nothing.

    Args:
        again: Builds the answer from the mark of the first call; None where the process ended before anything of it
            was carried out, which is then done now.

    Raises:
        KeyReused: The key belongs to a call with other parameters; nothing was changed.
    """
    if call is None:
        return await change()
    known = await session.calls.call(call.id)
    if known is not None:
        check_same(known, call)
        if (answer := await again(known)) is not None:
            return answer
    session.calling = known or call
    try:
        result = await change()
        if session.calling is not None:
            await session.record_written(mark_record(session.calling))
        return result
    finally:
        session.calling = None


async def carried_out(log: Log, store: LogStore, call: CallMark) -> bool:
    """Whether a call was carried out on a thread that is not loaded. Raises KeyReused."""
    known = await KnownCalls(log, store).call(call.id)
    if known is not None:
        check_same(known, call)
    return known is not None


def begins(session: Session, turn_id: str) -> None:
    """The call that is being carried out begins (or joins) this turn, which its mark then says."""
    if session.calling is not None:
        session.calling = replace(session.calling, turn_id=turn_id)


def travels_with_message(session: Session, turn_id: str) -> CallMark | None:
    """Let the mark of the call be recorded with the message that it brings, into a turn that runs."""
    begins(session, turn_id)
    mark, session.calling = session.calling, None
    if mark is not None:
        session.calls.accept(mark)
    return mark


async def recorded_turn(store: LogStore, turn_id: str, place: Position) -> WireTurn | None:
    """A turn as the log shows it, without items, also one that was rolled back since; None where it never began.

    Args:
        place: Somewhere behind the turn's start, in the rollout that holds it.
    """
    info = await store.rollout(place.rollout_id)
    found = await find_turn(store, info, turn_id)
    if found is None:
        # A legacy log keeps what was rolled back in place: the turn shows before what took it away.
        whole = [record async for record in store.read(info.rollout_id)]
        cut = next(
            (
                index
                for index, record in enumerate(whole)
                if record.ordinal >= place.ordinal and (rolled_back_turns(record) or restore_of(record) is not None)
            ),
            len(whole),
        )
        slices = turn_slices(whole[:cut], info.thread_id, info.mode)
        found = next((one for one in slices if one.turn.id == turn_id), None)
    return None if found is None else without_items(found.turn)
