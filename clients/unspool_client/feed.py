"""The events of one thread inside the client: one subscription on the server, any number of readers here.

The theory. The server sends a thread's events in one order; the feed remembers the place of the last one it took.
Each reader has its own place and a bounded buffer. Two things can set a reader apart from the feed: it was too slow,
its buffer filled up and it stopped taking events (it lags); or it began at an earlier place. Both are mended in the
same way: resume the thread on the server after the reader's place, which makes the server send everything behind that
place again, marked as replayed, then go on live. Readers that are further on drop what is replayed up to their own
place; readers that are not known to be further on lag, and fetch what they miss in their turn. A place behind the
feed's own is never asked for: waiting is enough. A lost connection is resumed at the feed's place.

Events without a cursor have no place: they are passed on as they come and cannot be fetched again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Self
from weakref import WeakSet

from unspool_client.errors import EventsLost
from unspool_client.event import Event, order

BUFFER_EVENTS = 4096
"""How many events wait for a reader before it lags and fetches the rest from the server later."""

RESUMED = "client/resumed"
"""Not on the wire: the notice of readers that asked for it. Replayed events follow it."""

REPLAYED = "thread/replay/completed"
"""The server's notice that the replay which a watcher asked for is over."""

_BROADCASTS = frozenset(
    {
        "thread/started",
        "thread/status/changed",
        "thread/readState/changed",
        "thread/name/updated",
        "thread/closed",
    }
)
"""Events that connections which do not follow the thread are told as well, without a cursor."""

_LAST_EVENTS = frozenset({"thread/closed", "thread/archived", "thread/deleted"})
"""After these the server has ended the subscription."""

_LAST_WATCHED = frozenset({"thread/deleted"})
"""The same for who only watches: the subscription outlives the thread's unloading."""

CatchUp = Callable[["Feed", "EventStream"], Awaitable[None]]
"""Resumes the thread after a lagging reader's place and calls `EventStream.follow` as the answer comes in."""


class EventStream:
    """An async iterator over a thread's events from one place on, in order, without gap or repeat.

    It survives reconnects, and ends when the thread is closed, archived or deleted, on unsubscribing, and when the
    client is closed. It takes events from the moment it is made. It may be dropped at any time; `aclose` ends it early.

    Raises (from iteration):
        ConnectionLost: The connection is lost for good.
        RpcError: The server cannot resume the thread, or does not know the cursor.
        EventsLost: Reading was too slow for a server that gives no cursors.
    """

    def __init__(self, feed: "Feed", place: str | None, *, lagging: bool, limit: int, notices: bool = False) -> None:
        self._feed = feed
        self._notices = notices
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._wake = asyncio.Event()
        self._ended = False
        self._error: Exception | None = None
        self.place = place
        self.lagging = lagging
        feed.streams.add(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            if self.lagging:
                await self._feed.catch_up(self._feed, self)
                continue
            self._wake.clear()
            await self._wake.wait()
        return self._waiting.popleft()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop taking events and forget those that wait."""
        self._waiting.clear()
        self.end()

    def offer(self, event: Event) -> None:
        """Take an event in, unless it was seen or this reader lags. Called by the feed, in the server's order."""
        if self._ended or (self.lagging and (event.cursor is not None or event.method == REPLAYED)):
            return
        if event.cursor is not None and self._has(event.cursor, replayed=event.replayed):
            return
        if len(self._waiting) >= self._limit:
            self._overflow()
            return
        self._waiting.append(event)
        self.place = event.cursor or self.place
        self._wake.set()

    def lag(self) -> None:
        """Stop taking events; the next read fetches what is missing."""
        self.lagging = True
        self._wake.set()

    def notice(self) -> None:
        """Tell a reader that wants to know that the thread was resumed on a new connection."""
        if self._notices and not self._ended:
            self._waiting.append(Event(RESUMED, {}, thread_id=self._feed.thread_id))
            self._wake.set()

    def follow(self) -> None:
        """Go on behind the own place: from here on the feed brings everything that lies there."""
        self.lagging = False

    def end(self, error: Exception | None = None) -> None:
        """No more events come; those that wait are still given out, then the error is raised if there is one."""
        if not self._ended:
            self._ended, self._error = True, error
            self._wake.set()
        self._feed.streams.discard(self)

    def _has(self, cursor: str, *, replayed: bool) -> bool:
        # Live events are new by definition: after a restart of the daemon even where their cursors are smaller.
        found = order(cursor, self.place) if self.place is not None else None
        return found == 0 or (replayed and found == -1)

    def _overflow(self) -> None:
        if self._feed.place is None:
            self.end(EventsLost("events came faster than they were read, and the server has no cursors to replay from"))
        else:
            self.lagging = True


class Feed:
    """One thread's subscription. The client attaches it when the server's answer comes in.

    Attributes:
        place: The last event that came in, live or replayed: the server goes on behind it.
        newest: The newest event that was ever seen.
        method: How the server is asked to send events: `thread/resume`, or `thread/subscribe` to watch only.
        options: Of a replay that is not over yet, beside its place.

    Args:
        backlog: Keep the events from now on, so that readers from the very beginning need no replay. For threads that
            this client started; given up once it holds more than a reader's buffer does.
    """

    def __init__(self, thread_id: str, catch_up: CatchUp, *, backlog: bool = False, limit: int = BUFFER_EVENTS) -> None:
        self.thread_id = thread_id
        self.catch_up = catch_up
        self.lock = asyncio.Lock()
        self.streams: WeakSet[EventStream] = WeakSet()
        self.place: str | None = None
        self.newest: str | None = None
        self.attached = False
        self.open = True
        self.method = "thread/resume"
        self.options: Mapping[str, Any] = {}
        self._limit = limit
        self._backlog: list[Event] | None = [] if backlog else None
        self.from_the_start = backlog

    def stream(self, after: str | None, *, notices: bool = False) -> EventStream:
        """A reader from a place on: `"now"`, a cursor, or None for the thread's beginning.

        Of a thread that was closed or left, "now" is the last place that was seen; reading on opens it again.
        """
        if after == "now":
            return EventStream(self, self.newest, lagging=not self.open, limit=self._limit, notices=notices)
        if after is None and self._backlog is not None:
            stream = EventStream(self, None, lagging=False, limit=self._limit)
            for event in self._backlog:
                stream.offer(event)
            return stream
        lagging = after is None or after != self.place or not self.open
        return EventStream(self, after, lagging=lagging, limit=self._limit)

    def request(self, after: str | None) -> dict[str, Any]:
        """Parameters of the call of `method` that makes the server send everything behind a place."""
        watching = self.method != "thread/resume"
        replay = {"after": after, "mode": "events", **({"speed": "max"} if watching else {}), **self.options}
        return {"threadId": self.thread_id, **({} if watching else {"excludeTurns": True}), "replay": replay}

    def follower(self, place: str | None) -> EventStream:
        """A reader that has everything up to a place; what the server is about to send follows it."""
        return EventStream(self, place, lagging=False, limit=self._limit)

    def attach(self, place: str | None, *, again: bool = False) -> None:
        """The server's answer has come in: from here on its events follow the given place.

        Args:
            again: This is a new connection, whose server may be a new process.
        """
        self.attached = self.open = True
        self.place = place
        self._advance(place)
        for stream in list(self.streams):
            if stream.place != place and not _behind(stream.place, place):
                stream.lag()
            if again:
                stream.notice()

    def detach(self) -> None:
        """The connection is gone, and with it the subscription."""
        self.attached = False

    def covers(self, place: str | None) -> bool:
        """Whether what the server is about to send includes everything behind this place."""
        return self.attached and self.place is not None and (place == self.place or _behind(place, self.place))

    def take(self, event: Event) -> None:
        """Pass an event on to the readers.

        What a new connection is told before the subscription's own answer (broadcasts) is left out where the thread's
        events have places: it comes again behind the answer, in its place.
        """
        if not self.attached and self.place is not None and event.method in _BROADCASTS:
            return
        if event.cursor is not None:
            if not self.attached:
                return
            self.place = event.cursor
            if not event.replayed:
                self.newest = event.cursor
            self._advance(event.cursor)
        if self._backlog is not None:
            self._backlog.append(event)
            if len(self._backlog) >= self._limit:
                self._backlog = None
        for stream in list(self.streams):
            stream.offer(event)
        if event.method == REPLAYED and not any(stream.lagging for stream in self.streams):
            self.options = {}
        last = _LAST_EVENTS if self.method == "thread/resume" else _LAST_WATCHED
        if event.method in last and not event.replayed:
            self.end()

    def _advance(self, place: str | None) -> None:
        """Move the newest place forward, never back: a replay for one reader repeats what others know."""
        if place is not None and (self.newest is None or order(place, self.newest) in (1, None)):
            self.newest = place

    def end(self, error: Exception | None = None) -> None:
        """End the subscription and all readers."""
        self.attached = self.open = False
        self._backlog = None
        for stream in list(self.streams):
            stream.end(error)


def _behind(place: str | None, other: str | None) -> bool:
    """Whether a place is known to lie behind another; None is the beginning."""
    if place is None or other is None:
        return other is None and place is not None
    return order(place, other) == 1
