"""The demands on logs and their reconstruction, each shown on the product: reopening, writing, promises, old logs."""

import errno
import json
from typing import Any

from tests.conformance.faulty_shelf import Faults
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House
from tests.interaction.moves import compacted, model_side
from tests.interaction.prompts import assert_prefix, contexts, inputs, said, talk


async def test_reopening_rebuilds_the_four_states_from_the_log_alone(house: House, mock: Mock) -> None:
    """demand 1"""
    house.service(mock)
    other = house.work / "elsewhere"
    other.mkdir()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await client.turn(thread, "two", model="other-model", cwd=str(other), effort="high")
        live = model_side(daemon, thread)
        turns = (await client.read(thread))["turns"]
    house.only_logs_stay()

    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert model_side(daemon, thread) == live
        assert (resumed["model"], resumed["cwd"], resumed["reasoningEffort"]) == ("other-model", str(other), "high")
        assert resumed["thread"]["turns"] == turns
        assert client.count("warning") == 0
        await client.turn(thread, "three")
    second, third = inputs(mock)[-2:]
    assert_prefix(second, third, new=2)
    assert said(third)[-2:] == ["assistant: ok 2", "user: three"]


async def test_reconstruction_gives_history_settings_baseline_world_window_and_newest_turn(house: House) -> None:
    """demand 2"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        last = await client.turn(thread, "three", model="m2")
        live = model_side(daemon, thread)
    assert live["previous settings"].model == "m2"
    assert live["reference context"]["model"] == "m2"
    assert live["world state"]
    assert live["window"].number == 1 and live["window"].id and live["window"].previous_id
    assert live["last started turn"] == last

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert model_side(daemon, thread) == live


async def test_a_replacement_history_of_a_removed_turn_is_not_installed_again(house: House, mock: Mock) -> None:
    """demand 3"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode="legacy")
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "three")
        # Newest first: three goes, the compaction goes along, two goes.
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        live = model_side(daemon, thread)

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert model_side(daemon, thread)["history"] == live["history"]
        await client.turn(thread, "four")
    assert talk(inputs(mock)[-1]) == ["user: one", "assistant: ok 1", "user: four"]


async def test_a_cleared_baseline_stays_cleared_against_an_older_one(house: House, mock: Mock) -> None:
    """demand 6"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        assert model_side(daemon, thread)["world state"]
        await client.call("thread/compact", {"threadId": thread, "summary": "S", "keepLast": 0})
        assert model_side(daemon, thread)["reference context"] is None
    house.only_logs_stay()

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        cleared = model_side(daemon, thread)
        assert (cleared["reference context"], cleared["world state"]) == (None, None)
        await client.turns(thread, "three", "four")
    first, second = inputs(mock)[-2:]
    assert talk(first) == ["developer: S", "user: three"]
    assert contexts(first) >= 1 and contexts(second) == contexts(first)
    assert_prefix(first, second, new=2)


async def test_records_of_every_type_are_kept_and_only_some_reach_the_model(house: House, mock: Mock) -> None:
    """demand 10"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
    types = {record["type"] for record in house.records(thread)}
    assert {"session_meta", "response_item", "compacted", "turn_context", "event_msg", "world_state"} <= types
    events = {record["payload"].get("type") for record in house.records(thread) if record["type"] == "event_msg"}
    assert {"task_started", "token_count", "item_completed", "thread_settings_applied", "task_complete"} <= events
    path = house.log_file(thread)
    size = len(house.records(thread))
    strange: list[tuple[str, Any]] = [
        ("retained_context", {"secret": 1}),
        ("token_usage", {"secret": 2}),
        ("realtime_item", {"secret": 3}),
        ("never_heard_of", {"secret": 4}),
        ("event_msg", {"type": "secret_event"}),
    ]
    stamp = "2026-01-01T00:00:00.000Z"
    lines = [
        json.dumps({"timestamp": stamp, "ordinal": size + n, "type": kind, "payload": payload})
        for n, (kind, payload) in enumerate(strange)
    ]
    with path.open("a") as log:
        log.write("".join(line + "\n" for line in lines))

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "three")
        assert (await client.shown(thread))[-1] == ["three", "ok 4"]
    assert all(line.encode() in house.log(thread).splitlines() for line in lines)
    assert "secret" not in json.dumps(mock.last())
    assert talk(mock.last()["input"])[-1] == "user: three"


async def test_lines_carry_timestamp_ordinal_type_and_payload(house: House) -> None:
    """demand 11"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        old = await client.start(cwd=str(house.work), historyMode="legacy")
        await client.turn(old, "one")
    records = house.records(thread)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    assert records[0]["type"] == "session_meta" and records[0]["payload"]["id"] == thread
    for record in [*records, *house.records(old)]:
        assert isinstance(record["type"], str) and isinstance(record["payload"], dict)
        assert record["timestamp"].endswith("Z")
    assert all("ordinal" not in record for record in house.records(old))


async def test_a_new_thread_has_no_file_before_its_first_turn_and_a_resumed_one_appends(house: House) -> None:
    """demand 12"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        started = (await client.call("thread/start", {"cwd": str(house.work)}))["thread"]
        thread = started["id"]
        assert house.logs() == {}
        assert started["path"] is not None and thread in started["path"]
        await client.turn(thread, "one")
        assert str(house.log_file(thread)) == started["path"]
    written = house.log(thread)

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert house.log(thread) == written
        await client.turn(thread, "two")
        assert list(house.logs()) == [house.log_file(thread).name]
        assert house.log(thread).startswith(written)


async def test_a_refused_write_is_kept_and_tried_again_at_the_next_barrier(house: House) -> None:
    """demand 13"""
    house.faults = faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        faults.plan("append", errno.ENOSPC, partial=20, times=100)
        second = await client.turn(thread, "two")
        assert (await client.shown(thread)) == [["one", "one"], ["two", "two"]]
        faults.clear()
        await client.turn(thread, "three")
        assert (await client.shown(thread)) == [["one", "one"], ["two", "two"], ["three", "three"]]
    records = house.records(thread)
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    ends = [r["payload"]["turn_id"] for r in records if r["payload"].get("type") == "task_complete"]
    assert len(ends) == 3 and second in ends


async def test_a_turn_that_is_only_accepted_says_so_and_a_written_one_does_not(house: House) -> None:
    """demand 14"""
    house.faults = faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        first = await client.ended(await client.begin(thread, "one"))
        assert "durability" not in first
        written = house.log(thread)
        faults.plan("append", errno.ENOSPC, times=100)
        second = await client.ended(await client.begin(thread, "two"))
        assert (second["status"], second["durability"]) == ("completed", "accepted")
        warned = await client.event("warning", threadId=thread, code="logNotWritten")
        assert "/" not in warned["params"]["message"]
        assert house.log(thread) == written
        faults.clear()
        third = await client.ended(await client.begin(thread, "three"))
        assert "durability" not in third
        assert house.log(thread).startswith(written) and len(house.log(thread)) > len(written)


async def test_synced_threads_reach_the_disk_at_every_barrier(house: House) -> None:
    """demand 14"""
    house.faults = faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.turn(await client.start(cwd=str(house.work)), "one")
    assert faults.calls.get("sync", 0) == 0
    house.tables["history"] = {"durability": "synced"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.turn(await client.start(cwd=str(house.work)), "one")
    assert faults.calls["sync"] > 0


async def test_new_cleared_resumed_and_forked_threads_come_in_by_one_entrance(house: House, mock: Mock) -> None:
    """demand 15"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        cleared = await client.start(cwd=str(house.work), sessionStartSource="clear")
        assert house.logs() == {} and mock.requests == []
        await client.turn(thread, "one")
        await client.turn(cleared, "one")
        new, clear = inputs(mock)
        assert said(new) == said(clear) and said(new)[-1] == "user: one" and contexts(new) >= 1
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await client.turn(child, "two")
    assert contexts(inputs(mock)[-1]) == contexts(new)

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": child})
        await client.turn(child, "three")
    assert talk(inputs(mock)[-1]) == [
        "user: one", "assistant: ok 1", "user: two", "assistant: ok 3", "user: three"
    ]  # fmt: skip
    assert contexts(inputs(mock)[-1]) == contexts(new)


async def test_tool_results_reach_the_log_beside_the_call_they_answer(house: House) -> None:
    """demand 10"""
    house.offline([{"call": "look", "id": "call_1"}], [{"say": "done"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "look")
        request = await client.event("item/tool/call", threadId=thread)
        result = {"contentItems": [{"type": "inputText", "text": "found"}], "success": True}
        await client.send({"id": request["id"], "result": result})
        await client.ended(turn)
    calls = [r["payload"] for r in house.records(thread) if r["payload"].get("call_id") == "call_1"]
    assert [one["type"] for one in calls] == ["function_call", "function_call_output"]
