"""Changes of a thread's queue that clients ask for: add, edit, move, remove. Inside steps; running is `queue_run`."""

from dataclasses import replace

from unspool_protocol.log import NewRecord
from unspool_protocol.queue_methods import ThreadQueueChangeResult, ThreadQueueUpdateParams
from unspool_protocol.turn_methods import TurnStartParams

from unspool_server.errors import InvalidParams, RequestError
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.queue import Queue, QueuedInput, queue_record, queued_turn
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.session import Session
from unspool_server.sessions.turns.input import TurnMessage, turn_message
from unspool_server.sessions.turns.turn import Turn

_NOT_KEPT = {"thread_id", "idempotency_key", "if_busy"}


def waiting(session: Session, params: TurnStartParams, message: TurnMessage | None, turn_id: str | None) -> QueuedInput:
    """An input that is to wait, with the id that its turn will have.

    Raises:
        InvalidParams: There is no input. RequestError: The queue is full.
    """
    if message is None:
        raise InvalidParams("input must not be empty", data={"field": "input"})
    most = session.env.config.limits.queued_inputs
    if len(session.queue.entries) >= most:
        raise RequestError(f"{most} inputs wait already", data={"reason": "queueFull", "most": most})
    given = params.model_dump(by_alias=True, mode="json", exclude=_NOT_KEPT, exclude_none=True)
    return QueuedInput(new_id(), turn_id or new_id(), {"input": [], **given})


async def change_queue(
    session: Session, change: str, entry: QueuedInput, position: int | None = None
) -> list[ClientEvent]:
    """Record a change of the queue. Raises WriteFailed; nothing was changed.

    Returns:
        The events to show once the answer has left.
    """
    return await _record(session, queue_record(session.thread_id, change, entry, position))


async def resume(session: Session) -> list[ClientEvent]:
    """Let a paused queue go on. Raises WriteFailed; nothing was changed."""
    return await _record(session, queue_record(session.thread_id, "resumed")) if session.queue.paused else []


async def _record(session: Session, record: NewRecord) -> list[ClientEvent]:
    written = await session.log.append(session.marked([record]), expected_ordinal=session.log.next_ordinal)
    return session.take_in(written)


async def update(session: Session, params: ThreadQueueUpdateParams) -> list[ClientEvent]:
    """Change or move a waiting input; a new one also takes the place of a report (`toolOutput`).

    Raises:
        RequestError: It does not wait (any more). InvalidParams: An input that no turn could take.
    """
    entry = waiting_entry(session, params.queue_id)
    if params.input is None:
        return await change_queue(session, "moved", entry, _place(session, entry, params.position))
    given = [one.model_dump(by_alias=True, mode="json") for one in params.input]
    limits = session.env.config.limits
    if turn_message(params.input, entry.params.get("clientUserMessageId"), limits=limits) is None:
        raise InvalidParams("input must not be empty", data={"field": "input"})
    kept = {name: value for name, value in entry.params.items() if name != "toolOutput"}
    newer = replace(entry, params={**kept, "input": given})
    return await change_queue(session, "updated", newer, _place(session, entry, params.position))


def _place(session: Session, entry: QueuedInput, position: int | None) -> int:
    return session.queue.position(entry.queue_id) if position is None else position


def waiting_entry(session: Session, queue_id: str) -> QueuedInput:
    """An input that waits and whose turn has not begun. Raises RequestError."""
    entry = session.queue.find(queue_id)
    if entry is None or (session.turn is not None and session.turn.takes(queue_id)):
        raise RequestError(f"queued input not found: {queue_id}", data={"reason": "queuedInputNotFound"})
    return entry


def told(queue: Queue, running: Turn | None = None) -> ThreadQueueChangeResult:
    """The queue as clients see it; what the running turn is about to take in waits no more."""
    waits = [one for one in queue.entries if running is None or not running.takes(one.queue_id)]
    return ThreadQueueChangeResult(data=tuple(queued_turn(one) for one in waits), paused=True if queue.paused else None)
