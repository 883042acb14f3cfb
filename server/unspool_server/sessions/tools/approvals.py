"""Asking clients whether a command may run (`wire` §6): who is asked, what counts as an answer, what is remembered.

Whether it must be asked about at all is `approval_rules`' business. "For this session" is kept in memory only: after
the thread was loaded anew it is asked again, since permission is given to whoever is there to see what comes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from unspool_protocol.items import CommandExecutionItem, ItemStatus
from unspool_protocol.log import NewRecord
from unspool_protocol.requests import (
    COMMAND_APPROVAL,
    AcceptWithExecpolicyAmendment,
    ItemCommandExecutionRequestApprovalRequest,
    ItemCommandExecutionRequestApprovalResponse,
)

from unspool_server.sessions.clock import now_ms
from unspool_server.sessions.tools.waiting import waiting

if TYPE_CHECKING:
    from unspool_server.sessions.turns.turn import Turn

APPROVAL_RECORD = "unspool_approval"
"""Record type of a decision; other readers of the format pass over it."""

OFFERED = ("accept", "acceptForSession", "decline", "cancel")


class Decision(StrEnum):
    """How a question ended; `FAILED`: the client answered with an error; `TIMED_OUT`: nobody did in time."""

    ACCEPT = "accept"
    ACCEPT_FOR_SESSION = "acceptForSession"
    DECLINE = "decline"
    CANCEL = "cancel"
    FAILED = "failed"
    TIMED_OUT = "approvalTimedOut"

    @property
    def allows(self) -> bool:
        """Whether the command may run."""
        return self in (Decision.ACCEPT, Decision.ACCEPT_FOR_SESSION)


_DECLINED = frozenset({Decision.DECLINE, Decision.CANCEL, Decision.TIMED_OUT})
"""Decisions with which the item ends at once."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a command in its folder; `reason` is the model's word, if it gave one."""

    item: CommandExecutionItem
    argv: tuple[str, ...]
    reason: str | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What "for this session" covers: exactly this command in this folder."""
        return ("command", self.item.cwd, *self.argv)


def is_remembered(turn: "Turn", question: Question) -> bool:
    """Whether the very same command was allowed for the session."""
    return question.key in turn.session.granted


async def ask_approval(turn: "Turn", question: Question) -> Decision:
    """Show the item, ask every subscriber, record the decision.

    Order (`wire` §6): status, item/started, request, resolved, status; the item of what may not run ends before the
    last one. Nobody subscribed: it waits for somebody.
    """
    session, asked_ms = turn.session, now_ms()
    limit = session.env.config.approval_timeout_secs
    expiry = None if limit is None else session.env.sleep(limit)
    with waiting(turn, "waitingOnApproval"):
        live = turn.show_started(question.item)
        params = _request(turn, question, live.started_at_ms)
        try:
            asking = session.env.sink.ask(
                session.thread_id, turn.id, COMMAND_APPROVAL, params, accepts=is_answer, expiry=expiry
            )
            decision = _decision(await asking)
        except TimeoutError:
            decision = Decision.TIMED_OUT
        await session.step(partial(_record_decision, turn, question, decision, asked_ms))
    if decision is Decision.ACCEPT_FOR_SESSION:
        session.granted.add(question.key)
    return decision


def is_answer(message: Mapping[str, Any]) -> bool:
    """Whether a client's message decides: an error does, a result only with a decision that is known."""
    return "error" in message or _response(message) is not None


def _response(message: Mapping[str, Any]) -> ItemCommandExecutionRequestApprovalResponse | None:
    try:
        return ItemCommandExecutionRequestApprovalResponse.model_validate(message.get("result"))
    except ValidationError:
        return None


def _decision(message: Mapping[str, Any]) -> Decision:
    """An amendment of the execution policy is kept for this very command and session: there are no such rules here."""
    response = _response(message)
    if response is None:
        return Decision.FAILED
    if isinstance(response.decision, AcceptWithExecpolicyAmendment):
        return Decision.ACCEPT_FOR_SESSION
    return Decision(response.decision)


def _request(turn: "Turn", question: Question, started_at_ms: int) -> dict[str, Any]:
    request = ItemCommandExecutionRequestApprovalRequest(
        thread_id=turn.session.thread_id,
        turn_id=turn.id,
        item_id=question.item.id,
        started_at_ms=started_at_ms,
        reason=question.reason,
        command=question.item.command,
        cwd=question.item.cwd,
        command_actions=question.item.command_actions,
        available_decisions=OFFERED,
    )
    return request.model_dump(by_alias=True, mode="json", exclude_none=True)


async def _record_decision(turn: "Turn", question: Question, decision: Decision, asked_ms: int) -> None:
    records, stamp = [_record(turn, question, decision, asked_ms)], now_ms()
    if decision in _DECLINED:
        item = question.item.model_copy(update={"status": ItemStatus.DECLINED})
        live = turn.live.pop(item.id)
        records.append(turn.item_event(item, live.started_at_ms, stamp))
    await turn.session.record(*records)


def _record(turn: "Turn", question: Question, decision: Decision, asked_ms: int) -> NewRecord:
    payload = {
        "turn_id": turn.id,
        "call_id": question.item.id,
        "command": list(question.argv),
        "cwd": question.item.cwd,
        "decision": decision.value,
        "asked_at_ms": asked_ms,
        "decided_at_ms": now_ms(),
    }
    return NewRecord(APPROVAL_RECORD, payload)
