"""Threads whose log is kept in the old mode: markers instead of branches, copies instead of references."""

import json
from typing import Any

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.moves import compacted, fork, model_side
from tests.interaction.prompts import inputs, talk

MODE = {"historyMode": "legacy"}


async def test_a_legacy_thread_runs_turns_in_one_file_and_resumes(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        started = await client.call("thread/start", {"cwd": str(house.work), **MODE})
        assert started["thread"]["historyMode"] == "legacy"
        thread = started["thread"]["id"]
        await client.turns(thread, "one", "two")
        before, live = await client.read(thread), model_side(daemon, thread)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        mark = client.mark
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert "deprecationNotice" not in client.outline(mark)
        assert resumed["thread"]["turns"] == before["turns"]
        assert model_side(daemon, thread) == live
        await client.turn(thread, "three")
        assert await client.shown(thread) == [["one", "ok 1"], ["two", "ok 2"], ["three", "ok 3"]]
    assert len(house.logs()) == 1
    assert talk(inputs(mock)[-1])[-1] == "user: three"


async def test_a_rollback_of_a_legacy_thread_is_a_marker_in_the_same_file(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        turns = await client.turns(thread, "one", "two", "three")
        written = house.log(thread)
        result = await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert [turn["id"] for turn in result["thread"]["turns"]] == turns[:1]
        told = await client.event("thread/reverted")
        assert told["params"] == {"threadId": thread, "reason": "rollback", "turnIds": turns[1:]}
        assert house.log(thread).startswith(written) and len(house.logs()) == 1
        (marker,) = [json.loads(line) for line in house.log(thread)[len(written) :].splitlines()]
        assert marker["payload"]["type"] == "thread_rolled_back" and marker["payload"]["num_turns"] == 2
        assert marker["unspool"]["turnIds"] == turns[1:]
        assert await client.shown(thread) == [["one", "ok 1"]]
        live = model_side(daemon, thread)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert await client.shown(thread) == [["one", "ok 1"]]
        assert model_side(daemon, thread) == live
        await client.turn(thread, "four")
    assert talk(inputs(mock)[-1]) == ["user: one", "assistant: ok 1", "user: four"]


async def test_the_undo_brings_turns_and_model_history_back_and_lasts(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        turns = await client.turns(thread, "one", "two", "three")
        texts, history = await client.shown(thread), model_side(daemon, thread)["history"]
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        undone = await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn["id"] for turn in undone["thread"]["turns"]] == turns[:2]
        undone = await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn["id"] for turn in undone["thread"]["turns"]] == turns
        assert (await client.refused("thread/rollback/undo", {"threadId": thread})).reason == "nothingToUndo"
        assert await client.shown(thread) == texts
        assert model_side(daemon, thread)["history"] == history
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert await client.shown(thread) == texts
        assert model_side(daemon, thread)["history"] == history
        await client.turn(thread, "four")
        assert (await client.shown(thread))[-1] == ["four", "ok 4"]
    assert talk(inputs(mock)[-1])[-3:] == ["user: three", "assistant: ok 3", "user: four"]


async def test_a_fork_of_a_legacy_thread_copies_it_line_by_line(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        turns = await client.turns(thread, "one", "two")
        parent = house.log(thread).splitlines()
        child = await fork(client, thread)
        copied = house.log(child).splitlines()
        assert copied[1 : 1 + len(parent)] == parent
        cut = await fork(client, thread, beforeTurnId=turns[1])
        assert await client.shown(cut) == [["one", "ok 1"]]
        await client.call("thread/delete", {"threadId": thread})
        await client.turn(child, "three")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": child})
        assert resumed["thread"]["historyMode"] == "legacy" and resumed["thread"]["forkedFromId"] == thread
        assert await client.shown(child) == [["one", "ok 1"], ["two", "ok 2"], ["three", "ok 3"]]


async def test_both_compactions_of_a_legacy_thread_last(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "three")
        await client.call("thread/compact", {"threadId": thread, "summary": "S", "keepLast": 1})
        shown, live = await client.shown(thread), model_side(daemon, thread)
        assert shown == [["one", "ok 1"], ["two", "ok 2"], ["[compaction]"], ["three", "ok 4"], ["[compaction]"]]
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert await client.shown(thread) == shown
        assert model_side(daemon, thread) == live
        await client.turn(thread, "four")
    assert talk(inputs(mock)[-1]) == ["developer: S", "user: three", "assistant: ok 4", "user: four"]


async def test_a_rollback_across_a_compaction_brings_the_time_before_it_back(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "three")
        texts, history = await client.shown(thread), model_side(daemon, thread)["history"]
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert await client.shown(thread) == [["one", "ok 1"]]
        await client.call("thread/rollback/undo", {"threadId": thread})
        assert await client.shown(thread) == texts
        assert model_side(daemon, thread)["history"] == history


async def test_steered_input_goes_with_its_turn(house: House) -> None:
    hang: list[dict[str, Any]] = [{"say": "x", "partial": True}, {"hang": True}]
    house.offline([{"say": "a"}], hang, [{"say": "b"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        await client.turn(thread, "one")
        turn = await client.begin(thread, "two")
        await client.event("item/agentMessage/delta", turnId=turn)
        assert await client.begin(thread, "and this") == turn
        await client.ended(turn)
        assert await client.shown(thread) == [["one", "a"], ["two", "and this", "b"]]
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert await client.shown(thread) == [["one", "a"]]
        await client.call("thread/rollback/undo", {"threadId": thread})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["id"] == thread
        assert await client.shown(thread) == [["one", "a"], ["two", "and this", "b"]]


async def test_events_of_a_legacy_thread_come_again_as_they_were(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **MODE)
        await client.turns(thread, "one", "two")
        ends = [e["params"] for e in client.events(thread) if e["method"] in ("turn/completed", "item/completed")]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "excludeTurns": True, "replay": {"after": None}})
        await client.until(lambda m: client.count("turn/completed") == 2)
        again = [e["params"] for e in client.events(thread) if e["method"] in ("turn/completed", "item/completed")]
        ids = [[one.get("item", one.get("turn"))["id"] for one in told] for told in (ends, again)]
        assert ids[0] == ids[1]
