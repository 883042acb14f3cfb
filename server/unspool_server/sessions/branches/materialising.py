"""Giving a thread a copy of what it inherits, so that it stands on its own (DESIGN §4, §9.3).

The copy is a new rollout of the same thread without a base: its header says what it is a copy of, every other line is
copied byte for byte and keeps its ordinal, so that places in the old rollouts are the same places in the new one. It
becomes the thread's present in one step, by being its newest rollout; the older ones stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import NewRecord, Position, Record, RecordType

from unspool_server.errors import ThreadBusy
from unspool_server.history.tenancy import tenant_member
from unspool_server.sessions.branches.rollout_path import Step, end_of, ours_of, path_of
from unspool_server.sessions.clock import iso_now, new_id
from unspool_server.sessions.loading import load
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.session import Session
from unspool_server.sessions.tenants import tenant_of_log
from unspool_server.store.contract import Log, LogStore, NewRollout, RolloutInfo

MATERIALISE = "materialize"
"""The word in such a header."""


async def materialise_all(sessions: Sessions, thread_ids: Sequence[str]) -> None:
    """Copy for each thread; all of them are locked before the first copy is made.

    Raises:
        ThreadBusy, WriterHeld, LogCorrupt, WriteFailed: some may have their copy already, which changes nothing else.
    """
    held: list[_Held] = []
    try:
        for thread_id in thread_ids:
            if sessions.get(thread_id) is None:
                held.append(await _hold(sessions.env.store, thread_id))
        for one in held:
            one.log = await _copy(sessions.env.store, one.log)
        for thread_id in thread_ids:
            session = sessions.get(thread_id)
            if session is not None:
                await _copy_live(session)
    finally:
        for one in held:
            await one.log.close()
            if one.archived:
                await sessions.env.store.archive(one.log.info.thread_id)


@dataclass(slots=True)
class _Held:
    """A thread that is not loaded, locked; `archived` says where it has to go back to."""

    log: Log
    archived: bool


async def _hold(store: LogStore, thread_id: str) -> _Held:
    archived = (await store.find(thread_id)).archived
    if archived:
        await store.unarchive(thread_id)
    try:
        return _Held(await store.open(thread_id), archived)
    except BaseException:
        if archived:
            await store.archive(thread_id)
        raise


async def _copy_live(session: Session) -> None:
    async def change() -> None:
        if session.turn is not None:
            raise ThreadBusy("cannot copy what a thread inherits while a turn is in progress", session.turn.id)
        await session.log.flush()
        log = await _copy(session.store, session.log)
        # Clients see nothing of it: the copy says what they were told already.
        session.log, session.history = log, await load(session.store, log.info)
        session.refold()
        session.view.settle()
        # Places in the old rollouts are the same ones in the copy, and what is behind is read from there.
        session.env.sink.reset(session.thread_id, session.end_cursor)

    await session.step(change)


async def _copy(store: LogStore, log: Log) -> Log:
    """Write the copy; `log` is fenced by it."""
    info = log.info
    steps = await path_of(store, info)
    records = [record async for record in store.read(info.rollout_id)]
    header = NewRollout(
        thread_id=info.thread_id,
        rollout_id=new_id(),
        mode=info.mode,
        payload=_payload(info),
        extra={"unspool": await _ours(store, info, steps)},
    )
    return await store.branch(header, None, _lines(records), replaces=log)


def _payload(info: RolloutInfo) -> dict[str, Any]:
    own = info.header.payload if info.header is not None else {}
    links = ("history_base", "forked_from_ordinal_exclusive", "history_mode")
    return {**{key: value for key, value in own.items() if key not in links}, "timestamp": iso_now()}


async def _ours(store: LogStore, info: RolloutInfo, steps: Sequence[Step]) -> dict[str, Any]:
    own = info.header.payload if info.header is not None else {}
    end = await end_of(store, info)
    known = ours_of(info).get("origin")
    origin = {"timestamp": own.get("timestamp"), "forkedFromId": own.get("forked_from_id")}
    copied = [{"rolloutId": step.info.rollout_id, "endOrdinal": step.cut or end} for step in steps]
    left = Position(info.rollout_id, end)
    return {
        **tenant_member(await tenant_of_log(store, info)),
        "branch": MATERIALISE,
        "turnIds": [],
        "left": {"rolloutId": left.rollout_id, "endOrdinal": left.ordinal},
        "origin": known if isinstance(known, dict) else origin,
        "copied": copied,
    }


def _lines(records: Sequence[Record]) -> list[NewRecord]:
    """All lines but the first header, whose place the new one takes."""
    first = next((index for index, record in enumerate(records) if record.type == RecordType.SESSION_META), None)
    return [
        NewRecord(record.type, record.payload, raw=record.raw) for index, record in enumerate(records) if index != first
    ]
