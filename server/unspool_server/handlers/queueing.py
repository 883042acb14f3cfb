"""`thread/queue/*`: list and change the inputs that wait for a turn of their own."""

from collections.abc import Awaitable, Callable
from functools import partial

from unspool_protocol.base import KeyedParams
from unspool_protocol.queue_methods import (
    ThreadQueueChangeResult,
    ThreadQueueListParams,
    ThreadQueueListResult,
    ThreadQueueRemoveParams,
    ThreadQueueResumeParams,
    ThreadQueueUpdateParams,
)

from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.keys import keyed
from unspool_server.handlers.places import shelf_of
from unspool_server.handlers.services import services
from unspool_server.handlers.turns import check_images
from unspool_server.history.calls import CallMark
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.queue import folded_queue
from unspool_server.sessions.loading import load
from unspool_server.sessions.repeats.idempotency import once
from unspool_server.sessions.session import Session
from unspool_server.sessions.turns.queue_run import start_next
from unspool_server.sessions.turns.queueing import change_queue, resume, told, update, waiting_entry


async def queue_list(ctx: RequestContext, params: ThreadQueueListParams) -> ThreadQueueListResult:
    """What waits in a thread, loaded or not."""
    if params.thread_id is None:
        return ThreadQueueListResult()
    shelf = await shelf_of(services(ctx), params.thread_id)
    if shelf.session is not None:
        return told(shelf.session.queue, shelf.session.turn)
    history = await load(shelf.store, shelf.info)
    return told(folded_queue(history.records, shelf.info.thread_id, shelf.info.rollout_id))


async def queue_update(ctx: RequestContext, params: ThreadQueueUpdateParams) -> ThreadQueueChangeResult:
    """Change or move a waiting input. Addition."""
    session = services(ctx).sessions.require(params.thread_id)
    check_images(ctx, params.input or ())
    return await _changed(ctx, session, "thread/queue/update", params, change=partial(update, session, params))


async def queue_remove(ctx: RequestContext, params: ThreadQueueRemoveParams) -> ThreadQueueChangeResult:
    """Take a waiting input out. Addition."""
    session = services(ctx).sessions.require(params.thread_id)

    async def remove() -> list[ClientEvent]:
        return await change_queue(session, "removed", waiting_entry(session, params.queue_id))

    return await _changed(ctx, session, "thread/queue/remove", params, change=remove)


async def queue_resume(ctx: RequestContext, params: ThreadQueueResumeParams) -> ThreadQueueChangeResult:
    """Go on with a paused queue. Addition."""
    session = services(ctx).sessions.require(params.thread_id)

    return await _changed(
        ctx,
        session,
        "thread/queue/resume",
        params,
        change=partial(resume, session),
        go_on=partial(start_next, session),
    )


async def _nothing() -> None:
    return None


async def _changed(
    ctx: RequestContext,
    session: Session,
    method: str,
    params: KeyedParams,
    *,
    change: Callable[[], Awaitable[list[ClientEvent]]],
    go_on: Callable[[], Awaitable[None]] = _nothing,
) -> ThreadQueueChangeResult:
    """Run a change of the queue as one step; `go_on` follows the answer."""

    async def again(_: CallMark) -> list[ClientEvent]:
        return []

    async def step() -> tuple[list[ClientEvent], ThreadQueueChangeResult]:
        events = await once(session, keyed(ctx, method, params, session.thread_id), change, again)
        return events, told(session.queue, session.turn)

    async def show(changed: tuple[list[ClientEvent], ThreadQueueChangeResult]) -> None:
        session.publish_events(changed[0])
        await go_on()

    return (await session.answered_step(ctx.after, step, show))[1]
