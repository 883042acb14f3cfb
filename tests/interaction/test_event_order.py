"""The order of messages: what comes before what, for whom, and what a thread's life looks like to its clients."""

from typing import Any

import pytest

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client, Message, texts_of, turn_texts

HANG = ([{"say": "partial", "partial": True}, {"hang": True}],)


def word(message: Message) -> str:
    """A message with what tells it from others of its kind."""
    params = message.get("params") or {}
    method = message.get("method")
    if method is None:
        return "answer" if "result" in message else "error"
    if method == "thread/status/changed":
        return f"status {params['status']['type']}"
    if method.startswith("item/") and "item" in params:
        return f"{method} {params['item']['type']}"
    if method == "turn/completed":
        return f"{method} {params['turn']['status']}"
    return str(method)


def story(messages: list[Message]) -> list[str]:
    """Messages in words, consecutive deltas as one."""
    told: list[str] = []
    for message in messages:
        if not told or told[-1] != "item/agentMessage/delta" or word(message) != told[-1]:
            told.append(word(message))
    return told


TURN = [
    "answer",
    "status active",
    "turn/started",
    "item/started userMessage",
    "item/completed userMessage",
    "item/started agentMessage",
    "item/agentMessage/delta",
    "item/completed agentMessage",
    "thread/tokenUsage/updated",
    "status idle",
    "turn/completed completed",
]


async def hanging(house: House, daemon: LocalDaemon, *, mode: str = "paginated") -> tuple[Client, str, str]:
    """A client, its thread, and a turn of it that has said something and hangs."""
    client = await daemon.connect()
    thread = await client.start(cwd=str(house.work), historyMode=mode)
    turn = await client.begin(thread, "go")
    await client.event("item/agentMessage/delta", turnId=turn)
    return client, thread, turn


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


async def test_an_interrupt_is_answered_before_the_turn_ends_and_drops_the_partial_text(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        mark = client.mark
        assert await client.call("turn/interrupt", {"threadId": thread, "turnId": turn}) == {}
        ended = await client.ended(turn)
        assert story(client.seen[mark:]) == ["answer", "status idle", "turn/completed interrupted"]
        assert (ended["status"], ended["error"]) == ("interrupted", None)
        assert await client.shown(thread) == [["go"]]
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
        assert told[:5] == ["answer", "status idle", "turn/completed interrupted", "status active", "turn/started"]
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
        params = {
            "thread/revert": {"beforeTurnId": turn},
            "thread/rollback": {"numTurns": 1, "interrupt": True},
            "thread/compact": {"summary": "S", "interrupt": True},
        }[method]
        result = await client.call(method, {"threadId": thread, **params})
        told = story(client.seen[mark:])
        assert told[:2] == ["status idle", "turn/completed interrupted"]
        if method == "thread/revert":
            assert told[2:5] == ["status notLoaded", "status idle", "answer"]
            assert result["thread"]["turns"] == [] and result["turnsBackwardsCursor"]
        if method != "thread/compact":
            reverted = await client.event("thread/reverted", since=mark)
            assert reverted["params"] == {
                "threadId": thread, "reason": method.removeprefix("thread/"), "turnIds": [turn]
            }  # fmt: skip
            assert story(client.seen[mark:])[-2:] == ["answer", "thread/reverted"]
            assert [one["id"] for one in (await client.read(thread))["turns"]] == [first]


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


async def test_broadcasts_reach_everybody_and_turns_only_their_subscribers(house: House) -> None:
    async with house.daemon() as daemon:
        client, other, silent = await daemon.connect(), await daemon.connect(), await daemon.raw_client()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await client.call("thread/name/set", {"threadId": thread, "name": "named"})
        await other.event("thread/name/updated")
        assert story(other.seen[1:]) == ["thread/started", "status active", "status idle", "thread/name/updated"]
        assert silent.seen == []


async def test_after_unsubscribing_a_turn_still_runs_and_only_broadcasts_come(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert await client.call("thread/unsubscribe", {"threadId": thread}) == {"status": "unsubscribed"}
        assert await client.call("thread/unsubscribe", {"threadId": thread}) == {"status": "notSubscribed"}
        mark = client.mark
        await client.begin(thread, "one")
        await client.until(lambda m: word(m) == "status idle", since=mark)
        await client.settled()
        assert story(client.seen[mark:]) == ["answer", "status active", "status idle", "answer"]
        assert await client.shown(thread) == [["one", "one"]]


async def test_notifications_that_a_client_opted_out_of_do_not_come(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect(optOutNotificationMethods=["item/agentMessage/delta", "thread/status/changed"])
        thread = await client.start(cwd=str(house.work))
        mark = client.mark
        await client.turn(thread, "one")
        assert story(client.seen[mark:]) == [one for one in TURN if "delta" not in one and "status" not in one]


async def test_a_thread_that_nobody_watches_is_unloaded_and_can_be_resumed(house: House) -> None:
    house.settings["thread_unload_delay_secs"] = 0
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        assert (await client.call("thread/loaded/list", {}))["data"] == [thread]
        mark = client.mark
        await client.call("thread/unsubscribe", {"threadId": thread})
        await client.event("thread/closed", threadId=thread, since=mark)
        assert story(client.seen[mark:]) == ["answer", "status notLoaded", "thread/closed"]
        assert (await client.call("thread/loaded/list", {}))["data"] == []
        assert await client.call("thread/unsubscribe", {"threadId": thread}) == {"status": "notLoaded"}
        refused = await client.refused("turn/start", {"threadId": thread, "input": []})
        assert refused.message == f"thread not found: {thread}"
        mark = client.mark
        await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert story(client.seen[mark:]) == ["status idle", "answer"]
        await client.turn(thread, "two")
        assert await client.shown(thread) == [["one", "one"], ["two", "two"]]


async def test_a_thread_is_not_unloaded_while_its_turn_runs(house: House) -> None:
    house.settings["thread_unload_delay_secs"] = 0
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        other = await daemon.connect()
        await client.close()
        assert (await other.call("thread/loaded/list", {}))["data"] == [thread]
        await other.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await other.event("thread/closed", threadId=thread)


async def test_joining_a_running_thread_shows_finished_items_and_then_what_follows(house: House) -> None:
    house.offline(*HANG, [{"say": "finished"}])
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        other = await daemon.connect()
        mark = other.mark
        plain = await other.call("thread/resume", {"threadId": thread})
        assert other.outline(mark) == ["deprecationNotice", "answer"]
        assert texts_of(plain["thread"]["turns"]) == [["go"]]
        assert plain["thread"]["status"]["type"] == "active"
        with_text = await other.call("thread/resume", {"threadId": thread, "replay": {"mode": "snapshot"}})
        (running,) = with_text["thread"]["turns"]
        assert running["status"] == "inProgress" and running["items"][0]["type"] == "userMessage"
        assert turn_texts(running) == ["go", "partial"]
        mark = other.mark
        await client.begin(thread, "rather")
        await other.ended(turn, mark)
        assert story(other.seen[mark:]) == TURN[3:]


async def test_a_full_resume_brings_the_usage_after_the_answer_and_a_lean_one_does_not(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.turn(thread, "one")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        mark = client.mark
        await client.call("thread/resume", {"threadId": thread})
        usage = await client.event("thread/tokenUsage/updated", since=mark)
        assert usage["params"]["turnId"] == turn
        assert story(client.seen[mark:]) == ["deprecationNotice", "status idle", "answer", "thread/tokenUsage/updated"]
        mark = client.mark
        result = await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        await client.settled()
        assert result["thread"]["turns"] == [] and client.outline(mark) == ["answer", "answer"]


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


async def test_a_turn_cut_by_the_end_of_the_daemon_is_shown_as_interrupted(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        _, thread, turn = await hanging(house, daemon)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert [(one["id"], one["status"]) for one in resumed["thread"]["turns"]] == [(turn, "interrupted")]
        assert resumed["thread"]["status"] == {"type": "idle"}


async def test_both_dialects_are_answered_in_their_own(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.raw_client()
        info = {"name": "old", "version": "1"}
        await client.send({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {"clientInfo": info}})
        answer = await client.until(lambda m: m.get("id") == "a")
        assert answer["jsonrpc"] == "2.0" and answer["result"]["userAgent"].startswith("old/0.171.0 ")
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        assert all(message["jsonrpc"] == "2.0" for message in client.seen)
