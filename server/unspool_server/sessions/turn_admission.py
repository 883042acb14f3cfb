"""Who may run a turn when: start or join, steer, interrupt, and the compaction turn (`wire` §6). Inside steps only."""

from dataclasses import dataclass
from functools import partial

from unspool_protocol.turn_methods import TurnStartParams
from unspool_protocol.turns import Turn as WireTurn

from unspool_server.errors import RequestError
from unspool_server.history.turn_pages import without_items
from unspool_server.sessions.compaction import CompactionTurn
from unspool_server.sessions.input import TurnMessage
from unspool_server.sessions.loading import find_turn
from unspool_server.sessions.session import After, Session
from unspool_server.sessions.settings import for_turn
from unspool_server.sessions.summaries import settings_told
from unspool_server.sessions.turn import Turn, TurnPlan


@dataclass(frozen=True, slots=True)
class Admitted:
    """What became of a `turn/start`: its answer, the turn that runs, and whether the message is new to it."""

    answer: WireTurn
    turn: Turn | None = None
    is_new: bool = True


async def start_turn(session: Session, params: TurnStartParams, message: TurnMessage | None, after: After) -> WireTurn:
    """Begin a turn, or join the running one as steered input: then its id comes back. All of it follows the answer.

    A message whose `clientUserMessageId` the thread knows already was sent again: its turn is answered, nothing runs.

    Raises:
        RequestError: A compaction runs; it takes no input.
    """

    async def admit() -> Admitted:
        if (again := await _sent_before(session, message)) is not None:
            return again
        if session.turn is not None:
            _check_steerable(session.turn)
            return Admitted(session.turn.answer(), session.turn)
        settings = for_turn(session.settings, params)
        if settings != session.settings:
            session.publish("thread/settings/updated", {"threadSettings": settings_told(settings)})
        plan = TurnPlan(settings, [message] if message is not None else [], params.output_schema, params.turn_trigger)
        session.turn = Turn(session, plan)
        session.turn.start()
        return Admitted(session.turn.answer(), session.turn)

    async def begin(admitted: Admitted) -> None:
        turn = admitted.turn
        if turn is None:
            return
        if turn.released and admitted.is_new:
            _steer(turn, message)
        turn.release()

    return (await session.answered_step(after, admit, begin)).answer


async def _sent_before(session: Session, message: TurnMessage | None) -> Admitted | None:
    """The turn that took in this very message, if the client sent it before."""
    turn_id = session.turn_of_input(message.client_id) if message is not None else None
    if turn_id is None:
        return None
    if session.turn is not None and session.turn.id == turn_id:
        return Admitted(session.turn.answer(), session.turn, is_new=False)
    found = await find_turn(session.store, session.log.info, turn_id)
    return None if found is None else Admitted(without_items(found.turn))


async def steer_turn(session: Session, expected: str, message: TurnMessage | None, after: After) -> Turn:
    """Add input to the running turn; what comes of it follows the answer.

    Raises:
        RequestError: No turn runs, another one does, or the input is empty.
    """

    async def admit() -> Turn:
        turn = session.turn
        if turn is None:
            raise RequestError("no active turn to steer", data={"reason": "noActiveTurn"})
        if turn.id != expected:
            message_text = f"expected active turn id `{expected}` but found `{turn.id}`"
            raise RequestError(message_text, data={"reason": "otherActiveTurn", "turnId": turn.id})
        if message is None:
            raise RequestError("input must not be empty", data={"reason": "invalidParams", "field": "input"})
        _check_steerable(turn)
        return turn

    async def go_on(turn: Turn) -> None:
        if message is None or session.turn_of_input(message.client_id) is None:
            _steer(turn, message)

    return await session.answered_step(after, admit, go_on)


def _check_steerable(turn: Turn) -> None:
    if turn.kind != "regular":
        raise RequestError(
            "cannot steer a compact turn",
            data={
                "reason": "activeTurn",
                "turnId": turn.id,
                "codexErrorInfo": {"activeTurnNotSteerable": {"turnKind": turn.kind}},
            },
        )


def _steer(turn: Turn, message: TurnMessage | None) -> None:
    if message is not None:
        turn.steer(message)


async def interrupt_turn(session: Session, turn_id: str, after: After) -> None:
    """End the running turn; its events follow the answer.

    Raises:
        RequestError: No turn runs, or another one does.
    """
    await session.answered_step(after, partial(_check_active, session, turn_id), _abort)


async def _check_active(session: Session, turn_id: str) -> Turn:
    turn = session.turn
    if turn is None:
        raise RequestError("no active turn to interrupt", data={"reason": "noActiveTurn"})
    if turn_id and turn.id != turn_id:
        raise RequestError(
            f"expected active turn id {turn_id} but found {turn.id}",
            data={"reason": "otherActiveTurn", "turnId": turn.id},
        )
    return turn


async def _abort(turn: Turn) -> None:
    await turn.abort("interrupted")


async def start_compaction(session: Session, after: After) -> None:
    """Accept a compaction by the model: a running turn is ended first, without a marker (07 §4), then it begins."""

    async def accept() -> None:
        return None

    async def begin(_: None) -> None:
        if session.turn is not None:
            await session.turn.abort("interrupted", marker=False)
        turn = CompactionTurn(session, TurnPlan(session.settings, []))
        session.turn = turn
        turn.start()
        turn.release()

    await session.answered_step(after, accept, begin)


async def end_running(session: Session, *, interrupt: bool) -> None:
    """Make way for a transformation: with the caller's word a running turn is ended, else the gate refuses later."""
    if interrupt and session.turn is not None:
        await session.turn.abort("interrupted")
