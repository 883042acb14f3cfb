"""One turn: a straight coroutine for the waiting, and steps of the owner task for everything that changes state.

Order of records: 01 §5; of events: `wire` §4. All state of the turn is changed inside steps only, so that an interrupt,
which is a step too, always finds it complete.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from unspool_protocol.items import THREAD_ITEM, ThreadItem
from unspool_protocol.log import NewRecord
from unspool_protocol.turns import Turn as WireTurn
from unspool_protocol.turns import TurnError, TurnParams

from unspool_server.config_base import ConfigError
from unspool_server.errors import ContextLengthExceeded, ModelError, StoreClosed, WriteFailed
from unspool_server.history.additional import due_additions
from unspool_server.history.calls import marked, with_ours
from unspool_server.history.context import ContextUpdate, context_update
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.fork import interruption_marker
from unspool_server.sessions.agents.envelopes import Envelope, envelope_records
from unspool_server.sessions.clock import new_id, now_ms, now_s
from unspool_server.sessions.records import (
    attributed,
    item_record,
    shown_item_record,
    task_complete,
    task_started,
    turn_aborted,
)
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import ThreadSettings, turn_context_record
from unspool_server.sessions.tools.calls import aborted_outputs
from unspool_server.sessions.turns.context import context_facts, context_records
from unspool_server.sessions.turns.input import TurnMessage
from unspool_server.sessions.turns.partial_text import PartialText
from unspool_server.sessions.turns.report import Outcome, TurnReport
from unspool_server.sessions.turns.rounds import Rounds
from unspool_server.sessions.turns.usage import full_window_record, take_untold
from unspool_server.telemetry import traces
from unspool_server.telemetry.logs import event
from unspool_server.telemetry.scope import bound

if TYPE_CHECKING:
    from unspool_server.sessions.tools.calls import OpenCall
    from unspool_server.sessions.turns.sampling import Sampling

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TurnPlan:
    """What a turn was asked to do."""

    settings: ThreadSettings
    messages: list[TurnMessage]
    output_schema: Mapping[str, Any] | None = None
    trigger: str | None = None
    turn_id: str = field(default_factory=new_id)


@dataclass(slots=True)
class LiveItem:
    """An item that clients were told of and that is not recorded yet.

    Attributes:
        item: As clients were told of it; `text` grows with its deltas.
        more: Members that are computed when somebody asks for them.
    """

    item: dict[str, Any]
    started_at_ms: int = field(default_factory=now_ms)
    more: Callable[[], Mapping[str, Any]] | None = None

    def shown(self) -> dict[str, Any]:
        """The item as it is now."""
        return {**self.item, **(self.more() if self.more is not None else {})}


class Beside(Protocol):
    """Work that joined a turn without being part of its rounds."""

    async def cut_short(self) -> list[NewRecord]:
        """End it because the turn was interrupted; returns what is to be recorded of it."""


class Turn:
    """The running turn of a session. Created inside a step; `release` lets it begin after its answer has left.

    Attributes:
        beside: Work that joined the turn and that its end cuts short.
        notes: Records for the model that wait until no call is open before them (07 §5).
        untold: The count of the newest response while its calls are open.
    """

    kind = "regular"

    def __init__(self, session: Session, plan: TurnPlan) -> None:
        self.session = session
        self.plan = plan
        self.id = plan.turn_id
        self.announced = False
        self.input_recorded = False
        self.flags: Counter[str] = Counter()
        self.pending: deque[TurnMessage] = deque()
        self.arrived = asyncio.Event()
        self.live: dict[str, LiveItem] = {}
        self.partial_text = PartialText(self)
        self.calls: dict[str, OpenCall] = {}
        self.beside: list[Beside] = []
        self.notes: list[NewRecord] = []
        self.untold: list[NewRecord] = []
        self.last_message: str | None = None
        self.failure: str | None = None
        self.token_usage: Mapping[str, int] = {}
        self.sampling: Sampling | None = None
        self.started_at: int | None = None
        self.report = TurnReport(session.thread_id, self.id, self.kind)
        self._released = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin the turn's task; it waits for `release`."""
        self._task = self.session.spawn(self._run(), "turn")

    def release(self) -> None:
        """Let the turn begin; called when the answer that announces it is on its way."""
        self._released.set()

    def answer(self) -> WireTurn:
        """The turn as `turn/start` answers it (`wire` §4)."""
        return WireTurn(id=self.id, root_turn_id=self.id, items=(), items_view="notLoaded", status="inProgress")

    async def _run(self) -> None:
        await self._released.wait()
        with bound(thread=self.session.thread_id, turn=self.id), traces.span("turn", kind=self.kind):
            await self._whole()

    async def _whole(self) -> None:
        try:
            await self.session.step(self.begin)
            await self._work()
        except ModelError as error:
            full = isinstance(error, ContextLengthExceeded)
            await self.session.step(partial(self._fail, error.message, error.info, window_full=full))
        except ConfigError as error:  # a model service is looked at when it is asked first
            await self.session.step(partial(self._fail, error.message, "other"))
        except WriteFailed:
            await self.session.step(partial(self._fail, "the log could not be written; nothing was changed", "other"))
        except Exception as error:
            event(logger, "turn failed", level=logging.ERROR, exc_info=error)
            await self.session.step(partial(self._fail, "internal error", "other"))

    async def _work(self) -> None:
        await Rounds(self).run()

    async def begin(self) -> None:
        """Record and show the turn's start. Runs inside a step, once."""
        if self.announced:
            return
        self.announced = True
        self.started_at = now_s()
        if self.plan.settings.cwd != self.session.settings.cwd:
            self.session.agents_md = self.session.env.read_agents_md(self.plan.settings.cwd)
        self.session.settings = self.plan.settings
        self.session.failed = False
        self.session.publish_status()
        window = self.session.env.config.context_window
        await self.session.record(task_started(self.id, self.started_at, window, trigger=self.plan.trigger))

    async def record_input(self) -> None:
        """Record context, settings and user messages (01 §5). Runs inside a step, once."""
        if self.input_recorded:
            return
        self.input_recorded = True
        update = self.context_update()
        records = context_records(update, self)
        records.append(turn_context_record(self.plan.settings, self.id))
        records += self.session.settings_to_record(self.plan.settings)
        await self.session.record(*records)
        for message in self.plan.messages:
            await self.record_message(message)

    def context_update(self) -> ContextUpdate:
        """What the model would be shown of the context before its next request."""
        facts = context_facts(self.session, self.plan.settings)
        return context_update(self.session.history.state, facts)

    async def record_message(self, message: TurnMessage) -> None:
        """Record one message for model and clients, behind the context that came with it."""
        session = self.session
        if not session.facts.preview:
            session.facts.preview = message.text
        stamp = now_ms()
        if isinstance(message, Envelope):
            await self._record_envelope(message, stamp)
            return
        additions = due_additions(session.history.state.history, message.additions)
        items = [{**item, "id": f"{_id_kind(item)}_{new_id()}"} for item in additions]
        records = [
            *(item_record(self.attributed(item, stamp)) for item in (*items, message.response_item)),
            self.item_event(message.item.model_copy(update={"started_at_ms": None}), stamp, stamp),
        ]
        told = records.pop()
        if message.queue_id is not None:
            records[-1] = with_ours(records[-1], queued=message.queue_id)
        if message.call is not None:
            records = marked(records, message.call)
        await session.record(*records, told)

    async def _record_envelope(self, envelope: Envelope, stamp: int) -> None:
        shown = [self.item_event(envelope.activity, stamp, stamp)] if envelope.activity is not None else []
        records = [*shown, *envelope_records(envelope, self.attributed(envelope.response_item, stamp))]
        await self.session.record(*(records if envelope.call is None else marked(records, envelope.call)))

    def attributed(self, item: Mapping[str, Any], created_ms: int | None = None) -> dict[str, Any]:
        """A Responses item with the turn it belongs to, as the log keeps it (01 §3.2)."""
        return attributed(item, self.id, created_ms)

    def item_event(self, item: Any, started_ms: int, completed_ms: int) -> NewRecord:
        """The client-visible record of a finished item."""
        session = self.session
        return shown_item_record(
            item,
            thread_id=session.thread_id,
            turn_id=self.id,
            mode=session.mode,
            started_ms=started_ms,
            completed_ms=completed_ms,
        )

    async def take_in_round(self) -> None:
        """After a round: its calls are done, and steered input joins history. Runs inside a step."""
        self.calls.clear()
        await self._record_pending()

    async def go_on(self) -> bool:
        """After a round: take in steered input, go on after tool outputs, or finish. One step, so no input is lost."""
        again = bool(self.calls or self.pending)
        await self.take_in_round()
        if again:
            return True
        await self._complete()
        return False

    def show_started(self, item: Any) -> LiveItem:
        """Tell clients that an item begins; it stays in the turn's snapshot until it is recorded."""
        live = LiveItem(item.model_dump(by_alias=True, mode="json"))
        live.item["startedAtMs"] = live.started_at_ms
        self.live[item.id] = live
        self.session.publish(
            "item/started", {"item": dict(live.item), "turnId": self.id, "startedAtMs": live.started_at_ms}
        )
        return live

    def live_items(self) -> list[ThreadItem]:
        """Items that clients were told of and that are not recorded yet, with the text so far."""
        return [THREAD_ITEM.validate_python(live.shown()) for live in self.live.values()]

    def holds_input(self, client_id: str) -> bool:
        """Whether a message with this id was accepted by the turn and is perhaps not recorded yet."""
        return any(message.client_id == client_id for message in (*self.plan.messages, *self.pending))

    def takes(self, queue_id: str) -> bool:
        """Whether the turn runs an input that waited in the queue."""
        return any(message.queue_id == queue_id for message in self.plan.messages)

    def take_in(self, message: TurnMessage) -> None:
        """Add input that the next request of the running turn shows; nothing is cut."""
        self.pending.append(message)
        self.arrived.set()

    def steer(self, message: TurnMessage) -> None:
        """Add input to the running turn; a running request is cut so that the model sees it at once."""
        self.take_in(message)
        if self.sampling is not None:
            self.sampling.cut()

    async def _complete(self) -> None:
        await self._record_pending()
        await self._end(task_complete(self.id, self.last_message, self._times()), "completed")

    async def _fail(self, message: str, info: Any, *, window_full: bool = False) -> None:
        """End a failed turn; its user text and finished items stay (07 §9).

        Args:
            window_full: The context was too long; the count then says so, and the next turn compacts first (07 §6.3).
        """
        await self.begin()
        await self.record_input()
        await self.session.record(*take_untold(self))
        await self._record_pending()
        await self.partial_text.keep()
        self.live.clear()
        if window_full:
            await self.session.record(full_window_record(self.session))
        error = {"message": message, "codex_error_info": info}
        self.failure = message
        self.session.failed = True
        self.session.turn = None
        self.session.publish_status(turn_completed_first=False)
        told = TurnError(message=message, codex_error_info=info).model_dump(by_alias=True, mode="json")
        self.session.publish("error", {"turnId": self.id, "willRetry": False, "error": told})
        ended = task_complete(self.id, self.last_message, self._times(), error=error)
        await self._end(ended, "failed", announce_idle=False)

    async def abort(self, reason: str, *, marker: bool = True) -> None:
        """End the turn now, leaving valid history behind (07 §4). Runs inside a step."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        if self.session.turn is not self:
            return
        self.session.env.sink.cancel(self.session.thread_id, self.id)  # nothing of a turn follows its end
        await self.begin()
        await self.record_input()
        await self.partial_text.keep()
        self.live.clear()
        left = aborted_outputs(self)
        for work in self.beside:
            left += await work.cut_short()
        await self.session.record(*left)
        await self._record_pending()
        if marker:
            await self.session.record(item_record(self.attributed(interruption_marker(f"msg_{new_id()}"), now_ms())))
        await self._end(turn_aborted(self.id, self._times()), "interrupted")

    async def interrupted(self) -> NoReturn:
        """End the turn out of its own work: what waits here is cancelled with the rest of it."""
        self.session.spawn(self._interrupt(), "interrupt")
        await asyncio.Future[None]()
        raise AssertionError("a future that nobody sets")

    async def _interrupt(self) -> None:
        with suppress(StoreClosed):  # the thread is closing, which ends the turn as well
            await self.session.step(partial(self.abort, "interrupted"))

    async def _record_pending(self) -> None:
        """Notes, then steered input: what no request has taken up yet is recorded all the same, it was accepted."""
        self.arrived.clear()
        notes, self.notes = self.notes, []
        if notes:
            await self.session.record(*notes)
        while self.pending:
            await self.record_message(self.pending.popleft())

    async def record_notes_if_over(self) -> None:
        """Record what came too late for the turn; otherwise it has its place behind the round's outputs."""
        if self.session.turn is not self and self.notes:
            notes, self.notes = self.notes, []
            await self.session.record(*notes)

    def _times(self) -> dict[str, Any]:
        return {
            "started_at": self.started_at,
            "completed_at": now_s(),
            "duration_ms": int(self.report.age_s * 1000),
        }

    async def _end(self, record: NewRecord, outcome: Outcome, *, announce_idle: bool = True) -> None:
        session = self.session
        self.partial_text.stop()
        written = await session.log.add([record])
        on_disk = await session.flushed()
        unread = session.marks.revision
        events = session.take_in(written)
        if session.turn is self:
            session.turn = None
        if session.marks.revision != unread and not session.facts.ephemeral:
            session.publish_read_state()
        if announce_idle:
            session.publish_status(turn_completed_first=False)
        session.publish_events(events if on_disk else [_accepted_only(event) for event in events])
        session.publish_status(turn_completed_first=True)
        session.env.sink.cancel(session.thread_id, self.id)
        session.view.forget_finished()
        self.report.ended(outcome, written=on_disk)
        session.turn_ended()
        session.env.agents.turn_ended(session, self.id, outcome, self.last_message or self.failure)


def _id_kind(item: Mapping[str, Any]) -> str:
    return "fco" if item["type"] == "function_call_output" else "msg"


def _accepted_only(event: ClientEvent) -> ClientEvent:
    """A `turn/completed` that says that the log is not on the disk yet (DESIGN §5)."""
    if not isinstance(event.params, TurnParams):
        return event
    turn = event.params.turn.model_copy(update={"durability": "accepted"})
    return ClientEvent(event.method, event.params.model_copy(update={"turn": turn}), event.cursor)
