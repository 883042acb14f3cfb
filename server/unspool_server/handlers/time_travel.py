"""Looking at and comparing earlier points of threads (DESIGN §4). None of these loads or subscribes."""

from unspool_protocol.time_travel import (
    ThreadContextParams,
    ThreadContextResult,
    ThreadDiffParams,
    ThreadDiffResult,
)

from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.places import point_on, shelf_of
from unspool_server.handlers.services import services
from unspool_server.sessions.views.looking_back import context_at, diff_between


async def thread_context(ctx: RequestContext, params: ThreadContextParams) -> ThreadContextResult:
    """Exactly what the model sees, at any point. Addition."""
    shared = services(ctx)
    shelf = await shelf_of(shared, params.thread_id)
    point = await point_on(shelf, params.at)
    return await context_at(shared.env, shelf.store, point, shelf.session if params.at is None else None)


async def thread_diff(ctx: RequestContext, params: ThreadDiffParams) -> ThreadDiffResult:
    """What differs between two points. Addition."""
    shared = services(ctx)
    shelf = await shelf_of(shared, params.thread_id)
    other = shelf if params.other_thread_id is None else await shelf_of(shared, params.other_thread_id)
    old = await point_on(shelf, params.from_, field="from")
    new = await point_on(other, params.to, field="to")
    return await diff_between(other.store, old, new)
