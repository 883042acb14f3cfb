"""Reopening with replay: the same events in the same order, none lost, none twice, whatever happened in between."""

from typing import Any

from tests.interaction.house import House
from tests.interaction.wire import Client, Message, turn_texts

EPHEMERAL = frozenset(
    {
        "thread/status/changed",
        "thread/readState/changed",
        "thread/started",
        "item/agentMessage/delta",
        "thread/closed",
    }
)
"""Kinds of events that are not recorded: after a restart nobody can tell of them again."""
WORDS = " ".join(f"word{n}" for n in range(60))


def recorded(events: list[Message]) -> list[Message]:
    """Events that every replay must bring, without the mark of a replay and times of sending.

    The start of an answer is shown with the answer as it grows and not recorded.
    """
    kept = []
    for event in events:
        item = event["params"].get("item") or {}
        begins = event["method"] == "item/started" and item["type"] != "userMessage"
        if event["method"] not in EPHEMERAL and not begins:
            kept.append({key: event[key] for key in ("method", "params", "cursor")})
    return kept


def words(events: list[Message]) -> list[str]:
    """Events in words."""
    return [event["method"] for event in events]


async def replayed(client: Client, thread: str, after: str | None, **params: Any) -> list[Message]:
    """Resume with a replay of events and collect what comes before the next live event."""
    mark = client.mark
    request = {"threadId": thread, "excludeTurns": True, "replay": {"after": after, "mode": "events"}, **params}
    await client.call("thread/resume", request)
    turn = await client.begin(thread, "live again")
    await client.ended(turn, mark)
    events = client.events(thread, mark)
    live = next(n for n, event in enumerate(events) if not event.get("replayed"))
    assert all(event.get("replayed") is None for event in events[live:])
    cursors = [event["cursor"] for event in events]
    assert len(set(cursors)) == len(cursors)
    assert words(events[live:])[:2] == ["thread/status/changed", "turn/started"]
    return events[:live]


async def caught_up(client: Client, expected: list[Message], mark: int) -> None:
    """Wait until a replay from the log has brought the last of what it must bring, and whatever came behind it."""
    if expected:
        await client.until(lambda message: message.get("cursor") == expected[-1]["cursor"], since=mark)
    await client.settled()


async def test_events_come_again_from_the_beginning_in_their_order_over_each_transport(any_house: House) -> None:
    """demand 27"""
    async with any_house.running() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(any_house.work))
        await client.turns(thread, "one", "two")
        await client.call("thread/name/set", {"threadId": thread, "name": "named"})
        await client.event("thread/name/updated")
        live = recorded(client.events(thread))
    async with any_house.running() as daemon:
        client = await daemon.connect()
        assert recorded(await replayed(client, thread, None)) == live


async def test_events_after_any_cursor_are_the_rest_of_the_live_ones(house: House) -> None:
    """demand 27"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one two three", "four")
        live = client.events(thread)
        for place, event in enumerate(live):
            other = await daemon.connect()
            mark = other.mark
            replay = {"after": event["cursor"], "mode": "events"}
            await other.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": replay})
            await other.settled()
            brought = other.events(thread, mark)
            assert all(one["replayed"] for one in brought)
            assert [one["cursor"] for one in brought] == [one["cursor"] for one in live[place + 1 :]]
            await other.close()


async def test_a_cursor_of_before_a_restart_brings_what_was_recorded_since(house: House) -> None:
    """demand 27"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        live = client.events(thread)
    for place in range(0, len(live), 3):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            mark = client.mark
            replay = {"after": live[place]["cursor"], "mode": "events"}
            await client.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": replay})
            expected = recorded(live[place + 1 :])
            await caught_up(client, expected, mark)
            assert recorded(client.events(thread, mark)) == expected


async def test_without_replay_a_resume_brings_no_past_event_but_a_cursor(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        last = client.events(thread)[-1]["cursor"]
        other = await daemon.connect()
        mark = other.mark
        result = await other.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        await other.settled()
        assert result["cursor"] == last
        assert other.events(thread, mark) == []


async def test_a_rolled_back_cursor_is_answered_with_the_event_that_explains_the_jump(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turns = await client.turns(thread, "one", "two", "three")
        lost = next(
            event["cursor"]
            for event in client.events(thread)
            if event["method"] == "turn/started" and event["params"]["turn"]["id"] == turns[1]
        )
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        await client.turn(thread, "four")
        live = recorded(client.events(thread))
        jump = next(n for n, event in enumerate(live) if event["method"] == "thread/reverted")

        same_process = await daemon.connect()
        mark = same_process.mark
        replay = {"after": lost, "mode": "events"}
        await same_process.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": replay})
        await same_process.settled()
        brought = recorded(same_process.events(thread, mark))
        assert brought[-len(live[jump:]) :] == live[jump:]

    async with house.daemon() as daemon:
        client = await daemon.connect()
        mark = client.mark
        await client.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": replay})
        await caught_up(client, live, mark)
        brought = recorded(client.events(thread, mark))
        assert brought == live[jump:]
        assert brought[0]["params"]["turnIds"] == turns[1:]


async def test_replay_from_the_beginning_shows_the_present_and_not_what_was_rolled_back(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.turn(thread, "three")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        events = await replayed(client, thread, None)
        ends = [turn_texts(e["params"]["turn"]) for e in events if e["method"] == "turn/completed"]
        assert ends == [["one"], ["three"]]
        assert words(events).count("thread/reverted") == 1


async def test_cursors_that_are_no_place_of_the_thread_are_refused(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, other = await client.start(cwd=str(house.work)), await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await client.turn(other, "one")
        foreign = client.events(other)[-1]["cursor"]
        await client.call("thread/unsubscribe", {"threadId": thread})
        for wrong in (foreign, "garbage", "", "MTow", "\u2603"):
            replay = {"after": wrong, "mode": "events"}
            refused = await client.refused("thread/resume", {"threadId": thread, "replay": replay})
            assert (refused.code, refused.reason) == (-32600, "cursorInvalid"), wrong
        for replay in ({"after": 5}, {"after": None, "mode": "both"}, [], "null"):  # type: ignore[assignment]
            refused = await client.refused("thread/resume", {"threadId": thread, "replay": replay})
            assert (refused.code, refused.reason) == (-32600, "invalidParams")
        mark = client.mark
        await client.turn(other, "two")
        await client.settled()
        assert client.events(thread, mark) == []
        assert await client.call("thread/unsubscribe", {"threadId": thread}) == {"status": "notSubscribed"}


async def test_a_refused_cursor_leaves_an_unloaded_thread_unloaded(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        replay = {"after": "garbage", "mode": "events"}
        assert (await client.refused("thread/resume", {"threadId": thread, "replay": replay})).reason == "cursorInvalid"
        assert (await client.call("thread/loaded/list", {}))["data"] == []


async def test_a_snapshot_of_a_streaming_turn_and_what_follows_make_the_whole_text(house: House) -> None:
    house.offline([{"say": WORDS}], pace_s=0.002)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        for number in range(8):
            await client.until(lambda _: client.count("item/agentMessage/delta") > 5 * number)  # noqa: B023
            other = await daemon.connect()
            mark = other.mark
            resumed = await other.call("thread/resume", {"threadId": thread, "replay": {"mode": "snapshot"}})
            running = resumed["thread"]["turns"][-1]
            assert (running["id"], running["status"]) == (turn, "inProgress")
            text = running["items"][-1]["text"]
            assert WORDS.startswith(text) and text
            await other.ended(turn, mark)
            rest = [e for e in other.events(thread, mark) if e["method"] == "item/agentMessage/delta"]
            assert rest or number
            assert text + "".join(event["params"]["delta"] for event in rest) == WORDS
            assert not any(event.get("replayed") for event in other.events(thread, mark))
            await other.close()
            if client.count("turn/completed"):
                break


async def test_events_of_a_streaming_turn_are_replayed_and_go_on_without_gap_or_repeat(house: House) -> None:
    house.offline([{"say": WORDS}], pace_s=0.002)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        joined = []
        for number in (1, 10, 20, 30):
            await client.until(lambda _: client.count("item/agentMessage/delta") >= number)  # noqa: B023
            other = await daemon.connect()
            joined.append(other)
            await other.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": {"after": None}})
        await client.ended(turn)
        live = [(event["method"], event["cursor"]) for event in client.events(thread)]
        for other in joined:
            await other.ended(turn)
            told = [(event["method"], event["cursor"]) for event in other.events(thread)]
            # Broadcasts reached the other connection before it asked for the events as well.
            first = next(n for n, event in enumerate(other.events(thread)) if event.get("replayed"))
            assert told[first:] == live
            assert "".join(_deltas(other, thread)) == WORDS


def _deltas(client: Client, thread: str) -> list[str]:
    return [e["params"]["delta"] for e in client.events(thread) if e["method"] == "item/agentMessage/delta"]


async def test_a_turn_that_runs_while_the_client_is_away_is_told_when_it_comes_back(house: House) -> None:
    house.offline([{"say": WORDS}], pace_s=0.001)
    async with house.daemon() as daemon:
        watcher = await daemon.connect()
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await watcher.call("thread/resume", {"threadId": thread})
        turn = await client.begin(thread, "go")
        seen = await client.event("item/agentMessage/delta", turnId=turn)
        await client.close()
        before = client.events(thread)
        place = [event["cursor"] for event in before].index(seen["cursor"])
        await watcher.ended(turn)
        back = await daemon.connect()
        mark = back.mark
        replay = {"after": seen["cursor"], "mode": "events"}
        await back.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": replay})
        await back.ended(turn)
        whole = [*before[: place + 1], *back.events(thread, mark)]
        texts = [event["params"]["delta"] for event in whole if event["method"] == "item/agentMessage/delta"]
        assert "".join(texts) == WORDS
        cursors = [event["cursor"] for event in whole]
        assert len(cursors) == len(set(cursors))


async def test_two_clients_get_the_same_events_in_the_same_order(house: House) -> None:
    house.offline([{"say": WORDS}], pace_s=0.001)
    async with house.daemon() as daemon:
        one, two = await daemon.connect(), await daemon.connect()
        thread = await one.start(cwd=str(house.work))
        await two.call("thread/resume", {"threadId": thread})
        place = two.mark
        turn = await one.begin(thread, "go")
        await one.ended(turn)
        await one.turn(thread, "again")
        await one.call("thread/compact", {"threadId": thread, "summary": "S"})
        await one.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        last = (await one.event("thread/reverted"))["cursor"]
        await two.until(lambda message: message.get("cursor") == last)
        told = [event["cursor"] for event in one.events(thread)]
        heard = [event["cursor"] for event in two.events(thread, place)]
        assert heard == told[-len(heard) :] and len(heard) > 60


async def test_a_client_that_opted_out_gets_everything_else_in_a_replay(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        live = [event for event in client.events(thread) if event["method"] != "item/completed"]
        other = await daemon.connect(optOutNotificationMethods=["item/completed"])
        mark = other.mark
        await other.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": {"after": None}})
        await caught_up(other, live, mark)
        assert [e["cursor"] for e in other.events(thread, mark)] == [e["cursor"] for e in live]


async def test_from_any_place_of_a_fork_a_replay_tells_what_was_told_live(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        fork = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        for text in ("two", "three"):
            await client.turn(fork, text)
        live = recorded(client.events(fork))
        assert any("inherited" in event["params"] for event in live)
    async with house.daemon() as daemon:
        for number, event in enumerate(live[:-1]):
            client = await daemon.connect()
            replay = {"after": event["cursor"], "mode": "events"}
            await client.call("thread/resume", {"threadId": fork, "excludeTurns": True, "replay": replay})
            await caught_up(client, live[number + 1 :], 0)
            assert recorded(client.events(fork)) == live[number + 1 :]
            await client.close()
