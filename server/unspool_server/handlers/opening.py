"""`thread/start`, `thread/resume`, `thread/fork`: the calls that subscribe their caller to a thread (`wire` §4)."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode
from unspool_protocol.notifications import ThreadStartedNotification
from unspool_protocol.threads import (
    ThreadForkParams,
    ThreadForkResult,
    ThreadResumeParams,
    ThreadResumeResult,
    ThreadStartParams,
    ThreadStartResult,
)
from unspool_protocol.turns import ItemsView, TokenUsageParams, Turn

from unspool_server.events.encoding import now_ms
from unspool_server.events.subscription import Subscription
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.keys import keyed
from unspool_server.handlers.replaying import replay_cursor, replay_options
from unspool_server.handlers.services import Services, services
from unspool_server.history.event_shapes import inherited_usage, token_usage
from unspool_server.history.turn_pages import PageScope
from unspool_server.sessions.notes import counted, damage_notes
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import collaboration, overridden
from unspool_server.sessions.views.pages import Shelf, all_turns, newest_cursor, turns_page, with_running
from unspool_server.sessions.views.summaries import live_thread, setup_fields

HYDRATION_NOTICE = (
    "Full-history hydration is deprecated for paginated threads; use `excludeTurns: true`, then page with "
    "`thread/turns/list` and `thread/items/list`."
)


async def thread_start(ctx: RequestContext, params: ThreadStartParams) -> ThreadStartResult:
    """Begin a thread; its log appears with the first turn."""
    shared = services(ctx)
    shared.hub.check_room(ctx.peer)
    create = partial(shared.sessions.start, params, ctx.peer.client_name, tenant=ctx.peer.principal.tenant)
    call = keyed(ctx, "thread/start", params)
    session, new = await shared.calls.creates(call, create, partial(_reopened, shared))
    subscription = shared.hub.subscribe(ctx.peer, session.thread_id)
    ctx.after(partial(_announce, shared, session, subscription) if new else subscription.release)
    return ThreadStartResult(thread=live_thread(session), cursor=_cursor(shared, session), **setup_fields(session))


async def _reopened(shared: Services, thread_id: str) -> Session:
    """The thread that a call created when it came first. Raises LogMissing when it is gone since."""
    return await shared.sessions.resume(ThreadResumeParams(thread_id=thread_id))


def _announce(shared: Services, session: Session, subscription: Subscription) -> None:
    subscription.release()
    thread = ThreadStartedNotification(thread=live_thread(session))
    shared.hub.publish(session.thread_id, "thread/started", thread, everyone=True)


def _cursor(shared: Services, session: Session) -> str | None:
    position = shared.hub.position(session.thread_id)
    return position.encode() if position is not None else None


async def thread_resume(ctx: RequestContext, params: ThreadResumeParams) -> ThreadResumeResult:
    """Reopen a thread: load it if need be, subscribe the caller, and replay what it missed (DESIGN §6)."""
    shared = services(ctx)
    after = replay_cursor(params.replay)
    thread_id = check_thread_id(params.thread_id, "session")
    shared.hub.check_room(ctx.peer, thread_id)
    with shared.sessions.kept(thread_id):
        fresh = shared.sessions.get(thread_id) is None
        session = await shared.sessions.resume(params)
        if after is not None:
            await shared.hub.check_cursor(session.thread_id, after)
        full = not params.exclude_turns
        if full and session.mode == HistoryMode.PAGINATED:
            tell(ctx, "deprecationNotice", {"summary": HYDRATION_NOTICE, "details": None})
        for note in session.load_notes:
            tell(ctx, "warning", {"threadId": session.thread_id, **note})
        if fresh:
            # Outside the thread's events: a replay that this call asks for would show it to the caller once more.
            loaded = {"threadId": session.thread_id, "status": session.status}
            shared.hub.broadcast("thread/status/changed", loaded)
        return await session.step(partial(_resumed, ctx, shared, session, params, after))


async def _resumed(
    ctx: RequestContext, shared: Services, session: Session, params: ThreadResumeParams, after: EventCursor | None
) -> ThreadResumeResult:
    """Snapshot and subscription as one step: what the snapshot lacks is what the stream then brings (05 §4.2)."""
    if not shared.hub.subscribers(session.thread_id) and session.turn is None:
        session.settings = overridden(session.settings, params, shared.env.config, shared.env.cwd)
    shelf = Shelf(session.store, session.log.info, session)
    stored = not session.log.deferred
    turns = await all_turns(shelf) if stored and not params.exclude_turns else []
    known = {note["code"] for note in session.load_notes}
    more = [note for note in damage_notes(shelf.report.faults, partly=False) if note["code"] not in known]
    for note in counted(more, "read", session.thread_id):
        tell(ctx, "warning", {"threadId": session.thread_id, **note})
    page = None
    if params.initial_turns_page is not None and stored:
        asked = params.initial_turns_page
        page = await turns_page(
            shelf,
            cursor=None,
            limit=asked.limit,
            descending=asked.sort_direction != "asc",
            view=asked.items_view or ItemsView.SUMMARY,
        )
    anchors: tuple[str | None, str | None] = (None, None)
    if stored and not session.facts.ephemeral:
        anchors = (await newest_cursor(shelf, PageScope.TURNS), await newest_cursor(shelf, PageScope.ITEMS))
    # From here to the end nothing is awaited, so no event can slip between the snapshot and the subscription.
    replay = params.replay
    events = replay is not None and replay.mode == "events"
    subscription = shared.hub.subscribe(
        ctx.peer, session.thread_id, after=after, replay=replay_options(replay) if events and replay else None
    )
    partial_text = replay is not None and replay.mode == "snapshot"
    shown: tuple[Turn, ...] = tuple(with_running(turn, session, partial=partial_text) for turn in turns)
    _tell_usage(ctx, session, turns)
    if replay is None:  # said by the reference alone; it would only stand between the events that a replay brings
        ctx.after(partial(tell, ctx, "thread/goal/cleared", {"threadId": session.thread_id}))
    ctx.after(subscription.release)
    ctx.after(session.on_idle)  # what waits runs as soon as somebody looks
    return ThreadResumeResult(
        thread=live_thread(session, shown),
        cursor=_cursor(shared, session),
        collaboration_mode=collaboration(session.settings),
        initial_turns_page=page,
        turns_backwards_cursor=anchors[0],
        items_backwards_cursor=anchors[1],
        **setup_fields(session),
    )


def _tell_usage(ctx: RequestContext, session: Session, turns: Sequence[Turn]) -> None:
    """The newest count, in the name of the turn that it is of: a running one may have none yet."""
    usage, running = token_usage(session.history.settings.token_info or {}), session.turn
    unused = running.id if running is not None and not running.token_usage else None
    turn_id = next((turn.id for turn in reversed(turns) if turn.id != unused), None)
    if usage is None or turn_id is None:
        return
    inherited = inherited_usage(session.history.header)
    params = TokenUsageParams(
        thread_id=session.thread_id, turn_id=turn_id, token_usage=usage, inherited=inherited
    ).model_dump(by_alias=True)
    ctx.after(partial(tell, ctx, "thread/tokenUsage/updated", params))


async def thread_fork(ctx: RequestContext, params: ThreadForkParams) -> ThreadForkResult:
    """Begin a thread whose history begins in another one."""
    shared = services(ctx)
    shared.hub.check_room(ctx.peer)
    create = partial(shared.sessions.fork, params, tenant=ctx.peer.principal.tenant)
    call = keyed(ctx, "thread/fork", params, check_thread_id(params.thread_id))
    session, new = await shared.calls.creates(call, create, partial(_reopened, shared))
    with shared.sessions.kept(session.thread_id):
        return await _forked(ctx, shared, session, params, new=new)


async def _forked(
    ctx: RequestContext, shared: Services, session: Session, params: ThreadForkParams, *, new: bool
) -> ThreadForkResult:
    if not params.exclude_turns and session.mode == HistoryMode.PAGINATED:
        tell(ctx, "deprecationNotice", {"summary": HYDRATION_NOTICE, "details": None})
    shelf = Shelf(session.store, session.log.info, session)
    turns = [] if params.exclude_turns else await all_turns(shelf)
    subscription = shared.hub.subscribe(ctx.peer, session.thread_id)
    _tell_usage(ctx, session, turns)
    ctx.after(partial(_announce, shared, session, subscription) if new else subscription.release)
    return ThreadForkResult(
        thread=live_thread(session, tuple(turns)), cursor=_cursor(shared, session), **setup_fields(session)
    )


def tell(ctx: RequestContext, method: str, params: dict[str, Any]) -> None:
    """Send a notification to the caller alone, at its place among its answers."""
    if method not in ctx.peer.opted_out:
        body = services(ctx).hub.encoder.encode(method, params, cursor=None, emitted_at_ms=now_ms())
        ctx.peer.outbox.put(body)
