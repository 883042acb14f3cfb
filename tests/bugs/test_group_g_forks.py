"""Forks: cut where they were asked for, complete, with their own accounts, and safe from their parent's end."""

from typing import Any

import pytest

from tests.bugs.cases import THREAD, lines_of, resume, said, write_lines
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import inputs


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b45_nothing_after_the_fork_point_reaches_the_child(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        ids = await client.turns(thread, "one", "two", "three")
        child = (await client.call("thread/fork", {"threadId": thread, "lastTurnId": ids[0]}))["thread"]["id"]
        assert said(daemon, child) == ["one", "ok 1"]
        await client.turn(child, "mine")
        assert [turn[0] for turn in await client.shown(child)] == ["one", "mine"]
    sent = str(inputs(mock)[-1])
    assert "two" not in sent and "three" not in sent and "mine" in sent


async def test_b47_a_fork_of_a_running_turn_has_what_was_asked_marked_as_interrupted(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.replies.append([{"hang": True}])
        running = await client.begin(thread, "two")
        await client.event("item/completed", threadId=thread, turnId=running)
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]
        assert [turn["status"] for turn in child["turns"]] == ["completed", "interrupted"]
        assert [turn[0] for turn in await client.shown(child["id"])] == ["one", "two"]
        await client.turn(child["id"], "three")
        assert "two" in str(inputs(mock)[-1]) and "turn_aborted" in str(inputs(mock)[-1])
        await client.call("turn/interrupt", {"threadId": thread, "turnId": running})
        await client.ended(running)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b49_a_forks_totals_go_on_and_say_how_much_was_inherited(house: House, mock: Mock, mode: str) -> None:
    house.service(mock)

    def counted(messages: list[Any], thread: str) -> list[tuple[int, int | None]]:
        found = [m["params"] for m in messages if m.get("method") == "thread/tokenUsage/updated"]
        return [
            (one["tokenUsage"]["total"]["totalTokens"], (one.get("inherited") or {}).get("totalTokens"))
            for one in found
            if one["threadId"] == thread
        ]

    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        assert counted(client.seen, thread) == [(110, None), (220, None)]
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        (turn,) = await client.turns(child, "three")
        assert counted(client.seen, child)[-1] == (330, 220)
        if mode == "paginated":
            await client.turn(child, "four")
            await client.call("thread/rollback", {"threadId": child, "numTurns": 1})
            await client.turn(child, "five")
            assert counted(client.seen, child)[-1][1] == 220
        grandchild = (await client.call("thread/fork", {"threadId": child, "lastTurnId": turn}))["thread"]["id"]
        await client.turn(grandchild, "six")
        assert counted(client.seen, grandchild)[-1] == (440, 330)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": child})
        await client.settled()
        assert counted(client.seen, child)[-1][1] == 220


@pytest.mark.parametrize("end", [10, 12, 13, 19])
async def test_b51_a_thread_that_can_be_resumed_can_be_forked(house: House, end: int) -> None:
    write_lines(house, lines_of("B23_open_turn_then_more")[:end])
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        stored = await client.call("thread/fork", {"threadId": THREAD, "modelProvider": "offline"})
        await resume(client)
        live = await client.call("thread/fork", {"threadId": THREAD, "modelProvider": "offline"})
        for child in (stored["thread"]["id"], live["thread"]["id"]):
            assert said(daemon, child)[:2] == ["alpha", "A1"]
            await client.turn(child, "on")


async def test_b53_a_parent_cannot_be_deleted_while_children_depend_on_it_and_may_be_archived(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await client.turn(child, "three")
        refusal = await client.refused("thread/delete", {"threadId": thread})
        assert (refusal.reason, refusal.data["threadIds"]) == ("dependentThreads", [child])
        await client.call("thread/archive", {"threadId": thread})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": child})
        assert [turn[0] for turn in await client.shown(child)] == ["one", "two", "three"]
        assert said(daemon, child)[0] == "one"
        assert (await client.refused("thread/delete", {"threadId": thread})).reason == "dependentThreads"
        await client.call("thread/delete", {"threadId": child})
        await client.call("thread/delete", {"threadId": thread})
        assert house.logs() == {}


async def test_b53_the_parent_of_a_copied_fork_may_go(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode="legacy")
        await client.turns(thread, "one", "two")
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await client.turn(child, "three")
        await client.call("thread/delete", {"threadId": thread})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert [turn[0] for turn in await client.shown(child)] == ["one", "two", "three"]
