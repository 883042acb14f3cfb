"""The invariant of DESIGN §9.1 on a running daemon: memory, log, bounded reading and what clients see agree."""

import re
from dataclasses import replace

from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.settings import effective_settings
from unspool_server.history.state import Item, Reconstruction
from unspool_server.sessions.loading import load
from unspool_server.sessions.views.pages import Shelf, all_turns
from unspool_server.store.contract import LogStore, RolloutInfo

from tests.state.inprocess import Client, House, Message, user_texts
from tests.state.turn_model import ModelThread, ModelTurn

OURS = re.compile(r"t\d+|injected \d+")
"""Texts that tests send, so that they are told from what the daemon adds."""


async def whole_log(store: LogStore, info: RolloutInfo) -> list[Record]:
    """A rollout's whole history read forward, its own header in front as reconstruction wants it."""
    assert info.header is not None
    records = [record async for record in store.read(info.rollout_id)]
    return [info.header, *(record for record in records if record.position != info.header.position)]


def without_spans(state: Reconstruction) -> Reconstruction:
    """The outcome without the account of which record lives, which depends on how much was read."""
    return replace(state, spans=())


async def assert_log_tells(store: LogStore, info: RolloutInfo) -> Reconstruction:
    """Reading the whole log forward and reading back from its end reconstruct the same; returns it."""
    whole = await whole_log(store, info)
    expected = without_spans(reconstruct(whole, info.mode))
    bounded = await load(store, info)
    assert without_spans(bounded.state) == expected
    assert bounded.settings == effective_settings(whole)
    return expected


async def assert_memory_is_the_log(house: House, thread_id: str) -> None:
    """A loaded thread's memory is what a restart would make of its log."""
    session = house.session(thread_id)
    if session.log.deferred:
        return
    expected = await assert_log_tells(session.store, session.log.info)
    assert without_spans(session.history.state) == expected
    assert session.history.settings == (await load(session.store, session.log.info)).settings


def our_texts(history: tuple[Item, ...]) -> list[str]:
    """The texts of the test in a model history, oldest first."""
    found = []
    for item in history:
        content = item.get("content")
        for part in content if isinstance(content, list) else ():
            if item.get("role") in ("user", "developer") and OURS.fullmatch(str(part.get("text"))):
                found.append(str(part["text"]))
    return found


async def visible_turns(house: House, client: Client, thread: ModelThread) -> list[Message]:
    """A thread's turns, read as whole and in pages from the end; both must be the same."""
    if thread.ephemeral:
        session = house.session(thread.id)
        turns = [] if session.log.deferred else await all_turns(Shelf(session.store, session.log.info, session))
        return [turn.model_dump(by_alias=True, mode="json") for turn in turns]
    read: Message = await client.call("thread/read", threadId=thread.id, includeTurns=True)
    turns_read: list[Message] = read["thread"]["turns"]
    paged: list[Message] = []
    cursor = None
    while True:
        page = await client.call(
            "thread/turns/list", threadId=thread.id, cursor=cursor, limit=2, itemsView="full", sortDirection="desc"
        )
        paged += page["data"]
        cursor = page["nextCursor"]
        if cursor is None:
            break
    assert paged[::-1] == turns_read
    return turns_read


def as_model(turn: Message) -> ModelTurn:
    """A turn on the wire as the model tells of it."""
    return ModelTurn(turn["id"], tuple(user_texts(turn)), turn["status"])


async def assert_as_modelled(house: House, client: Client, thread: ModelThread) -> None:
    """Visible turns and the model's input are what the plain rules say."""
    seen = tuple(as_model(turn) for turn in await visible_turns(house, client, thread))
    assert seen == tuple(replace(turn, injected=()) for turn in thread.turns)
    session = house.services.sessions.get(thread.id)
    if session is not None:
        assert session.turn is None
        await assert_memory_is_the_log(house, thread.id)
        history = session.history.state.history
    elif thread.written:
        info = await house.store.find(thread.id)
        history = (await assert_log_tells(house.store, info)).history
    else:
        return
    if not thread.compacted:
        assert our_texts(history) == list(thread.said())
    if thread.mode == HistoryMode.PAGINATED:
        assert set(our_texts(history)) <= set(thread.said())
