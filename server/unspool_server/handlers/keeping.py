"""Whole threads: archive, unarchive, delete, unsubscribe, and what runs beside them."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from unspool_protocol.notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadUnarchivedNotification,
)
from unspool_protocol.threads import (
    ThreadArchiveParams,
    ThreadArchiveResult,
    ThreadDeleteParams,
    ThreadDeleteResult,
    ThreadUnarchiveParams,
    ThreadUnarchiveResult,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResult,
)

from unspool_server.errors import LogMissing, RequestError
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.keys import keyed
from unspool_server.handlers.services import services
from unspool_server.sessions.branches.deleting import Deleted, delete_thread
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.views.summaries import stored_thread, summary_of


async def thread_archive(ctx: RequestContext, params: ThreadArchiveParams) -> ThreadArchiveResult:
    """Move a thread out of the way; a loaded one is unloaded first."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)

    async def archive() -> Mapping[str, Any]:
        await shared.sessions.archive(thread_id)
        return {}

    async def settled() -> Mapping[str, Any] | None:
        return {} if (await shared.sessions.info(thread_id)).archived else None

    _, new = await shared.calls.changes(keyed(ctx, "thread/archive", params, thread_id), archive, settled)
    if new:
        told = ThreadArchivedNotification(thread_id=thread_id)
        ctx.after(partial(shared.hub.broadcast, "thread/archived", told, tenant=ctx.peer.principal.tenant))
    return ThreadArchiveResult()


async def thread_unarchive(ctx: RequestContext, params: ThreadUnarchiveParams) -> ThreadUnarchiveResult:
    """Bring an archived thread back."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)

    async def found() -> Mapping[str, Any]:
        info = await shared.env.store.find(thread_id)
        thread = stored_thread(await summary_of(shared.env, thread_id), info.path)
        return ThreadUnarchiveResult(thread=thread).model_dump(by_alias=True, mode="json")

    async def unarchive() -> Mapping[str, Any]:
        try:
            await shared.sessions.unarchive(thread_id)
        except LogMissing:
            raise RequestError(
                f"no archived rollout found for thread id {thread_id}", data={"reason": "threadNotFound"}
            ) from None
        return await found()

    async def settled() -> Mapping[str, Any] | None:
        return None if (await shared.sessions.info(thread_id)).archived else await found()

    call = keyed(ctx, "thread/unarchive", params, thread_id)
    answer, new = await shared.calls.changes(call, unarchive, settled)
    if new:
        told = ThreadUnarchivedNotification(thread_id=thread_id)
        ctx.after(partial(shared.hub.broadcast, "thread/unarchived", told, tenant=ctx.peer.principal.tenant))
    return ThreadUnarchiveResult.model_validate(answer)


async def thread_delete(ctx: RequestContext, params: ThreadDeleteParams) -> ThreadDeleteResult:
    """Remove a thread for good; what becomes of threads that build on it is the caller's choice."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)

    async def delete() -> Mapping[str, Any]:
        return asdict(await delete_thread(shared.sessions, thread_id, params.dependents))

    async def settled() -> Mapping[str, Any] | None:
        try:
            await shared.sessions.info(thread_id)
        except LogMissing:
            return asdict(Deleted((thread_id,)))
        return None

    done, new = await shared.calls.changes(keyed(ctx, "thread/delete", params, thread_id), delete, settled)
    for gone in done["deleted"] if new else ():
        told = ThreadDeletedNotification(thread_id=gone)
        ctx.after(partial(shared.hub.broadcast, "thread/deleted", told, tenant=ctx.peer.principal.tenant))
        shared.hub.abandon(gone)
    if params.dependents == "refuse":
        return ThreadDeleteResult()
    return ThreadDeleteResult(deleted_thread_ids=done["deleted"], materialized_thread_ids=done["materialised"])


async def thread_unsubscribe(ctx: RequestContext, params: ThreadUnsubscribeParams) -> ThreadUnsubscribeResult:
    """Stop watching a thread; it is unloaded some time after its last watcher left."""
    shared = services(ctx)
    thread_id = check_thread_id(params.thread_id)
    if shared.hub.unsubscribe(ctx.peer, thread_id):
        return ThreadUnsubscribeResult(status="unsubscribed")
    loaded = shared.sessions.get(thread_id) is not None
    return ThreadUnsubscribeResult(status="notSubscribed" if loaded else "notLoaded")
