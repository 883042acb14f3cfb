"""Watching threads with `thread/subscribe`: nothing is loaded or kept loaded for it, and nothing is lost."""

from typing import Any

import pytest
from unspool_protocol.notifications import NOTIFICATIONS

from tests.interaction.house import House, LocalDaemon
from tests.interaction.later import Later
from tests.interaction.stories import HANG, hanging
from tests.interaction.wire import Client, Message, texts_of


def recorded(events: list[Message]) -> list[str]:
    """Cursors of the events that a replay from the log brings."""
    kept = []
    for event in events:
        item = event["params"].get("item") or {}
        begins = event["method"] == "item/started" and item["type"] != "userMessage"
        if NOTIFICATIONS[event["method"]].recorded and not begins:
            kept.append(event["cursor"])
    return kept


async def watching(daemon: LocalDaemon, thread: str, **params: Any) -> tuple[Client, Any]:
    """A client of its own that watches a thread, and the answer."""
    client = await daemon.connect()
    return client, await client.call("thread/subscribe", {"threadId": thread, **params})


async def loaded(client: Client) -> list[str]:
    """The ids of loaded threads."""
    return list((await client.call("thread/loaded/list", {}))["data"])


async def test_a_watcher_loads_nothing_and_sees_every_event_of_whoever_loads_it(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        past = client.events(thread)
    house.settings["thread_unload_delay_secs"] = 0
    async with house.daemon() as daemon:
        watcher, answer = await watching(daemon, thread, after=past[3]["cursor"])
        assert (answer["status"], answer["thread"]) == ({"type": "notLoaded"}, None)
        assert await loaded(watcher) == []
        expected = recorded(past[4:])
        await watcher.until(lambda m: m.get("cursor") == expected[-1])
        assert [event["cursor"] for event in watcher.events(thread)] == expected
        for text in ("two", "three"):
            mark, worker = watcher.mark, await daemon.connect()
            await worker.call("thread/resume", {"threadId": thread, "excludeTurns": True})
            turn = await worker.turn(thread, text)
            await worker.close()
            await watcher.event("thread/closed", since=mark, threadId=thread)
            assert (await watcher.ended(turn, mark))["status"] == "completed"
            told, seen = watcher.events(thread, mark), worker.events(thread)
            assert not any(event.get("replayed") for event in told)
            assert [e["cursor"] for e in told if e["cursor"] in {e["cursor"] for e in seen}] == [
                event["cursor"] for event in seen
            ]
            assert await loaded(watcher) == [], "who only watches keeps nothing loaded"
        everything = [event["cursor"] for event in watcher.events(thread)]
        assert len(set(everything)) == len(everything)
        assert await watcher.call("thread/unsubscribe", {"threadId": thread}) == {"status": "unsubscribed"}
        assert await watcher.call("thread/unsubscribe", {"threadId": thread}) == {"status": "notLoaded"}
        assert len(daemon.services.hub._streams) == 0


async def test_a_watcher_of_a_running_turn_can_join_at_every_delta_and_none_is_lost_or_told_twice(house: House) -> None:
    house.offline([{"say": "one two three four five six", "partial": True}, {"hang": True}])
    async with house.daemon() as daemon:
        Later(daemon)
        client, thread, turn = await hanging(house, daemon)
        snapshots = []
        for _ in range(4):
            watcher, answer = await watching(daemon, thread, replay={"mode": "snapshot"})
            snapshots.append((watcher, answer["thread"]["turns"][-1]["items"][-1]["text"]))
        await client.call("turn/steer", steering(thread, turn))
        await client.ended(turn)
        live = client.events(thread)
        for place, event in enumerate(live):
            late, _ = await watching(daemon, thread, after=event["cursor"])
            await late.settled()
            assert [e["cursor"] for e in late.events(thread)] == [e["cursor"] for e in live[place + 1 :]]
            await late.close()
        whole = text_of(live)
        for watcher, text in snapshots:
            await watcher.ended(turn)
            assert whole.startswith(text) and text
            assert text + text_of(watcher.events(thread)) == whole


def steering(thread: str, turn: str) -> dict[str, Any]:
    """More input for a running turn."""
    return {"threadId": thread, "expectedTurnId": turn, "input": [{"type": "text", "text": "go on"}]}


def text_of(events: list[Message]) -> str:
    """What the deltas say."""
    return "".join(e["params"]["delta"] for e in events if e["method"] == "item/agentMessage/delta")


async def test_a_turn_that_a_crash_cut_off_is_told_as_cut_off_once_also_when_the_thread_is_loaded(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        clock = Later(daemon)
        client, thread, turn = await hanging(house, daemon)
        await clock.ring(thread)
        left, cursor = house.log(thread), client.events(thread)[-1]["cursor"]
    house.log_file(thread).write_bytes(left)
    house.offline([{"say": "went on"}])
    async with house.daemon() as daemon:
        watcher, _ = await watching(daemon, thread, after=cursor)
        assert (await watcher.ended(turn))["status"] == "interrupted"
        assert [event["method"] for event in watcher.events(thread)] == ["item/completed", "turn/completed"]
        worker = await daemon.connect()
        await worker.call("thread/resume", {"threadId": thread})
        await watcher.ended(await worker.turn(thread, "on"))
        assert watcher.count("turn/completed") == 2, "the cut is not told twice"


async def test_a_snapshot_of_a_thread_at_rest_shows_it_and_goes_on_from_there(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    async with house.daemon() as daemon:
        watcher, answer = await watching(daemon, thread, replay={"mode": "snapshot"})
        assert texts_of(answer["thread"]["turns"]) == [["one", "one"]]
        await watcher.settled()
        assert watcher.events(thread) == []
        worker = await daemon.connect()
        await worker.call("thread/resume", {"threadId": thread})
        turn = await worker.turn(thread, "two")
        await watcher.ended(turn)
        again, _ = await watching(daemon, thread, after=answer["cursor"])
        await again.ended(turn)


async def test_what_another_process_recorded_is_told_when_it_is_read(house: House) -> None:
    async with house.daemon() as here, house.daemon() as elsewhere:
        client = await elsewhere.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        watcher, answer = await watching(here, thread)
        assert answer["status"] == {"type": "notLoaded"}
        turn = await client.turn(thread, "two")
        await client.close()
        await elsewhere.services.sessions.unload(thread)
        worker = await here.connect()
        await worker.call("thread/resume", {"threadId": thread})
        assert (await watcher.ended(turn))["status"] == "completed"
        assert watcher.count("turn/started") == 1


async def test_a_rolled_back_cursor_brings_the_event_that_explains_the_jump_and_then_the_present(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        cursor = client.events(thread)[-1]["cursor"]
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.turn(thread, "three")
    async with house.daemon() as daemon:
        watcher, _ = await watching(daemon, thread, after=cursor)
        await watcher.event("turn/completed")
        assert [event["method"] for event in watcher.events(thread)][:2] == ["thread/reverted", "turn/started"]


async def test_cursors_that_are_no_place_of_the_thread_are_refused_loaded_or_not(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, other = await client.start(cwd=str(house.work)), await client.start(cwd=str(house.work))
        await client.turn(other, "one")
        early = client.events(other)[-1]["cursor"]
        await client.turn(thread, "one")
        log = house.log(thread)
        await client.turn(thread, "two")
        future = client.events(thread)[-1]["cursor"]
        await refuses(client, thread, early)
    house.log_file(thread).write_bytes(log)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for cursor in (early, future, "no cursor", ""):
            await refuses(client, thread, cursor)
        await client.call("thread/subscribe", {"threadId": thread})
        await client.call("thread/resume", {"threadId": thread})
        for cursor in (early, future):
            await refuses(client, thread, cursor)
        unknown = await client.refused("thread/subscribe", {"threadId": "01a22cb2-335d-744f-8746-f196c41332b3"})
        assert unknown.reason == "threadNotFound"


async def refuses(client: Client, thread: str, cursor: str) -> None:
    """The cursor is refused."""
    refused = await client.refused("thread/subscribe", {"threadId": thread, "after": cursor})
    assert (refused.code, refused.reason) == (-32600, "cursorInvalid"), cursor


async def test_a_deleted_thread_ends_what_watches_it(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        watcher, _ = await watching(daemon, thread)
        await client.call("thread/delete", {"threadId": thread})
        await watcher.event("thread/deleted", threadId=thread)
        assert await watcher.call("thread/unsubscribe", {"threadId": thread}) == {"status": "notLoaded"}


async def test_only_the_wanted_kinds_of_items_are_replayed_and_everything_that_is_new(house: House) -> None:
    house.offline([{"reason": "think"}, {"say": "speak"}], [{"reason": "think"}, {"say": "speak"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        options = {"itemKinds": ["reasoning"], "speed": "max"}
        watcher, _ = await watching(daemon, thread, replay=options)
        over = await watcher.event("thread/replay/completed", threadId=thread)
        assert over["params"]["cursor"] == client.events(thread)[-1]["cursor"]
        kinds = [e["params"]["item"]["type"] for e in watcher.events(thread) if e["method"].startswith("item/comp")]
        assert kinds == ["reasoning"]
        assert watcher.count("turn/completed") == 1 and watcher.count("item/agentMessage/delta") == 0
        mark = watcher.mark
        turn = await client.turn(thread, "two")
        await watcher.ended(turn, mark)
        kinds = [e["params"]["item"]["type"] for e in watcher.events(thread, mark) if e["method"] == "item/completed"]
        assert kinds == ["userMessage", "reasoning", "agentMessage"]


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_stepwise_replay_tells_as_many_events_as_were_granted_and_holds_nobody_up(
    house: House, restarted: bool
) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        past = recorded(client.events(thread)) if restarted else [e["cursor"] for e in client.events(thread)]
        if not restarted:
            await steps_through(daemon, thread, past, client)
    if restarted:
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
            await steps_through(daemon, thread, past, client)


async def steps_through(daemon: LocalDaemon, thread: str, past: list[str], client: Client) -> None:
    """A watcher steps through what there was while another client goes on."""
    watcher, _ = await watching(daemon, thread, replay={"speed": "step"})
    await watcher.settled()
    assert watcher.events(thread) == []
    assert (await client.refused("thread/replay/next", {"threadId": thread, "count": 0})).reason == "invalidParams"
    await watcher.call("thread/replay/next", {"threadId": thread})
    await watcher.until(lambda m: m.get("cursor") == past[0])
    turn = await client.turn(thread, "two")
    await watcher.settled()
    assert [event["cursor"] for event in watcher.events(thread)] == past[:1], "what is new waits behind the past"
    assert await watcher.call("thread/replay/next", {"threadId": thread, "count": 1000}) == {"granted": 1000}
    await watcher.event("thread/replay/completed")
    await watcher.ended(turn)
    told = watcher.events(thread)
    assert [event["cursor"] for event in told if event.get("replayed")] == past
    live = [event["cursor"] for event in client.events(thread)]
    assert [event["cursor"] for event in told if not event.get("replayed")] == live[-(len(told) - len(past)) :]
    assert await watcher.call("thread/replay/next", {"threadId": thread}) == {"granted": 0}
    await watcher.call("thread/unsubscribe", {"threadId": thread})
    assert (await watcher.refused("thread/replay/next", {"threadId": thread})).reason == "notSubscribed"
