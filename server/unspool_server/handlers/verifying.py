"""`thread/verify`: what is wrong with a thread's log. Loads nothing and writes nothing (an addition of ours)."""

from unspool_protocol.findings import ThreadVerifyParams, ThreadVerifyResult

from unspool_server.errors import NotMaterialised
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import services
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.views.verifying import verify_thread


async def thread_verify(ctx: RequestContext, params: ThreadVerifyParams) -> ThreadVerifyResult:
    """Check a thread's log, also one that cannot be opened. Raises LogMissing, NotMaterialised."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    session = shared.sessions.get(thread_id)
    if session is None:
        return await verify_thread(shared.env.store, thread_id)
    if session.log.deferred:
        raise NotMaterialised(f"thread {thread_id} has no log yet")
    return await verify_thread(session.store, thread_id)
