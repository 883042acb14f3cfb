"""Who may run a turn when: start, join, interrupt, steer, and the compaction turn (`wire` §6). Inside steps only.

What a call that comes again gets is said here too: a message by its client's id, a call by its key.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from unspool_protocol.turn_methods import QueuePlace, TurnStartParams, TurnStartResult
from unspool_protocol.turns import ItemsView, TurnStatus
from unspool_protocol.turns import Turn as WireTurn

from unspool_server.errors import LimitReached, RequestError, ThreadBusy
from unspool_server.history.calls import CallMark
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.queue import QueuedInput
from unspool_server.sessions.repeats.idempotency import begins, once, recorded_turn, travels_with_message
from unspool_server.sessions.session import After, Session
from unspool_server.sessions.settings import for_turn
from unspool_server.sessions.turns.compaction import CompactionTurn
from unspool_server.sessions.turns.input import TurnMessage
from unspool_server.sessions.turns.queue_run import pause, unpause
from unspool_server.sessions.turns.queueing import change_queue, waiting
from unspool_server.sessions.turns.turn import Turn, TurnPlan
from unspool_server.sessions.views.summaries import settings_told


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of a `turn/start`.

    Attributes:
        begins: A turn that is to begin, in place of the running one if there is one.
        joins: The running turn and the message that joins it.
        queued: Where the input waits.
        events: What the answer is followed by.
    """

    answer: WireTurn
    begins: Turn | None = None
    joins: tuple[Turn, TurnMessage] | None = None
    queued: QueuePlace | None = None
    events: Sequence[ClientEvent] = ()


async def start_turn(
    session: Session, params: TurnStartParams, message: TurnMessage | None, call: CallMark | None, after: After
) -> TurnStartResult:
    """Begin a turn, or do with a busy thread what `ifBusy` says. All that is to be seen of it follows the answer.

    A message whose `clientUserMessageId` the thread knows already was sent again: its turn is answered, nothing runs.

    Raises:
        ThreadBusy: A turn runs and `ifBusy` is `reject`.
        RequestError: A compaction runs; it takes no input.
        KeyReused, WriteFailed: nothing was changed.
    """
    admit = partial(once, session, call, partial(_admit, session, params, message), partial(_again, session))
    admitted: Admitted = await session.answered_step(after, admit, partial(_begin, session))
    return TurnStartResult(turn=admitted.answer, queued=admitted.queued)


async def _admit(session: Session, params: TurnStartParams, message: TurnMessage | None) -> Admitted:
    if (again := await _sent_before(session, message)) is not None:
        begins(session, again.answer.id)
        return again
    running = session.turn
    if running is not None and params.if_busy == "reject":
        raise ThreadBusy("a turn is in progress", running.id)
    if params.if_busy == "queue" and (running is not None or session.queue.runnable):
        return await _enqueue(session, params, message)
    if running is not None and params.if_busy in (None, "join"):
        _check_steerable(running)
        _check_queue(session, running)
        mark = travels_with_message(session, running.id)
        joins = (running, replace(message, call=mark)) if message is not None else None
        return Admitted(running.answer(), joins=joins)
    session.env.lifecycle.admit_turn()
    settings = for_turn(session.settings, params)
    if settings != session.settings:
        session.publish("thread/settings/updated", {"threadSettings": settings_told(settings)})
    plan = TurnPlan(settings, [message] if message is not None else [], params.output_schema, params.turn_trigger)
    turn = _turn(session, Turn, plan)
    return Admitted(turn.answer(), begins=turn)


async def _enqueue(session: Session, params: TurnStartParams, message: TurnMessage | None) -> Admitted:
    promised = session.calling.turn_id if session.calling is not None else None
    entry = waiting(session, params, message, promised)
    if session.calling is not None:
        session.calling = replace(session.calling, turn_id=entry.turn_id, queued=True)
    events = await change_queue(session, "added", entry)
    return replace(_waits(session, entry), events=events)


def _waits(session: Session, entry: QueuedInput) -> Admitted:
    """The answer for an input that waits: the turn that it will have."""
    place = QueuePlace(queue_id=entry.queue_id, position=session.queue.position(entry.queue_id))
    return Admitted(promised_turn(entry.turn_id), queued=place)


def promised_turn(turn_id: str, status: TurnStatus = TurnStatus.IN_PROGRESS) -> WireTurn:
    """A turn that has not begun."""
    return WireTurn(id=turn_id, root_turn_id=turn_id, items_view=ItemsView.NOT_LOADED, status=status)


def _turn(session: Session, kind: type[Turn], plan: TurnPlan) -> Turn:
    """A turn for the call that is being carried out: with the id that it was promised, if it was and never began."""
    if session.calling is not None and session.calling.turn_id is not None:
        plan.turn_id = session.calling.turn_id
    turn = kind(session, plan)
    begins(session, turn.id)
    return turn


async def _begin(session: Session, admitted: Admitted) -> None:
    session.publish_events(admitted.events)
    if admitted.joins is not None:
        running, message = admitted.joins
        running.steer(message)
    if admitted.begins is not None:
        await _replace(session, admitted.begins, going_on=True)


async def _replace(session: Session, turn: Turn, *, marker: bool = True, going_on: bool = False) -> None:
    """Let a turn begin; one that runs is ended first. `going_on` lets a paused queue follow it."""
    if going_on:
        await unpause(session)
    if session.turn is not None and session.turn is not turn:
        await session.turn.abort("interrupted", marker=marker)
    if turn.kind == "compact":
        turn.plan.settings = session.settings  # perhaps changed by the turn that has just ended
    session.turn = turn
    turn.start()
    turn.release()


async def _again(session: Session, mark: CallMark) -> Admitted | None:
    """The answer to a call that came before; None where its turn was promised and the process ended before it began."""
    if mark.turn_id is None:
        return None
    if session.turn is not None and session.turn.id == mark.turn_id:
        return Admitted(session.turn.answer())
    if mark.place is None:
        return None
    waits = next((one for one in session.queue.entries if one.turn_id == mark.turn_id), None)
    if waits is not None:
        return _waits(session, waits)
    found = await recorded_turn(session.store, mark.turn_id, mark.place)
    if found is None and mark.queued:
        return Admitted(promised_turn(mark.turn_id, TurnStatus.INTERRUPTED))  # taken out of the queue
    return None if found is None else Admitted(found)


async def _sent_before(session: Session, message: TurnMessage | None) -> Admitted | None:
    """The turn that took in this very message, if the client sent it before."""
    client_id = message.client_id if message is not None else None
    if client_id is None:
        return None
    turn = session.turn
    if turn is not None and turn.holds_input(client_id):
        return Admitted(turn.answer())
    for waits in session.queue.entries:
        if waits.params.get("clientUserMessageId") == client_id:
            return _waits(session, waits)
    said = await session.calls.message(client_id)
    if said is None:
        return None
    if turn is not None and turn.id == said.turn_id:
        return Admitted(turn.answer())
    found = await recorded_turn(session.store, said.turn_id, said.place)
    return None if found is None else Admitted(found)


@dataclass(frozen=True, slots=True)
class _Steered:
    """A turn, and the message that joins it; None where it did so before."""

    turn_id: str
    turn: Turn | None = None
    message: TurnMessage | None = None


async def steer_turn(
    session: Session, expected: str, message: TurnMessage | None, call: CallMark | None, after: After
) -> str:
    """Add input to the running turn; what comes of it follows the answer, which is the turn's id.

    Raises:
        RequestError: No turn runs, another one does, or the input is empty.
        KeyReused: nothing was changed.
    """

    async def admit() -> _Steered:
        turn = _expected(session, expected)
        if message is None:
            raise RequestError("input must not be empty", data={"reason": "invalidParams", "field": "input"})
        _check_steerable(turn)
        _check_queue(session, turn)
        if await _sent_before(session, message) is not None:
            begins(session, turn.id)
            return _Steered(turn.id)
        return _Steered(turn.id, turn, replace(message, call=travels_with_message(session, turn.id)))

    async def again(mark: CallMark) -> _Steered:
        return _Steered(mark.turn_id or expected)

    async def go_on(steered: _Steered) -> None:
        if steered.turn is not None and steered.message is not None:
            steered.turn.steer(steered.message)

    return (await session.answered_step(after, partial(once, session, call, admit, again), go_on)).turn_id


def _expected(session: Session, expected: str) -> Turn:
    turn = session.turn
    if turn is None:
        raise RequestError("no active turn to steer", data={"reason": "noActiveTurn"})
    if turn.id != expected:
        message_text = f"expected active turn id `{expected}` but found `{turn.id}`"
        raise RequestError(message_text, data={"reason": "otherActiveTurn", "turnId": turn.id})
    return turn


def _check_queue(session: Session, turn: Turn) -> None:
    most = session.env.config.limits.queued_inputs
    if len(turn.pending) >= most:
        raise LimitReached("queued_inputs", most)


def _check_steerable(turn: Turn) -> None:
    if turn.kind != "regular":
        raise RequestError(
            f"cannot steer a {_WORDS.get(turn.kind, turn.kind)} turn",
            data={
                "reason": "activeTurn",
                "turnId": turn.id,
                "codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": turn.kind}},
            },
        )


_WORDS = {"userShell": "user shell"}


async def interrupt_turn(session: Session, turn_id: str, call: CallMark | None, after: After) -> None:
    """End the running turn; its events follow the answer.

    Raises:
        RequestError: No turn runs, or another one does.
        KeyReused, WriteFailed: nothing was changed.
    """

    async def check() -> list[Turn]:
        return [_active(session, turn_id)]

    async def again(_: CallMark) -> list[Turn]:
        return []

    async def abort(turns: list[Turn]) -> None:
        for turn in turns:
            await pause(session)
            await turn.abort("interrupted")

    await session.answered_step(after, partial(once, session, call, check, again), abort)


def _active(session: Session, turn_id: str) -> Turn:
    turn = session.turn
    if turn is None:
        raise RequestError("no active turn to interrupt", data={"reason": "noActiveTurn"})
    if turn_id and turn.id != turn_id:
        raise RequestError(
            f"expected active turn id {turn_id} but found {turn.id}",
            data={"reason": "otherActiveTurn", "turnId": turn.id},
        )
    return turn


async def start_compaction(session: Session, call: CallMark | None, after: After) -> None:
    """Accept a compaction by the model: a running turn is ended first, without a marker (07 §4), then it begins."""

    async def accept() -> Admitted:
        session.env.lifecycle.admit_turn()
        turn = _turn(session, CompactionTurn, TurnPlan(session.settings, []))
        return Admitted(turn.answer(), begins=turn)

    async def begin(admitted: Admitted) -> None:
        if admitted.begins is not None:
            await _replace(session, admitted.begins, marker=False)

    await session.answered_step(after, partial(once, session, call, accept, partial(_again, session)), begin)


async def end_running(session: Session, *, interrupt: bool) -> None:
    """Make way for a transformation: with the caller's word a running turn is ended, else the gate refuses later."""
    if interrupt and session.turn is not None:
        await pause(session)
        await session.turn.abort("interrupted")
