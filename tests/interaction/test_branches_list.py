"""`thread/branches`: every rollout of a thread, why it was made and what it left."""

import itertools
from typing import Any

from tests.interaction.house import House
from tests.interaction.wire import Client

Branch = dict[str, Any]


async def branches(client: Client, thread: str) -> list[Branch]:
    found: list[Branch] = (await client.call("thread/branches", {"threadId": thread}))["data"]
    return found


async def test_a_rollback_and_its_undo_are_listed_with_what_they_left(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        second = await client.turn(thread, "two")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.call("thread/rollback/undo", {"threadId": thread})
        found = await branches(client, thread)
        live_end = daemon.session(thread).log.next_ordinal
    assert [one["why"] for one in found] == ["start", "rollback", "undo"]
    start, rolled, undone = found
    assert start["rolloutId"] == thread and start["base"] is None and start["left"] is None
    assert rolled["turnIds"] == [second] and rolled["base"]["rolloutId"] == thread
    assert rolled["left"] == {"rolloutId": thread, "ordinal": start["endOrdinal"]}
    assert undone["base"] == {"rolloutId": thread, "ordinal": start["endOrdinal"]}
    assert undone["left"] == {"rolloutId": rolled["rolloutId"], "ordinal": rolled["endOrdinal"]}
    assert undone["endOrdinal"] == live_end
    assert [one["present"] for one in found] == [False, False, True]
    assert [one["onPath"] for one in found] == [True, False, True]
    assert all(one["reachable"] and not one["archived"] and one["createdAt"] > 0 for one in found)


async def test_a_fork_is_one_rollout_that_begins_in_its_parent(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        fork = (await client.call("thread/fork", {"threadId": thread, "excludeTurns": True}))["thread"]["id"]
        found = await branches(client, fork)
    assert [(one["why"], one["base"]["rolloutId"], one["turnIds"]) for one in found] == [("fork", thread, [])]


async def test_segments_that_the_reference_wrote_are_reverts_with_their_turns(house: House) -> None:
    thread = house.borrow("revert")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        found = await branches(client, thread)
        turns = [turn["id"] for turn in (await client.read(thread))["turns"]]
    assert [one["why"] for one in found] == ["start", *["revert"] * (len(found) - 1)] and len(found) > 1
    for older, one in itertools.pairwise(found):
        assert one["left"] == {"rolloutId": older["rolloutId"], "ordinal": older["endOrdinal"]}
        assert one["turnIds"] and not set(one["turnIds"]) & set(turns)


async def test_a_branch_whose_base_is_gone_is_listed_as_not_reachable(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        fork = (await client.call("thread/fork", {"threadId": thread, "excludeTurns": True}))["thread"]["id"]
    house.log_file(thread).unlink()
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        found = await branches(client, fork)
        refusal = await client.refused("thread/branches", {"threadId": thread})
    assert [(one["reachable"], one["why"]) for one in found] == [(False, "fork")]
    assert refusal.reason == "threadNotFound"


async def test_a_thread_that_never_ran_has_no_branches(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert await branches(client, thread) == []
