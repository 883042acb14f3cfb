"""The rollouts that one rollout's history leads through, and what an old header says of why it was made."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import Position, Record

from unspool_server.errors import LogCorrupt, LogMissing
from unspool_server.store.contract import LogStore, RolloutInfo


@dataclass(frozen=True, slots=True)
class Step:
    """One rollout of a path.

    Attributes:
        cut: The first ordinal that is no part of the path; None for the newest rollout.
        left_by: Header of the rollout whose base is that cut.
    """

    info: RolloutInfo
    cut: int | None = None
    left_by: Record | None = None


async def path_of(store: LogStore, info: RolloutInfo) -> list[Step]:
    """From the rollout that the history begins in to `info` itself.

    Raises:
        LogCorrupt: A base is missing, cannot be read or runs in a circle.
    """
    steps = [Step(info)]
    while (base := steps[-1].info.base) is not None:
        if any(step.info.rollout_id == base.rollout_id for step in steps):
            raise LogCorrupt("the history base runs in a circle", rollout_id=info.rollout_id)
        try:
            older = await store.rollout(base.rollout_id)
        except LogMissing as error:
            raise LogCorrupt("the history base is missing", rollout_id=steps[-1].info.rollout_id) from error
        newer = steps[-1]
        # A cut that lies before a rollout begins holds for its base as well.
        keeps = newer.cut is not None and newer.cut <= base.ordinal
        steps.append(Step(older, newer.cut, newer.left_by) if keeps else Step(older, base.ordinal, newer.info.header))
    return steps[::-1]


async def end_of(store: LogStore, info: RolloutInfo) -> int:
    """The ordinal behind the last record of a rollout."""
    records = store.read_backward(info.rollout_id)
    try:
        async for record in records:
            return record.ordinal + 1
    finally:
        await records.aclose()
    return 0


def ours_of(info: RolloutInfo) -> Mapping[str, Any]:
    """What we wrote into a header; empty for headers of others."""
    ours = info.header.extra.get("unspool") if info.header is not None else None
    return ours if isinstance(ours, dict) else {}


def branch_word(info: RolloutInfo) -> str:
    """Why a rollout was made. A further rollout without a word of ours is a revert of the reference (07 §7)."""
    word = ours_of(info).get("branch")
    if isinstance(word, str):
        return word
    if info.rollout_id != info.thread_id:
        return "revert"
    forked = info.header is not None and info.header.payload.get("forked_from_id") is not None
    return "fork" if forked else "start"


def left_position(info: RolloutInfo) -> Position | None:
    """Where the thread ended when it was branched, as our header says it."""
    left = ours_of(info).get("left")
    if not isinstance(left, dict):
        return None
    rollout_id, ordinal = left.get("rolloutId"), left.get("endOrdinal")
    return Position(rollout_id, ordinal) if isinstance(rollout_id, str) and isinstance(ordinal, int) else None
