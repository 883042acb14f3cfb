"""Recorded events from the log, for clients that are further behind than the ring (DESIGN §6).

The events are those that the live thread published, because both come from the same fold over records. Every replay
reads with a view of its own; nothing is kept between replays.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from typing import Any, Protocol

from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode, Record

from unspool_server.events.encoding import Encoder, as_replayed, now_ms, plain
from unspool_server.events.item_kinds import item_kind
from unspool_server.events.stream import invalid_cursor
from unspool_server.events.subscription import LoggedEvent
from unspool_server.events.timeline import Part, Timeline, before_header, closing
from unspool_server.store.contract import LogStore, RolloutInfo

TURN_STARTS = frozenset({"task_started", "turn_started"})
"""Records that open a turn, by both of their names (01 §3)."""

TURN_ENDS = frozenset({"task_complete", "turn_complete", "turn_aborted"})
"""Records that close one."""


class ViewedEvent(Protocol):
    """One event as the client view derives it from a record."""

    @property
    def method(self) -> str:
        """The notification's method."""

    @property
    def params(self) -> WireModel | Mapping[str, Any]:
        """Its parameters."""

    @property
    def cursor(self) -> EventCursor | None:
        """Its place; None for events that are not replayed."""


class View(Protocol):
    """The fold that yields events; `history.client_view.ClientView`, the same as for live events."""

    def apply(self, record: Record) -> Iterable[ViewedEvent]:
        """Take the next record and return its events."""

    def settle(self) -> Iterable[ViewedEvent]:
        """The log was read to its end and no turn of it runs: return the events of a turn that was cut off."""

    def begin_behind(self, header: Record) -> None:
        """Know what a rollout's header says, where reading starts behind it. Tells nothing."""

    def forget_finished(self) -> None:
        """Drop what finished turns hold, as the live thread does at each turn's end."""


ViewFactory = Callable[[str, HistoryMode], View]
"""Makes a fresh view of a thread: `(thread_id, mode)`."""


class LogReplay:
    """Reads events of one store's threads; see `subscription.ReplaySource`.

    Args:
        encoder: Pass the hub's to have one count of encodings.
    """

    def __init__(self, store: LogStore, view_factory: ViewFactory, *, encoder: Encoder | None = None) -> None:
        self._store = store
        self._view_factory = view_factory
        self._encoder = encoder or Encoder()

    async def check_cursor(self, thread_id: str, cursor: EventCursor) -> None:
        """Refuse a cursor that never was a place among the thread's events.

        Valid are records in the history of any rollout of the thread, so also those rolled back since.

        Raises:
            InvalidParams: Another thread's cursor, or one beyond the end (`data.reason` is `cursorInvalid`).
        """
        timeline = await Timeline.load(self._store, thread_id)
        cursor = timeline.copy_of(cursor)
        holder = await timeline.holder(cursor)
        if holder is None:
            raise invalid_cursor("it belongs to another thread")
        tip = timeline.own[holder]
        if cursor.rollout_id == tip.rollout_id and cursor.ordinal >= await timeline.end(tip):
            raise invalid_cursor("it lies in the future")

    async def events_after(
        self,
        thread_id: str,
        after: EventCursor | None,
        *,
        whole_since: str | None = None,
        at_rest: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[LoggedEvent]:
        """Recorded events after a cursor, in order, up to the end of the log; nothing for a thread without a log.

        A cursor in a part that was rolled back continues with the first rollout that replaced it, whose header tells
        of the jump. From the rollout `whole_since` on, such parts are shown as well.

        Args:
            at_rest: Asked at the end of the log; True means that no turn can be running, so that one without an end
                was cut off, which then is the last event.
        """
        timeline = await Timeline.load(self._store, thread_id)
        own = timeline.own
        if not own:
            return
        after = None if after is None else timeline.copy_of(after)
        index = next((i for i, info in enumerate(own) if info.rollout_id == whole_since), len(own) - 1)
        index = max(await _seen_from(timeline, index, after), timeline.oldest_whole)
        chain = await timeline.chain(own[index])
        start = await _start(timeline, chain, after)
        runs = [(own[index], chain, start)]
        runs += [
            (info, [Part(info.rollout_id, 0, None, info.header)], before_header(info)) for info in own[index + 1 :]
        ]
        for number, run in enumerate(runs, 1):
            ends = at_rest if number == len(runs) else _never
            async with aclosing(self._read(*run, ends)) as events:
                async for event in events:
                    yield event

    async def _read(
        self, tip: RolloutInfo, chain: list[Part], after: EventCursor | None, at_rest: Callable[[], bool]
    ) -> AsyncGenerator[LoggedEvent]:
        """Events of one rollout read through its bases, after a cursor on that chain."""
        order = {part.rollout_id: index for index, part in enumerate(chain)}
        view = self._view_factory(tip.thread_id, tip.mode)
        skip = (order[after.rollout_id], *after.key) if after is not None else (-1, 0, 0)
        record: Record | None = None

        def told(events: Iterable[ViewedEvent], record: Record) -> Iterator[LoggedEvent]:
            for event in events:
                cursor = event.cursor
                if cursor is not None and (order.get(cursor.rollout_id, 0), *cursor.key) > skip:
                    yield self._logged(event, cursor, record)

        start = await self._view_start(tip, after)
        header = next((part.header for part in reversed(chain) if part.start < start), None)
        if header is not None:
            view.begin_behind(header)
        async with closing(self._store.read(tip.rollout_id, start=start)) as records:
            async for record in records:
                events = view.apply(record)
                if record.event in TURN_ENDS:
                    view.forget_finished()
                for event in told(events, record):
                    yield event
        if record is not None and at_rest():
            for event in told(view.settle(), record):
                yield event

    async def _view_start(self, tip: RolloutInfo, after: EventCursor | None) -> int:
        """Where the view has to start so that it knows the turn around the cursor.

        Legacy item ids count over the whole thread (05 §1), so there it is the beginning.
        """
        if after is None or tip.mode is HistoryMode.LEGACY:
            return 0
        if after.counter < 0:
            return after.ordinal
        async with closing(self._store.read_backward(tip.rollout_id, end=after.ordinal + 1)) as records:
            async for record in records:
                if record.event in TURN_STARTS:
                    return record.ordinal
        return 0

    def _logged(self, event: ViewedEvent, cursor: EventCursor, record: Record) -> LoggedEvent:
        emitted, params = _recorded_ms(record), plain(event.params)
        body = as_replayed(self._encoder.encode(event.method, params, cursor=cursor, emitted_at_ms=emitted))
        return LoggedEvent(cursor, event.method, body, emitted, item_kind(event.method, params))


async def _seen_from(timeline: Timeline, index: int, after: EventCursor | None) -> int:
    """The rollout from which on everything is shown, no later than `index`.

    A cursor may lie in a part that this rollout left and a later one brought back. Then nothing is a jump for its
    client, so it is told everything from its own branch on, as if it had been live.
    """
    newest = None if after is None else await timeline.holder(after)
    if after is None or newest is None or newest <= index:
        return index
    left = await timeline.holder(after, newest=index)
    return index if left is None else left


async def _start(timeline: Timeline, chain: list[Part], after: EventCursor | None) -> EventCursor | None:
    """Where to start on a chain: at the cursor, or just before the header of what replaced its part."""
    if after is None or any(part.holds(after) for part in chain):
        return after
    holder = await timeline.holder(after)
    if holder is None:
        return None
    on_chain = {part.rollout_id for part in chain}
    successors = (info for info in timeline.own[holder + 1 :] if info.rollout_id in on_chain)
    return next((before_header(info) for info in successors), None)


def _never() -> bool:
    return False


def _recorded_ms(record: Record) -> int:
    """When the event was emitted first, as far as its record tells; now, where it does not."""
    try:
        return int(datetime.fromisoformat(record.timestamp).timestamp() * 1000)
    except ValueError:
        return now_ms()
