"""What is noted beside a conversation survives restarts and changes of the past; and where a turn's end is told."""

from typing import Any

from tests.interaction.house import House
from tests.interaction.stories import word
from tests.interaction.wire import Client


async def state(client: Client, thread: str) -> Any:
    """What of a thread was read; the list says the same."""
    read = (await client.call("thread/read", {"threadId": thread}))["readState"]
    assert (await client.call("thread/list", {}))["readStates"][thread] == read
    return read


def unread(turn: str) -> Any:
    return {"type": "turn", "turnId": turn}


async def test_the_first_unread_turn_stays_until_everything_was_read_also_after_a_restart(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert (await client.call("thread/read", {"threadId": thread}))["readState"] == {
            "firstUnread": None,
            "revision": f"initial:{thread}",
        }
        first, _ = await client.turns(thread, "one", "two")
        told = await state(client, thread)
        assert told["firstUnread"] == unread(first)
        await other.event("thread/readState/changed", readState=told)
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        assert await state(client, thread) == told
        update = {"threadId": thread, "operation": {"type": "read"}, "expectedRevision": told["revision"]}
        newer = (await client.call("thread/readState/update", update))["readState"]
        assert newer["firstUnread"] is None and newer["revision"] != told["revision"]
        await other.event("thread/readState/changed", readState=newer)
        assert (await client.refused("thread/readState/update", update)).reason == "conflict"
        before = house.log(thread)
        await client.call("thread/readState/update", {**update, "expectedRevision": newer["revision"]})
        assert house.log(thread) == before
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert await state(client, thread) == newer
        await client.call("thread/resume", {"threadId": thread})
        third = await client.turn(thread, "three")
        assert (await state(client, thread))["firstUnread"] == unread(third)


async def test_marks_outlive_compactions_and_reverts_and_a_fork_begins_with_nothing_unread(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        first, second = await client.turns(thread, "one", "two")
        given = {"threadId": thread, "gitInfo": {"branch": "b1", "sha": "1"}, "projectId": "p"}
        changed = (await client.call("thread/metadata/update", given))["thread"]
        assert (changed["gitInfo"]["branch"], changed["projectId"]) == ("b1", "p")
        kept = await state(client, thread)
        await client.call("thread/compact", {"threadId": thread, "summary": "s"})
        assert await state(client, thread) == kept
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]
        assert (await state(client, child["id"]))["firstUnread"] is None and child["projectId"] is None
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": second})
        assert (await state(client, thread))["firstUnread"] == unread(first)
        cleared = {"threadId": thread, "gitInfo": {"sha": None}}
        changed = (await client.call("thread/metadata/update", cleared))["thread"]
        assert changed["gitInfo"]["branch"] == "b1" and changed["gitInfo"]["sha"] is None
    async with house.daemon() as daemon:
        client = await daemon.connect()
        stored = (await client.call("thread/read", {"threadId": thread}))["thread"]
        resumed = (await client.call("thread/resume", {"threadId": thread}))["thread"]
        for shown in (stored, resumed):
            assert (shown["gitInfo"], shown["projectId"]) == (changed["gitInfo"], "p")


async def test_a_client_that_asks_for_it_sees_a_turn_end_before_its_status_and_all_see_one_order(house: House) -> None:
    house.offline([{"say": "fine"}], [{"fail": "server_error"}], default=[{"say": "fine"}])
    async with house.daemon() as daemon:
        usual, first = await daemon.connect(), await daemon.connect(turnCompletedFirst=True)
        stranger = await daemon.connect(turnCompletedFirst=True)
        thread = await usual.start(cwd=str(house.work))
        await first.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        mark = first.mark
        for number in range(2):
            await usual.ended(await usual.begin(thread, str(number)), 0)
        for client in (usual, first, stranger):
            await client.settled()
        ends = ("status idle", "status systemError", "turn/completed completed", "turn/completed failed")
        told = [word(m) for m in usual.seen if word(m) in ends]
        turned = [word(m) for m in first.seen[mark:] if word(m) in ends]
        assert told == ["status idle", "turn/completed completed", "status systemError", "turn/completed failed"]
        assert turned == ["turn/completed completed", "status idle", "turn/completed failed", "status systemError"]
        assert [word(m) for m in stranger.seen if word(m) in ends] == ["status idle", "status systemError"]
        seen = [m["cursor"] for m in first.events(thread, mark)]
        order = [m["cursor"] for m in usual.events(thread)]
        assert seen == [cursor for cursor in order if cursor in set(seen)]
        recorded = [
            m for m in usual.events(thread) if m["method"] in ("turn/started", "turn/completed", "item/completed")
        ]
        assert recorded == [m for m in first.events(thread, mark) if m in recorded]


async def test_items_can_be_listed_as_they_were_at_any_position(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turns = await client.turns(thread, "one", "two")
        branch = (await client.call("thread/branches", {"threadId": thread}))["data"][0]
        at = {"rolloutId": branch["rolloutId"], "ordinal": branch["endOrdinal"]}
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": turns[1]})
        now = (await client.call("thread/items/list", {"threadId": thread}))["data"]
        then = (await client.call("thread/items/list", {"threadId": thread, "at": at}))["data"]
        assert {one["turnId"] for one in now} == {turns[0]} and {one["turnId"] for one in then} == set(turns)
        assert then[: len(now)] == now


async def test_a_permission_profile_is_the_sandbox_it_names_and_an_unknown_one_is_refused(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        begun = await client.call("thread/start", {"cwd": str(house.work), "permissions": ":read-only"})
        assert begun["sandbox"]["type"] == "readOnly"
        refusal = await client.refused("thread/start", {"permissions": ":anything"})
        assert (refusal.reason, refusal.data["field"]) == ("invalidParams", "permissions")
