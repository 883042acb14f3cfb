"""A thread live in memory: its log, its history, its settings, and the turn that runs.

State changes happen only in steps of the owner task; every change is recorded first, then installed here, then shown
to clients (DESIGN §1.3). What a turn does is in `turns/`, what gives a thread another past in `branches/`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode, Marks, NewRecord, Record, RecordType
from unspool_protocol.thread_object import ReadState

from unspool_server.errors import StoreClosed, ThreadBusy, WriteFailed
from unspool_server.history.calls import CallMark, marked
from unspool_server.history.client_view import ClientView
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.marks import fold_marks, marks_payload, revision
from unspool_server.history.queue import NOTHING, applied, folded_queue
from unspool_server.history.whole_view import folded_view
from unspool_server.sessions.clock import now_s
from unspool_server.sessions.memory import LiveHistory
from unspool_server.sessions.owner import Owner
from unspool_server.sessions.repeats.known_calls import KnownCalls
from unspool_server.sessions.settings import ThreadSettings, settings_record
from unspool_server.sessions.tools.terminals import Terminals
from unspool_server.store.contract import Log, LogStore
from unspool_server.telemetry import traces

if TYPE_CHECKING:
    from unspool_server.sessions.environment import Environment
    from unspool_server.sessions.turns.turn import Turn

T = TypeVar("T")
After = Callable[[Callable[[], None]], None]
"""Registers what shall happen right after a request was answered."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ThreadFacts:
    """What is fixed for a thread or changes seldom; the rest is in log and settings.

    `developer_instructions` are the client's or the configuration's for as long as the thread is loaded; they are
    not read back from a log (07 §2.1). Times are seconds since the epoch.
    """

    base_instructions: str
    developer_instructions: str | None = None
    dynamic_tools: Sequence[Mapping[str, Any]] = ()
    ephemeral: bool = False
    name: str | None = None
    preview: str = ""
    created_at: int = field(default_factory=now_s)
    updated_at: int = field(default_factory=now_s)
    forked_from_id: str | None = None
    tenant: str = ""


def read_state(marks: Marks, thread_id: str) -> ReadState:
    """What of a thread was read, as clients see it."""
    first = None if marks.first_unread is None else {"type": "turn", "turnId": marks.first_unread}
    return ReadState(first_unread=first, revision=revision(marks, thread_id))


class Session:
    """One live thread. Public coroutines other than `step` are meant to be called inside a step.

    Attributes:
        granted: What the user allowed for as long as the thread is loaded: the kind of tool, then what names it.
        terminals: Commands that the thread's turns run.
    """

    def __init__(
        self, env: "Environment", log: Log, history: LiveHistory, settings: ThreadSettings, facts: ThreadFacts
    ) -> None:
        self.env = env
        self.log = log
        self.history = history
        self.settings = settings
        self.facts = facts
        self.applied: ThreadSettings | None = None
        self.turn: Turn | None = None
        self.agents_md = env.read_agents_md(settings.cwd)
        self.failed = False
        self.granted: set[tuple[str, ...]] = set()
        self.load_notes: list[dict[str, Any]] = []
        self.closing = False
        self.terminals = Terminals(self)
        self._owner = Owner(log.info.thread_id)
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: set[asyncio.Future[None]] = set()
        self._owed_warning: str | None = None
        self.calls = KnownCalls(log, self.store)
        self.calling: CallMark | None = None
        self.queue = NOTHING
        self.on_idle: Callable[[], None] = lambda: None
        self.marks = fold_marks(Marks(), history.records, self.thread_id)
        self.refold()
        env.sink.reset(self.thread_id, self.end_cursor)
        self.publish_events(self.view.settle())

    @property
    def thread_id(self) -> str:
        """The thread's id."""
        return self.log.info.thread_id

    @property
    def store(self) -> LogStore:
        """Where the thread's log is kept."""
        return self.env.store_of(ephemeral=self.facts.ephemeral)

    @property
    def mode(self) -> HistoryMode:
        """How the thread's log is kept."""
        return self.log.info.mode

    @property
    def end_cursor(self) -> EventCursor:
        """Behind everything that is recorded now: behind the newest record, whatever unreadable lines follow it."""
        newest, own = self.history.records[-1], self.log.info.rollout_id
        ordinal = newest.ordinal if newest.rollout_id == own else max(self.log.next_ordinal - 1, 0)
        return EventCursor(own, ordinal, LAST_COUNTER)

    @property
    def status(self) -> dict[str, Any]:
        """The thread's status as clients see it (05 §6)."""
        if self.turn is not None and self.turn.announced:
            return {"type": "active", "activeFlags": sorted(+self.turn.flags)}
        return {"type": "systemError"} if self.failed else {"type": "idle"}

    async def step(self, change: Callable[[], Awaitable[T]]) -> T:
        """Run one state change in its turn."""
        return await self._owner.run(change)

    async def answered_step(
        self, after: After, change: Callable[[], Awaitable[T]], announce: Callable[[T], Awaitable[None]]
    ) -> T:
        """Run a change, let its answer leave, and only then show its events, with no other step in between.

        Args:
            after: Registers a callback that runs once the answer is on its way, or cannot be given any more.
            announce: Runs inside the same step, after the answer.
        """
        answered = asyncio.Event()
        changed: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        after(answered.set)

        async def step() -> None:
            result = await change()
            if not changed.done():
                changed.set_result(result)
            await answered.wait()
            await announce(result)

        running = asyncio.ensure_future(self._owner.run(step))
        self._steps.add(running)
        running.add_done_callback(self._steps.discard)
        running.add_done_callback(lambda step: step.cancelled() or step.exception())  # the caller may be gone
        await asyncio.wait((running, changed), return_when=asyncio.FIRST_COMPLETED)
        if not changed.done():
            changed.cancel()
            await running
        return changed.result()

    def post(self, change: Callable[[], Awaitable[None]], name: str) -> None:
        """Run a state change in its turn without waiting for it; left out when the thread closes before."""
        self.spawn(self._posted(change), name)

    async def _posted(self, change: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.step(change)
        except StoreClosed:
            logger.debug("thread %s closed before a step that nobody waits for", self.thread_id)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start background work that this session owns and awaits when it closes."""
        task = asyncio.create_task(work, name=f"{name}-{self.thread_id}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("background work of thread %s failed", self.thread_id, exc_info=error)

    def require_idle(self, what: str) -> None:
        """Refuse a transformation while a turn runs (04 §2).

        Raises:
            ThreadBusy: with the active turn's id.
        """
        if self.turn is not None:
            raise ThreadBusy(f"cannot {what} while a turn is in progress", self.turn.id)

    async def record(self, *records: NewRecord) -> list[Record]:
        """Record, take into memory, show the events; what clients see survives the process (DESIGN §1.3).

        A disk that refuses does not stop a running turn: its records stay accepted and are retried, with a warning.
        """
        with traces.span("append", records=len(records)):
            written = await self.log.add(records)
            await self.flushed()
        self.install(written)
        return written

    async def record_written(self, *records: NewRecord) -> list[Record]:
        """Write records as one unit or not at all; only then take them in and show their events. Raises WriteFailed."""
        with traces.span("append", records=len(records)):
            written = await self.log.append(self.marked(records), expected_ordinal=self.log.next_ordinal)
        self.install(written)
        return written

    def marked(self, records: Sequence[NewRecord]) -> Sequence[NewRecord]:
        """The records of a change, with the mark of the keyed call that makes it; once for each call."""
        mark, self.calling = self.calling, None
        return records if mark is None else marked(records, mark)

    def install(self, records: Sequence[Record]) -> list[ClientEvent]:
        """Take accepted records into memory and publish what they mean to clients."""
        events = self.take_in(records)
        self.publish_events(events)
        return events

    def refold(self) -> None:
        """Compute the clients' view of the running turn anew, after a record that changed what earlier ones mean."""
        self.view = folded_view(self.history.in_place, self.thread_id, self.mode)
        self.queue = folded_queue(self.history.records, self.thread_id, self.log.info.rollout_id)
        self.view.forget_finished()

    def take_in(self, records: Sequence[Record]) -> list[ClientEvent]:
        """Take accepted records into memory without publishing their events yet."""
        self.history.extend(records)
        self.marks = fold_marks(self.marks, records, self.thread_id)
        if any(record.type != RecordType.MARKS for record in records):
            self.facts.updated_at = now_s()
        self.calls.take(records)
        for record in records:
            self.queue = applied(self.queue, record, self.thread_id)
        return [event for record in records for event in self.view.apply(record)]

    def publish_events(self, events: Sequence[ClientEvent]) -> None:
        """Show events that come from records."""
        for event in events:
            self.env.sink.publish(self.thread_id, event.method, event.params, cursor=event.cursor)

    def publish(self, method: str, params: Mapping[str, Any], *, everyone: bool = False) -> None:
        """Show an event that is not recorded."""
        self.env.sink.publish(self.thread_id, method, {"threadId": self.thread_id, **params}, everyone=everyone)

    def publish_status(
        self, status: Mapping[str, Any] | None = None, *, turn_completed_first: bool | None = None
    ) -> None:
        """Tell everyone how the thread is, or those alone that want to know it at this place (`EventSink.publish`)."""
        told = {"threadId": self.thread_id, "status": status or self.status}
        self.env.sink.publish(
            self.thread_id,
            "thread/status/changed",
            told,
            everyone=True,
            turn_completed_first=turn_completed_first,
        )

    def warn(self, message: str, *, code: str, ordinals: Sequence[int] = (), effect: str = "") -> None:
        """Tell subscribers of something that is less than perfect, with a stable code (DESIGN §4)."""
        details = {"message": message, "code": code, "ordinals": list(ordinals), "effect": effect}
        self.publish("warning", details)

    def warn_if_unwritten(self) -> None:
        """Say once for each new reason that the disk refuses; the writer keeps retrying."""
        reason = self.log.last_error
        if reason is not None and reason != self._owed_warning:
            self.warn(
                "The log cannot be written at the moment; records are kept in memory and retried.",
                code="logNotWritten",
                effect="Recent events would be lost if the process ended now.",
            )
        self._owed_warning = reason

    def settings_to_record(self, settings: ThreadSettings) -> list[NewRecord]:
        """The settings event where the newest recorded one says something else (01 §5); remembered as recorded."""
        if settings == self.applied:
            return []
        self.applied = settings
        return [settings_record(settings, self.thread_id)]

    def settings_again(self) -> list[NewRecord]:
        """The settings event even if it says nothing new: behind a checkpoint, so that a resume stops there."""
        self.applied = None
        return self.settings_to_record(self.settings)

    def marks_again(self, *, reading: bool = True) -> list[NewRecord]:
        """The marks once more, where a resume will not see what recorded them (`history.marks`)."""
        payload = marks_payload(self.marks, self.thread_id, reading=reading)
        return [] if payload is None else [NewRecord(RecordType.MARKS, payload)]

    @property
    def read_state(self) -> ReadState:
        """What of the thread was read."""
        return read_state(self.marks, self.thread_id)

    def publish_read_state(self) -> None:
        """Tell everyone what is unread now."""
        told = self.read_state.model_dump(by_alias=True, mode="json")
        self.publish("thread/readState/changed", {"readState": told}, everyone=True)

    def turn_ended(self) -> None:
        """Bookkeeping after a turn: memory shrinks to what a restart would read, the catalogue may look again."""
        self.history.trim()
        if self.calls.must_be_kept:
            self.spawn(self.calls.keep(), "calls")
        self.env.idle(self.thread_id)
        self.on_idle()

    async def flushed(self) -> bool:
        """Try to get everything written; False (and a warning) when the disk refuses."""
        try:
            await self.log.flush()
        except WriteFailed:
            self.warn_if_unwritten()
            return False
        self._owed_warning = None
        return True

    def switch_log(self, log: Log, history: LiveHistory) -> list[ClientEvent]:
        """Continue on another rollout of the same thread (a branch).

        Returns:
            The events of its first records, not published yet.
        """
        self.log, self.history = log, history
        self.queue = folded_queue(history.records, self.thread_id, log.info.rollout_id)
        self.view = ClientView(self.thread_id, self.mode)
        own = [record for record in history.records[1:] if record.rollout_id == log.info.rollout_id]
        for record in history.records[1 : len(history.records) - len(own)]:
            self.view.apply(record)
        self.view.settle()  # no turn runs; the end of one that was cut off was told when the thread was loaded
        self.view.forget_finished()
        self.calls.switch(log, own)
        self.marks = fold_marks(Marks(), history.records, self.thread_id)
        self.facts.updated_at = now_s()
        return [event for record in (history.header, *own) for event in self.view.apply(record)]

    async def close(self, *, unless: Callable[[], bool] = lambda: False) -> bool:
        """End the turn, drain the writer, release the lock. Raises WriteFailed; the session then stays usable.

        Args:
            unless: Asked when all earlier steps are done; True leaves the session as it is.

        Returns:
            Whether the session has ended.
        """
        self.closing = True
        if not await self._owner.run(partial(self._close, unless)):
            return False
        await self._owner.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return True

    async def _close(self, unless: Callable[[], bool]) -> bool:
        if unless():
            self.closing = False
            return False
        if self.turn is not None:
            await self.turn.abort("shutdown")
        await self.terminals.kill_all()
        try:
            await self.log.close()
            await self.calls.keep()
        except WriteFailed:
            self.closing = False
            raise
        return True


LAST_COUNTER = 1 << 30
"""A counter behind every event that one record can bring forth."""
