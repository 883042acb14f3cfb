"""Whose idempotency keys a request uses, and the thread as a keyed change left it. Owns no rule of repetition."""

from unspool_protocol.base import KeyedParams
from unspool_protocol.threads import Thread

from unspool_server.handlers.context import RequestContext
from unspool_server.history.calls import CallMark
from unspool_server.sessions.repeats.idempotency import keyed_call
from unspool_server.sessions.session import Session
from unspool_server.sessions.views.pages import Shelf, all_turns
from unspool_server.sessions.views.summaries import live_thread


def key_scope(ctx: RequestContext) -> str:
    """Whose keys a request's are: each tenant has its own."""
    return ctx.peer.principal.tenant


def keyed(ctx: RequestContext, method: str, params: KeyedParams, thread_id: str = "") -> CallMark | None:
    """The call that a request's key makes it; None without a key."""
    return keyed_call(method, params, scope=key_scope(ctx), thread_id=thread_id)


async def shelf_then(session: Session, mark: CallMark) -> Shelf:
    """The thread's log as the call with this mark left it."""
    if mark.place is None:
        return Shelf(session.store, session.log.info, session)
    return Shelf(session.store, await session.store.rollout(mark.place.rollout_id), end=mark.place.ordinal)


async def thread_then(session: Session, mark: CallMark, *, with_turns: bool) -> Thread:
    """The thread with the turns that the first answer held; its status and settings are those of now."""
    turns = await all_turns(await shelf_then(session, mark)) if with_turns else []
    return live_thread(session, tuple(turns))
