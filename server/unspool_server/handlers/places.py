"""Where requests that read find a thread's log, and the positions in it that they name."""

from unspool_protocol.positions import LogPosition

from unspool_server.errors import LogMissing, NotMaterialised, ThreadNotFound
from unspool_server.handlers.services import Services
from unspool_server.sessions.opening import check_thread_id
from unspool_server.sessions.views.pages import Shelf
from unspool_server.sessions.views.positions import Point, resolve


async def shelf_of(shared: Services, thread_id: str) -> Shelf:
    """Where to read a thread. Raises ThreadNotFound (`thread not loaded: ID`, the reference's text)."""
    thread_id = check_thread_id(thread_id)
    session = shared.sessions.get(thread_id)
    if session is not None:
        return Shelf(session.store, session.log.info, session)
    try:
        return Shelf(shared.env.store, await shared.env.store.find(thread_id))
    except LogMissing:
        raise ThreadNotFound(f"thread not loaded: {thread_id}", data={"threadId": thread_id}) from None


async def point_on(shelf: Shelf, at: LogPosition | None, *, field: str = "at") -> Point:
    """A position of the thread; None means its present end, with everything that is accepted but not yet written.

    Raises:
        NotMaterialised: The thread has no record yet.
        InvalidParams: Reason `positionInvalid`.
    """
    session = shelf.session
    if session is not None and session.log.deferred:
        raise NotMaterialised(f"no rollout found for thread id {shelf.info.thread_id}")
    end = session.log.next_ordinal if session is not None else None
    return await resolve(shelf.store, shelf.info, at, end_ordinal=end, field=field)


def shelf_at(shelf: Shelf, point: Point) -> Shelf:
    """The thread as it was at a point; nothing runs there."""
    return Shelf(shelf.store, point.readable, end=point.position.ordinal)
