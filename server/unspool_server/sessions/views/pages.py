"""Pages of turns and items, read from the log so that a page costs what it shows (05 §8, DESIGN §1.4).

A cursor is a position in the log. The running turn is laid over what the log says, since only live memory knows it.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from unspool_protocol.log import HistoryMode, Position, Record
from unspool_protocol.threads import ThreadItemEntry, TurnsPage
from unspool_protocol.turns import ItemsView, Turn, TurnStatus

from unspool_server.errors import InvalidParams
from unspool_server.history.event_shapes import TURN_STARTS
from unspool_server.history.partial_items import is_partial
from unspool_server.history.state import Span
from unspool_server.history.turn_pages import (
    PageCursor,
    PageScope,
    TurnSlice,
    summary_view,
    turn_slices,
    without_items,
)
from unspool_server.sessions.loading import find_turn, load, may_hold_markers, turns_back
from unspool_server.sessions.notes import Note, counted, damage_notes, degradation_notes, header_note
from unspool_server.sessions.session import Session
from unspool_server.store.contract import LogStore, ReadReport, RolloutInfo

DEFAULT_LIMIT = 25
"""Turns of a page where the caller does not say."""

MAX_LIMIT = 1000
"""Turns or items of a page at most; a larger limit is taken as this."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """A thread's log as pages read it.

    Attributes:
        session: Given when the thread is loaded and its present is meant.
        report: Collects damage.
        end: Records from this ordinal on do not count; None for the present.
    """

    store: LogStore
    info: RolloutInfo
    session: Session | None = None
    report: ReadReport = field(default_factory=ReadReport)
    end: int | None = None


def decode_cursor(text: str, thread_id: str, scope: PageScope) -> PageCursor:
    """Read a client's page cursor.

    Raises:
        InvalidParams: `invalid cursor: …`.
    """
    try:
        return PageCursor.decode(text, thread_id, scope)
    except ValueError:
        raise InvalidParams(f"invalid cursor: {text}", data={"reason": "cursorInvalid", "field": "cursor"}) from None


async def all_turns(shelf: Shelf, *, partial: bool = False) -> list[Turn]:
    """Every turn, oldest first, with all items. `partial` adds items of the running turn that are not finished."""
    read = shelf.store.read(shelf.info.rollout_id, end=shelf.end, report=shelf.report)
    whole = [record async for record in read]
    turns = [one.turn for one in turn_slices(whole, shelf.info.thread_id, shelf.info.mode)]
    return [with_running(turn, shelf.session, partial=partial) for turn in turns]


async def log_end(store: LogStore, info: RolloutInfo) -> int:
    """The ordinal behind a rollout's newest record."""
    async with aclosing(store.read_backward(info.rollout_id)) as records:
        async for record in records:
            return record.ordinal + 1
    return 0


async def read_notes(shelf: Shelf) -> list[Note]:
    """What the reader of a whole thread must be told of its log, after `all_turns` (DESIGN §4)."""
    live = shelf.session.history if shelf.session is not None else None
    end = None if shelf.end is None else Position(shelf.info.rollout_id, shelf.end)
    history = live or await load(shelf.store, shelf.info, end=end)
    notes = header_note(shelf.info.header, shelf.info.thread_id) + degradation_notes(history.state.degradations)
    return counted(notes + damage_notes(shelf.report.faults, partly=False), "read", shelf.info.thread_id)


def with_running(turn: Turn, session: Session | None, *, partial: bool = False) -> Turn:
    """The running turn as it really is; others unchanged."""
    running = session.turn if session is not None else None
    if running is None or running.id != turn.id:
        return turn
    items = tuple(item for item in turn.items if not is_partial(item))
    if partial:
        items = (*items, *running.live_items())
    return turn.model_copy(
        update={"status": TurnStatus.IN_PROGRESS, "items": items, "completed_at": None, "duration_ms": None}
    )


async def turns_page(
    shelf: Shelf, *, cursor: str | None, limit: int | None, descending: bool, view: ItemsView
) -> TurnsPage:
    """One page of turns.

    Raises:
        InvalidParams: A cursor that is none of ours or of another thread.
    """
    anchor = decode_cursor(cursor, shelf.info.thread_id, PageScope.TURNS) if cursor is not None else None
    size = page_size(limit, DEFAULT_LIMIT)
    found = await _turns_from(shelf, anchor, size + 1, descending)
    page = found[:size]
    shown = tuple(_viewed(with_running(one.turn, shelf.session), view) for one in page)
    more = len(found) > size and page
    return TurnsPage(
        data=shown,
        next_cursor=_cursor(shelf, page[-1], include=False) if more else None,
        backwards_cursor=_cursor(shelf, page[0], include=True) if page else None,
    )


def page_size(limit: int | None, default: int) -> int:
    """How many entries a page holds; zero counts as one, so that paging goes on."""
    return max(1, min(default if limit is None else limit, MAX_LIMIT))


def _viewed(turn: Turn, view: ItemsView) -> Turn:
    match view:
        case ItemsView.NOT_LOADED:
            return without_items(turn)
        case ItemsView.SUMMARY:
            return summary_view(turn)
        case _:
            return turn


def _cursor(shelf: Shelf, one: TurnSlice, *, include: bool) -> str:
    return PageCursor(shelf.info.thread_id, one.start, include).encode()


async def newest_cursor(shelf: Shelf, scope: PageScope) -> str | None:
    """An anchor for paging backwards from the newest turn (or its last item); None for a thread without turns."""
    async with aclosing(turns_back(shelf.store, shelf.info, end_ordinal=shelf.end)) as turns:
        async for one in turns:
            item = max(len(one.turn.items) - 1, 0) if scope is PageScope.ITEMS else 0
            return PageCursor(shelf.info.thread_id, one.start, True, scope, item).encode()
    return None


async def _turns_from(shelf: Shelf, anchor: PageCursor | None, count: int, descending: bool) -> list[TurnSlice]:
    if shelf.info.mode == HistoryMode.LEGACY:
        return await _legacy_turns(shelf, anchor, descending)
    if not descending and await may_hold_markers(shelf.store, shelf.info):
        return (await _legacy_turns(shelf, anchor, descending))[:count]
    if not descending:
        start = anchor.position.ordinal if anchor is not None else 0
        found = await _forward(shelf, start, count + 1)
        if anchor is not None and not anchor.include_anchor:
            found = [one for one in found if one.start != anchor.position]
        return found[:count]
    end = shelf.end if anchor is None else await _end_ordinal(shelf, anchor)
    found = []
    async with aclosing(turns_back(shelf.store, shelf.info, end_ordinal=end)) as turns:
        async for one in turns:
            found.append(one)
            if len(found) >= count:
                break
    return found


async def _end_ordinal(shelf: Shelf, anchor: PageCursor) -> int:
    """Where a descending page begins to read: before the anchor, or behind it when it is part of the page."""
    if not anchor.include_anchor:
        return anchor.position.ordinal if shelf.end is None else min(anchor.position.ordinal, shelf.end)
    start = anchor.position.ordinal + 1
    async with aclosing(shelf.store.read(shelf.info.rollout_id, start=start, end=shelf.end)) as records:
        last = anchor.position.ordinal
        async for record in records:
            if record.event in TURN_STARTS:
                return int(record.ordinal)
            last = record.ordinal
    return last + 1


async def _forward(shelf: Shelf, start: int, count: int) -> list[TurnSlice]:
    """At least `count` turns from an ordinal on, if there are as many; the turn behind them is read for strays."""
    records: list[Record] = []
    starts = 0
    async with aclosing(shelf.store.read(shelf.info.rollout_id, start=start, end=shelf.end)) as stream:
        async for record in stream:
            starts += record.event in TURN_STARTS
            if starts > count:
                break
            records.append(record)
    whole = [Span(0, len(records))]
    return turn_slices(records, shelf.info.thread_id, shelf.info.mode, whole)


async def _legacy_turns(shelf: Shelf, anchor: PageCursor | None, descending: bool) -> list[TurnSlice]:
    whole = [record async for record in shelf.store.read(shelf.info.rollout_id, end=shelf.end)]
    slices = turn_slices(whole, shelf.info.thread_id, shelf.info.mode)
    if anchor is not None:
        place = anchor.position.ordinal
        slices = [
            one
            for one in slices
            if (anchor.include_anchor and one.start.ordinal == place)
            or (one.start.ordinal < place if descending else one.start.ordinal > place)
        ]
    return slices[::-1] if descending else slices


# -- items -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ItemsPage:
    """A page of items with its cursors."""

    data: tuple[ThreadItemEntry, ...]
    next_cursor: str | None
    backwards_cursor: str | None


async def items_page(
    shelf: Shelf, *, turn_id: str | None, cursor: str | None, limit: int | None, descending: bool
) -> ItemsPage:
    """One page of items, of the whole thread or of one turn; an unknown turn has none (`wire` §6).

    Raises:
        InvalidParams: A cursor that is none of ours or of another thread.
    """
    anchor = decode_cursor(cursor, shelf.info.thread_id, PageScope.ITEMS) if cursor is not None else None
    size = page_size(limit, DEFAULT_LIMIT)
    found: list[tuple[TurnSlice, int, Any]] = []
    for one in await _turns_with_items(shelf, turn_id, anchor, size + 1, descending):
        items = list(enumerate(one.turn.items))
        for number, item in reversed(items) if descending else items:
            if anchor is None or _is_beyond(anchor, one, number, descending):
                found.append((one, number, item))
    page = found[:size]
    return ItemsPage(
        tuple(_entry(one, item) for one, _, item in page),
        _item_cursor(shelf, *page[-1][:2], include=False) if len(found) > size and page else None,
        _item_cursor(shelf, *page[0][:2], include=True) if page else None,
    )


def _is_beyond(anchor: PageCursor, one: TurnSlice, number: int, descending: bool) -> bool:
    here, there = (one.start.ordinal, number), (anchor.position.ordinal, anchor.item)
    if here == there:
        return anchor.include_anchor
    return here < there if descending else here > there


def _item_cursor(shelf: Shelf, one: TurnSlice, number: int, *, include: bool) -> str:
    return PageCursor(shelf.info.thread_id, one.start, include, PageScope.ITEMS, number).encode()


def _entry(one: TurnSlice, item: Any) -> ThreadItemEntry:
    return ThreadItemEntry(
        turn_id=one.turn.id, item=item, started_at_ms=item.started_at_ms, completed_at_ms=item.completed_at_ms
    )


async def _turns_with_items(
    shelf: Shelf, turn_id: str | None, anchor: PageCursor | None, wanted: int, descending: bool
) -> Sequence[TurnSlice]:
    """Turns from the anchor on until they hold enough items."""
    if turn_id is not None:
        found = await find_turn(shelf.store, shelf.info, turn_id)
        return [] if found is None else [found]
    place = None if anchor is None else PageCursor(anchor.thread_id, anchor.position, True)
    turns: list[TurnSlice] = []
    count = wanted
    while True:
        turns = await _turns_from(shelf, place, count, descending)
        total = sum(len(one.turn.items) for one in turns)
        spare = len(turns[0].turn.items) if turns else 0
        if total - spare >= wanted or len(turns) < count:
            return turns
        count *= 2
