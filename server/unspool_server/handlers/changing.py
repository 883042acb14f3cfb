"""Transformations of a thread: compact, rollback, undo, restore, revert, inject, name (04).

Each is one step of the thread's owner: check, record, install, answer, then show. Methods that the reference has treat
a busy thread as it does; `thread/compact` and `thread/rollback` refuse it, unless told to interrupt (DESIGN §5).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial

from unspool_protocol.threads import (
    Thread,
    ThreadCompactParams,
    ThreadCompactResult,
    ThreadCompactStartParams,
    ThreadCompactStartResult,
    ThreadInjectItemsParams,
    ThreadInjectItemsResult,
    ThreadNameSetParams,
    ThreadNameSetResult,
    ThreadRevertParams,
    ThreadRevertResult,
    ThreadRollbackParams,
    ThreadRollbackResult,
    ThreadRollbackUndoParams,
    ThreadRollbackUndoResult,
    ThreadSettingsUpdateParams,
    ThreadSettingsUpdateResult,
    TransformParams,
    TurnSettingsUpdateParams,
    TurnSettingsUpdateResult,
)
from unspool_protocol.time_travel import ThreadRestoreParams, ThreadRestoreResult

from unspool_server.errors import RequestError
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.keys import keyed, shelf_then, thread_then
from unspool_server.handlers.services import services
from unspool_server.history.calls import CallMark
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.turn_pages import PageScope
from unspool_server.sessions.branches.branching import newest_turns, revert, rollback, turns_from
from unspool_server.sessions.branches.restoring import restore, undo
from unspool_server.sessions.injection import check_items, inject
from unspool_server.sessions.opening import check_provider, check_thread_id
from unspool_server.sessions.repeats.idempotency import once
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import overridden, settings_record
from unspool_server.sessions.turns.admission import end_running, start_compaction
from unspool_server.sessions.turns.compaction import compact_with_summary
from unspool_server.sessions.views.pages import Shelf, all_turns, newest_cursor
from unspool_server.sessions.views.summaries import live_thread, settings_told

Change = Callable[[], Awaitable[list[ClientEvent]]]
Check = Callable[[], Awaitable[object]]


async def thread_compact_start(ctx: RequestContext, params: ThreadCompactStartParams) -> ThreadCompactStartResult:
    """Let the model summarise: answered at once, the work is a turn of its own."""
    shared = services(ctx)
    session = shared.sessions.require(params.thread_id)
    shared.sessions.check_turns(session)
    call = keyed(ctx, "thread/compact/start", params, session.thread_id)
    await start_compaction(session, call, ctx.after)
    return ThreadCompactStartResult()


async def thread_compact(ctx: RequestContext, params: ThreadCompactParams) -> ThreadCompactResult:
    """Compact with the caller's summary and a kept suffix, no model involved. Addition."""
    session = services(ctx).sessions.require(params.thread_id)

    async def change() -> list[ClientEvent]:
        return await compact_with_summary(session, params.summary, params.keep_last)

    answer = await _transformed(ctx, session, change, params, "thread/compact")
    return ThreadCompactResult(thread=answer)


async def thread_rollback(ctx: RequestContext, params: ThreadRollbackParams) -> ThreadRollbackResult:
    """Take the newest turns out of the history; they stay in the log. Addition."""
    session = services(ctx).sessions.require(params.thread_id)
    change = partial(rollback, session, params.num_turns)
    check = partial(newest_turns, session, params.num_turns)
    answer = await _transformed(ctx, session, change, params, "thread/rollback", check=check)
    return ThreadRollbackResult(thread=answer)


async def thread_rollback_undo(ctx: RequestContext, params: ThreadRollbackUndoParams) -> ThreadRollbackUndoResult:
    """Bring back what the newest rollback or revert took away. Addition."""
    session = services(ctx).sessions.require(params.thread_id)
    change = partial(undo, session)
    return ThreadRollbackUndoResult(thread=await _transformed(ctx, session, change, params, "thread/rollback/undo"))


async def thread_restore(ctx: RequestContext, params: ThreadRestoreParams) -> ThreadRestoreResult:
    """Make any earlier point of any branch the present again. Addition."""
    session = services(ctx).sessions.require(params.thread_id)
    change = partial(restore, session, params.at)
    return ThreadRestoreResult(thread=await _transformed(ctx, session, change, params, "thread/restore"))


async def _transformed(
    ctx: RequestContext,
    session: Session,
    change: Change,
    params: TransformParams,
    method: str,
    *,
    check: Check | None = None,
) -> Thread:
    """Run a transformation as one step. `check` refuses what must not cost a running turn its life."""

    async def transform() -> tuple[list[ClientEvent], Thread]:
        if check is not None and params.interrupt and session.turn is not None:
            await check()
        await end_running(session, interrupt=params.interrupt)
        events = await change()
        shelf = Shelf(session.store, session.log.info, session)
        turns = [] if params.exclude_turns else await all_turns(shelf)
        return events, live_thread(session, tuple(turns))

    async def again(mark: CallMark) -> tuple[list[ClientEvent], Thread]:
        return [], await thread_then(session, mark, with_turns=not params.exclude_turns)

    call = keyed(ctx, method, params, session.thread_id)
    step = partial(once, session, call, transform, again)
    changed: tuple[list[ClientEvent], Thread] = await session.answered_step(
        ctx.after, step, lambda result: _show(session, result[0])
    )
    return changed[1]


async def _show(session: Session, events: Sequence[ClientEvent]) -> None:
    session.publish_events(events)


async def thread_revert(ctx: RequestContext, params: ThreadRevertParams) -> ThreadRevertResult:
    """Take a turn and all later ones out of the history; a running turn is ended first (04 §5)."""
    session = services(ctx).sessions.require(params.thread_id)

    async def change() -> tuple[list[ClientEvent], ThreadRevertResult]:
        if session.turn is not None and session.turn.id != params.before_turn_id:
            await turns_from(session, params.before_turn_id)
        await end_running(session, interrupt=True)
        session.publish_status({"type": "notLoaded"})
        try:
            events = await revert(session, params.before_turn_id)
        finally:
            session.publish_status()
        return events, await _reverted(session, Shelf(session.store, session.log.info, session))

    async def again(mark: CallMark) -> tuple[list[ClientEvent], ThreadRevertResult]:
        return [], await _reverted(session, await shelf_then(session, mark))

    call = keyed(ctx, "thread/revert", params, session.thread_id)
    step = partial(once, session, call, change, again)
    changed: tuple[list[ClientEvent], ThreadRevertResult] = await session.answered_step(
        ctx.after, step, lambda result: _show(session, result[0])
    )
    return changed[1]


async def _reverted(session: Session, shelf: Shelf) -> ThreadRevertResult:
    return ThreadRevertResult(
        thread=live_thread(session),
        turns_backwards_cursor=await newest_cursor(shelf, PageScope.TURNS),
        items_backwards_cursor=await newest_cursor(shelf, PageScope.ITEMS),
    )


async def _nothing(_: CallMark) -> bool:
    """A repeated call whose answer says nothing has nothing to do."""
    return True


async def thread_inject_items(ctx: RequestContext, params: ThreadInjectItemsParams) -> ThreadInjectItemsResult:
    """Put raw items behind the history; the next turn sees them."""
    session = services(ctx).sessions.require(params.thread_id)
    items = check_items(params.items)
    call = keyed(ctx, "thread/inject_items", params, session.thread_id)
    await session.step(partial(once, session, call, partial(inject, session, items), _nothing))
    return ThreadInjectItemsResult()


async def thread_name_set(ctx: RequestContext, params: ThreadNameSetParams) -> ThreadNameSetResult:
    """Name a thread, loaded or not."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    name = params.name.strip()
    if not name:
        raise RequestError("thread name must not be empty", data={"reason": "invalidParams", "field": "name"})
    session = shared.sessions.get(thread_id)
    if session is not None and session.facts.ephemeral:
        raise RequestError(
            f"ephemeral thread does not support metadata updates: {thread_id}", data={"reason": "unsupported"}
        )
    await shared.sessions.rename(thread_id, name, ctx.after, keyed(ctx, "thread/name/set", params, thread_id))
    return ThreadNameSetResult()


async def thread_settings_update(ctx: RequestContext, params: ThreadSettingsUpdateParams) -> ThreadSettingsUpdateResult:
    """Settings for the turns to come; recorded at once, or with the first turn of a thread that never ran."""
    await _update_settings(ctx, params, "thread/settings/update")
    return ThreadSettingsUpdateResult()


async def turn_settings_update(ctx: RequestContext, params: TurnSettingsUpdateParams) -> TurnSettingsUpdateResult:
    """The same; a running turn keeps what it began with."""
    await _update_settings(ctx, params, "turn/settings/update")
    return TurnSettingsUpdateResult()


async def _update_settings(ctx: RequestContext, params: ThreadSettingsUpdateParams, method: str) -> None:
    shared = services(ctx)
    session = shared.sessions.require(params.thread_id)

    async def change() -> None:
        changed = overridden(session.settings, params, shared.env.config, shared.env.cwd)
        check_provider(session.env, changed)
        changed = replace(
            changed,
            sandbox=params.sandbox_policy or changed.sandbox,
            effort=params.effort or changed.effort,
            summary=params.summary or changed.summary,
        )
        if changed != session.settings:
            if not session.log.deferred:
                await session.record_written(settings_record(changed, session.thread_id))
                session.applied = changed
            session.settings = changed
            session.publish("thread/settings/updated", {"threadSettings": settings_told(changed)})

    call = keyed(ctx, method, params, session.thread_id)
    await session.step(partial(once, session, call, change, _nothing))
