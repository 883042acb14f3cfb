"""Rollback and revert: what goes, what stays, and where the removed part can still be found."""

from typing import Any

from tests.bugs.cases import THREAD, lines_of, place, resume, said, write_lines
from tests.interaction.house import House


async def test_b29_a_discarded_turn_leaves_nothing_behind_its_compaction_included(house: House) -> None:
    place(house, "B29_rollback_of_compacted_turn")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon) == ["keep", "K1"]
        assert await client.shown(THREAD) == [["keep", "K1"]]


async def test_b29_our_own_rollback_of_a_turn_that_compacted_leaves_nothing_either(house: House) -> None:
    house.offline(usage={"in": 10, "out": 1})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "keep", "discard")
        before = said(daemon, thread)[:2]
        await client.call("thread/compact/start", {"threadId": thread})
        await client.event("turn/completed", since=client.mark - 1)
        await client.settled()
        await client.turn(thread, "later")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert said(daemon, thread) == before
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert said(daemon, thread) == before
        assert [turn[0] for turn in await client.shown(thread)] == ["keep"]


async def test_b31_a_second_rollback_removes_what_the_first_one_left(house: House) -> None:
    place(house, "B31_rollback_twice_then_new")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        texts = said(daemon)
        assert texts[:2] == ["one", "A1"] and "two" not in texts and "three" not in texts
        assert [turn[0] for turn in await client.shown(THREAD)] == [texts[0], texts[2]]


async def test_b31_any_number_of_rollbacks_counts_what_is_there(house: House) -> None:
    """Markers of old logs, one after the other, in all splits of four turns."""
    lines = lines_of("B31_rollback_twice_then_new")
    first_marker = next(n for n, line in enumerate(lines) if b"thread_rolled_back" in line)
    turns, marker = lines[:first_marker], lines[first_marker]
    for count in range(4):
        path = write_lines(house, [*turns, *[marker] * count])
        async with house.daemon() as daemon:
            client = await daemon.connect()
            assert [turn[0] for turn in await client.shown(THREAD)] == ["one", "two", "three"][: 3 - count]
        path.unlink()


async def test_b33_reverting_to_a_turn_that_is_gone_is_a_clean_refusal_after_a_restart_too(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ids = await client.turns(thread, "one", "two", "three")
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": ids[1]})
        later = await client.turns(thread, "four", "five")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        turns = (await client.read(thread))["turns"]
        assert [turn["id"] for turn in turns] == [ids[0], *later]
        assert all(turn["items"] for turn in turns)
        for gone in ids[1:]:
            refusal = await client.refused("thread/revert", {"threadId": thread, "beforeTurnId": gone})
            assert refusal.reason == "turnNotFound"
        listed: Any = await client.call("thread/items/list", {"threadId": thread})
        assert {entry["turnId"] for entry in listed["data"]} == {ids[0], *later}


async def test_b35_what_a_revert_removed_stays_in_its_log_and_comes_back_when_asked(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ids = await client.turns(thread, "one", "two", "three")
        before = house.logs()
        await client.call("thread/revert", {"threadId": thread, "beforeTurnId": ids[1]})
        assert [turn[0] for turn in await client.shown(thread)] == ["one"]
        after = house.logs()
        assert {name: after[name] for name in before} == before
        branches: Any = await client.call("thread/branches", {"threadId": thread})
        assert str(ids[2]) in str(branches) and thread in str(branches)
        await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn[0] for turn in await client.shown(thread)] == ["one", "two", "three"]
        assert {name: content for name, content in house.logs().items() if name in after} == after
