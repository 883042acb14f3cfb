"""What explains a thread: audit, branches, lineage. All additions; none of them loads or subscribes."""

from unspool_protocol.audit_methods import (
    ThreadAuditParams,
    ThreadAuditResult,
    ThreadBranchesParams,
    ThreadBranchesResult,
    ThreadLineageParams,
    ThreadLineageResult,
)

from unspool_server.errors import LogMissing, ThreadNotFound
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.services import Services, services
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.views.auditing import audit_page
from unspool_server.sessions.views.branch_list import branches
from unspool_server.sessions.views.lineage import lineage
from unspool_server.store.contract import LogStore, RolloutInfo


async def _present(shared: Services, thread_id: str) -> tuple[LogStore, RolloutInfo] | None:
    """Where a thread's present lies; None for a thread that never ran and has no log yet. Raises ThreadNotFound."""
    session = shared.sessions.get(thread_id)
    if session is not None:
        return None if session.log.deferred else (session.store, session.log.info)
    try:
        return shared.env.store, await shared.env.store.find(thread_id)
    except LogMissing:
        raise ThreadNotFound(f"thread not found: {thread_id}", data={"threadId": thread_id}) from None


async def thread_audit(ctx: RequestContext, params: ThreadAuditParams) -> ThreadAuditResult:
    """A page of a thread's lines and what became of each. Addition."""
    found = await _present(services(ctx), check_thread_id(params.thread_id))
    if found is None:
        return ThreadAuditResult()
    store, info = found
    checked = params.model_copy(update={"thread_id": info.thread_id})
    return await audit_page(store, info, checked)


async def thread_branches(ctx: RequestContext, params: ThreadBranchesParams) -> ThreadBranchesResult:
    """Every rollout of a thread. Addition."""
    found = await _present(services(ctx), check_thread_id(params.thread_id))
    return ThreadBranchesResult(data=tuple(await branches(*found)) if found is not None else ())


async def thread_lineage(ctx: RequestContext, params: ThreadLineageParams) -> ThreadLineageResult:
    """The tree around a thread. Addition."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    if await _present(shared, thread_id) is None:
        return ThreadLineageResult()
    return await lineage(shared.sessions, params, thread_id)
