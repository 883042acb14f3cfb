"""Every keyed call that is made again: at once, after a restart, with other parameters, while the first one runs."""

import asyncio
import errno
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.faulty_shelf import Faults
from tests.interaction.house import House
from tests.interaction.stories import HANG, hanging

KEY = "the-key"

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "thread/rollback": {"numTurns": 1},
    "thread/compact": {"summary": "so far", "keepLast": 1},
    "thread/inject_items": {"items": [{"type": "message", "role": "developer", "content": []}]},
    "thread/name/set": {"name": "named"},
    "thread/settings/update": {"model": "other-model"},
    "thread/fork": {},
    "turn/start": {"input": [{"type": "text", "text": "three"}]},
    "thread/compact/start": {},
    "thread/rollback/undo": {},
    "thread/archive": {},
}
"""Calls on an idle thread of two turns."""

OTHERS: Mapping[str, Mapping[str, Any]] = {
    "thread/rollback": {"numTurns": 2},
    "thread/compact": {"summary": "else"},
    "thread/inject_items": {"items": [{"type": "message", "role": "user", "content": []}]},
    "thread/name/set": {"name": "other"},
    "thread/settings/update": {"model": "third-model"},
    "thread/fork": {"excludeTurns": True},
    "turn/start": {"input": [{"type": "text", "text": "four"}]},
    "thread/rollback/undo": {"excludeTurns": True},
}
"""The same calls with other parameters, where they have any."""

MOVING = {"status", "updatedAt", "recencyAt", "path", "cursor", "startedAt", "completedAt", "durationMs"}
"""What an answer tells of the moment, not of the change."""


def steady(value: Any) -> Any:
    """An answer without what belongs to its moment."""
    if isinstance(value, dict):
        return {name: steady(part) for name, part in value.items() if name not in MOVING}
    return [steady(part) for part in value] if isinstance(value, list) else value


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("method", CHANGES)
async def test_a_call_with_its_key_is_carried_out_once_and_answered_the_same(
    house: House, method: str, mode: str
) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        if method == "thread/rollback/undo":
            await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        asked = {"threadId": thread, "idempotencyKey": KEY, **CHANGES[method]}
        mark = client.mark
        first = await client.call(method, asked)
        if method in ("turn/start", "thread/compact/start"):
            await client.event("turn/completed", since=mark)
        before = house.logs()
        assert steady(await client.call(method, asked)) == steady(first)
        assert house.logs() == before
        if method in OTHERS:
            other = await client.refused(method, {**asked, **OTHERS[method]})
            assert other.reason == "idempotencyKeyReused"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        if method != "thread/archive":
            await client.call("thread/resume", {"threadId": thread})
        again = await client.call(method, asked)
        assert steady(again) == steady(first)
        assert house.logs() == before
        if method in OTHERS:
            other = await client.refused(method, {**asked, **OTHERS[method]})
            assert other.reason == "idempotencyKeyReused"


async def test_a_repeat_that_comes_while_the_first_call_runs_gets_its_answer(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two", "three")
        for method in ("thread/rollback", "turn/start", "thread/fork"):
            asked = {"threadId": thread, "idempotencyKey": KEY, **CHANGES[method]}
            first, second = await asyncio.gather(client.call(method, asked), other.call(method, asked))
            assert steady(first) == steady(second)
            if method == "turn/start":
                await client.ended(first["turn"]["id"])
        assert [turn[0] for turn in await client.shown(thread)] == ["one", "two", "three"]
        assert len((await client.call("thread/list", {}))["data"]) == 2


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_late_repeat_is_answered_with_the_turns_of_then(house: House, mode: str) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        asked = {"threadId": thread, "numTurns": 1, "idempotencyKey": KEY}
        first = await client.call("thread/rollback", asked)
        await client.turns(thread, "three", "four")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 3})
        await client.turn(thread, "five")
        again = await client.call("thread/rollback", asked)
        assert steady(again["thread"]["turns"]) == steady(first["thread"]["turns"])
        assert [turn[0] for turn in await client.shown(thread)] == ["five"]


async def test_a_keyed_turn_that_was_rolled_back_is_answered_and_not_run_again(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        turn = await client.turn(thread, "gone", idempotencyKey=KEY)
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert await client.begin(thread, "gone", idempotencyKey=KEY) == turn
        assert [turn[0] for turn in await client.shown(thread)] == ["one"]


async def test_steering_and_interrupting_again_do_so_once(house: House) -> None:
    house.offline(*HANG, *HANG, *HANG, *HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        said = [{"type": "text", "text": "more"}]
        steer = {"threadId": thread, "expectedTurnId": turn, "input": said, "idempotencyKey": KEY}
        join = {"threadId": thread, "input": said, "idempotencyKey": KEY}
        stop = {"threadId": thread, "turnId": turn, "idempotencyKey": KEY}
        for _ in range(2):
            assert await client.call("turn/steer", steer) == {"turnId": turn}
            assert (await client.call("turn/start", join))["turn"]["id"] == turn
        for _ in range(2):
            assert await client.call("turn/interrupt", stop) == {}
        assert (await client.ended(turn))["status"] == "interrupted"
        before = house.logs()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert await client.call("turn/steer", steer) == {"turnId": turn}
        assert (await client.call("turn/start", join))["turn"]["id"] == turn
        assert await client.call("turn/interrupt", stop) == {}
        assert house.logs() == before
        (shown,) = (await client.read(thread))["turns"]
        said_there = [item["content"][0]["text"] for item in shown["items"] if item["type"] == "userMessage"]
        assert said_there == ["go", "more", "more"]


async def test_a_refused_call_leaves_its_key_for_a_retry(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        asked = {"threadId": thread, "numTurns": 2, "idempotencyKey": KEY}
        assert (await client.refused("thread/rollback", asked)).reason == "notMaterialized"
        await client.turn(thread, "one")
        assert (await client.refused("thread/rollback", asked)).reason == "turnsOutOfRange"
        await client.turn(thread, "two")
        assert (await client.call("thread/rollback", asked))["thread"]["turns"] == []
        for key in ("", "x" * 257, 7):
            bad = await client.refused("thread/rollback", {**asked, "idempotencyKey": key})
            assert (bad.reason, bad.data["field"]) == ("invalidParams", "idempotencyKey")


async def test_whole_threads_are_moved_and_removed_once_also_across_restarts(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    asked = {"threadId": thread, "idempotencyKey": KEY}
    answers = []
    for method in ("thread/archive", "thread/unarchive", "thread/name/set", "thread/delete"):
        more = {"name": "n"} if method == "thread/name/set" else {}
        for _ in range(2):
            async with house.daemon() as daemon:
                client = await daemon.connect()
                answers.append(steady(await client.call(method, {**asked, **more})))
                assert answers[-1] == steady(await client.call(method, {**asked, **more}))
        assert answers[-2] == answers[-1]
    assert not house.logs()


async def test_a_busy_thread_rejects_or_makes_way_as_the_caller_says(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        said = [{"type": "text", "text": "now"}]
        refused = await client.refused("turn/start", {"threadId": thread, "input": said, "ifBusy": "reject"})
        assert refused.data == {"reason": "activeTurn", "turnId": turn}
        mark = client.mark
        newer = await client.turn(thread, "now", ifBusy="interrupt", idempotencyKey=KEY)
        assert (await client.ended(turn))["status"] == "interrupted"
        words = [(m["method"], m["params"]["turn"]["id"]) for m in client.seen[mark:] if "turn" in m.get("params", {})]
        assert words == [("turn/completed", turn), ("turn/started", newer), ("turn/completed", newer)]
        assert await client.begin(thread, "now", ifBusy="interrupt", idempotencyKey=KEY) == newer
        assert [turn[0] for turn in await client.shown(thread)] == ["go", "now"]


async def test_a_key_that_cannot_be_written_leaves_the_thread_idle_and_the_key_free(house: House) -> None:
    house.offline()
    house.faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        asked = {"threadId": thread, "idempotencyKey": KEY, **CHANGES["turn/start"]}
        house.faults.plan("append", errno.ENOSPC, times=50)
        assert (await client.refused("turn/start", asked)).reason == "writeFailed"
        assert daemon.session(thread).turn is None
        house.faults.clear()
        await client.ended((await client.call("turn/start", asked))["turn"]["id"])
        assert [turn[0] for turn in await client.shown(thread)] == ["one", "three"]
