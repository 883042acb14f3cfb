"""Reading a thread's log back into memory: as much of its end as reconstruction needs (03 §7)."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from weakref import WeakKeyDictionary

from unspool_protocol.log import HistoryMode, Position, Record, RecordType

from unspool_server.errors import LogCorrupt
from unspool_server.history.bounded import BoundedScan
from unspool_server.history.checkpoints import rolled_back_turns
from unspool_server.history.turn_pages import TurnGrouper, TurnSlice, turn_slices
from unspool_server.sessions.memory import LiveHistory
from unspool_server.store.contract import LogStore, ReadReport, RolloutInfo


async def load(
    store: LogStore, info: RolloutInfo, *, end: Position | None = None, report: ReadReport | None = None
) -> LiveHistory:
    """Read a rollout's history backwards until it can be reconstructed, optionally only what is before `end`.

    Raises:
        LogCorrupt: The rollout has no usable header.
    """
    if info.header is None:
        raise LogCorrupt("the log does not start with session metadata", rollout_id=info.rollout_id)
    scan = BoundedScan(info.mode)
    async with aclosing(_backward(store, info, end, report)) as records:
        async for record in records:
            if _is_own_header(record, info):
                continue
            if scan.feed(record):
                break
    return LiveHistory(info.mode, info.header, scan.records())


def _backward(
    store: LogStore, info: RolloutInfo, end: Position | None, report: ReadReport | None = None
) -> AsyncGenerator[Record, None]:
    rollout_id, ordinal = (info.rollout_id, None) if end is None else (end.rollout_id, end.ordinal)
    return store.read_backward(rollout_id, end=ordinal, report=report)


def _is_own_header(record: Record, info: RolloutInfo) -> bool:
    return (
        record.type == RecordType.SESSION_META and info.header is not None and record.position == info.header.position
    )


async def turns_back(
    store: LogStore, info: RolloutInfo, *, end_ordinal: int | None = None
) -> AsyncGenerator[TurnSlice, None]:
    """A thread's turns before an ordinal, newest first; a paginated log is read only as far as the caller asks.

    Where another writer put a rollback marker into it, the rest is read as a whole: only that tells what is left.
    """
    below: int | None = None
    if info.mode == HistoryMode.PAGINATED:
        grouper = TurnGrouper(info.thread_id, info.mode)
        end = None if end_ordinal is None else Position(info.rollout_id, end_ordinal)
        async with aclosing(_backward(store, info, end)) as records:
            async for record in records:
                if rolled_back_turns(record):
                    break
                for one in grouper.feed(record):
                    below = one.start.ordinal
                    yield one
            else:
                for one in grouper.finish():
                    yield one
                return
    whole = [record async for record in store.read(info.rollout_id, end=end_ordinal)]
    for one in reversed(turn_slices(whole, info.thread_id, info.mode)):
        if below is None or one.start.ordinal < below:
            yield one


async def find_turn(store: LogStore, info: RolloutInfo, turn_id: str) -> TurnSlice | None:
    """Look for a turn from the newest one back."""
    async with aclosing(turns_back(store, info)) as turns:
        async for one in turns:
            if one.turn.id == turn_id:
                return one
    return None


MARKER = b"thread_rolled_back"
"""What every line with a rollback marker holds; other lines that hold it only cost a closer look."""

_MARKED: WeakKeyDictionary[LogStore, dict[str, tuple[tuple[int, str], bool]]] = WeakKeyDictionary()


async def may_hold_markers(store: LogStore, info: RolloutInfo) -> bool:
    """Whether a log may hold a rollback marker, so that its turns cannot be told before its end is known.

    The bytes of the log are searched once for as long as it does not change.
    """
    mark = await store.fingerprint(info.rollout_id)
    known = _MARKED.setdefault(store, {})
    found = known.get(info.rollout_id)
    if found is None or found[0] != mark:
        found = known[info.rollout_id] = (mark, await store.mentions(info.rollout_id, MARKER))
    return found[1]
