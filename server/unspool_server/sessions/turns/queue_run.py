"""Running what waits: the next queued input becomes a turn as soon as its thread is idle (`history/queue.py`).

The queue goes on by itself after a turn and whenever the thread is loaded. A turn that a client ended, or that failed,
pauses it, until a client starts a turn or resumes it.
"""

from dataclasses import replace
from functools import partial

from pydantic import ValidationError
from unspool_protocol.turn_methods import TurnStartParams

from unspool_server.config_daemon import Limits
from unspool_server.errors import RequestError, StoreClosed
from unspool_server.history.queue import QueuedInput, queue_record
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import for_turn
from unspool_server.sessions.turns.input import TurnMessage, turn_message
from unspool_server.sessions.turns.turn import Turn, TurnPlan
from unspool_server.sessions.views.summaries import settings_told


def wake(session: Session) -> None:
    """The thread may be idle: let its queue go on, in a step of its own."""
    if session.queue.runnable and not session.closing:
        session.spawn(_run_next(session), "queue")


async def _run_next(session: Session) -> None:
    try:
        await session.step(partial(_go_on, session))
    except StoreClosed:
        return  # unloaded meanwhile; what waits runs when the thread is loaded again


async def _go_on(session: Session) -> None:
    if session.failed and session.turn is None:
        await pause(session)
    await start_next(session)


async def start_next(session: Session) -> None:
    """Begin the turn of the first input that waits, if the thread is idle and nothing holds it up. Inside a step."""
    if session.turn is not None or session.closing or session.env.lifecycle.draining:
        return
    while session.queue.runnable:
        entry = session.queue.entries[0]
        try:
            plan = _plan(session, entry)
        except (RequestError, ValidationError):
            session.warn(
                "A queued input cannot run and was removed.",
                code="queuedInputInvalid",
                effect="Its turn will not take place.",
            )
            await session.record(queue_record(session.thread_id, "removed", entry))
            continue
        if plan.settings != session.settings:
            session.publish("thread/settings/updated", {"threadSettings": settings_told(plan.settings)})
        turn = Turn(session, plan)
        session.turn = turn
        turn.start()
        turn.release()
        return


def _plan(session: Session, entry: QueuedInput) -> TurnPlan:
    params = TurnStartParams.model_validate({**entry.params, "threadId": session.thread_id})
    message = queued_message(params, session.env.config.limits)
    return TurnPlan(
        for_turn(session.settings, params),
        [] if message is None else [replace(message, queue_id=entry.queue_id)],
        params.output_schema,
        params.turn_trigger,
        turn_id=new_id() if entry.begun else entry.turn_id,
    )


def queued_message(params: TurnStartParams, limits: Limits) -> TurnMessage | None:
    """The message of a `turn/start` that was accepted, however long it may be by now. Raises InvalidParams."""
    given = (params.input, params.client_user_message_id, params.additional_context, params.tool_output)
    return turn_message(*given, limits=limits, accepted=True)


async def pause(session: Session) -> None:
    """Hold up what waits, since a turn did not end by itself. Inside a step."""
    if session.queue.runnable:
        await session.record(queue_record(session.thread_id, "paused"))


async def unpause(session: Session) -> None:
    """Go on with what waits. Inside a step."""
    if session.queue.paused:
        await session.record(queue_record(session.thread_id, "resumed"))
