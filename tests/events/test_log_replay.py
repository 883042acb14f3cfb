"""Returning clients: replay by cursor from log and ring, and the hand-over to live events (DESIGN §6)."""

import asyncio
from typing import Any, cast

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode, Position, Record
from unspool_server.errors import InvalidParams
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import ReplayOptions
from unspool_server.events.replay import LogReplay
from unspool_server.history.client_view import ClientView
from unspool_server.store.contract import LogStore, RolloutInfo

from tests.events.conftest import THREAD, Client, ListedStore, Thread, connect


def restarted(replay: LogReplay, thread: Thread, **options: Any) -> Hub:
    """The hub of a later process on the same log."""
    hub = Hub(replay, **options)
    thread.hub = hub
    thread.load()
    return hub


async def replayed(hub: Hub, client: Client, after: EventCursor | None) -> list[str]:
    if after is not None:
        await hub.check_cursor(THREAD, after)
    hub.subscribe(client, THREAD, after=after, replay=ReplayOptions()).release()
    fresh = await client.read_until_quiet(hub)
    assert all(message.get("replayed") is True for message in fresh)
    return [message["cursor"] for message in fresh]


async def test_everything_is_replayed_from_the_beginning_after_a_restart(replay: LogReplay, thread: Thread) -> None:
    thread.record(2)
    thread.delta()
    thread.record(0)
    thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a")
    assert await replayed(hub, client, None) == thread.recorded
    thread.record()
    assert [message.get("replayed") for message in client.read()] == [None]
    assert client.cursors() == thread.recorded
    await hub.close()


async def test_a_replay_from_the_middle_reads_back_only_to_the_start_of_the_turn(
    replay: LogReplay, store: ListedStore, thread: Thread
) -> None:
    for turn in ("t1", "t2", "t3"):
        thread.record(1, name="task_started", turn=turn)
        thread.record(2)
        thread.record(1, name="task_complete")
    hub = restarted(replay, thread)
    client = connect(hub, "a")
    store.first_read.clear()
    assert await replayed(hub, client, EventCursor("r1", 5, 0)) == thread.recorded[6:]
    assert store.first_read == [4]
    assert client.got[0]["params"] == {"threadId": THREAD, "turn": "t2", "at": "r1/5.1"}
    assert client.got[0]["emittedAtMs"] == 1767323045678
    await hub.close()


async def test_what_the_ring_still_holds_is_replayed_with_its_deltas(hub: Hub, thread: Thread) -> None:
    thread.record()
    thread.delta()
    place = thread.cursor
    thread.delta()
    thread.record()
    assert await replayed(hub, connect(hub, "a"), place) == thread.published[2:]


async def test_a_cursor_of_an_unrecorded_event_outlives_the_process(replay: LogReplay, thread: Thread) -> None:
    thread.record()
    for _ in range(3):
        thread.delta()
    place = thread.cursor
    hub = restarted(replay, thread)
    thread.delta("of the later process")
    thread.record()
    assert await replayed(hub, connect(hub, "a"), place) == thread.published[-2:]
    await hub.close()


async def test_a_cursor_in_a_rolled_back_part_gets_the_jump_then_the_present(replay: LogReplay, thread: Thread) -> None:
    for _ in range(5):
        thread.record()
    gone = thread.cursor
    thread.cut("r2", 3)
    thread.record()
    kept = thread.cursor
    thread.cut("r3", 5)
    thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a")
    assert await replayed(hub, client, gone) == thread.recorded[5:]
    assert client.got[0]["method"] == "thread/reverted"
    assert await replayed(hub, connect(hub, "b"), kept) == thread.recorded[7:]
    await hub.close()


async def test_a_replay_from_the_beginning_shows_the_present_chain_only(replay: LogReplay, thread: Thread) -> None:
    for _ in range(5):
        thread.record()
    thread.cut("r2", 3)
    thread.record()
    hub = restarted(replay, thread)
    assert await replayed(hub, connect(hub, "a"), None) == thread.recorded[:2] + thread.recorded[5:]
    await hub.close()


@pytest.mark.parametrize(
    "cursor",
    [
        EventCursor("elsewhere", 1, 0),
        EventCursor("r1", 99, 0),
        EventCursor("p1", 4, 0),
        EventCursor("r2", 1, 0),
    ],
    ids=["another thread", "the future", "the parent after the fork", "before the rollout began"],
)
@pytest.mark.parametrize("live", [True, False])
async def test_foreign_and_future_cursors_are_refused_before_anything_happens(
    replay: LogReplay, store: ListedStore, cursor: EventCursor, live: bool
) -> None:
    parent_header = Record("p1", 0, "session_meta", {})
    store.add(RolloutInfo("parent", "p1", HistoryMode.PAGINATED, parent_header))
    store.records["p1"] = [parent_header, *(Record("p1", n, "event_msg", {"events": 1}) for n in range(1, 9))]
    header = Record("r1", 3, "session_meta", {"forked_from_id": "parent"})
    store.add(RolloutInfo(THREAD, "r1", HistoryMode.PAGINATED, header, Position("p1", 3)))
    store.records["r1"] = [header]
    hub = Hub(replay)
    if live:
        hub.reset(THREAD, EventCursor("r1", 3, 0))
    with pytest.raises(InvalidParams) as caught:
        await hub.check_cursor(THREAD, cursor)
    assert caught.value.data["reason"] == "cursorInvalid"
    assert caught.value.message.startswith("invalid cursor: ")
    await hub.check_cursor(THREAD, EventCursor("p1", 2, 0))
    assert hub.subscribers(THREAD) == 0


async def test_a_client_in_a_part_that_was_left_and_brought_back_is_told_all_of_it(
    replay: LogReplay, store: ListedStore, thread: Thread
) -> None:
    for _ in range(6):
        thread.record()
    thread.cut("r2", 3)
    thread.record()
    undone = Record("r3", 7, "session_meta", {}, extra={"unspool": {"branch": "undo"}})
    store.add(RolloutInfo(THREAD, "r3", HistoryMode.PAGINATED, undone, Position("r1", 7)))
    store.records["r3"] = [undone]
    told = [event.cursor async for event in replay.events_after(THREAD, EventCursor("r1", 4, 0), whole_since="r2")]
    assert [(one.rollout_id, one.ordinal) for one in told] == [("r1", 5), ("r1", 6), ("r2", 3), ("r2", 4), ("r3", 7)]


async def test_a_future_place_in_a_live_stream_is_refused(hub: Hub, thread: Thread) -> None:
    thread.record()
    with pytest.raises(InvalidParams):
        await hub.check_cursor(THREAD, EventCursor("r1", 2, 0))
    await hub.check_cursor(THREAD, EventCursor("r1", 1, 0))


async def test_events_published_while_the_log_is_read_come_once_and_after_it(
    replay: LogReplay, store: ListedStore, thread: Thread
) -> None:
    for _ in range(4):
        thread.record()
    hub = restarted(replay, thread, ring_events=4)
    client = connect(hub, "a")
    store.gate = asyncio.Event()
    subscription = hub.subscribe(client, THREAD, after=None, replay=ReplayOptions())
    subscription.release()
    async with asyncio.timeout(5):
        await store.reached.wait()
    assert subscription.reading
    for _ in range(3):
        thread.record()
        thread.delta()
    assert client.read() == []
    store.gate.set()
    await client.read_until_quiet(hub)
    # The ring was too small for three records and their deltas, so the oldest delta is gone with it.
    deltas = [cursor for cursor in thread.published if cursor not in thread.recorded]
    assert [c for c in client.cursors() if c in thread.recorded] == thread.recorded
    assert [c for c in client.cursors() if c not in thread.recorded] == deltas[1:]
    assert client.cursors() == [c for c in thread.published if c != deltas[0]]
    await hub.close()


async def test_a_ring_that_moves_on_during_the_read_leads_to_no_repeat(replay: LogReplay, store: ListedStore) -> None:
    hub = Hub(replay, ring_events=2)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    thread = Thread(hub, store)
    for _ in range(6):
        thread.record()
    client = connect(hub, "a")
    store.gate = asyncio.Event()
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    async with asyncio.timeout(5):
        await store.reached.wait()
    for _ in range(6):
        thread.record()
    store.gate.set()
    await client.read_until_quiet(hub)
    assert client.cursors() == thread.recorded
    await hub.close()


async def test_a_replay_waits_for_the_client_and_not_in_memory(replay: LogReplay, thread: Thread) -> None:
    for _ in range(50):
        thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a", outbox=Outbox(max_messages=2))
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    for _ in range(200):
        await asyncio.sleep(0)
        assert len(client.outbox) <= 2
    await client.read_until_quiet(hub)
    assert client.cursors() == thread.recorded
    await hub.close()


async def test_a_second_replay_starts_anew_while_the_first_still_reads(
    replay: LogReplay, store: ListedStore, thread: Thread
) -> None:
    for _ in range(4):
        thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a")
    store.gate = asyncio.Event()
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    async with asyncio.timeout(5):
        await store.reached.wait()
    hub.subscribe(client, THREAD, after=EventCursor("r1", 2, 0), replay=ReplayOptions()).release()
    store.gate.set()
    await client.read_until_quiet(hub)
    assert client.cursors() == thread.recorded[2:]
    await hub.close()


async def test_a_response_during_a_replay_interrupts_it_and_it_goes_on_where_it_was(
    replay: LogReplay, thread: Thread
) -> None:
    for _ in range(9):
        thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a", outbox=Outbox(max_messages=2))
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(client.outbox) == 2
    again = hub.subscribe(client, THREAD)
    client.read()
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(client.outbox) == 0
    again.release()
    await client.read_until_quiet(hub)
    assert client.cursors() == thread.recorded
    await hub.close()


async def test_a_disconnect_ends_a_replay_that_waits(replay: LogReplay, thread: Thread) -> None:
    for _ in range(9):
        thread.record()
    hub = restarted(replay, thread)
    client = connect(hub, "a", outbox=Outbox(max_messages=1))
    subscription = hub.subscribe(client, THREAD, replay=ReplayOptions())
    subscription.release()
    await asyncio.sleep(0)
    hub.drop(client)
    async with asyncio.timeout(5):
        await hub.close()
    assert not subscription.reading
    assert len(client.outbox) <= 1


async def test_an_unreadable_log_leaves_the_client_with_a_warning_and_the_present(
    replay: LogReplay, store: ListedStore, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.record()
    hub = restarted(replay, thread)
    thread.record()

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(store, "read", refuse)
    client = connect(hub, "a")
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    await client.read_until_quiet(hub)
    assert [message["method"] for message in client.got] == ["warning", "item/completed"]
    assert client.got[0]["params"]["code"] == "replayIncomplete"
    await hub.close()


async def test_a_thread_without_a_log_replays_what_it_said_so_far(replay: LogReplay) -> None:
    hub = Hub(replay)
    hub.reset(THREAD, EventCursor("new", 0, 0))
    hub.publish(THREAD, "thread/started", {"threadId": THREAD}, everyone=True)
    client = connect(hub, "a")
    hub.subscribe(client, THREAD, replay=ReplayOptions()).release()
    await client.read_until_quiet(hub)
    assert [(m["method"], m["replayed"]) for m in client.got] == [("thread/started", True)]
    await hub.close()


async def test_the_client_view_yields_in_replay_what_it_yielded_live(store: ListedStore) -> None:
    hub = Hub(LogReplay(cast(LogStore, store), ClientView))
    view = ClientView(THREAD, HistoryMode.PAGINATED)
    header = Record("r1", 0, "session_meta", {"id": THREAD})
    store.add(RolloutInfo(THREAD, "r1", HistoryMode.PAGINATED, header))
    payloads: list[dict[str, Any]] = [
        {"type": "task_started", "turn_id": "t1", "started_at": 1},
        {"type": "item_completed", "turn_id": "t1", "item": {"type": "AgentMessage", "id": "m", "content": []}},
        {"type": "task_complete", "turn_id": "t1", "last_agent_message": None},
    ]
    store.records["r1"] = [header, *(Record("r1", n, "event_msg", body) for n, body in enumerate(payloads, 1))]
    live, late = connect(hub, "live"), connect(hub, "late")
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    hub.subscribe(live, THREAD).release()
    for record in store.records["r1"]:
        for event in view.apply(record):
            hub.publish(THREAD, event.method, event.params, cursor=event.cursor)
    live.read()
    later = Hub(LogReplay(cast(LogStore, store), ClientView))
    later.register(late)
    later.reset(THREAD, EventCursor("r1", 3, 1 << 30))
    later.subscribe(late, THREAD, replay=ReplayOptions()).release()
    await late.read_until_quiet(later)
    assert len(live.got) >= 2
    assert [(m["method"], m["params"], m["cursor"]) for m in late.got] == [
        (m["method"], m["params"], m["cursor"]) for m in live.got
    ]
    await hub.close()
    await later.close()


async def test_what_was_said_of_an_unloaded_thread_hides_nothing_of_its_log(replay: LogReplay, thread: Thread) -> None:
    thread.record()
    thread.record()
    hub = Hub(replay)
    hub.publish(THREAD, "thread/status/changed", {"threadId": THREAD}, everyone=True)
    thread.hub = hub
    thread.load()
    thread.record()
    assert await replayed(hub, connect(hub, "a"), EventCursor("r1", 1, 0)) == thread.recorded[1:]
    await hub.close()
