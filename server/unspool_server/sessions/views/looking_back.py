"""What the model would see at a point of a thread's past, and what differs between two points (DESIGN §4).

Reads logs and asks `history/`; which thread and which point are meant was found before (`positions.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic.alias_generators import to_camel
from unspool_protocol.log import HistoryMode, Position, Record
from unspool_protocol.time_travel import (
    ContextBaseline,
    ContextItem,
    ContextWindow,
    DiffItem,
    ItemsDiff,
    ReplacedItems,
    SettingChange,
    ThreadContextResult,
    ThreadDiffResult,
    ThreadPosition,
    TurnsDiff,
)

from unspool_server.errors import InvalidParams, LogMissing
from unspool_server.history.diff import DiffSide, PlacedItem, copied_places, difference
from unspool_server.history.prompt import base_item, prompt_items
from unspool_server.history.reconstruct import explained
from unspool_server.history.state import Item
from unspool_server.history.tokens import estimate_tokens
from unspool_server.history.turn_pages import turn_slices
from unspool_server.sessions.environment import BASE_INSTRUCTIONS, Environment
from unspool_server.sessions.session import Session
from unspool_server.sessions.settings import recorded
from unspool_server.sessions.views.positions import Point, bases_of
from unspool_server.sessions.views.summaries import settings_told
from unspool_server.store.contract import LogStore, RolloutInfo

_SOURCE = "unspool.source"
"""Carried through `prompt_items` on each item, to know afterwards which record it came from; no item has it."""


# -- context -----------------------------------------------------------------------------------------------------------


async def context_at(
    env: Environment, store: LogStore, point: Point, session: Session | None = None
) -> ThreadContextResult:
    """The exact model-visible items at a point.

    Args:
        session: The live thread when its present is meant; what is only asked for, not recorded, comes from it.
    """
    history = await point.history(store)
    records = history.records
    state, origins = explained(records, point.info.mode)
    owners = await _owners(store, point)
    settings = session.settings if session is not None else recorded(env.config, history.settings, env.cwd)
    base = session.facts.base_instructions if session is not None else history.settings.base_instructions
    lead = base_item(base or BASE_INSTRUCTIONS)
    tagged = [{**item, _SOURCE: source} for item, source in zip(state.history, origins.history, strict=True)]
    items = tuple(_context_item(item, records, owners) for item in prompt_items(tagged))
    leading = ContextItem(item=lead, tokens=estimate_tokens(lead))
    previous, window = state.previous_settings, state.window
    return ThreadContextResult(
        thread_id=point.info.thread_id,
        at=_told(point.position, owners),
        base_instructions=leading,
        items=items,
        total_tokens=leading.tokens + sum(one.tokens for one in items),
        settings=settings_told(settings),
        previous_turn_settings=None
        if previous is None
        else {
            "model": previous.model,
            "compHash": previous.comp_hash,
            "realtimeActive": previous.realtime_active,
        },
        window=ContextWindow(
            number=window.number, first_id=window.first_id, previous_id=window.previous_id, id=window.id
        ),
        baseline=ContextBaseline(turn_context=state.reference_context, world_state=state.world_state),
        open_turn_id=state.open_turn_id,
    )


def _context_item(item: Item, records: Sequence[Record], owners: Mapping[str, str]) -> ContextItem:
    shown = dict(item)
    source = shown.pop(_SOURCE, None)
    place = _told(records[source].position, owners) if source is not None else None
    return ContextItem(item=shown, tokens=estimate_tokens(shown), position=place)


async def _owners(store: LogStore, point: Point) -> dict[str, str]:
    """Rollout id -> thread id, for every rollout that a point's past lies in."""
    owners = {info.rollout_id: info.thread_id for info in await bases_of(store, point.holder)}
    return {**owners, point.info.rollout_id: point.info.thread_id}


def _told(position: Position, owners: Mapping[str, str]) -> ThreadPosition:
    owner = owners.get(position.rollout_id, position.rollout_id)
    return ThreadPosition(thread_id=owner, rollout_id=position.rollout_id, ordinal=position.ordinal)


# -- difference --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Past:
    """Everything before a point, as a comparison needs it; `line`: the thread and those it descends from."""

    point: Point
    side: DiffSide
    owners: Mapping[str, str]
    line: Sequence[str]


async def diff_between(store: LogStore, old: Point, new: Point) -> ThreadDiffResult:
    """Compare two points; both pasts are read as a whole.

    Raises:
        InvalidParams: Reason `notRelated`: two threads without a common past.
    """
    before, after = await _past(store, old), await _past(store, new)
    owners = {**before.owners, **after.owners}
    shared = _common_ancestor(before.side, after.side)
    if shared is None and not set(before.line) & set(after.line):
        raise InvalidParams(
            f"threads {old.info.thread_id} and {new.info.thread_id} share no past",
            data={"reason": "notRelated", "field": "otherThreadId"},
        )
    found = difference(before.side, after.side)
    windows = [window.number for window in found.windows]
    return ThreadDiffResult(
        from_=_told(old.position, owners),
        to=_told(new.position, owners),
        common_ancestor=None if shared is None else _told(shared, owners),
        items=ItemsDiff(
            added=_items(found.added, owners),
            removed=_items(found.removed, owners),
            replaced=tuple(
                ReplacedItems(
                    by=_told(one.by, owners), removed=_items(one.removed, owners), added=_items(one.added, owners)
                )
                for one in found.replaced
            ),
            kept=found.kept,
        ),
        settings=tuple(
            SettingChange(name=to_camel(name), old=pair[0], new=pair[1])
            for name, pair in (found.settings or {}).items()
        ),
        turns=TurnsDiff(added=found.turns_added, removed=found.turns_removed, changed=found.turns_changed),
        window=None if windows[0] == windows[1] else SettingChange(name="number", old=windows[0], new=windows[1]),
    )


def _items(found: Sequence[PlacedItem], owners: Mapping[str, str]) -> tuple[DiffItem, ...]:
    return tuple(DiffItem(item=one.item, position=_told(one.place, owners)) for one in found)


def _common_ancestor(one: DiffSide, other: DiffSide) -> Position | None:
    """Behind the newest record that both pasts hold."""
    theirs = frozenset(other.places)
    for place in reversed(one.places):
        if place in theirs:
            return Position(place.rollout_id, place.ordinal + 1)
    return None


async def _past(store: LogStore, point: Point) -> _Past:
    whole = [record async for record in point.records(store)]
    turns = [one.turn for one in turn_slices(whole, point.info.thread_id, point.info.mode)]
    header = point.info.header
    records = whole
    if header is not None:
        records = [header, *(record for record in whole if record.position != header.position)]
    places: list[Position] = [record.position for record in records]
    owners = await _owners(store, point)
    line = list(dict.fromkeys([point.info.thread_id, *owners.values()]))
    if point.info.mode == HistoryMode.LEGACY:
        places = await _legacy_places(store, point.info, records, owners, line)
    elif (source := _source_of(point.info)) is not None:
        line.append(source)
    return _Past(point, DiffSide(records, point.info.mode, places, turns), owners, line)


async def _legacy_places(
    store: LogStore, info: RolloutInfo, records: Sequence[Record], owners: dict[str, str], line: list[str]
) -> list[Position]:
    """Where each line was first written: copies of forks stand for their source's lines, generation by generation."""
    source_id = _source_of(info)
    if source_id is None or source_id in line:
        return [record.position for record in records]
    line.append(source_id)
    try:
        source = await store.find(source_id)
    except LogMissing:
        return [record.position for record in records]
    theirs: list[Record] = [record async for record in store.read(source.rollout_id)]
    owners[source.rollout_id] = source.thread_id
    return copied_places(records, theirs, await _legacy_places(store, source, theirs, owners, line))


def _source_of(info: RolloutInfo) -> str | None:
    found: Any = info.header.payload.get("forked_from_id") if info.header is not None else None
    return found if isinstance(found, str) else None
