"""Who gets which event, in which order (05 §3, wire §4)."""

import asyncio

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_server.errors import LocalProtocolError
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import ReplayOptions
from unspool_server.events.replay import LogReplay
from unspool_server.sessions.sink import EventSink

from tests.events.conftest import THREAD, ListedStore, Thread, connect


async def test_one_event_to_fifty_subscribers_is_encoded_once_and_in_the_same_order_for_all(
    hub: Hub, thread: Thread
) -> None:
    clients = [connect(hub, f"c{n}") for n in range(50)]
    for client in clients:
        hub.subscribe(client, THREAD).release()
    before = hub.encoder.count
    thread.delta()
    assert hub.encoder.count == before + 1
    for _ in range(20):
        thread.record(2)
        thread.delta()
    for client in clients:
        client.read()
        assert client.cursors() == thread.published


async def test_the_hub_is_the_sink_that_sessions_know(hub: Hub) -> None:
    sink: EventSink = hub
    assert sink.subscribers(THREAD) == 0


async def test_nothing_is_delivered_before_the_response(hub: Hub, thread: Thread) -> None:
    client = connect(hub, "a")
    thread.record()
    subscription = hub.subscribe(client, THREAD)
    thread.record()
    assert client.read() == []
    client.outbox.put(b'{"id":1,"result":{}}')
    subscription.release()
    thread.record()
    assert [message.get("id", message.get("cursor")) for message in client.read()] == [1, *thread.published[1:]]


async def test_only_those_who_follow_a_thread_are_given_a_place_in_it(hub: Hub, thread: Thread) -> None:
    follower, other = connect(hub, "a"), connect(hub, "b")
    hub.subscribe(follower, THREAD).release()
    hub.publish(THREAD, "thread/status/changed", {"threadId": THREAD}, everyone=True)
    [told], [broadcast] = follower.read(), other.read()
    assert "cursor" in told
    assert broadcast == {name: value for name, value in told.items() if name != "cursor"}


async def test_a_second_subscribe_keeps_the_place_of_the_first(hub: Hub, thread: Thread) -> None:
    client = connect(hub, "a")
    hub.subscribe(client, THREAD).release()
    thread.record()
    again = hub.subscribe(client, THREAD)
    thread.record()
    assert hub.subscribers(THREAD) == 1
    again.release()
    client.read()
    assert client.cursors() == thread.published


async def test_a_snapshot_moves_the_place_to_where_it_was_taken(hub: Hub, thread: Thread) -> None:
    client = connect(hub, "a")
    subscription = hub.subscribe(client, THREAD)
    thread.record()
    thread.delta()
    subscription.start_after(hub.position(THREAD), replay=None)
    thread.delta()
    subscription.release()
    assert client.read()[0].items() >= {"cursor": thread.published[-1]}.items()
    assert client.cursors() == thread.published[-1:]
    assert "replayed" not in client.got[0]


async def test_broadcast_events_reach_initialised_strangers_once_and_subscribers_in_order(
    hub: Hub, thread: Thread
) -> None:
    subscriber, stranger, newcomer = (connect(hub, "a"), connect(hub, "b"), connect(hub, "c", initialized=False))
    hub.subscribe(subscriber, THREAD).release()
    hub.publish(THREAD, "thread/status/changed", {"threadId": THREAD}, everyone=True)
    thread.record()
    assert [m["method"] for m in subscriber.read()] == ["thread/status/changed", "item/completed"]
    assert [m["method"] for m in stranger.read()] == ["thread/status/changed"]
    assert newcomer.read() == []


async def test_a_slow_stranger_gets_the_newest_broadcast_per_thread_and_method(hub: Hub) -> None:
    stranger = connect(hub, "a", outbox=Outbox(max_messages=1))
    for number in range(3):
        for name in ("t1", "t2"):
            hub.broadcast("thread/status/changed", {"threadId": name, "n": number})
    hub.broadcast("thread/archived", {"threadId": "t1"})
    got = []
    while batch := stranger.read():
        got += [(m["method"], m["params"]) for m in batch]
    assert got == [
        ("thread/status/changed", {"threadId": "t1", "n": 0}),
        ("thread/status/changed", {"threadId": "t1", "n": 2}),
        ("thread/status/changed", {"threadId": "t2", "n": 2}),
        ("thread/archived", {"threadId": "t1"}),
    ]


async def test_methods_opted_out_of_are_never_sent(hub: Hub, thread: Thread) -> None:
    opted_out = frozenset({"item/agentMessage/delta", "thread/archived"})
    client = connect(hub, "a", opted_out=opted_out)
    hub.subscribe(client, THREAD).release()
    thread.record()
    thread.delta()
    hub.broadcast("thread/archived", {"threadId": THREAD})
    thread.record()
    assert [m["method"] for m in client.read()] == ["item/completed", "item/completed"]


async def test_leaving_and_disconnecting_end_subscriptions_and_are_told(hub: Hub, thread: Thread) -> None:
    left: list[str] = []
    hub.on_unsubscribed = left.append
    one, two = connect(hub, "a"), connect(hub, "b")
    for client in (one, two):
        hub.subscribe(client, THREAD).release()
    assert hub.unsubscribe(one, THREAD)
    assert not hub.unsubscribe(one, THREAD)
    hub.drop(two)
    hub.drop(two)
    thread.record()
    assert (left, hub.subscribers(THREAD)) == ([THREAD, THREAD], 0)
    assert one.read() == two.read() == []


async def test_a_slow_subscriber_loses_nothing_and_delays_nobody(hub: Hub, thread: Thread) -> None:
    slow, fast = connect(hub, "slow", outbox=Outbox(max_messages=3)), connect(hub, "fast")
    for client in (slow, fast):
        hub.subscribe(client, THREAD).release()
    for _ in range(40):
        thread.record()
        thread.delta()
        fast.read()
        assert len(slow.outbox) <= 3
    assert fast.cursors() == thread.published
    while slow.read():
        pass
    assert slow.cursors() == thread.published
    assert not any("replayed" in message for message in slow.got)


async def test_a_subscriber_that_fell_out_of_the_ring_gets_every_recorded_event_from_the_log(
    replay: LogReplay, store: ListedStore
) -> None:
    hub = Hub(replay, ring_events=8)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    thread = Thread(hub, store)
    slow = connect(hub, "slow", outbox=Outbox(max_messages=2))
    hub.subscribe(slow, THREAD).release()
    for number in range(30):
        thread.record(2)
        if number == 10:
            thread.cut("r2", 5)
        if number == 20:
            thread.cut("r3", 7)
    await slow.read_until_quiet(hub)
    assert slow.cursors() == thread.published
    await hub.close()


async def test_a_thread_that_is_unloaded_still_owes_its_last_events(hub: Hub, thread: Thread) -> None:
    slow = connect(hub, "slow", outbox=Outbox(max_messages=1))
    hub.subscribe(slow, THREAD).release()
    for _ in range(5):
        thread.record()
    hub.publish(THREAD, "thread/closed", {"threadId": THREAD}, everyone=True)
    hub.forget(THREAD)
    assert hub.subscribers(THREAD) == 0
    await slow.read_until_quiet(hub)
    assert slow.cursors()[:5] == thread.published
    assert slow.got[-1]["method"] == "thread/closed"
    assert hub.position(THREAD) is None


async def test_a_response_being_made_during_unload_is_followed_by_the_rest_and_then_nothing(
    hub: Hub, thread: Thread
) -> None:
    client = connect(hub, "a")
    subscription = hub.subscribe(client, THREAD)
    thread.record()
    hub.forget(THREAD)
    subscription.release()
    client.read()
    assert client.cursors() == thread.published
    assert hub._members["a"].ending == {}


async def test_a_connection_that_went_away_during_its_request_is_not_subscribed(hub: Hub, thread: Thread) -> None:
    client = connect(hub, "a")
    hub.drop(client)
    hub.subscribe(client, THREAD).release()
    thread.record()
    assert (client.read(), hub.subscribers(THREAD)) == ([], 0)


async def test_unrecorded_events_get_the_next_counter_behind_the_newest_record(hub: Hub, thread: Thread) -> None:
    thread.record(2)
    thread.delta()
    thread.delta()
    assert thread.cursor == EventCursor("r1", 1, 3)
    thread.record()
    assert thread.cursor == EventCursor("r1", 2, 0)


async def test_a_recorded_event_out_of_order_is_our_own_mistake(hub: Hub, thread: Thread) -> None:
    thread.record(2)
    with pytest.raises(LocalProtocolError):
        hub.publish(THREAD, "late", {}, cursor=EventCursor("r1", 1, 1))
    assert thread.cursor == EventCursor("r1", 1, 1)


async def test_unrecorded_events_stay_in_the_ring_until_a_record_follows(replay: LogReplay, store: ListedStore) -> None:
    hub = Hub(replay, ring_events=4)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    thread = Thread(hub, store)
    thread.record()
    place = thread.cursor
    for _ in range(20):
        thread.delta()
    client = connect(hub, "a")
    hub.subscribe(client, THREAD, after=place, replay=ReplayOptions()).release()
    await client.read_until_quiet(hub)
    assert client.cursors() == thread.published[1:]
    thread.record()
    thread.record()
    assert hub._streams.of(THREAD).next_seq - hub._streams.of(THREAD).first_seq == 4
    await hub.close()


async def test_one_busy_thread_does_not_starve_the_others(hub: Hub, store: ListedStore) -> None:
    threads = []
    for name in ("t1", "t2"):
        hub.reset(name, EventCursor(f"r-{name}", 0, 0))
        threads.append(Thread(hub, store, name, f"r-{name}"))
    client = connect(hub, "a", outbox=Outbox(max_messages=1))
    for thread in threads:
        hub.subscribe(client, thread.id).release()
    for _ in range(5):
        for thread in threads:
            thread.record()
    order = [message["params"]["threadId"] for _ in range(6) for message in client.read()]
    assert set(order[1:4]) == {"t1", "t2"}
    await asyncio.sleep(0)
