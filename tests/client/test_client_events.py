"""Readers of a thread's events: where they begin, what they do when they are slow, and how they end."""

import asyncio
import itertools

import pytest
from unspool_client import Client, EventsLost, ThreadHandle
from unspool_client.event import Event, order
from unspool_client.feed import EventStream
from unspool_protocol.cursors import EventCursor
from unspool_protocol.notifications import TurnCompletedNotification

from tests.client.fake_daemon import THREAD_ID, FakeDaemon
from tests.client.test_client_reconnect import TURN_EVENTS, plain, until_end


async def finished_thread(client: Client) -> ThreadHandle:
    thread = await client.start_thread()
    assert (await thread.run("go")).ok
    return thread


async def numbers(events: EventStream, count: int) -> list[int]:
    return [(await anext(events)).params["n"] for _ in range(count)]


async def test_a_reader_from_the_beginning_of_a_new_thread_needs_no_replay(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        thread = await finished_thread(client)
        seen = await until_end(thread.events())
    assert [event.cursor for event in seen] == [event["cursor"] for event in daemon.events]
    assert daemon.resumes == []


async def test_a_reader_from_an_older_cursor_gets_what_follows_marked_as_replayed(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        thread = await finished_thread(client)
        seen = await until_end(thread.events(daemon.events[9]["cursor"]))
    assert [event.cursor for event in seen] == [event["cursor"] for event in daemon.events[10:]]
    assert all(event.replayed for event in seen)
    assert [resume["replay"]["after"] for resume in daemon.resumes] == [daemon.events[9]["cursor"]]


async def test_a_replay_for_one_reader_is_not_seen_by_another(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        thread = await client.start_thread()
        live = thread.events("now")
        for n in range(1, 4):
            await daemon.publish("x", {"n": n}, n)
        assert await numbers(live, 3) == [1, 2, 3]
        assert await numbers(thread.events(daemon.events[0]["cursor"]), 2) == [2, 3]
        await daemon.publish("x", {"n": 4}, 4)
        assert await numbers(live, 1) == [4]


async def test_a_reader_from_now_on_is_not_given_the_replay_of_another(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        thread = await client.start_thread()
        for n in range(1, 6):
            await daemon.publish("x", {"n": n}, n)
        old = thread.events(daemon.events[0]["cursor"])
        assert await numbers(thread.events(), 5) == [1, 2, 3, 4, 5]
        fresh: list[EventStream] = []
        client.on_notification(lambda event: fresh.append(thread.events("now")) if event.params["n"] == 2 else None)
        assert await numbers(old, 4) == [2, 3, 4, 5]
        await daemon.publish("x", {"n": 6}, 6)
        assert await numbers(fresh[0], 1) == [6]
        assert thread.cursor == daemon.events[-1]["cursor"]


async def test_a_slow_reader_fetches_the_rest_while_calls_and_others_go_on(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, buffer_events=8) as client:
        thread = await client.start_thread()
        slow, quick = thread.events("now"), thread.events("now")
        reading = asyncio.create_task(until_end(quick))
        await thread.start_turn("go")
        fast = await reading
        daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": []}}
        assert await client.models() == []
        late = await until_end(slow)
    assert plain(late) == plain(fast)
    assert len(late) == TURN_EVENTS
    assert daemon.resumes, "the rest came from the daemon"


@pytest.mark.parametrize("opaque", [False, True])
async def test_readers_that_all_lag_have_the_same_list(daemon: FakeDaemon, opaque: bool) -> None:
    daemon.opaque = opaque
    async with asyncio.timeout(5), Client.over(daemon.open_memory, buffer_events=5) as client:
        thread = await client.start_thread()
        readers = [thread.events("now") for _ in range(3)]
        await thread.start_turn("go")
        lists = await asyncio.gather(*(until_end(reader) for reader in readers))
    wanted = [event["cursor"] for event in daemon.events]
    assert [[event.cursor for event in seen] for seen in lists] == [wanted] * 3


async def test_a_slow_reader_of_a_server_without_cursors_is_told_of_its_loss(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, buffer_events=2) as client:
        events = (await client.start_thread()).events("now")
        for n in range(4):
            message = {"method": "x", "params": {"threadId": THREAD_ID, "n": n}}
            await daemon.send(daemon.peers[0], message)
        daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": []}}
        await client.models()
        assert await numbers(events, 2) == [0, 1]
        with pytest.raises(EventsLost):
            await anext(events)


@pytest.mark.parametrize("last", ["thread/closed", "thread/archived", "thread/deleted"])
async def test_reading_ends_with_the_thread(daemon: FakeDaemon, last: str) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        events = (await client.start_thread()).events("now")
        await daemon.publish(last, {}, 1)
        assert [event.method async for event in events] == [last]


async def test_reading_ends_on_unsubscribing_and_on_closing(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5):
        async with Client.over(daemon.open_memory) as client:
            thread = await client.start_thread()
            events = thread.events("now")
            assert await thread.unsubscribe() == "unsubscribed"
            assert [event async for event in events] == []
            await client.resume_thread(THREAD_ID)
            events = thread.events("now")
        assert [event async for event in events] == []


async def test_a_reader_that_was_dropped_is_no_longer_fed(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        thread = await client.start_thread()
        async with thread.events("now"):
            assert len(thread._feed.streams) == 1
        assert len(thread._feed.streams) == 0


async def test_a_live_event_of_a_restarted_daemon_counts_although_its_cursor_is_smaller(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        events = (await client.start_thread()).events("now")
        await daemon.publish("x", {"n": 1}, 5, 7)
        await daemon.publish("x", {"n": 2}, 5, 3)
        assert await numbers(events, 2) == [1, 2]


def test_events_know_their_thread_turn_cursor_and_model() -> None:
    turn = {"id": "t", "items": [], "status": "completed"}
    event = Event.of({"method": "turn/completed", "params": {"threadId": "a", "turn": turn}, "cursor": "c"})
    assert (event.thread_id, event.turn_id, event.cursor, event.replayed) == ("a", "t", "c", False)
    assert isinstance(event.typed(), TurnCompletedNotification)
    started = Event.of({"method": "thread/started", "params": {"thread": {"id": "b"}}, "replayed": True})
    assert (started.thread_id, started.replayed, started.typed()) == ("b", True, None)
    assert Event.of({"method": "no/such", "params": None}).typed() is None


def test_cursors_are_ordered_by_rollout_ordinal_and_counter() -> None:
    places = [EventCursor(*place).encode() for place in (("a", 1, 9), ("a", 2, 0), ("a", 10, 0), ("b", 0, 0))]
    assert [order(one, two) for one, two in itertools.pairwise(places)] == [-1, -1, -1]
    assert order(places[2], places[1]) == 1
    assert (order("x", "x"), order("x", "y")) == (0, None)
