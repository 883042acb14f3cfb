"""Every rollout of one thread and why it exists (DESIGN §4). Reads headers and ends, loads nothing."""

from collections.abc import Sequence
from contextlib import aclosing

from unspool_protocol.audit_methods import ThreadBranch
from unspool_protocol.log import Position, RecordType
from unspool_protocol.positions import LogPosition

from unspool_server.errors import LogCorrupt
from unspool_server.history.event_shapes import TURN_STARTS
from unspool_server.sessions.branches.rollout_path import Step, branch_word, end_of, left_position, ours_of, path_of
from unspool_server.sessions.views.summaries import seconds_of
from unspool_server.store.contract import LogStore, RolloutInfo


async def branches(store: LogStore, present: RolloutInfo) -> list[ThreadBranch]:
    """All rollouts of the thread that `present` is the newest of, oldest first."""
    infos = await store.rollouts(present.thread_id)
    on_path = {step.info.rollout_id for step in await _path(store, present)}
    found: list[ThreadBranch] = []
    older: RolloutInfo | None = None
    for info in infos:
        found.append(await _branch(store, info, older, present, on_path))
        older = info
    return found


async def _path(store: LogStore, info: RolloutInfo) -> Sequence[Step]:
    """Nothing where a part of it cannot be read."""
    try:
        return await path_of(store, info)
    except LogCorrupt:
        return ()


async def _branch(
    store: LogStore, info: RolloutInfo, older: RolloutInfo | None, present: RolloutInfo, on_path: set[str]
) -> ThreadBranch:
    reachable = bool(await _path(store, info))
    left = left_position(info)
    if left is None and older is not None:
        # The reference does not say what a revert left: it was the rollout before this one.
        left = Position(older.rollout_id, await _end(store, older))
    return ThreadBranch(
        rollout_id=info.rollout_id,
        created_at=seconds_of(info.header) if info.header is not None else None,
        why=branch_word(info),
        turn_ids=await _left_turns(store, info, left),
        base=_wire(info.base),
        left=_wire(left),
        end_ordinal=await _end(store, info),
        present=info.rollout_id == present.rollout_id,
        on_path=info.rollout_id in on_path,
        reachable=reachable,
        archived=info.archived,
    )


async def _end(store: LogStore, info: RolloutInfo) -> int:
    try:
        return await end_of(store, info)
    except LogCorrupt:
        return 0


async def _left_turns(store: LogStore, info: RolloutInfo, left: Position | None) -> Sequence[str]:
    """The turns that a branch left behind: as its header says, else those that started behind its base."""
    named = ours_of(info).get("turnIds")
    if isinstance(named, list):
        return [turn_id for turn_id in named if isinstance(turn_id, str)]
    if left is None or ours_of(info):
        return ()
    turns: dict[str, None] = {}
    start = info.base.ordinal if info.base is not None else 0
    try:
        async with aclosing(store.read(left.rollout_id, start=start, end=left.ordinal)) as records:
            async for record in records:
                turn_id = record.payload.get("turn_id")
                if record.type == RecordType.EVENT_MSG and record.event in TURN_STARTS and isinstance(turn_id, str):
                    turns[turn_id] = None
    except LogCorrupt:
        return ()
    return list(turns)


def _wire(position: Position | None) -> LogPosition | None:
    return None if position is None else LogPosition(rollout_id=position.rollout_id, ordinal=position.ordinal)
