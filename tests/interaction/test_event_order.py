"""The order of messages: what comes before what, for whom, and what a thread's life looks like to its clients."""

from typing import Any

import pytest

from tests.interaction.house import House
from tests.interaction.stories import HANG, TURN, hanging, story


async def test_the_events_of_a_turn_come_in_the_order_of_the_reference_over_each_transport(any_house: House) -> None:
    async with any_house.running() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(any_house.work))
        mark = client.mark
        turn = await client.begin(thread, "one two three", clientUserMessageId="mine")
        ended = await client.ended(turn)
        seen = client.seen[mark:]
        assert story(seen) == TURN
        answer, active, started = seen[0]["result"]["turn"], seen[1]["params"], seen[2]["params"]["turn"]
        assert (answer["id"], answer["items"], answer["itemsView"]) == (turn, [], "notLoaded")
        assert (answer["status"], answer["startedAt"]) == ("inProgress", None)
        assert active == {"threadId": thread, "status": {"type": "active", "activeFlags": []}}
        assert started["startedAt"] is not None
        user = next(m["params"]["item"] for m in seen if m.get("method") == "item/completed")
        assert user["clientId"] == "mine" and user["content"][0]["text"] == "one two three"
        deltas = "".join(m["params"]["delta"] for m in seen if m.get("method") == "item/agentMessage/delta")
        assert deltas == "one two three" == ended["items"][0]["text"]
        assert [item["type"] for item in ended["items"]] == ["agentMessage"] and ended["itemsView"] == "summary"
        assert ended["durationMs"] is not None and ended["completedAt"] >= ended["startedAt"]
        assert all("emittedAtMs" in message for message in seen if "method" in message)
        assert not any("jsonrpc" in message for message in seen)


async def test_an_empty_input_runs_a_turn_without_a_user_message(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        mark = client.mark
        await client.ended(await client.begin(thread))
        assert story(client.seen[mark:]) == [one for one in TURN if "userMessage" not in one and "delta" not in one]


async def test_a_new_thread_is_announced_to_everybody_after_the_answer(house: House) -> None:
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        started = await client.call("thread/start", {"cwd": str(house.work)})
        thread = started["thread"]["id"]
        await client.event("thread/started")
        assert client.outline(1) == ["answer", "thread/started"]
        announced = (await other.event("thread/started"))["params"]["thread"]
        assert announced["id"] == thread and announced["turns"] == []
        await client.turn(thread, "one")
        mark = client.mark
        child = (await client.call("thread/fork", {"threadId": thread, "excludeTurns": True}))["thread"]["id"]
        await client.event("thread/started", since=mark)
        assert client.outline(mark) == ["answer", "thread/started"]
        await other.until(lambda m: m.get("method") == "thread/started" and m["params"]["thread"]["id"] == child)


async def test_an_interrupt_is_answered_before_the_turn_ends_and_leaves_partial_text(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        mark = client.mark
        assert await client.call("turn/interrupt", {"threadId": thread, "turnId": turn}) == {}
        ended = await client.ended(turn)
        assert story(client.seen[mark:]) == [
            "answer",
            "status idle",
            "item/completed agentMessage",
            "turn/completed interrupted",
        ]
        assert (ended["status"], ended["error"]) == ("interrupted", None)
        assert await client.shown(thread) == [["go", "partial"]]
        assert (await client.refused("turn/interrupt", {"threadId": thread, "turnId": turn})).message == (
            "no active turn to interrupt"
        )


@pytest.mark.parametrize("step", [{"fail": "server_error"}, {"http": 400}, {"cut": True}])
async def test_a_failed_model_call_ends_the_turn_and_leaves_the_thread_usable(house: House, step: Any) -> None:
    house.offline([step], [{"say": "well again"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        mark = client.mark
        turn = await client.begin(thread, "go")
        ended = await client.ended(turn)
        told = story(client.seen[mark:])
        assert told[:5] == TURN[:5]
        assert told[-3:] == ["status systemError", "error", "turn/completed failed"]
        error = (await client.event("error", since=mark))["params"]
        assert error["willRetry"] is False and error["error"]["message"] == ended["error"]["message"]
        assert (await client.call("thread/read", {"threadId": thread}))["thread"]["status"] == {"type": "systemError"}
        await client.turn(thread, "on")
        assert await client.shown(thread) == [["go"], ["on", "well again"]]
        assert [turn["status"] for turn in (await client.read(thread))["turns"]] == ["failed", "completed"]


async def test_a_compaction_by_the_model_is_a_turn_of_its_own(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mark = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        begun = await client.event("turn/started", since=mark)
        await client.ended(begun["params"]["turn"]["id"], mark)
        told = story(client.seen[mark:])
        usage = [one for one in told if one == "thread/tokenUsage/updated"]
        assert usage and [one for one in told if one not in usage] == [
            "answer",
            "status active",
            "turn/started",
            "item/started contextCompaction",
            "item/completed contextCompaction",
            "status idle",
            "turn/completed completed",
        ]


async def test_a_compaction_ends_a_running_turn_first(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        mark = client.mark
        assert await client.call("thread/compact/start", {"threadId": thread}) == {}
        begun = await client.event("turn/started", since=mark)
        compaction = begun["params"]["turn"]["id"]
        await client.ended(compaction, mark)
        told = story(client.seen[mark:])
        assert told[:3] == ["answer", "status idle", "item/completed agentMessage"]
        assert told[3:6] == ["turn/completed interrupted", "status active", "turn/started"]
        assert compaction != turn and told[-1] == "turn/completed completed"


async def test_a_failed_summary_changes_nothing(house: House) -> None:
    house.offline(compact=[[{"fail": "server_error"}]])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        before = daemon.session(thread).history.state
        mark = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        begun = await client.event("turn/started", since=mark)
        assert (await client.ended(begun["params"]["turn"]["id"], mark))["status"] == "failed"
        after = daemon.session(thread).history.state
        assert (after.history, after.window, after.world_state) == (before.history, before.window, before.world_state)
        await client.turn(thread, "two")


async def test_steering_cuts_the_request_and_goes_on_in_the_same_turn(house: House) -> None:
    house.offline(*HANG, [{"say": "steered"}])
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        mark = client.mark
        given = [{"type": "text", "text": "rather this"}]
        params = {"threadId": thread, "expectedTurnId": turn, "input": given}
        assert await client.call("turn/steer", params) == {"turnId": turn}
        await client.ended(turn)
        assert story(client.seen[mark:]) == [TURN[0], *TURN[3:]]
        assert await client.shown(thread) == [["go", "rather this", "steered"]]


async def test_starting_a_turn_while_one_runs_joins_it(house: House) -> None:
    house.offline(*HANG, [{"say": "joined"}])
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        assert await client.begin(thread, "me too") == turn
        await client.ended(turn)
        assert await client.shown(thread) == [["go", "me too", "joined"]]
        assert client.count("turn/started") == 1


@pytest.mark.parametrize("method", ["thread/revert", "thread/rollback", "thread/compact"])
async def test_transformations_that_may_interrupt_end_the_turn_before_they_answer(house: House, method: str) -> None:
    house.offline([{"say": "done"}], *HANG)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        first = await client.turn(thread, "one")
        turn = await client.begin(thread, "two")
        await client.event("item/agentMessage/delta", turnId=turn)
        mark = client.mark
        params: dict[str, dict[str, Any]] = {
            "thread/revert": {"beforeTurnId": turn},
            "thread/rollback": {"numTurns": 1, "interrupt": True},
            "thread/compact": {"summary": "S", "interrupt": True},
        }
        result = await client.call(method, {"threadId": thread, **params[method]})
        told = story(client.seen[mark:])
        assert told[:3] == ["status idle", "item/completed agentMessage", "turn/completed interrupted"]
        if method == "thread/revert":
            assert told[3:6] == ["status notLoaded", "status idle", "answer"]
            assert result["thread"]["turns"] == [] and result["turnsBackwardsCursor"]
        if method != "thread/compact":
            reverted = await client.event("thread/reverted", since=mark)
            assert reverted["params"] == {
                "threadId": thread, "reason": method.removeprefix("thread/"), "turnIds": [turn]
            }  # fmt: skip
            assert story(client.seen[mark:])[-2:] == ["answer", "thread/reverted"]
            assert [one["id"] for one in (await client.read(thread))["turns"]] == [first]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("thread/revert", {"beforeTurnId": "nope"}),
        ("thread/rollback", {"numTurns": 9, "interrupt": True}),
        ("thread/rollback", {"numTurns": 1}),
        ("thread/compact", {"summary": "S"}),
    ],
)
async def test_a_transformation_that_is_refused_leaves_the_running_turn_alone(
    house: House, method: str, params: dict[str, Any]
) -> None:
    house.offline(*HANG, [{"say": "went on"}])
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        mark = client.mark
        await client.refused(method, {"threadId": thread, **params})
        assert client.outline(mark) == ["error"]
        assert await client.begin(thread, "more") == turn
        assert (await client.ended(turn))["status"] == "completed"
        assert await client.shown(thread) == [["go", "more", "went on"]]


async def test_what_a_transformation_causes_follows_its_answer(house: House) -> None:
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await other.call("thread/resume", {"threadId": thread})
        for method, params, follows in (
            ("thread/compact", {"summary": "S"}, ["turn/started", "item/completed contextCompaction"]),
            ("thread/rollback", {"numTurns": 1}, ["thread/reverted"]),
            ("thread/rollback/undo", {}, ["thread/reverted"]),
            ("thread/name/set", {"name": "named"}, ["thread/name/updated"]),
        ):
            mark, place = client.mark, other.mark
            await client.call(method, {"threadId": thread, **params})
            last = follows[-1].split()[0]
            await client.event(last, since=mark)
            await other.event(last, since=place)
            told = story(client.seen[mark:])
            assert told[0] == "answer"
            assert [one for one in told if one in follows] == follows
            assert [one for one in story(other.seen[place:]) if one in follows] == follows


async def test_archive_unarchive_and_delete_tell_everybody_after_the_answer(house: House) -> None:
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        expected = {
            "thread/archive": ["status notLoaded", "answer", "thread/archived"],
            "thread/unarchive": ["answer", "thread/unarchived"],
            "thread/delete": ["answer", "thread/deleted"],
        }
        for method, order in expected.items():
            mark, place = client.mark, other.mark
            await client.call(method, {"threadId": thread})
            told = await client.event(order[-1], since=mark)
            assert story(client.seen[mark:]) == order
            assert told["params"] == {"threadId": thread}
            heard = await other.event(order[-1], since=place)
            assert heard["params"] == {"threadId": thread}
        assert house.logs() == {}


async def test_changed_settings_are_told_before_the_answer(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mark = client.mark
        await client.turn(thread, "two", model="other-model", effort="high")
        assert story(client.seen[mark:]) == ["thread/settings/updated", *TURN]
        told = client.seen[mark]["params"]
        assert told["threadId"] == thread
        assert (told["threadSettings"]["model"], told["threadSettings"]["effort"]) == ("other-model", "high")
        mark = client.mark
        await client.turn(thread, "three", model="other-model")
        assert story(client.seen[mark:]) == TURN
        mark = client.mark
        await client.call("thread/settings/update", {"threadId": thread, "model": "third"})
        assert client.outline(mark) == ["thread/settings/updated", "answer"]
        resumed = await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert (resumed["model"], resumed["reasoningEffort"]) == ("third", "high")
