"""Compaction: it ends, it tells its end, it is what the next request starts with, and it can be turned off."""

import json

from tests.bugs.cases import THREAD, place, resume, said
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House
from tests.interaction.prompts import inputs
from tests.interaction.wire import Client, Message

LOOK: Message = {"call": "look", "args": {}}


async def _answer_tools(client: Client, count: int, since: int) -> None:
    """Answer the first tool requests that come from a place on."""
    seen = since
    for _ in range(count):
        request = await client.event("item/tool/call", since=seen)
        seen = client.seen.index(request) + 1
        await client.send({"id": request["id"], "result": {"contentItems": [], "success": True}})


async def test_b36_compaction_that_does_not_help_is_tried_twice_and_then_the_turn_fails(house: House) -> None:
    house.settings["model_auto_compact_token_limit"] = 5000
    calls = [[{**LOOK, "id": f"c{n}"}] for n in range(9)]
    house.offline(*calls, usage={"in": 9000, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        await _answer_tools(client, 3, 0)
        ended = await client.ended(turn)
        assert (ended["status"], ended["error"]["codexErrorInfo"]) == ("failed", "contextWindowExceeded")
        assert "after 2 compactions" in ended["error"]["message"]
        assert sum(b'"type":"compacted"' in line for line in house.log(thread).split(b"\n")) == 2


async def test_b36_compactions_that_help_may_be_as_many_as_a_turn_needs(house: House, mock: Mock) -> None:
    house.settings["model_auto_compact_token_limit"] = 2000
    house.service(mock)
    rounds = 4
    mock.replies += [[{**LOOK, "id": f"c{n}"}] for n in range(rounds)] + [[{"say": "done"}]]
    mock.usage.update({"in": 100, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        large = [{"type": "inputText", "text": "x" * 9000}]
        seen = 0
        for _ in range(rounds):
            request = await client.event("item/tool/call", since=seen)
            seen = client.seen.index(request) + 1
            await client.send({"id": request["id"], "result": {"contentItems": large, "success": True}})
        assert (await client.ended(turn))["status"] == "completed"
    assert sum(record["type"] == "compacted" for record in house.records(thread)) == rounds


async def test_b38_a_compaction_tells_its_end_whether_it_worked_or_not(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        before = said(daemon, thread)
        mock.compact_replies.append([{"http": 500}])
        since = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        failed = await client.event("turn/completed", since=since)
        assert failed["params"]["turn"]["status"] == "failed"
        assert said(daemon, thread) == before
        mock.compact_replies.append([{"say": "all of it"}])
        since = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        done = await client.event("turn/completed", since=since)
        assert done["params"]["turn"]["status"] == "completed"
        assert "all of it" in said(daemon, thread)[-1]
        await client.turn(thread, "two")


async def test_b40_the_first_request_after_a_compaction_starts_with_it_after_a_restart_too(
    house: House, mock: Mock
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two", "three")
        mock.compact_replies.append([{"say": "the plan"}])
        since = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        await client.event("turn/completed", since=since)
        await client.turn(thread, "four")
    first = inputs(mock)[-1]
    assert "ok 1" not in json.dumps(first) and "the plan" in json.dumps(first)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "five")
    assert inputs(mock)[-1][: len(first)] == first


async def test_b40_a_foreign_compaction_is_what_the_model_sees(house: House) -> None:
    place(house, "B40_compact_keeps_plan")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        before = said(daemon)
        assert before
        await client.turn(THREAD, "on")
        assert said(daemon)[: len(before)] == before
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon)[: len(before)] == before


async def test_b42_off_means_off_when_the_model_says_that_the_context_is_too_large(house: House, mock: Mock) -> None:
    house.service(mock)
    house.settings["model_auto_compact_token_limit"] = 0
    mock.usage.update({"in": 900_000, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        mock.replies.append([{"fail": "context_length_exceeded"}])
        turn = await client.begin(thread, "too much")
        ended = await client.ended(turn)
        assert (ended["status"], ended["error"]["codexErrorInfo"]) == ("failed", "contextWindowExceeded")
        await client.turn(thread, "short")
    assert b'"type":"compacted"' not in house.log(thread)


async def test_b44_a_checkpoint_of_a_turn_that_was_rolled_back_does_not_count(house: House) -> None:
    place(house, "B44_rollback_then_compact_newer_survives")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon)[-4:] == ["two", "A2", "four", "A4"]
        assert not {"three", "A3"} & set(said(daemon))
        assert [turn[0] for turn in await client.shown(THREAD) if turn and len(turn) > 1] == ["one", "two", "four"]
