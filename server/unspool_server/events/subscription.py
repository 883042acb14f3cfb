"""One connection's place in one thread's event list (DESIGN §1.5).

A subscription that has caught up is pushed to. Otherwise it is a cursor that is behind: it continues from the ring, or
from the log where the ring no longer holds its place, as the client takes messages. It makes nobody else wait.
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
from unspool_server.events.requests import PendingRequest
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


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """A recorded event as it was read from the log, encoded and marked as replayed."""

    cursor: EventCursor
    method: str
    body: bytes


class ReplaySource(Protocol):
    """Recorded events by cursor; see `replay.LogReplay`."""

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """Raise InvalidParams (`data.reason` = `cursorInvalid`) for a cursor that is no place in this thread's past."""

    def events_after(
        self, thread_id: str, after: EventCursor | None, *, whole_since: str | None = None
    ) -> AsyncGenerator[LoggedEvent]:
        """Recorded events after a cursor (None: from the beginning), in order, up to the present end of the log.

        Args:
            whole_since: From this rollout on, show also what was rolled back, as live subscribers saw it.
        """


Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
"""Starts a named task that the hub owns and awaits at its end."""


class Subscription:
    """Created by `Hub.subscribe`, held: nothing is delivered before `release`."""

    def __init__(
        self,
        peer: Peer,
        stream: ThreadStream,
        replay: ReplaySource | None,
        requests: Callable[[], Iterable[PendingRequest]],
        spawn: Spawn,
    ) -> None:
        self.peer, self.stream = peer, stream
        self._replay, self._requests, self._spawn = replay, requests, spawn
        self._cursor = stream.end
        self._seq: int | None = stream.next_seq
        self._replayed_before = 0
        self._was_live = True
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
        """Whether it is being served from the log at the moment."""
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

    def start_after(self, cursor: EventCursor | None, *, replay: bool) -> None:
        """Move to another place, only while held. With `replay`, what was published so far is marked as replayed.

        Without it the place is that of a snapshot: its reader knows everything up to `cursor`.
        """
        self._stop_reading()
        self._cursor, self._seq = cursor, self.stream.seq_after(cursor)
        if cursor is None and not replay:
            self._seq = self.stream.first_seq
        self._live = False
        self._was_live = not replay
        self._replayed_before = self.stream.next_seq if replay else 0

    def push(self, event: Event) -> None:
        """Take the newest event of the stream, at once or, when the client is behind, later from the ring."""
        if self._live and not self._deliver(event):
            self._live = False

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
        if self._seq is None or self._seq < self.stream.first_seq:
            self._reader = self._spawn(self._read_log(), f"replay {self.stream.thread_id}")
            return
        for event in self.stream.events(self._seq):
            self._send_requests(event.seq)
            if not self._deliver(event):
                return
            metrics.REPLAYED.add("ring")
        self._send_requests(self.stream.next_seq)
        self._live = self._was_live = True
        if self._finished is not None:
            self.end()
            self._finished()

    def finish(self, finished: Callable[[], None]) -> None:
        """Nothing more will be published: deliver what is still owed, then end and call `finished`."""
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

    def _deliver(self, event: Event) -> bool:
        if event.method not in self.peer.opted_out:
            body = as_replayed(event.body) if event.seq < self._replayed_before else event.body
            if not self.peer.outbox.offer(body):
                return False
        self._cursor, self._seq = event.cursor, event.seq + 1
        return True

    def _send_requests(self, before: int) -> None:
        pending = [request for request in self._requests() if request.seq <= before]
        self._sent.intersection_update(pending)
        for request in pending:
            self.send(request)

    async def _read_log(self) -> None:
        """Deliver recorded events until the ring's floor is reached, then go on from the ring.

        Every event that the ring has lost is in the log if it was recorded at all, since records come before events.
        So the log is read from this place until it shows an event that the ring still holds, or ends.
        """
        task = asyncio.current_task()
        try:
            while self._seq is None or self._seq < self.stream.first_seq:
                floor, floor_seq = self.stream.floor, self.stream.first_seq
                if await self._read_to_floor():
                    floor, floor_seq = self.stream.floor, self.stream.first_seq
                self._cursor, self._seq = self.stream.later(self._cursor, floor), floor_seq
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
        self.peer.outbox.put(Encoder().encode("warning", params, cursor=None, emitted_at_ms=now_ms()))

    async def _read_to_floor(self) -> bool:
        """Deliver from the log; True when it met an event of the ring, so that the floor of this moment is reached."""
        if self._replay is None:
            return True
        # What the ring shows next has to follow from what is read here, so cuts that it still shows are shown as well;
        # a subscriber that was live misses nothing at all.
        since = self._cursor if self._was_live else self.stream.floor
        events = self._replay.events_after(
            self.stream.thread_id, self._cursor, whole_since=since.rollout_id if since else None
        )
        async with aclosing(events) as source:
            async for event in source:
                if self.stream.past_floor(event.cursor):
                    return True
                await self._deliver_logged(event)
        return False

    async def _deliver_logged(self, event: LoggedEvent) -> None:
        if event.method not in self.peer.opted_out:
            self._space.clear()
            while not self.peer.outbox.offer(event.body):
                await self._space.wait()
                self._space.clear()
        metrics.REPLAYED.add("log")
        self._cursor = event.cursor
