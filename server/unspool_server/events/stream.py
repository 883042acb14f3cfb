"""The ordered event list of one live thread: a bounded ring of encoded messages over the log (DESIGN §6).

Every event has a sequence number within the process, which makes a caught-up reader cheap, and a cursor, which survives
it. Events that left the ring are read from the log again (`replay`); this module reads nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor

from unspool_server.errors import InvalidParams, LocalProtocolError
from unspool_server.events.encoding import Encoder, plain
from unspool_server.events.item_kinds import DeltaKey, delta_key, item_kind

RING_EVENTS = 8192
"""Events kept for one thread."""

RING_BYTES = 4 * 1024 * 1024
"""Bytes of encoded events kept for one thread."""

UNRECORDED_FACTOR = 8
"""Events behind the newest recorded one (deltas of the running item) can be read nowhere else, so they are kept beyond
the limits, up to this many times of them."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event as every subscriber gets it: `body` is the complete message without a `jsonrpc` member.

    A thread's new status at the end of a turn is the one fact that clients may ask to be told at another place, after
    `turn/completed` instead of before it. The order of the stream is the same for all nevertheless: who asked for the
    other place is not shown the status at its own (`turn_first` is False), but behind `turn/completed`, as a message
    without a cursor that rides on that event (`follower`). So nobody's cursor ever goes back, recorded events are the
    same for everybody, and a replay from the log, which knows no status, shows neither.

    Attributes:
        at_ms: When it was published.
        kind: The type of the item that it tells of.
        delta: Which text it continues, for deltas.
        offset: Bytes that the stream had published before it.
        turn_first: False: not for clients that want `turn/completed` first.
        follower: What those clients get right behind it.
    """

    seq: int
    cursor: EventCursor
    method: str
    body: bytes
    everyone: bool
    at_ms: int
    kind: str | None
    delta: DeltaKey | None
    offset: int
    turn_first: bool = True
    follower: bytes | None = None


class ThreadStream:
    """The newest events of a thread.

    Attributes:
        floor: Everything after it is in the ring. None until the log's end is known (`reset`).
        end: The cursor of the newest event, or where the log ended when the thread was loaded.
    """

    def __init__(
        self,
        thread_id: str,
        encoder: Encoder,
        *,
        max_events: int = RING_EVENTS,
        max_bytes: int = RING_BYTES,
    ) -> None:
        self.thread_id = thread_id
        self.floor: EventCursor | None = None
        self.end: EventCursor | None = None
        self._encoder = encoder
        self._max_events, self._max_bytes = max_events, max_bytes
        self._ring: list[Event] = []
        self._head = 0
        self._next_seq = 0
        self._recorded_seq = -1
        self._loaded_ms = 0
        self._bytes = self._published_bytes = 0
        self._ranks: dict[str, int] = {}

    @property
    def first_seq(self) -> int:
        """Sequence number of the oldest event in the ring (of the next one when it is empty)."""
        return self._next_seq - (len(self._ring) - self._head)

    @property
    def next_seq(self) -> int:
        """Sequence number that the next event will get."""
        return self._next_seq

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the events in the ring."""
        return self._bytes

    def reset(self, position: EventCursor, emitted_at_ms: int) -> None:
        """Tell where the log ends as the thread is loaded; everything published from now on comes after it.

        The counter is raised to the present time: a client may hold cursors of unrecorded events that an earlier
        process put behind the same record, and those have to be older than ours. What the stream held is dropped.
        """
        counter = max(position.counter, emitted_at_ms)
        if self.end is not None and (self.end.rollout_id, self.end.ordinal) == (position.rollout_id, position.ordinal):
            counter = max(counter, self.end.counter)  # clients that stayed know cursors up to here
        self._ranks.clear()
        self._ring.clear()
        self._head = self._bytes = 0
        self._loaded_ms = emitted_at_ms
        self.end = self.floor = EventCursor(position.rollout_id, max(position.ordinal, 0), counter)
        self._rank(position.rollout_id)

    def publish(
        self,
        method: str,
        params: WireModel | Mapping[str, Any],
        *,
        cursor: EventCursor | None,
        everyone: bool,
        emitted_at_ms: int,
        turn_first: bool = True,
    ) -> Event:
        """Encode one event and put it at the end.

        Raises:
            LocalProtocolError: A recorded event that does not come after all events before it.
        """
        if self.end is None and cursor is None:
            self.reset(EventCursor(self.thread_id, 0, 0), emitted_at_ms)
        place = self._place(cursor)
        told = plain(params)
        body = self._encoder.encode(method, told, cursor=place, emitted_at_ms=emitted_at_ms)
        kind, delta, offset = item_kind(method, told), delta_key(method, told), self._published_bytes
        event = Event(self._next_seq, place, method, body, everyone, emitted_at_ms, kind, delta, offset, turn_first)
        if self.floor is None:
            self.floor = EventCursor(place.rollout_id, place.ordinal, place.counter - 1)
        if cursor is not None:
            self._recorded_seq = event.seq
        self._ring.append(event)
        self._next_seq += 1
        self._bytes += len(body)
        self._published_bytes += len(body)
        self.end = place
        self._evict()
        return event

    def follow(self, body: bytes) -> None:
        """Let a message ride on the newest event; see `Event`."""
        if len(self._ring) > self._head:
            self._ring[-1] = replace(self._ring[-1], follower=body)

    def seq_after(self, cursor: EventCursor | None) -> int | None:
        """The sequence number of the first event after a cursor; None when the log has to be asked."""
        if cursor is None or self.before_ring(cursor):
            return None
        index = bisect_right(self._ring, self._key(cursor), lo=self._head, key=lambda event: self._key(event.cursor))
        return self.first_seq + index - self._head

    def before_ring(self, cursor: EventCursor) -> bool:
        """Whether events may exist between the cursor and the ring's floor."""
        return cursor.rollout_id not in self._ranks or self.floor is None or self._key(cursor) < self._key(self.floor)

    def past_floor(self, cursor: EventCursor) -> bool:
        """Whether an event with this cursor would be in the ring."""
        return not self.before_ring(cursor) and cursor != self.floor

    def reached(self, cursor: EventCursor) -> bool:
        """Whether a cursor of a rollout of this stream is no later than its newest record, as far as that tells.

        Counters behind the newest record do not count: an earlier process may have put more events there.
        """
        return self.end is not None and self._key(cursor)[:2] <= self._key(self.end)[:2]

    def later(self, one: EventCursor | None, other: EventCursor | None) -> EventCursor | None:
        """The later of two places; rollouts that the stream has not seen are older than all of it."""
        if one is None or other is None:
            return one or other
        return other if self._key(one) < self._key(other) else one

    def bytes_since(self, seq: int | None) -> int:
        """How much was published from a sequence number on, as far as the ring tells; None: all that it holds."""
        first = self.first_seq if seq is None else max(seq, self.first_seq)
        if first >= self._next_seq:
            return 0
        return self._published_bytes - self._ring[self._head + first - self.first_seq].offset

    def at(self, seq: int) -> Event:
        """The event with a sequence number; it has to be in the ring."""
        return self._ring[self._head + seq - self.first_seq]

    def events(self, seq: int) -> Iterator[Event]:
        """Events from a sequence number on, oldest first; it has to be in the ring."""
        for index in range(self._head + seq - self.first_seq, len(self._ring)):
            yield self._ring[index]

    def _place(self, cursor: EventCursor | None) -> EventCursor:
        """The cursor of the next event: its own, or the next counter behind the newest event (`cursors`)."""
        if cursor is None:
            if self.end is None:
                raise LocalProtocolError(f"thread {self.thread_id} has no position yet")
            # The end of a cut-off turn is told anew, with the same cursor, by every process that loads the thread; what
            # earlier ones told behind it has to be older.
            told_anew = self._recorded_seq == self._next_seq - 1 and self.end.counter > self._loaded_ms > 0
            step = self._loaded_ms if told_anew else 1
            return EventCursor(self.end.rollout_id, self.end.ordinal, self.end.counter + step)
        self._rank(cursor.rollout_id)
        if self.end is not None and self._key(cursor) <= self._key(self.end):
            raise LocalProtocolError(f"event {cursor} of thread {self.thread_id} is not after {self.end}")
        return cursor

    def _rank(self, rollout_id: str) -> int:
        """Rollouts of a thread are ordered by their first appearance; a rolled-back part stays before its successor."""
        return self._ranks.setdefault(rollout_id, len(self._ranks))

    def _key(self, cursor: EventCursor) -> tuple[int, int, int]:
        return (self._ranks.get(cursor.rollout_id, -1), cursor.ordinal, cursor.counter)

    def _evict(self) -> None:
        """Drop the oldest events over the limits, and the list's dead part when it is as large as the rest."""
        while self._over(1) and (self._ring[self._head].seq < self._recorded_seq or self._over(UNRECORDED_FACTOR)):
            oldest = self._ring[self._head]
            self.floor = oldest.cursor
            self._bytes -= len(oldest.body)
            self._head += 1
        if self._head > 64 and self._head * 2 > len(self._ring):
            del self._ring[: self._head]
            self._head = 0

    def _over(self, factor: int) -> bool:
        count = len(self._ring) - self._head
        return count > 1 and (count > self._max_events * factor or self._bytes > self._max_bytes * factor)


def invalid_cursor(why: str) -> InvalidParams:
    """The refusal of a cursor (05 §8)."""
    return InvalidParams(f"invalid cursor: {why}", data={"reason": "cursorInvalid"})
