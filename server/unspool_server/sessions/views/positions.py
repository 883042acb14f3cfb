"""Positions that clients name: which log holds them, and how to read what is before them (DESIGN §4).

Every rollout that a thread ever had can be named, those that a rollback or revert left too, and the inherited part of a
fork. Owns neither what is read (`loading.py`, `pages.py`) nor what is made of it.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from unspool_protocol.log import Position, Record
from unspool_protocol.positions import LogPosition

from unspool_server.errors import InvalidParams, LogCorrupt, LogMissing, RequestError
from unspool_server.history.call_cuts import has_open_call, nearest_legal_cuts
from unspool_server.sessions.loading import load
from unspool_server.sessions.memory import LiveHistory
from unspool_server.store.contract import LogStore, RolloutInfo


@dataclass(frozen=True, slots=True)
class Point:
    """A place in a thread's past.

    Attributes:
        info: The rollout of the thread itself through which it is reached; its header tells the thread's facts.
        holder: The rollout that holds the records before `position`; for what a fork inherited, one of its source.
        position: In `holder`.
    """

    info: RolloutInfo
    holder: RolloutInfo
    position: Position

    @property
    def readable(self) -> RolloutInfo:
        """What readers of turns take: the thread's facts, with the rollout that holds the place."""
        return replace(self.info, rollout_id=self.position.rollout_id)

    def records(self, store: LogStore) -> AsyncGenerator[Record, None]:
        """Everything before the place, oldest first."""
        return store.read(self.position.rollout_id, end=self.position.ordinal)

    async def history(self, store: LogStore) -> LiveHistory:
        """As much of it as reconstruction needs."""
        return await load(store, self.info, end=self.position)


async def resolve(
    store: LogStore, present: RolloutInfo, at: LogPosition | None, *, end_ordinal: int | None = None, field: str = "at"
) -> Point:
    """Find a position of a thread.

    Args:
        present: The thread's present rollout.
        at: None means the present end.
        end_ordinal: Where the present rollout ends, if the caller knows.
        field: The parameter that errors name.

    Raises:
        InvalidParams: Reason `positionInvalid`: an unknown rollout, one of another thread, an ordinal behind its end or
            inside the header.
    """
    if at is None:
        end = end_ordinal if end_ordinal is not None else await end_of(store, present)
        return Point(present, present, Position(present.rollout_id, end))
    rollout_id = at.rollout_id or present.rollout_id
    try:
        named = present if rollout_id == present.rollout_id else await store.rollout(rollout_id)
    except LogMissing:
        raise _no_part(at, field, rollout_id, present) from None
    own = named
    if named.thread_id != present.thread_id:
        heir = await _heir(store, present, named, at.ordinal)
        if heir is None:
            raise _no_part(at, field, rollout_id, present)
        own = heir
    if named.thread_id == present.thread_id:
        known = end_ordinal if named.rollout_id == present.rollout_id else None
        end = known if known is not None else await end_of(store, named)
        if at.ordinal > end:
            raise _invalid(at, field, f"ordinal {at.ordinal} is behind the end of the log, {end}", end=end)
    return await _held(store, own, named, at, field)


def _no_part(at: LogPosition, field: str, rollout_id: str, present: RolloutInfo) -> InvalidParams:
    """The same for a rollout of another thread and for one that does not exist: it may be another tenant's."""
    return _invalid(at, field, f"rollout {rollout_id} is no part of thread {present.thread_id}")


async def _held(store: LogStore, own: RolloutInfo, named: RolloutInfo, at: LogPosition, field: str) -> Point:
    """Go down to the rollout that holds the place: a branch inherits what lies before its header."""
    holder, thread_id = named, own.thread_id
    for below in (await bases_of(store, named))[1:]:
        if holder.base is None or at.ordinal > holder.base.ordinal:
            break
        holder = below
        own = holder if holder.thread_id == thread_id else own
    header = holder.header.ordinal if holder.header is not None else 0
    if at.ordinal <= header:
        raise _invalid(at, field, f"ordinal {at.ordinal} lies inside the log's header", first=header + 1)
    return Point(own, holder, Position(holder.rollout_id, at.ordinal))


async def _heir(store: LogStore, present: RolloutInfo, named: RolloutInfo, ordinal: int) -> RolloutInfo | None:
    """The oldest rollout of the thread that inherits this place of another thread's rollout."""
    for info in [*await store.rollouts(present.thread_id), present]:
        for below in await bases_of(store, info):
            cut = below.base
            if cut is not None and cut.rollout_id == named.rollout_id and ordinal <= cut.ordinal:
                return info
    return None


async def bases_of(store: LogStore, info: RolloutInfo) -> list[RolloutInfo]:
    """A rollout and those that its history begins in, newest first. Raises LogCorrupt where one is missing."""
    chain = [info]
    while (base := chain[-1].base) is not None:
        if any(one.rollout_id == base.rollout_id for one in chain):
            raise LogCorrupt("the history base runs in a circle", rollout_id=info.rollout_id)
        try:
            chain.append(await store.rollout(base.rollout_id))
        except LogMissing:
            raise LogCorrupt("the history base is missing", rollout_id=info.rollout_id) from None
    return chain


async def end_of(store: LogStore, info: RolloutInfo) -> int:
    """The ordinal behind a rollout's newest record."""
    async with aclosing(store.read_backward(info.rollout_id)) as records:
        async for record in records:
            return record.ordinal + 1
    return 0


def _invalid(at: LogPosition, field: str, why: str, **facts: Any) -> InvalidParams:
    data = {"reason": "positionInvalid", "field": field, "rolloutId": at.rollout_id, "ordinal": at.ordinal, **facts}
    return InvalidParams(f"invalid position: {why}", data=data)


async def refuse_parted_call(store: LogStore, point: Point, history: LiveHistory, field: str = "at") -> None:
    """Refuse a cut between a call and its output.

    Raises:
        RequestError: Reason `cutsCall`; `data.before` and `data.after` are the nearest positions that part nothing.
    """
    before = history.records
    if not has_open_call(before):
        return
    place = point.position
    behind = [record async for record in store.read(place.rollout_id, start=place.ordinal)]
    nearest = nearest_legal_cuts(before, behind)
    if nearest is None:
        return
    low, high = nearest
    raise RequestError(
        f"the cut at {place.rollout_id}:{place.ordinal} lies between a call and its output; "
        f"cut at {low.ordinal} or {high.ordinal} instead",
        data={"reason": "cutsCall", "field": field, "before": wire_position(low), "after": wire_position(high)},
    )


def wire_position(position: Position) -> dict[str, Any]:
    """A position as clients spell it."""
    return {"rolloutId": position.rollout_id, "ordinal": position.ordinal}


async def chain_of(store: LogStore, point: Point) -> list[Position]:
    """Which parts of which rollouts lie before a place, oldest first: each up to its position.

    A branch whose header alone is inherited counts as well; the parts of one chain never overlap.
    """
    parts: list[Position] = []
    ordinal = point.position.ordinal
    for link in await bases_of(store, point.holder):
        parts.append(Position(link.rollout_id, ordinal))
        ordinal = min(ordinal, link.base.ordinal) if link.base is not None else ordinal
    return parts[::-1]


def common_part(one: list[Position], other: list[Position]) -> Position | None:
    """Up to where two chains (`chain_of`) are the same; None where they share nothing."""
    shared: Position | None = None
    for mine, yours in zip(one, other, strict=False):
        if mine.rollout_id != yours.rollout_id:
            break
        shared = Position(mine.rollout_id, min(mine.ordinal, yours.ordinal))
        if mine.ordinal != yours.ordinal:
            break
    return shared


def is_before(position: Position, chain: list[Position]) -> bool:
    """Whether the record at a position is part of a chain."""
    return any(part.rollout_id == position.rollout_id and position.ordinal < part.ordinal for part in chain)
