"""Forking: a new thread whose history begins in another one (04 §6).

The source may be live, cold or archived-but-readable; it is flushed first when it is live, and never changed. Paginated
sources are referenced, legacy ones copied line by line; an ephemeral child lives in memory only.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record, RecordType
from unspool_protocol.positions import LogPosition

from unspool_server.errors import InvalidParams, RequestError
from unspool_server.history.compact import compacted_record
from unspool_server.history.event_shapes import TURN_ENDS, TURN_STARTS, token_usage
from unspool_server.history.fork import interruption_records, unfinished_turn
from unspool_server.history.fork_kept import is_enough, kept_records, with_cleared_baseline
from unspool_server.history.state import Window
from unspool_server.history.tenancy import tenant_member
from unspool_server.sessions.clock import iso_now, new_id, now_s
from unspool_server.sessions.loading import find_turn, load
from unspool_server.sessions.memory import LiveHistory
from unspool_server.sessions.settings import ThreadSettings, settings_record
from unspool_server.sessions.views.positions import refuse_parted_call, resolve
from unspool_server.store.contract import Log, LogStore, NewRollout, RolloutInfo


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a child's history ends in its source; `history` is what is before it.

    Attributes:
        last_boundaries: Only the newest boundaries are kept; None for everything.
        header: Members of the child's header beside the usual ones.
    """

    info: RolloutInfo
    end: Position | None
    history: LiveHistory
    last_boundaries: int | None = None
    header: Mapping[str, Any] = field(default_factory=dict)


def both_cuts() -> RequestError:
    """Both ways to name a cut were used."""
    return RequestError(
        "`lastTurnId` and `beforeTurnId` are mutually exclusive",
        data={"reason": "invalidParams", "field": "lastTurnId"},
    )


async def fork_point(
    store: LogStore,
    info: RolloutInfo,
    *,
    last_turn_id: str | None,
    before_turn_id: str | None,
    running_turn_id: str | None,
    end_ordinal: int | None,
    at: LogPosition | None = None,
) -> ForkPoint:
    """Find the cut. `end_ordinal` is where a live source ended when the fork was asked for.

    Raises:
        RequestError: Two cuts given, `turn not found` (also for a running turn named inclusively), or a position
            between a call and its output (`cutsCall`).
        InvalidParams: A position that is none of the thread's.
    """
    if last_turn_id is not None and before_turn_id is not None:
        raise both_cuts()
    if at is not None:
        if last_turn_id is not None or before_turn_id is not None:
            raise InvalidParams("`at` excludes `lastTurnId` and `beforeTurnId`", data={"field": "at"})
        point = await resolve(store, info, at, end_ordinal=end_ordinal)
        history = await point.history(store)
        await refuse_parted_call(store, point, history)
        return ForkPoint(point.info, point.position, history)
    wanted = last_turn_id or before_turn_id
    if wanted is None:
        end = None if end_ordinal is None else Position(info.rollout_id, end_ordinal)
        return ForkPoint(info, end, await load(store, info, end=end))
    found = await find_turn(store, info, wanted)
    if found is None or (last_turn_id is not None and last_turn_id == running_turn_id):
        raise RequestError(f"turn not found: {wanted}", data={"reason": "turnNotFound"})
    cut = found.end if last_turn_id is not None else found.start
    return ForkPoint(info, cut, await load(store, info, end=cut))


async def write_child(
    target: LogStore,
    source: LogStore,
    point: ForkPoint,
    settings: ThreadSettings,
    *,
    tenant: str,
    thread_id: str | None,
    ephemeral: bool,
    thread_source: str | None = None,
) -> Log:
    """Create the child's rollout in one step: header, what is copied, the boundary of a cut turn, the settings.

    Args:
        tenant: Whose thread the child is: the caller's.

    Raises:
        LogExists, WriteFailed: no child was made.
    """
    thread_id = thread_id or new_id()
    inherited = {**tenant_member(tenant), **_inherited(point)}
    extra = {"unspool": inherited} if inherited else None
    header = NewRollout(
        thread_id, thread_id, point.info.mode, _header(point, settings, thread_id, thread_source), extra
    )
    boundary = _boundary(point.history)
    applied = settings_record(settings, thread_id)
    kept = await _newest(source, point)
    if kept is not None:
        copies = with_cleared_baseline(
            kept, _clearing(point.history, str(header.payload["context_window"]["window_id"]))
        )
        ours = {"branch": "fork", "lastNBoundaries": point.last_boundaries, **inherited}
        return await target.branch(replace(header, extra={"unspool": ours}), None, [*copies, *boundary, applied])
    if point.info.mode == HistoryMode.LEGACY:
        return await target.branch(header, None, [*await _copies(source, point), *boundary, applied])
    if ephemeral:
        # What the model needs and no older turns: its caller asked for none (`excludeTurns`).
        needed = [*await _begun(source, point), *point.history.records[1:]]
        copied = [_fresh_copy(record) for record in needed if record.type != RecordType.SESSION_META]
        return await target.branch(header, None, [*copied, applied, *boundary])
    return await target.branch(header, await _base(source, point), [applied, *boundary])


def _inherited(point: ForkPoint) -> dict[str, Any]:
    """The totals that the child's begin with, so that nobody counts its parent's tokens twice."""
    info = point.history.settings.token_info
    usage = token_usage(info) if info is not None else None
    return {} if usage is None else {"inheritedUsage": usage.total.model_dump(by_alias=True)}


def _header(point: ForkPoint, settings: ThreadSettings, thread_id: str, thread_source: str | None) -> dict[str, Any]:
    own = point.history.header.payload
    header: dict[str, Any] = {
        "session_id": thread_id,
        "id": thread_id,
        "forked_from_id": point.info.thread_id,
        "timestamp": iso_now(),
        "cwd": settings.cwd,
        "runtime_workspace_roots": list(settings.workspace_roots),
    }
    for key in ("originator", "cli_version", "source", "base_instructions", "dynamic_tools", "git"):
        if key in own:
            header[key] = own[key]
    if thread_source is not None:
        header["thread_source"] = thread_source
    header["model_provider"] = settings.model_provider
    header["multi_agent_version"] = "disabled"
    header["context_window"] = {"window_id": new_id()}
    return {**header, **point.header}


def _boundary(history: LiveHistory) -> list[NewRecord]:
    """The interruption that a child gets when its history ends inside a turn (04 §6)."""
    open_turn = unfinished_turn(history.records)
    if open_turn is None:
        return []
    times = {"completed_at": now_s(), "root_turn_id": open_turn or None}
    return interruption_records(open_turn, item_id=f"msg_{new_id()}", times=times)


async def _newest(source: LogStore, point: ForkPoint) -> list[Record] | None:
    """The records of the newest boundaries, where older ones are to be dropped; read backwards as far as need be."""
    wanted, mode = point.last_boundaries, point.info.mode
    if wanted is None:
        return None
    rollout_id, end = (point.info.rollout_id, None) if point.end is None else (point.end.rollout_id, point.end.ordinal)
    newest: list[Record] = []
    bounded = mode == HistoryMode.PAGINATED
    async with aclosing(source.read_backward(rollout_id, end=end)) as records:
        async for record in records:
            newest.append(record)
            bounded = bounded and record.event != "thread_rolled_back"
            if bounded and record.event in TURN_STARTS and is_enough(newest[::-1], wanted):
                break
    return kept_records(newest[::-1], mode, wanted)


def _clearing(history: LiveHistory, window_id: str) -> NewRecord:
    """A checkpoint with nothing in it: the kept turns follow, what the dropped ones showed is told anew."""
    state = history.state
    return compacted_record(
        message="",
        replacement=[],
        window=Window(state.window.number, window_id, None, window_id),
        previous_settings=state.previous_settings,
        last_started_turn_id=state.last_started_turn_id,
    )


def _fresh_copy(record: Record) -> NewRecord:
    return NewRecord(record.type, record.payload, record.metadata, dict(record.extra) or None)


async def _copies(source: LogStore, point: ForkPoint) -> Sequence[NewRecord]:
    end = None if point.end is None else point.end.ordinal
    return [
        NewRecord(record.type, record.payload, raw=record.raw)
        async for record in source.read(point.info.rollout_id, end=end)
    ]


async def _begun(source: LogStore, point: ForkPoint) -> list[Record]:
    """The beginning of the turn that the needed records begin in, as a compaction's do: no turn is cut in two."""
    own = point.history.records[1:]
    if not own or own[0].event in TURN_STARTS:
        return []
    older: list[Record] = []
    async with aclosing(source.read_backward(own[0].rollout_id, end=own[0].ordinal)) as records:
        async for record in records:
            older.append(record)
            if record.event in TURN_STARTS:
                return older[::-1]
            if record.event in TURN_ENDS:
                break
    return []


async def _base(source: LogStore, point: ForkPoint) -> Position | None:
    """The cut as a base; None where only the source's first header is before it."""
    if point.end is None:
        async for record in source.read_backward(point.info.rollout_id):
            return Position(point.info.rollout_id, record.ordinal + 1)
        return None
    if point.end.ordinal <= 1 and (await source.rollout(point.end.rollout_id)).base is None:
        return None
    return point.end
