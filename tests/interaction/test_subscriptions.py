"""Who hears of a thread, how long it stays loaded, and what a client finds that joins it."""

from tests.interaction.house import House
from tests.interaction.stories import HANG, TURN, hanging, story, word
from tests.interaction.wire import texts_of, turn_texts


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
