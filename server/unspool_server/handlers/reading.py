"""Reading threads: read, lists of turns, items, threads, loaded ids. None of these loads or subscribes (`wire` §6)."""

from unspool_protocol.errors import ErrorCode
from unspool_protocol.log import HistoryMode, ThreadSummary
from unspool_protocol.thread_object import ReadState, Thread
from unspool_protocol.threads import (
    ThreadItemsListParams,
    ThreadItemsListResult,
    ThreadListParams,
    ThreadListResult,
    ThreadLoadedListParams,
    ThreadLoadedListResult,
    ThreadReadParams,
    ThreadReadResult,
    ThreadTurnsListParams,
    ThreadTurnsListResult,
)
from unspool_protocol.turns import ItemsView

from unspool_server.errors import InvalidParams, LogMissing, RequestError, Unsupported
from unspool_server.handlers.context import RequestContext
from unspool_server.handlers.opening import tell
from unspool_server.handlers.places import point_on, shelf_at, shelf_of
from unspool_server.handlers.services import Services, services
from unspool_server.history.summary import summarise
from unspool_server.sessions.agents.tree import descendants
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.session import read_state
from unspool_server.sessions.views.pages import Shelf, all_turns, items_page, page_size, read_notes, turns_page
from unspool_server.sessions.views.summaries import live_thread, stored_thread, summary_of
from unspool_server.store.contract import ListQuery

FULL_TURNS_NOTICE = (
    "Full-history hydration is deprecated for paginated threads; omit `includeTurns` or set it to `false`, then page "
    "with `thread/turns/list` and `thread/items/list`."
)

DEFAULT_THREADS = 25
"""Threads of a page where the caller does not say."""


def _is_unwritten(shelf: Shelf) -> bool:
    return shelf.session is not None and shelf.session.log.deferred


def _refuse_ephemeral(shelf: Shelf, what: str) -> None:
    if shelf.session is not None and shelf.session.facts.ephemeral:
        raise RequestError(f"ephemeral threads do not support {what}", data={"reason": "unsupported"})


async def thread_read(ctx: RequestContext, params: ThreadReadParams) -> ThreadReadResult:
    """One thread, loaded or not, archived or not."""
    shared = services(ctx)
    shelf = await shelf_of(shared, params.thread_id)
    if params.include_turns:
        _refuse_ephemeral(shelf, "includeTurns")
    if params.at is not None:
        return ThreadReadResult(thread=await _thread_at(shared, shelf, params))
    if params.include_turns and shelf.info.mode == HistoryMode.PAGINATED:
        tell(ctx, "deprecationNotice", {"summary": FULL_TURNS_NOTICE, "details": None})
    turns = tuple(await all_turns(shelf)) if params.include_turns and not _is_unwritten(shelf) else ()
    if params.include_turns and not _is_unwritten(shelf):
        for note in await read_notes(shelf):
            tell(ctx, "warning", {"threadId": shelf.info.thread_id, **note})
    if shelf.session is not None:
        state = None if shelf.session.facts.ephemeral else shelf.session.read_state
        return ThreadReadResult(thread=live_thread(shelf.session, turns), read_state=state)
    summary = await summary_of(shared.env, shelf.info.thread_id)
    return ThreadReadResult(
        thread=stored_thread(summary, shelf.info.path, turns), read_state=read_state(summary.marks, summary.thread_id)
    )


async def _thread(shared: Services, shelf: Shelf) -> Thread:
    if shelf.session is not None:
        return live_thread(shelf.session)
    return stored_thread(await summary_of(shared.env, shelf.info.thread_id), shelf.info.path)


async def _thread_at(shared: Services, shelf: Shelf, params: ThreadReadParams) -> Thread:
    """The thread as it was: its identity and status are those of now, what the log tells is that of the point."""
    point = await point_on(shelf, params.at)
    turns = await all_turns(shelf_at(shelf, point)) if params.include_turns else []
    then = summarise(None, point.info, [record async for record in point.records(shelf.store)])
    told = {
        "turns": tuple(turns),
        "name": then.name,
        "preview": then.preview,
        "model": then.model,
        "model_provider": then.model_provider,
        "cwd": then.cwd,
        "updated_at": int(then.updated_at),
        "recency_at": int(then.updated_at),
    }
    return (await _thread(shared, shelf)).model_copy(update=told)


async def thread_turns_list(ctx: RequestContext, params: ThreadTurnsListParams) -> ThreadTurnsListResult:
    """A page of turns; a thread that never ran has none."""
    shelf = await shelf_of(services(ctx), params.thread_id)
    _refuse_ephemeral(shelf, "thread/turns/list")
    if params.at is not None:
        shelf = shelf_at(shelf, await point_on(shelf, params.at))
    elif _is_unwritten(shelf):
        return ThreadTurnsListResult()
    page = await turns_page(
        shelf,
        cursor=params.cursor,
        limit=params.limit,
        descending=params.sort_direction != "asc",
        view=params.items_view or ItemsView.SUMMARY,
    )
    return ThreadTurnsListResult(**dict(page))


async def thread_items_list(ctx: RequestContext, params: ThreadItemsListParams) -> ThreadItemsListResult:
    """A page of items; legacy threads do not support it, as in the reference."""
    shelf = await shelf_of(services(ctx), params.thread_id)
    _refuse_ephemeral(shelf, "thread/items/list")
    if params.at is not None:
        shelf = shelf_at(shelf, await point_on(shelf, params.at))
    elif _is_unwritten(shelf):
        return ThreadItemsListResult()
    if shelf.info.mode == HistoryMode.LEGACY:
        raise Unsupported("thread/items/list is not supported yet", code=ErrorCode.UNSUPPORTED)
    page = await items_page(
        shelf,
        turn_id=params.turn_id,
        cursor=params.cursor,
        limit=params.limit,
        descending=params.sort_direction == "desc",
    )
    return ThreadItemsListResult(data=page.data, next_cursor=page.next_cursor, backwards_cursor=page.backwards_cursor)


async def thread_list(ctx: RequestContext, params: ThreadListParams) -> ThreadListResult:
    """A page of threads, each id once. Threads that threads have started come where they are asked for."""
    shared = services(ctx)
    if params.section_id is not None or params.attached_to_thread_id is not None:
        return ThreadListResult()  # there are no sections here, and nothing is attached
    below = await _below(shared, params)
    among = None if params.included_thread_ids is None else frozenset(params.included_thread_ids)
    query = ListQuery(
        limit=page_size(params.limit, DEFAULT_THREADS),
        cursor=params.cursor,
        sort_key=params.sort_key if params.sort_key not in (None, "section_position") else "created_at",
        descending=params.sort_direction != "asc",
        archived=bool(params.archived),
        model_providers=params.model_providers or None,
        source_kinds=params.source_kinds or None,
        without_agents=not params.source_kinds and below is None,
        thread_ids=among if below is None else below if among is None else below & among,
        cwd=(params.cwd,) if isinstance(params.cwd, str) else params.cwd or None,
        search=params.search_term or None,
        tenant=ctx.peer.principal.tenant,
        excluded=params.excluded_thread_ids or (),
        originators=params.originators or None,
    )
    page = await shared.env.catalogue.list(query)
    threads = [await _listed(shared, one) for one in page.items]
    return ThreadListResult(
        data=tuple(threads),
        read_states={one.thread_id: _read_state(shared, one) for one in page.items},
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )


def _read_state(shared: Services, summary: ThreadSummary) -> ReadState:
    session = shared.sessions.get(summary.thread_id)
    return session.read_state if session is not None else read_state(summary.marks, summary.thread_id)


async def _below(shared: Services, params: ThreadListParams) -> frozenset[str] | None:
    """The threads that a thread has started (and those have), as the filters ask; None where they ask for nothing."""
    if params.parent_thread_id is not None and params.ancestor_thread_id is not None:
        raise InvalidParams(
            "`parentThreadId` and `ancestorThreadId` are mutually exclusive", data={"field": "ancestorThreadId"}
        )
    if params.parent_thread_id is not None:
        return await descendants(shared.env, params.parent_thread_id, archived=bool(params.archived), depth=1)
    if params.ancestor_thread_id is not None:
        return await descendants(shared.env, params.ancestor_thread_id, archived=bool(params.archived))
    return None


async def _listed(shared: Services, summary: ThreadSummary) -> Thread:
    session = shared.sessions.get(summary.thread_id)
    if session is not None:
        return live_thread(session).model_copy(update={"can_accept_direct_input": None})
    try:
        path = (await shared.env.store.find(summary.thread_id)).path
    except LogMissing:
        path = None
    return stored_thread(summary, path)


async def thread_loaded_list(ctx: RequestContext, params: ThreadLoadedListParams) -> ThreadLoadedListResult:
    """Ids of loaded threads, subscribed or not, in order of their ids."""
    sessions, tenant = services(ctx).sessions, ctx.peer.principal.tenant
    ids = sorted(one for one in sessions.live_ids() if sessions.tenant_known(one) == tenant)
    if params.cursor is not None:
        if params.cursor not in ids and not _is_id(params.cursor):
            raise InvalidParams(f"invalid cursor: {params.cursor}", data={"reason": "cursorInvalid", "field": "cursor"})
        ids = [one for one in ids if one > params.cursor]
    size = len(ids) if params.limit is None else page_size(params.limit, len(ids))
    more = len(ids) > size
    return ThreadLoadedListResult(data=tuple(ids[:size]), next_cursor=ids[size - 1] if more else None)


def _is_id(text: str) -> bool:
    try:
        check_thread_id(text)
    except InvalidParams:
        return False
    return True
