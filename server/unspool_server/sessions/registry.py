"""Thread id -> live session: which threads are loaded, when they are unloaded, and operations on whole threads.

One entry per live thread of this process; other processes are kept out by the store's writer lock.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from unspool_protocol.log import NewRecord, Record
from unspool_protocol.threads import ThreadForkParams, ThreadResumeParams, ThreadStartParams

from unspool_server.errors import (
    LimitReached,
    LogMissing,
    RequestError,
    ShuttingDown,
    ThreadNotFound,
    UnspoolError,
)
from unspool_server.history.calls import CallMark, marked
from unspool_server.history.client_view import ClientView
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.sessions.agents.agents import Agents
from unspool_server.sessions.environment import Environment
from unspool_server.sessions.opening import Opener, check_thread_id
from unspool_server.sessions.records import event_record
from unspool_server.sessions.repeats.idempotency import carried_out, once
from unspool_server.sessions.session import After, Session
from unspool_server.sessions.settings import ThreadSettings
from unspool_server.sessions.tenants import Tenants
from unspool_server.sessions.turns.queue_run import wake
from unspool_server.sessions.views.summaries import live_thread
from unspool_server.store.contract import Log, RolloutInfo
from unspool_server.telemetry import logs, metrics
from unspool_server.telemetry.instruments import Sample

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Sessions:
    """The live threads of this process."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.tenants = Tenants(env.store)
        self._opener = Opener(env)
        self._live: dict[str, Session] = {}
        self._opening: dict[str, asyncio.Task[Session]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._kept: Counter[str] = Counter()
        self._doors: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._work: set[asyncio.Task[Any]] = set()
        self._turn_over = asyncio.Event()
        self.closing = False
        env.agents = self.agents = Agents(self)
        self.undrained = 0
        env.on_idle = self._turn_ended

    # -- looking up ----------------------------------------------------------------------------------------------------

    def live_ids(self) -> list[str]:
        """Ids of loaded threads, in the order they were loaded."""
        return list(self._live)

    def get(self, thread_id: str) -> Session | None:
        """The live session of a thread, None when it is not loaded."""
        return self._live.get(thread_id)

    async def tenant_of(self, thread_id: str) -> str | None:
        """Whose a thread is, live or stored; None where there is none."""
        live = self._live.get(thread_id)
        return live.facts.tenant if live is not None else await self.tenants.of(thread_id)

    def tenant_known(self, thread_id: str) -> str | None:
        """The same without looking into a log: None for a thread that nobody has named so far."""
        live = self._live.get(thread_id)
        return live.facts.tenant if live is not None else self.tenants.known(thread_id)

    def require(self, thread_id: str) -> Session:
        """The live session of a thread.

        Raises:
            InvalidParams: No UUID. ThreadNotFound: not loaded, or unknown; the two are not told apart.
            ShuttingDown: Every thread is being closed.
        """
        session = self._live.get(check_thread_id(thread_id))
        if session is None or session.closing:
            if self.closing:
                raise ShuttingDown
            raise ThreadNotFound(f"thread not found: {thread_id}", data={"threadId": thread_id})
        return session

    def alone(self, thread_id: str) -> asyncio.Lock:
        """Held while a thread comes into memory, leaves it, or has its files moved, so that none meets another halfway.

        Without it this process would be refused the writer lock that it holds itself.
        """
        door = self._doors.get(thread_id)
        if door is None:
            door = self._doors[thread_id] = asyncio.Lock()
        return door

    async def info(self, thread_id: str) -> RolloutInfo:
        """The present rollout of a thread, live or not. Raises LogMissing."""
        live = self._live.get(thread_id)
        if live is not None:
            return live.log.info
        return await self.env.store.find(thread_id)

    def open_logs(self) -> list[Log]:
        """The logs of loaded threads."""
        return [session.log for session in self._live.values()]

    def figures(self) -> Iterable[Sample]:
        """Loaded threads by state."""
        for state, number in Counter(session.status["type"] for session in self._live.values()).items():
            yield Sample(metrics.THREADS, number, (state,))

    # -- starting and loading ------------------------------------------------------------------------------------------

    async def start(
        self, params: ThreadStartParams, originator: str, thread_id: str | None = None, *, tenant: str = ""
    ) -> Session:
        """Begin a new thread of a tenant; one that must have this id is written at once, with its settings.

        Raises:
            RequestError: An unknown model provider. WriteFailed: The thread with that id could not be written.
        """
        self._check_room()
        return self._enter(await self._opener.start(params, originator, tenant, thread_id))

    async def fork(self, params: ThreadForkParams, thread_id: str | None = None, *, tenant: str = "") -> Session:
        """Begin a thread whose history begins in another one (04 §6); see `Opener.fork` for its refusals."""
        self._check_room()
        source_id = check_thread_id(params.thread_id)
        async with self.alone(source_id):
            source = self._live.get(source_id)
        # A live source is asked at once; nothing can close it before.
        return self._enter(await self._opener.fork(params, source, tenant, thread_id))

    async def spawn(
        self, parent: Session, thread_id: str, header: Mapping[str, Any], settings: ThreadSettings, *, fork: bool
    ) -> Session:
        """Begin a thread for another one; see `Opener.spawn`. Everyone is told of it."""
        session = self._enter(await self._opener.spawn(parent, thread_id, header, settings, fork=fork))
        told = live_thread(session).model_dump(mode="json", by_alias=True)
        self.env.sink.broadcast("thread/started", {"thread": told})
        return session

    async def resume(self, params: ThreadResumeParams) -> Session:
        """The live session of a thread, loaded from its log if need be; concurrent calls share one loading.

        Raises:
            LogMissing, WriterHeld, LogCorrupt, RequestError: nothing was loaded.
        """
        thread_id = check_thread_id(params.thread_id, "session")
        if self.closing:
            raise ShuttingDown
        live = self._live.get(thread_id)
        if live is not None and live.closing:
            raise RequestError(
                f"thread {thread_id} is closing; retry thread/resume after the thread is closed",
                data={"reason": "closing", "retryable": True},
            )
        if live is not None:
            return live
        task = self._opening.get(thread_id)
        if task is None:
            self._check_room()
            task = asyncio.create_task(self._open(thread_id, params), name=f"open-{thread_id}")
            self._opening[thread_id] = task
            task.add_done_callback(lambda _: self._opening.pop(thread_id, None))
        return await asyncio.shield(task)

    async def _open(self, thread_id: str, params: ThreadResumeParams) -> Session:
        async with self.alone(thread_id):
            return self._enter(await self._opener.resume(thread_id, params))

    def _check_room(self) -> None:
        """Raises LimitReached. Threads that are being made at the same time may go a few over."""
        most = self.env.config.limits.threads_loaded
        if len(self._live) + len(self._opening) >= most:
            raise LimitReached("threads_loaded", most)

    def check_turns(self, session: Session) -> None:
        """Refuse a turn of an idle thread while as many run as may. Raises LimitReached."""
        most = self.env.config.limits.turns_open
        if session.turn is None and sum(one.turn is not None for one in self._live.values()) >= most:
            raise LimitReached("turns_open", most)

    def _enter(self, session: Session) -> Session:
        self._live[session.thread_id] = session
        session.on_idle = partial(wake, session)
        metrics.THREADS_LOADED.add()
        logs.event(logger, "thread loaded", thread=session.thread_id, records=len(session.history.records))
        self.tenants.note(session.thread_id, session.facts.tenant)
        self.watch_idle(session.thread_id)
        return session

    # -- unloading and whole threads -----------------------------------------------------------------------------------

    def running(self) -> int:
        """How many turns run now."""
        return sum(session.turn is not None for session in self._live.values())

    async def turns_ended(self, timeout_s: float) -> bool:
        """Wait until no turn runs; False when some still do after that time."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.running():
                    self._turn_over.clear()
                    await self._turn_over.wait()
        except TimeoutError:
            return False
        return True

    def _turn_ended(self, thread_id: str) -> None:
        self._turn_over.set()
        self.watch_idle(thread_id)

    def watch_idle(self, thread_id: str) -> None:
        """Begin to count the unload delay of a thread that nobody watches and that does nothing (05 §6)."""
        timer = self._timers.pop(thread_id, None)
        if timer is not None:
            timer.cancel()
        if not self.closing and self._may_unload(thread_id):
            loop = asyncio.get_running_loop()
            delay = self.env.config.thread_unload_delay_secs
            self._timers[thread_id] = loop.call_later(delay, self._delay_over, thread_id)

    def _may_unload(self, thread_id: str) -> bool:
        session = self._live.get(thread_id)
        if session is None or session.turn is not None or session.queue.runnable or thread_id in self._kept:
            return False
        return self.env.sink.subscribers(thread_id) == 0

    @contextmanager
    def kept(self, thread_id: str) -> Iterator[None]:
        """Keep a thread loaded while a caller is about to subscribe to it."""
        self._kept[thread_id] += 1
        try:
            yield
        finally:
            self._kept[thread_id] -= 1
            if not self._kept[thread_id]:
                del self._kept[thread_id]
            self.watch_idle(thread_id)

    def _delay_over(self, thread_id: str) -> None:
        self._timers.pop(thread_id, None)
        if self._may_unload(thread_id) and not self.closing:
            self._spawn(self._unload_quietly(thread_id), f"unload-{thread_id}")

    async def _unload_quietly(self, thread_id: str) -> None:
        try:
            await self.unload(thread_id, unless=lambda: not self._may_unload(thread_id))
        except UnspoolError:
            logger.warning("thread %s could not be unloaded; it stays loaded", thread_id, exc_info=True)
            self.watch_idle(thread_id)

    async def unload(self, thread_id: str, *, unless: Callable[[], bool] = lambda: False) -> None:
        """Take a thread out of memory: its writer is drained, its lock released. Raises WriteFailed; then it stays.

        Args:
            unless: Asked once more when its earlier steps are done; True leaves it loaded (05 §6).
        """
        async with self.alone(thread_id):
            await self._unload(thread_id, unless)

    async def _unload(self, thread_id: str, unless: Callable[[], bool]) -> None:
        session = self._live.get(thread_id)
        if session is None or not await session.close(unless=unless):
            return
        self._left(thread_id)
        timer = self._timers.pop(thread_id, None)
        if timer is not None:
            timer.cancel()
        self.env.sink.cancel(thread_id)
        session.publish_status({"type": "notLoaded"})
        session.publish("thread/closed", {}, everyone=True)
        self.env.sink.forget(thread_id)

    def _left(self, thread_id: str) -> None:
        self._live.pop(thread_id, None)
        self.env.mcp.release(thread_id)
        metrics.THREADS_UNLOADED.add()
        logs.event(logger, "thread unloaded", thread=thread_id)

    async def archive(self, thread_id: str) -> None:
        """Unload a thread and move its log to the archive. Raises LogMissing, WriterHeld, WriteFailed."""
        await self.finished(self._archive(thread_id))

    async def _archive(self, thread_id: str) -> None:
        async with self.alone(thread_id):
            await self._materialise_for_move(thread_id)
            await self.unload_for_move(thread_id)
            await self.env.store.archive(thread_id)

    async def unarchive(self, thread_id: str) -> None:
        """Move an archived thread's log back. Raises LogMissing, for a loaded thread too: it is not archived."""
        await self.finished(self._unarchive(thread_id))

    async def _unarchive(self, thread_id: str) -> None:
        async with self.alone(thread_id):
            if thread_id in self._live:
                raise LogMissing(thread_id)
            await self.env.store.unarchive(thread_id)

    async def _materialise_for_move(self, thread_id: str) -> None:
        session = self._live.get(check_thread_id(thread_id))
        if session is None:
            info = await self.env.store.find(thread_id)
            if info.archived:
                raise LogMissing(thread_id)
        elif session.facts.ephemeral:
            raise LogMissing(thread_id)
        else:
            await session.step(partial(_persist, session))

    async def unload_for_move(self, thread_id: str) -> None:
        """Take a thread out of memory because its files are about to move or go. Raises WriteFailed."""
        session = self._live.get(thread_id)
        if session is None:
            return
        await session.close()
        self._left(thread_id)
        self.env.sink.cancel(thread_id)
        session.publish_status({"type": "notLoaded"})
        self.env.sink.forget(thread_id)

    async def rename(self, thread_id: str, name: str, after: After, call: CallMark | None = None) -> None:
        """Give a thread a name: a record in its log, and an entry where other readers look for it (DESIGN §1.1).

        Everyone is told once the answer has left.
        """
        record = event_record("thread_name_updated", thread_id=thread_id, thread_name=name)
        async with self.alone(thread_id):
            session = self._live.get(thread_id)
            if session is not None:
                change = partial(once, session, call, partial(self._rename_live, session, record, name), _no_events)
                await session.answered_step(after, change, partial(self._show_name, thread_id))
                return
            log = await self.env.store.open(thread_id)
            try:
                if call is not None and await carried_out(log, self.env.store, call):
                    return
                written = await log.append([record] if call is None else marked([record], call))
            finally:
                await log.close()
            await self.env.catalogue.set_name(thread_id, name)
            for event in _name_events(thread_id, log, written):
                after(partial(self.env.sink.broadcast, event.method, event.params))

    async def _rename_live(self, session: Session, record: NewRecord, name: str) -> list[ClientEvent]:
        events = session.take_in(await session.log.append(session.marked([record])))
        session.facts.name = name
        await self.env.catalogue.set_name(session.thread_id, name)
        return events

    async def _show_name(self, thread_id: str, events: Sequence[ClientEvent]) -> None:
        for event in events:
            self.env.sink.publish(thread_id, event.method, event.params, cursor=event.cursor, everyone=True)

    async def close(self) -> None:
        """Unload everything; running turns are ended as interrupted. May be called again.

        Logs that cannot be drained are reported and counted in `undrained`.
        """
        self.closing = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await asyncio.gather(*self._opening.values(), *self._work, return_exceptions=True)
        left = list(self._live.values())
        await self.agents.settled()
        results = await asyncio.gather(*(session.close() for session in left), return_exceptions=True)
        for session, result in zip(left, results, strict=True):
            if isinstance(result, BaseException):
                self.undrained += 1
                logs.event(logger, "thread not drained", level=logging.ERROR, exc_info=result, thread=session.thread_id)
        self._live.clear()
        await asyncio.gather(*self._work, return_exceptions=True)

    async def finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Let work on a whole thread finish even when whoever asked goes away; half of it would leave a thread closing
        for ever. The end of the daemon waits for it."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # the asker may be gone
        return await asyncio.shield(task)

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)


async def _no_events(_: CallMark) -> list[ClientEvent]:
    """A name that was given before is not told again."""
    return []


async def _persist(session: Session) -> None:
    """Earlier steps may have replaced the log, so that it is looked up only here."""
    await session.log.persist()


def _name_events(thread_id: str, log: Log, written: Sequence[Record]) -> list[ClientEvent]:
    view = ClientView(thread_id, log.info.mode)
    return [event for record in written for event in view.apply(record)]
