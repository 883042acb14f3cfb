"""Clients that read too slowly: each policy, and what stays in memory for them (DESIGN §6)."""

from typing import Any

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import ReplayOptions
from unspool_server.events.replay import LogReplay

from tests.events.conftest import THREAD, Client, ListedStore, Thread, connect


def slow(hub: Hub, policy: Any, room: int = 2) -> Client:
    """A subscribed client with a small outbox that nobody empties."""
    client = connect(hub, f"slow-{policy}", outbox=Outbox(max_messages=room), slow_client=policy)
    hub.subscribe(client, THREAD).release()
    return client


def say(hub: Hub, text: str, item: str = "m") -> str:
    """One delta; returns its cursor."""
    params = {"threadId": THREAD, "turnId": "t", "itemId": item, "delta": text}
    hub.publish(THREAD, "item/agentMessage/delta", params)
    position = hub.position(THREAD)
    assert position is not None
    return position.encode()


def deltas(client: Client) -> list[tuple[str, str]]:
    """Item and text of every delta that came."""
    told = (message["params"] for message in client.got if message["method"].endswith("delta"))
    return [(params["itemId"], params["delta"]) for params in told]


async def test_coalescing_joins_deltas_of_one_text_under_the_cursor_of_the_last(hub: Hub, thread: Thread) -> None:
    client = slow(hub, "coalesce")
    for letter in "abcdef":
        last = say(hub, letter)
    say(hub, "x", "other")
    thread.record()
    for letter in "gh":
        say(hub, letter)
    while client.read():
        pass
    assert deltas(client) == [("m", "a"), ("m", "b"), ("m", "cdef"), ("other", "x"), ("m", "gh")]
    assert client.cursors()[2] == last
    say(hub, "i")
    say(hub, "j")
    client.read()
    assert deltas(client)[-2:] == [("m", "i"), ("m", "j")], "whoever has caught up gets each event as it is"


async def test_what_a_coalescing_client_has_read_adds_up_wherever_it_stops_and_comes_back(
    hub: Hub, thread: Thread
) -> None:
    text = "abcdefghijklmnopqrstuvwxyz"
    thread.record()
    for stop in range(6):
        client, start = slow(hub, "coalesce"), len(text) * stop
        for letter in text:
            say(hub, letter)
        for _ in range(stop):
            client.read()
        hub.drop(client)
        seen = client.cursors()
        again = connect(hub, "again")
        after = EventCursor.decode(seen[-1]) if seen else None
        hub.subscribe(again, THREAD, after=after, replay=ReplayOptions()).release()
        await again.read_until_quiet(hub)
        told = "".join(word for _, word in [*deltas(client), *deltas(again)])
        assert told == text if seen else told.endswith(text), start
        hub.drop(again)


async def test_dropping_leaves_out_deltas_until_the_client_has_caught_up_and_nothing_else(
    hub: Hub, thread: Thread
) -> None:
    client = slow(hub, "drop")
    for _ in range(3):
        for letter in "abcd":
            say(hub, letter)
        thread.record()
    while client.read():
        pass
    assert deltas(client) == [("m", "a"), ("m", "b")]
    assert [cursor for cursor in client.cursors() if cursor in thread.recorded] == thread.recorded
    say(hub, "z")
    client.read()
    assert deltas(client)[-1] == ("m", "z")


async def test_a_client_that_asked_for_it_is_disconnected_with_its_places_and_loses_nothing(
    replay: LogReplay, store: ListedStore
) -> None:
    hub = Hub(replay, slow_limit_bytes=2_000)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    thread, other = Thread(hub, store), connect(hub, "other")
    hub.subscribe(other, THREAD).release()
    client = slow(hub, "disconnect", room=3)
    while client.last_words is None:
        thread.record()
        thread.delta()
        assert client.outbox.waiting_bytes < 1_000
    told = client.read()
    assert client.last_words["method"] == "connection/closing"
    assert client.last_words["params"] == {"reason": "slowClient", "cursors": {THREAD: told[-2]["cursor"]}}
    assert hub.subscribers(THREAD) == 1
    again = connect(hub, "again")
    hub.subscribe(again, THREAD, after=EventCursor.decode(told[-2]["cursor"]), replay=ReplayOptions()).release()
    await again.read_until_quiet(hub)
    assert [one["cursor"] for one in told[:-1]] + again.cursors() == thread.published
    other.read()
    assert other.cursors() == thread.published
    await hub.close()


@pytest.mark.parametrize("policy", ["coalesce", "drop", "disconnect"])
async def test_clients_that_stop_reading_hold_no_memory_and_delay_nobody(
    replay: LogReplay, store: ListedStore, policy: str
) -> None:
    hub = Hub(replay, ring_events=64, ring_bytes=32_000, slow_limit_bytes=10_000)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    thread, fast = Thread(hub, store), connect(hub, "fast")
    hub.subscribe(fast, THREAD).release()
    stuck = []
    for number in range(20):
        outbox = Outbox(max_messages=8, max_bytes=4_000)
        stuck.append(connect(hub, f"stuck-{number}", outbox=outbox, slow_client=policy))
        hub.subscribe(stuck[-1], THREAD).release()
    for _ in range(300):
        thread.record()
        say(hub, "some words of a long answer")
        hub.broadcast("thread/status/changed", {"threadId": THREAD, "status": {"type": "idle"}})
        fast.read()
    held = sum(client.outbox.waiting_bytes for client in stuck)
    assert held <= 20 * 4_500
    assert hub._streams.of(THREAD).waiting_bytes <= 40_000
    assert sum(message.get("method") == "item/agentMessage/delta" for message in fast.got) == 300
    await hub.close()


async def test_an_answer_waits_for_no_event_that_is_not_in_the_outbox_yet(hub: Hub, thread: Thread) -> None:
    client = slow(hub, "coalesce", room=3)
    for _ in range(1_000):
        thread.record()
    client.outbox.put(b'{"id":7,"result":{}}')
    thread.record()
    first = client.read()
    assert [message.get("id") for message in first] == [None, None, None, 7]
