"""One connection's place in one thread's event list (DESIGN §1.5).

A subscription that has caught up is pushed to. Otherwise it is a cursor that is behind: it continues from the ring, or
from the log where the ring no longer holds its place, as the client takes messages and, in a replay, at the pace that
it asked for. It makes nobody else wait.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

from unspool_protocol.cursors import EventCursor

from unspool_server.access.principal import Principal
from unspool_server.events.encoding import Encoder, as_replayed, now_ms
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import Pace, ReplayOptions, Sleep
from unspool_server.events.requests import PendingRequest
from unspool_server.events.slow import SLOW_LIMIT_BYTES, Run, SlowClient, runs
from unspool_server.events.stream import Event, ThreadStream
from unspool_server.telemetry import metrics

log = logging.getLogger(__name__)


class Peer(Protocol):
    """What the events need of a connection."""

    @property
    def id(self) -> Hashable:
        """Unique among the connections of the process."""

    @property
    def principal(self) -> Principal:
        """Who it belongs to."""

    @property
    def outbox(self) -> Outbox:
        """Where its messages go."""

    @property
    def opted_out(self) -> frozenset[str]:
        """Exact method names that it does not want (wire §3)."""

    @property
    def initialized(self) -> bool:
        """Whether it has been through `initialize`; before that it gets no broadcast."""

    @property
    def slow_client(self) -> SlowClient:
        """What it wants to happen when it reads too slowly."""

    def give_up(self, last_words: bytes) -> None:
        """End the connection after this message; its subscriptions have ended."""

    @property
    def turn_completed_first(self) -> bool:
        """Where it wants the status at a turn's end; see `stream.Event`."""


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A recorded event as it was read from the log, encoded and marked as replayed; see `stream.Event`."""

    cursor: EventCursor
    method: str
    body: bytes
    at_ms: int
    kind: str | None


class ReplaySource(Protocol):
    """Recorded events by cursor; see `replay.LogReplay`."""

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """Raise InvalidParams (`data.reason` = `cursorInvalid`) for a cursor that is no place in this thread's past."""

    def events_after(
        self,
        thread_id: str,
        after: EventCursor | None,
        *,
        whole_since: str | None = None,
        at_rest: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[LoggedEvent]:
        """Recorded events after a cursor (None: from the beginning), in order, up to the present end of the log.

        Args:
            whole_since: From this rollout on, show also what was rolled back, as live subscribers saw it.
            at_rest: Asked at the end of the log; True means that a turn without an end was cut off.
        """


class Host(Protocol):
    """What a subscription needs of the hub."""

    replay: ReplaySource | None
    sleep: Sleep

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Start a named task that the hub owns and awaits at its end."""

    def requests_of(self, thread_id: str) -> Iterable[PendingRequest]:
        """The thread's unanswered server requests."""

    def at_rest(self, thread_id: str) -> bool:
        """Whether the thread is not loaded."""

    def too_slow(self, peer: Peer) -> None:
        """The client is further behind than it may be and asked to be disconnected then."""


class Subscription:
    """Created by `Hub.subscribe`, held: nothing is delivered before `release`.

    Attributes:
        resident: It keeps the thread loaded and is asked the thread's server requests; others only watch.
    """

    def __init__(self, peer: Peer, stream: ThreadStream, host: Host, *, limit_bytes: int = SLOW_LIMIT_BYTES) -> None:
        self.peer, self.stream = peer, stream
        self.resident = False
        self._host = host
        self._limit_bytes = limit_bytes
        self._cursor = stream.end
        self._seq: int | None = stream.next_seq
        self._replaying: ReplayOptions | None = None
        self._replayed_before = 0
        self._pace: Pace | None = None
        self._was_live = True
        self._slow = False
        self._sent: set[PendingRequest] = set()
        self._holds = 0
        self._live = False
        self._ended = False
        self._finished: Callable[[], None] | None = None
        self._reader: asyncio.Task[None] | None = None
        self._space = asyncio.Event()

    @property
    def cursor(self) -> EventCursor | None:
        """The newest event that was handed to the connection; None before the first one of the thread."""
        return self._cursor

    @property
    def live(self) -> bool:
        """Whether it has caught up with the thread."""
        return self._live

    @property
    def reading(self) -> bool:
        """Whether it is being served from the log, or at a pace, at the moment."""
        return self._reader is not None

    def hold(self) -> None:
        """Deliver nothing until as many `release` calls came; used while a response is being made."""
        self._holds += 1
        self._live = False
        self._sent.clear()
        self._stop_reading()

    def release(self) -> None:
        """Start delivery; call it once per `subscribe`, after the response was put into the outbox.

        Pending server requests follow the response, at their place among the events.
        """
        self._holds = max(0, self._holds - 1)
        self.pump()

    def start_after(self, cursor: EventCursor | None, *, replay: ReplayOptions | None) -> None:
        """Move to another place, only while held. With `replay`, what was published so far is marked as replayed.

        Without it the place is that of a snapshot: its reader knows everything up to `cursor`.
        """
        self._stop_reading()
        self._cursor, self._seq = cursor, self.stream.seq_after(cursor)
        if cursor is None and replay is None:
            self._seq = self.stream.first_seq
        self._live = self._slow = False
        self._was_live = replay is None
        self._replaying = replay
        self._pace = replay.pace(self._host.sleep) if replay is not None else None
        self._replayed_before = self.stream.next_seq if replay is not None else 0

    def follow(self, stream: ThreadStream) -> None:
        """Go on in another stream of the thread, or in this one after its reset: the thread was loaded or unloaded."""
        self._stop_reading()
        self.stream = stream
        self._live = False
        self._seq = stream.first_seq if self._cursor is None and self._replaying is None else None
        self._seq = stream.seq_after(self._cursor) if self._seq is None else self._seq
        self._replayed_before = stream.next_seq if self._replaying is not None else 0
        self.pump()

    def grant(self, count: int) -> int:
        """Let a stepwise replay go on by so many events; returns how many were granted: 0 where nothing waits."""
        if self._pace is None or not self._pace.stepwise:
            return 0
        self._pace.grant(count)
        return count

    def push(self, event: Event) -> None:
        """Take the newest event of the stream, at once or, when the client is behind, later from the ring."""
        if self._live:
            if self._cursor is not None and self.stream.later(self._cursor, event.cursor) is self._cursor:
                self._seq = event.seq + 1  # the log told it while the thread was not loaded
            elif not self._deliver(Run(event, event, event.body)):
                self._live, self._slow = False, True
        elif self._slow and not self._ended and self._is_too_far_behind():
            self._host.too_slow(self.peer)

    def _is_too_far_behind(self) -> bool:
        asked = self.peer.slow_client == "disconnect"
        return asked and self.stream.bytes_since(self._seq) > self._limit_bytes

    def send(self, request: PendingRequest) -> None:
        """Send a server request, unless it was sent since the last `hold`."""
        if request not in self._sent:
            self._sent.add(request)
            request.asked.add(self.peer.id)
            self.peer.outbox.put(request.body)

    def pump(self) -> None:
        """Deliver what the outbox takes; called when there is space, and at release."""
        self._space.set()
        if self._holds or self._live or self._ended or self._reader is not None:
            return
        if self._seq is None or self._seq < self.stream.first_seq or self._is_paced(self._seq):
            self._reader = self._host.spawn(self._catch_up(), f"replay {self.stream.thread_id}")
            return
        policy = self.peer.slow_client if self._slow else None
        for run in runs(self.stream.events(self._seq), policy, whole_before=self._replayed_before):
            self._send_requests(run.first.seq)
            if run.first.seq >= self._replayed_before:
                self._end_replay()
            if not self._deliver(run):
                return
            metrics.REPLAYED.add("ring")
        self._send_requests(self.stream.next_seq)
        self._end_replay()
        self._live = self._was_live = True
        self._slow = False
        if self._finished is not None:
            finished, self._finished = self._finished, None
            finished()

    def finish(self, finished: Callable[[], None]) -> None:
        """Nothing more will be published to this stream: call `finished` once everything that is owed was delivered."""
        self._finished = finished

    def end(self) -> None:
        """Deliver nothing any more."""
        self._ended, self._live = True, False
        self._stop_reading()

    def _stop_reading(self) -> None:
        """Leave the log; the cursor tells where to go on."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None

    def _deliver(self, run: Run) -> bool:
        first = run.first
        meant = first.turn_first or not self.peer.turn_completed_first
        body = run.body if meant and self._wants(first.method, first.kind, first.seq) else None
        if body is not None and first.seq < self._replayed_before:
            body = as_replayed(body)
        if body is not None and not self.peer.outbox.offer(body):
            return False
        self._cursor, self._seq = run.last.cursor, run.last.seq + 1
        if run.last.follower is not None and self.peer.turn_completed_first:
            self.send_follower("thread/status/changed", run.last.follower)
        return True

    def send_follower(self, method: str, body: bytes) -> None:
        """Send what rides on the event that was delivered last."""
        if method not in self.peer.opted_out:
            self.peer.outbox.put(body)

    def _wants(self, method: str, kind: str | None, seq: int = -1) -> bool:
        """Whether the client is told of an event; one without a number comes from the log."""
        if method in self.peer.opted_out:
            return False
        return self._replaying is None or seq >= self._replayed_before or self._replaying.tells(kind)

    def _is_paced(self, seq: int) -> bool:
        return self._pace is not None and seq < self._replayed_before

    def _end_replay(self) -> None:
        """Everything is told that lay in the past when the client asked."""
        options, self._replaying, self._pace = self._replaying, None, None
        if options is not None and options.announced:
            told = {"threadId": self.stream.thread_id, "cursor": self._cursor.encode() if self._cursor else None}
            self._tell("thread/replay/completed", told)

    def _tell(self, method: str, params: dict[str, Any]) -> None:
        """Send this client a notification of its own, at its place among the events."""
        if method not in self.peer.opted_out:
            self.peer.outbox.put(Encoder().encode(method, params, cursor=None, emitted_at_ms=now_ms()))

    def _send_requests(self, before: int) -> None:
        if not self.resident:
            return
        pending = [r for r in self._host.requests_of(self.stream.thread_id) if r.seq <= before]
        self._sent.intersection_update(pending)
        for request in pending:
            self.send(request)

    async def _catch_up(self) -> None:
        """Deliver recorded events until the ring's floor is reached, and a paced replay to its end; then go on from
        the ring.

        Every event that the ring has lost is in the log if it was recorded at all, since records come before events.
        So the log is read from this place until it shows an event that the ring still holds, or ends.
        """
        task = asyncio.current_task()
        try:
            while True:
                if self._seq is None or self._seq < self.stream.first_seq:
                    floor, floor_seq = self.stream.floor, self.stream.first_seq
                    if await self._read_to_floor():
                        floor, floor_seq = self.stream.floor, self.stream.first_seq
                    self._cursor, self._seq = self.stream.later(self._cursor, floor), floor_seq
                elif self._is_paced(self._seq):
                    await self._deliver_paced(self.stream.at(self._seq))
                else:
                    break
        except Exception:
            # The owner of this task: whatever the store raised, the client goes on and learns of the hole.
            log.exception("replay of thread %s failed", self.stream.thread_id)
            self._skip_to_ring()
        finally:
            if self._reader is task:
                self._reader = None
        self.pump()

    def _skip_to_ring(self) -> None:
        """Go on with what is in memory, and tell the client that there is a hole before it."""
        self._cursor, self._seq = self.stream.later(self._cursor, self.stream.floor), self.stream.first_seq
        params = {
            "threadId": self.stream.thread_id,
            "message": "Some events of this thread could not be read from its log.",
            "code": "replayIncomplete",
            "effect": "Read the thread again to see all of it.",
        }
        self._tell("warning", params)

    async def _read_to_floor(self) -> bool:
        """Deliver from the log; True when it met an event of the ring, so that the floor of this moment is reached."""
        if self._host.replay is None:
            return True
        # What the ring shows next has to follow from what is read here, so cuts that it still shows are shown as well;
        # a subscriber that was live misses nothing at all.
        thread_id = self.stream.thread_id
        since = self._cursor if self._was_live else self.stream.floor
        events = self._host.replay.events_after(
            thread_id,
            self._cursor,
            whole_since=since.rollout_id if since else None,
            at_rest=lambda: self._replaying is not None and self._host.at_rest(thread_id),
        )
        async with aclosing(events) as source:
            async for event in source:
                if self.stream.past_floor(event.cursor):
                    return True
                if self._wants(event.method, event.kind):
                    await self._deliver_when_due(event.body, event.at_ms)
                metrics.REPLAYED.add("log")
                self._cursor = event.cursor
        return False

    async def _deliver_paced(self, event: Event) -> None:
        if self._wants(event.method, event.kind, event.seq):
            await self._deliver_when_due(as_replayed(event.body), event.at_ms)
        self._cursor, self._seq = event.cursor, event.seq + 1

    async def _deliver_when_due(self, body: bytes, at_ms: int) -> None:
        """Wait for the replay's pace, then for room."""
        pace = self._pace
        if pace is not None:
            await pace.due(at_ms)
        self._space.clear()
        while not self.peer.outbox.offer(body):
            await self._space.wait()
            self._space.clear()
        if pace is not None:
            pace.told(at_ms)
