"""The demands on reading logs back, each shown on the product: how far, what of old ones, what clients are told."""

import json
import shutil

import pytest
from unspool_server.history.reconstruct import reconstruct

from tests.fixtures.mockmodel import Mock
from tests.history.codex_logs import SCENARIOS
from tests.interaction.house import FIXTURES, House
from tests.interaction.moves import compacted, facts, fork, model_side
from tests.interaction.prompts import inputs, prefix_length, talk


async def test_records_before_what_is_needed_are_not_read(house: House, mock: Mock) -> None:
    """demand 4"""
    house.service(mock)
    thread = await _with_damaged_past(house)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        assert client.count("warning") == 0
        await client.turn(thread, "three")
    assert talk(inputs(mock)[-1])[-2:] == ["assistant: ok 4", "user: three"]


async def _with_damaged_past(house: House) -> str:
    """A compacted thread whose older records are no JSON any more; whoever read them would notice."""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "after")
    path = house.log_file(thread)
    lines = path.read_bytes().split(b"\n")
    cut = next(n for n, line in enumerate(lines) if b'"type":"compacted"' in line)
    damaged = [b"#" * len(line) if 0 < n < cut else line for n, line in enumerate(lines)]
    path.write_bytes(b"\n".join(damaged))
    house.only_logs_stay()
    return thread


async def test_an_old_compaction_without_replacement_is_bridged_and_the_client_is_told(
    house: House, mock: Mock
) -> None:
    """demand 9"""
    house.service(mock)
    thread = house.borrow("v120_stripped_both")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "cwd": str(house.work)})
        told = await client.event("warning", threadId=thread)
        assert model_side(daemon, thread)["reference context"] is None
        bridged = [n for n, record in enumerate(house.records(thread)) if record["type"] == "compacted"]
        warnings = {m["params"]["code"]: m["params"] for m in client.seen if m.get("method") == "warning"}
        assert warnings["legacyCompaction"]["ordinals"] == bridged
        assert warnings["legacyCompaction"]["effect"] and told["params"]["message"]
        await client.turn(thread, "on")
    asked = talk(inputs(mock)[-1])
    assert "user: question 1" in asked and any("summary" in word for word in asked)
    assert not any(word.startswith("assistant: ok 1") for word in asked)


async def test_resuming_with_another_model_than_recorded_warns(house: House) -> None:
    """demand 16"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), model="first-model")
        await client.turn(thread, "one")

    async with house.daemon() as daemon:
        client = await daemon.connect()
        mark = client.mark
        await client.call("thread/resume", {"threadId": thread, "model": "second-model"})
        told = await client.event("warning", threadId=thread, since=mark)
        assert told["params"]["code"] == "modelMismatch"
        assert "first-model" in told["params"]["message"] and "second-model" in told["params"]["message"]
        assert client.outline(mark).index("warning") < client.outline(mark).index("answer")

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "model": "first-model"})
        assert client.count("warning") == 0


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_reading_backwards_to_a_checkpoint_gives_what_the_whole_log_gives(house: House, scenario: str) -> None:
    """demand 17"""
    if (FIXTURES / scenario / "archived_sessions").exists():
        shutil.copytree(FIXTURES / scenario / "archived_sessions", house.home / "archived_sessions")
    house.borrow(scenario)
    threads = {
        json.loads(path.read_text().splitlines()[0])["payload"]["id"]
        for path in (house.home / "sessions").rglob("*.jsonl")
    }
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for thread in threads:
            params = {"threadId": thread, "modelProvider": "offline", "excludeTurns": True}
            await client.call("thread/resume", params)
            session = daemon.session(thread)
            header = session.history.header
            whole = [record async for record in session.store.read(session.log.info.rollout_id)]
            rest = [record for record in whole if record.position != header.position]
            assert model_side(daemon, thread) == facts(reconstruct([header, *rest], session.mode))


async def test_a_bounded_reader_reads_on_where_the_checkpoint_is_incomplete(house: House, mock: Mock) -> None:
    """demand 17"""
    house.service(mock)
    thread = await _with_damaged_past(house)
    path = house.log_file(thread)
    lines = path.read_bytes().split(b"\n")
    cut = next(n for n, line in enumerate(lines) if b'"type":"compacted"' in line)
    record = json.loads(lines[cut])
    del record["payload"]["replacement_history"], record["check"]
    lines[cut] = json.dumps(record, separators=(",", ":")).encode()
    path.write_bytes(b"\n".join(lines))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        codes = {m["params"]["code"] for m in client.seen if m.get("method") == "warning"}
        assert "invalidJson" in codes


async def test_reopening_and_offline_forks_use_the_effective_history(house: House, mock: Mock) -> None:
    """demand 25"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        shrunk, cut = await client.start(cwd=str(house.work)), await client.start(cwd=str(house.work))
        await client.turns(shrunk, "one", "two")
        await client.call("thread/compact", {"threadId": shrunk, "summary": "S", "keepLast": 1})
        await client.turns(cut, "one", "two")
        await client.call("thread/rollback", {"threadId": cut, "numTurns": 1})

    async with house.daemon() as daemon:
        client = await daemon.connect()
        children = [await fork(client, one) for one in (shrunk, cut)]
        assert (await client.call("thread/loaded/list", {}))["data"] == sorted(children)
        mock.requests.clear()
        await client.turn(children[0], "three")
        await client.turn(children[1], "three")
        assert talk(inputs(mock)[0]) == ["developer: S", "user: two", "assistant: ok 2", "user: three"]
        assert talk(inputs(mock)[1]) == ["user: one", "assistant: ok 3", "user: three"]
        for one in (shrunk, cut):
            await client.call("thread/resume", {"threadId": one})
            await client.turn(one, "three")
        same = [prefix_length(inputs(mock)[n], inputs(mock)[n + 2]) for n in (0, 1)]
        # All but what is told anew for this turn: context and user message of the compacted thread, user message else.
        assert same[1] == len(inputs(mock)[1]) - 1
        assert [talk(items) for items in inputs(mock)[2:]] == [talk(items) for items in inputs(mock)[:2]]


@pytest.mark.parametrize("kind", ["rolled_back", "forked"])
async def test_a_record_with_a_whole_replacement_history_is_a_checkpoint(house: House, mock: Mock, kind: str) -> None:
    """demand 25"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
    kept = [
        record["payload"]
        for record in house.records(thread)
        if record["type"] == "response_item" and record["payload"].get("role") == "user"
    ][:2]
    line = {
        "timestamp": "2026-01-01T00:00:00.000Z",
        "ordinal": len(house.records(thread)),
        "type": kind,
        "payload": {"num_turns": 1, "replacement_history": kept},
    }
    with house.log_file(thread).open("a") as log:
        log.write(json.dumps(line) + "\n")
    house.only_logs_stay()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "three")
    assert talk(inputs(mock)[-1]) == ["user: one", "user: three"]
