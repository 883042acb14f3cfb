"""Compaction of a live thread: by the model (a turn of its own, or inside a running turn) or with a caller's summary.

What the new history looks like is decided in `history.compact`; here it is asked for, recorded as one unit, and shown.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from unspool_protocol.items import ContextCompactionItem
from unspool_protocol.log import NewRecord

from unspool_server.errors import ContextLengthExceeded, ProviderRejected, StreamCut
from unspool_server.history.compact import (
    compacted_record,
    keep_last_replacement,
    next_window,
    replacement_after_summary,
    summary_item,
)
from unspool_server.history.compact import summary_text as prefixed_summary
from unspool_server.history.context import ContextUpdate, initial_context
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.prompt import base_item, prompt_items
from unspool_server.history.queue import carried
from unspool_server.history.state import Item, PreviousSettings
from unspool_server.history.tokens import estimate_history
from unspool_server.model.contract import ItemDone, ModelRequest, ResponseDone
from unspool_server.model.texts import item_text
from unspool_server.sessions.clock import new_id, now_ms
from unspool_server.sessions.records import item_record, shown_item_record, task_complete, task_started
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import turn_context_record
from unspool_server.sessions.turns.context import context_facts, context_records
from unspool_server.sessions.turns.model_calls import asked
from unspool_server.sessions.turns.retries import StreamRetries
from unspool_server.sessions.turns.sampling import model_request
from unspool_server.sessions.turns.turn import Turn
from unspool_server.sessions.turns.usage import thread_total, token_count_record, usage_fields, usage_records

COMPACT_PROMPT = (
    "Write a hand-over summary of this conversation for whoever continues it without having seen it: the goal, what "
    "was decided and why, what has been done, where things stand, and what comes next. Keep names, paths and figures."
)
"""Asked for a summary where the configuration has no `compact_prompt` (07 §6.1)."""


@dataclass(slots=True)
class Summary:
    """What the model answered: its recorded items, the summary text or the provider's own compaction item."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    done: ResponseDone | None = None
    opaque: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The last assistant text of the answer, empty when there is none."""
        for item in reversed(self.items):
            if item.get("type") == "message" and item.get("role") == "assistant":
                return item_text({"content": item.get("content")})
        return ""


class CompactionTurn(Turn):
    """A turn that only compacts (`thread/compact/start`, 04 §3.1)."""

    kind = "compact"

    async def _work(self) -> None:
        await compact_inside(self)
        await self.session.step(self._complete)

    async def record_input(self) -> None:
        """A compaction turn has no input (07 §6.1)."""
        self.input_recorded = True


async def compact_inside(turn: Turn) -> None:
    """Ask the model for a summary and install the new history within the turn. Raises ModelError; nothing changed."""
    item = ContextCompactionItem(id=new_id())
    await turn.session.step(partial(_show, turn, item))
    try:
        summary = await _ask(turn)
        await turn.session.step(partial(_install, turn, item, summary))
    finally:
        turn.live.pop(item.id, None)


async def _show(turn: Turn, item: ContextCompactionItem) -> None:
    turn.show_started(item)


async def _ask(turn: Turn) -> Summary:
    """Request a summary; with ever fewer of the oldest items while they do not fit (07 §6.1), again when it breaks."""
    session, settings = turn.session, turn.plan.settings
    remote = session.env.providers.get(settings.model_provider).compacts
    history = list(prompt_items(session.history.state.history))
    retries = StreamRetries(turn)
    while True:
        try:
            return await _summary(turn, _request(session, settings, history, remote=remote), remote=remote)
        except ContextLengthExceeded:
            if remote or len(history) <= 1:
                raise
            history = _without_oldest(history)
        except StreamCut as error:
            wait_s = retries.next_delay_s(error)
            if wait_s is None:
                raise
            await session.env.providers.sleep(wait_s)


async def _summary(turn: Turn, request: ModelRequest, *, remote: bool) -> Summary:
    """One answer. Raises ProviderRejected where a service that compacts by itself gave no compaction (07 §6.1)."""
    summary = Summary()
    name = turn.plan.settings.model_provider
    provider = turn.session.env.providers.get(name)
    async with aclosing(asked(provider, request, name)) as events:
        async for event in events:
            if isinstance(event, ItemDone):
                summary.items.append(event.item)
            elif isinstance(event, ResponseDone):
                summary.done = event
    opaque = [item for item in summary.items if item.get("type") == "compaction"]
    if remote and len(opaque) != 1:
        raise ProviderRejected(f"the service answered a compaction with {len(opaque)} compaction items", info="other")
    summary.opaque = opaque[0] if opaque else None
    return summary


def _request(session: Session, settings: Any, history: list[Item], *, remote: bool) -> ModelRequest:
    base = base_item(session.facts.base_instructions)
    if remote:
        return model_request(
            session, settings=settings, input=[base, *history, {"type": "compaction_trigger"}], purpose="compact"
        )
    prompt = session.env.config.compact_prompt or COMPACT_PROMPT
    ask = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": prompt}]}
    return model_request(
        session,
        settings=settings,
        input=[base, *history, ask],
        purpose="compact",
        tools=(),
        parallel_tool_calls=False,
        effort=None,
        summary=None,
    )


def _without_oldest(history: list[Item]) -> list[Item]:
    call_id = history[0].get("call_id")
    rest = history[1:]
    return [item for item in rest if call_id is None or item.get("call_id") != call_id]


async def _install(turn: Turn, item: ContextCompactionItem, summary: Summary) -> None:
    """Record answer, checkpoint and fresh baselines as one unit, so that a crash leaves the old or the new state."""
    session = turn.session
    text = summary.text or _last_answer(session.history.state.history)
    fresh = _fresh_context(turn)
    replacement = replacement_after_summary(
        session.history.state.history,
        summary.opaque if summary.opaque is not None else summary_item(text, item_id=f"msg_{new_id()}"),
        [{**one, "id": f"msg_{new_id()}"} for one in fresh.items],
    )
    settings = turn.plan.settings
    records = [item_record(turn.attributed(_with_id(one))) for one in summary.items if one.get("type") != "compaction"]
    usage = usage_records(turn, summary.done) if summary.done is not None else []
    records += usage[:1]
    records.append(
        _checkpoint(session, turn, replacement, "" if summary.opaque is not None else prefixed_summary(text), usage)
    )
    records += context_records(ContextUpdate((), fresh.world_state), turn)
    records.append(turn_context_record(settings, turn.id))
    session.applied = None
    records += [*session.settings_to_record(settings), *session.marks_again()]
    records.append(_count(session, summary, estimate_history(replacement)))
    live = turn.live.pop(item.id, None)
    records.append(turn.item_event(item, live.started_at_ms if live else now_ms(), now_ms()))
    await session.record_written(*records)


def _with_id(item: Mapping[str, Any]) -> dict[str, Any]:
    return {**item, "id": item.get("id") or f"msg_{new_id()}"}


def _fresh_context(turn: Turn) -> ContextUpdate:
    session = turn.session
    previous = session.history.state.previous_settings
    switched = previous is not None and previous.model != turn.plan.settings.model
    return initial_context(context_facts(session, turn.plan.settings), model_switch=switched)


def _last_answer(history: tuple[Item, ...]) -> str:
    for item in reversed(history):
        said = item.get("type") == "message" and item.get("role") == "assistant"
        if said and (text := item_text({"content": item.get("content")})):
            return text
    return ""


def _checkpoint(
    session: Session, turn: Turn, replacement: list[Item], message: str, usage: list[NewRecord]
) -> NewRecord:
    return compacted_record(
        message=message,
        replacement=replacement,
        window=next_window(session.history.state.window, new_id()),
        previous_settings=PreviousSettings(turn.plan.settings.model, None, False),
        last_started_turn_id=turn.id,
        latest_usage=usage[0].payload if usage else None,
        extra=_ours(session),
    )


def _ours(session: Session) -> Mapping[str, Any] | None:
    """What waits goes along with a checkpoint, since a restart reads back to it only."""
    queue = carried(session.queue, session.thread_id)
    return {"unspool": queue} if queue else None


def _count(session: Session, summary: Summary, estimate: int) -> NewRecord:
    """The token count after a compaction: totals go on, the last one is the estimate of the new history (07 §6.2)."""
    total = thread_total(session)
    if summary.done is not None and summary.done.usage is not None:
        used = usage_fields(summary.done.usage)
        total = {name: total[name] + used[name] for name in total}
    last = {**dict.fromkeys(total, 0), "total_tokens": estimate}
    return token_count_record(session, total, last)


async def compact_with_summary(session: Session, summary: str, keep_last: int) -> list[ClientEvent]:
    """Compact with the caller's summary and a kept suffix, no model involved (04 §3.4). Runs inside a step, idle only.

    The baseline is cleared, so the next turn tells the model its context again.

    Returns:
        The events to show once the answer has left.

    Raises:
        ThreadBusy, WriteFailed: nothing was changed.
    """
    session.require_idle("compact")
    state = session.history.state
    turn_id, started = new_id(), now_ms()
    replacement = keep_last_replacement(state.history, summary, keep_last, item_id=f"msg_{new_id()}")
    checkpoint = compacted_record(
        message=summary,
        replacement=replacement,
        window=next_window(state.window, new_id()),
        previous_settings=state.previous_settings,
        last_started_turn_id=turn_id,
        extra=_ours(session),
    )
    item = ContextCompactionItem(id=new_id())
    total = thread_total(session)
    last = {**dict.fromkeys(total, 0), "total_tokens": estimate_history(replacement)}
    records = [
        task_started(turn_id, started // 1000, session.env.config.context_window),
        checkpoint,
        *session.settings_again(),
        *session.marks_again(),
        token_count_record(session, total, last),
        shown_item_record(
            item,
            thread_id=session.thread_id,
            turn_id=turn_id,
            mode=session.mode,
            started_ms=started,
            completed_ms=now_ms(),
        ),
        task_complete(
            turn_id, None, {"started_at": started // 1000, "completed_at": now_ms() // 1000, "duration_ms": 0}
        ),
    ]
    written = await session.log.append(session.marked(records), expected_ordinal=session.log.next_ordinal)
    events = session.take_in(written)
    session.turn_ended()
    return events
