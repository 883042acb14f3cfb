"""All views of a thread held against each other, its log read once for all of them (DESIGN §9.1)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from unspool_protocol.log import Record
from unspool_protocol.turns import ItemsView, Turn
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.settings import EffectiveSettings, effective_settings
from unspool_server.history.state import Reconstruction
from unspool_server.history.turn_pages import TurnSlice, turn_slices
from unspool_server.sessions.loading import load
from unspool_server.sessions.session import Session
from unspool_server.sessions.views.pages import Shelf, turns_page
from unspool_server.store.contract import LogStore, RolloutInfo

from tests.state.agreement import our_texts, whole_log, without_spans
from tests.state.inprocess import House, user_texts
from tests.state.life_model import LifeThread, LifeTurn, Text

Told = tuple[str, tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a log says: its records, and what the whole of them amounts to."""

    info: RolloutInfo
    records: Sequence[Record]
    state: Reconstruction
    settings: EffectiveSettings
    slices: tuple[TurnSlice, ...]

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns that clients see."""
        return tuple(one.turn for one in self.slices)

    @property
    def end(self) -> int:
        """The ordinal behind the newest record."""
        return self.records[-1].ordinal + 1

    @property
    def told(self) -> tuple[Told, ...]:
        """The turns as the model of a life tells of them."""
        return tuple(told_of(turn.model_dump(by_alias=True, mode="json")) for turn in self.turns)

    def adopted(self) -> tuple[LifeTurn, ...]:
        """The turns taken over into the model of a life as they are."""
        return tuple(
            LifeTurn(id_, tuple(map(Text, texts)), status, bounded=one.has_boundary)
            for (id_, texts, status), one in zip(self.told, self.slices, strict=True)
        )


def told_of(turn: dict[str, Any]) -> Told:
    """A turn on the wire as the model of a life tells of it."""
    return turn["id"], tuple(user_texts(turn)), turn["status"]


def read_as(info: RolloutInfo, records: Sequence[Record]) -> Seen:
    """What these records say by whole replay."""
    slices = tuple(turn_slices(records, info.thread_id, info.mode))
    return Seen(info, records, without_spans(reconstruct(records, info.mode)), effective_settings(records), slices)


async def place_of(house: House, thread: LifeThread) -> tuple[LogStore, RolloutInfo, Session | None] | None:
    """Where a thread's log is; None where nothing was written yet."""
    session = house.services.sessions.get(thread.id)
    if session is not None:
        return None if session.log.deferred else (session.store, session.log.info, session)
    return (house.store, await house.store.find(thread.id), None) if thread.written else None


async def see(house: House, thread: LifeThread) -> Seen | None:
    """Hold whole replay, bounded reading, live memory, client turns and the plain model against each other."""
    place = await place_of(house, thread)
    if place is None:
        assert not thread.present.turns
        return None
    store, info, session = place
    seen = read_as(info, await whole_log(store, info))
    bounded = await load(store, info)
    assert without_spans(bounded.state) == seen.state, "bounded reading differs from whole replay"
    assert bounded.settings == seen.settings, "settings by bounded reading differ from whole replay"
    if session is not None:
        assert session.turn is None
        assert without_spans(session.history.state) == seen.state, "live memory differs from whole replay"
        assert session.history.settings == seen.settings, "live settings differ from whole replay"
    assert await paged(Shelf(store, info, session)) == seen.turns, "pages from the end differ from whole replay"
    assert_as_modelled(thread, seen)
    return seen


async def paged(shelf: Shelf, size: int = 7) -> tuple[Turn, ...]:
    """All turns, in pages from the end, oldest first."""
    found: list[Turn] = []
    cursor = None
    while True:
        page = await turns_page(shelf, cursor=cursor, limit=size, descending=True, view=ItemsView.FULL)
        found += page.data
        cursor = page.next_cursor
        if cursor is None:
            return tuple(found[::-1])


def assert_as_modelled(thread: LifeThread, seen: Seen) -> None:
    """Visible turns and the model's texts are what the plain rules say."""
    turns = tuple(turn.told for turn in thread.present.turns)
    assert seen.told == turns, f"client turns {seen.told} are not those of the plain model, {turns}"
    if not thread.present.opaque:
        texts = our_texts(seen.state.history), thread.present.texts()
        assert texts[0] == texts[1], f"the model's texts {texts[0]} are not those of the plain model, {texts[1]}"
