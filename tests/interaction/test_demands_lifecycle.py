"""The demands on transformations, each shown on the product: compact, roll back, fork, and what the model then sees."""

import errno
import json

import pytest

from tests.conformance.faulty_shelf import Faults
from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House
from tests.interaction.later import Later
from tests.interaction.moves import compacted, fork, model_side
from tests.interaction.prompts import assert_prefix, contexts, inputs, said, talk


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_compaction_turn_does_not_consume_the_count_of_a_rollback(house: House, mode: str) -> None:
    """demand 5"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        first, second = await client.turns(thread, "one", "two")
        compaction = await compacted(client, thread)
        await client.call("thread/compact", {"threadId": thread, "summary": "S", "keepLast": 1})
        third = await client.turn(thread, "three")
        mark = client.mark
        result = await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert [turn["id"] for turn in result["thread"]["turns"]] == [first]
        told = await client.event("thread/reverted", since=mark, threadId=thread)
        gone = told["params"]["turnIds"]
        assert (gone[0], gone[1], gone[-1], len(gone)) == (second, compaction, third, 4)


async def test_a_rollback_deletes_nothing_and_can_be_audited_and_undone(house: House) -> None:
    """demand 7"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for mode in ("paginated", "legacy"):
            thread = await client.start(cwd=str(house.work), historyMode=mode)
            turns = await client.turns(thread, "one", "two", "three")
            before, texts, live = house.logs(), await client.shown(thread), model_side(daemon, thread)
            await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
            await client.turn(thread, "other")
            after = house.logs()
            assert all(after[name].startswith(content) for name, content in before.items())
            headers = [json.loads(line) for content in after.values() for line in content.splitlines()]
            why = [
                one["unspool"] for one in headers if "unspool" in one and set(one["unspool"]["turnIds"]) & set(turns)
            ]
            assert why[0]["branch"] == "rollback" and why[0]["turnIds"] == turns[1:]
            await client.call("thread/rollback/undo", {"threadId": thread})
            assert await client.shown(thread) == texts
            assert model_side(daemon, thread)["history"] == live["history"]


async def test_boundaries_are_user_messages_and_agent_envelopes_that_start_a_turn(house: House, mock: Mock) -> None:
    """demand 8"""
    house.service(mock)
    envelope = {"author": "/root", "recipient": "/root/a", "content": "do it", "other_recipients": []}
    items = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "alpha"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "no boundary"}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": json.dumps({**envelope, "trigger_turn": True})}],
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    kept = {
        0: [],
        1: ["assistant: {", "assistant: done"],
        2: ["user: alpha", "assistant: no", "assistant: {", "assistant: done"],
    }
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        one, two = await client.turns(thread, "one", "two")
        await client.call("thread/inject_items", {"threadId": thread, "items": items})
        for keep, heads in kept.items():
            child = await fork(client, thread)
            await client.call("thread/compact", {"threadId": child, "summary": "S", "keepLast": keep})
            await client.turn(child, "go")
            words = talk(inputs(mock)[-1])
            assert words[0] == "developer: S" and words[-1] == "user: go"
            middle = words[1:-1]
            assert len(middle) == len(heads)
            assert all(word.startswith(head) for word, head in zip(middle, heads, strict=True))
        before = await fork(client, thread, beforeTurnId=two)
        upto = await fork(client, thread, lastTurnId=one)
        assert await client.shown(before) == await client.shown(upto) == [["one", "ok 1"]]


async def test_a_fork_is_a_new_thread_with_lineage_that_never_sees_its_parents_future(house: House) -> None:
    """demand 18"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for mode in ("paginated", "legacy"):
            parent = await client.start(cwd=str(house.work), historyMode=mode)
            await client.turns(parent, "one", "two")
            bytes_before = house.log(parent)
            forked = (await client.call("thread/fork", {"threadId": parent}))["thread"]
            child = forked["id"]
            assert child != parent and forked["forkedFromId"] == parent
            assert house.log(parent) == bytes_before
            await client.turn(parent, "parent only")
            await client.turn(child, "child only")
            assert await client.shown(child) == [["one", "one"], ["two", "two"], ["child only", "child only"]]
            assert await client.shown(parent) == [["one", "one"], ["two", "two"], ["parent only", "parent only"]]
            own = house.log(child)
            assert (b'"two"' in own) == (mode == "legacy")
            if mode == "paginated":
                refused = await client.refused("thread/delete", {"threadId": parent})
                assert (refused.reason, refused.data["threadIds"]) == ("dependentThreads", [child])
            await client.call("thread/delete", {"threadId": child})
            assert await client.call("thread/delete", {"threadId": parent}) == {}


async def test_a_fork_of_a_running_thread_flushes_it_first_and_ends_the_cut_turn(house: House) -> None:
    """demand 18"""
    house.offline([{"say": "done"}], [{"say": "part", "partial": True}, {"hang": True}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        running = await client.begin(thread, "two")
        await client.event("item/agentMessage/delta", turnId=running)
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]
        assert [turn["status"] for turn in child["turns"]] == ["completed", "interrupted"]
        assert child["turns"][1]["id"] == running
        assert [item["type"] for item in child["turns"][1]["items"]] == ["userMessage"]
        assert (await client.read(thread))["turns"][1]["status"] == "inProgress"


async def test_the_next_request_starts_with_the_expected_prefix_after_compact_resume_and_fork(
    house: House, mock: Mock
) -> None:
    """demand 19"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        await client.turn(thread, "three")
        after_compact = inputs(mock)[-1]
        words = said(after_compact)
        assert words[:2] == ["user: one", "context"] and words[-1] == "user: three"
        assert words[-2].startswith("user: ") and words[-2].endswith("summary 1") and words[-3] == "user: two"
        await client.turn(thread, "four")
        assert_prefix(after_compact, inputs(mock)[-1], new=2)

    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "five")
        after_resume = inputs(mock)[-1]
        assert_prefix(inputs(mock)[-2], after_resume, new=2)
        child = await fork(client, thread)
        await client.turn(child, "six")
        assert_prefix(after_resume, inputs(mock)[-1], new=2)


async def test_removed_tool_results_never_come_back(house: House, mock: Mock) -> None:
    """demand 19"""
    house.service(mock)
    mock.push({"call": "look", "id": "call_secret"})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "look")
        request = await client.event("item/tool/call", threadId=thread)
        result = {"contentItems": [{"type": "inputText", "text": "SECRET"}], "success": True}
        await client.send({"id": request["id"], "result": result})
        await client.ended(turn)
        assert "SECRET" in json.dumps(mock.last()["input"])
        compact = await fork(client, thread)
        await client.call("thread/compact", {"threadId": compact, "summary": "S", "keepLast": 0})
        by_model = await fork(client, thread)
        await compacted(client, by_model)
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        mock.requests.clear()
        for one in (compact, by_model, thread):
            await client.turn(one, "on")

    async with house.daemon() as daemon:
        client = await daemon.connect()
        for one in (compact, by_model, thread):
            await client.call("thread/resume", {"threadId": one})
            await client.turn(await fork(client, one), "on and on")
    assert len(mock.requests) == 6
    assert not any("SECRET" in json.dumps(items) or "call_secret" in json.dumps(items) for items in inputs(mock))


async def test_compacting_with_a_given_summary_keeps_a_suffix_and_asks_no_model(house: House, mock: Mock) -> None:
    """demand 20"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two", "three")
        asked = len(mock.requests)
        result = await client.call("thread/compact", {"threadId": thread, "summary": "S", "keepLast": 2})
        assert len(mock.requests) == asked
        assert [item["type"] for item in result["thread"]["turns"][-1]["items"]] == ["contextCompaction"]
        await client.turn(thread, "four")
    assert talk(inputs(mock)[-1]) == [
        "developer: S", "user: two", "assistant: ok 2", "user: three", "assistant: ok 3", "user: four"
    ]  # fmt: skip


async def test_compacting_by_the_model_puts_its_summary_in_place_of_the_past(house: House, mock: Mock) -> None:
    """demand 20"""
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        await compacted(client, thread)
        assert talk(inputs(mock)[-1])[-1] == "user: COMPACT-NOW: sum up."
        await client.turn(thread, "three")
    words = talk(inputs(mock)[-1])
    assert words[:2] == ["user: one", "user: two"] and words[-1] == "user: three"
    assert words[2].endswith("summary 1") and len(words) == 4


async def test_a_full_window_compacts_by_itself_before_and_inside_a_turn(house: House, mock: Mock) -> None:
    """demand 20"""
    house.service(mock)
    house.settings["model_auto_compact_token_limit"] = 5000
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        mock.usage.update({"in": 6000})
        await client.turn(thread, "one")
        mock.usage.update({"in": 100})
        second = await client.turn(thread, "two")
        kinds = [item["type"] for item in (await client.read(thread))["turns"][-1]["items"]]
        assert kinds == ["contextCompaction", "userMessage", "agentMessage"]
        assert talk(inputs(mock)[-1])[-1] == "user: two" and "assistant: ok 1" not in talk(inputs(mock)[-1])
        assert second

        mock.push({"call": "look", "id": "c1"})
        mock.usage.update({"in": 6000})
        turn = await client.begin(thread, "three")
        request = await client.event("item/tool/call", threadId=thread)
        mock.usage.update({"in": 100})
        await client.send({"id": request["id"], "result": {"contentItems": [], "success": True}})
        assert (await client.ended(turn))["status"] == "completed"
        kinds = [item["type"] for item in (await client.read(thread))["turns"][-1]["items"]]
        assert kinds == ["userMessage", "dynamicToolCall", "contextCompaction", "agentMessage"]
        assert contexts(inputs(mock)[-1]) >= 1


async def test_a_provider_that_compacts_itself_is_asked_to(house: House, mock: Mock) -> None:
    """demand 20"""
    house.service(mock, name="OpenAI")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await compacted(client, thread)
        assert mock.last()["input"][-1] == {"type": "compaction_trigger"}
        await client.turn(thread, "two")
    kinds = [item.get("type", "message") for item in inputs(mock)[-1]]
    assert kinds.count("compaction") == 1
    assert talk(inputs(mock)[-1])[-1] == "user: two" and "assistant: ok 1" not in talk(inputs(mock)[-1])


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_rollback_of_no_or_too_many_turns_is_an_error_and_changes_nothing(house: House, mode: str) -> None:
    """demand 21"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        before, logs, live = await client.read(thread), house.logs(), model_side(daemon, thread)
        for wrong in (0, -1, True, 1.5, 3, 99, "1", None):
            refused = await client.refused("thread/rollback", {"threadId": thread, "numTurns": wrong})
            assert refused.code == -32600
            assert refused.reason in ("turnsOutOfRange", "invalidParams") and refused.data["field"] == "numTurns"
        assert (await client.read(thread), house.logs(), model_side(daemon, thread)) == (before, logs, live)
        assert client.count("thread/reverted") == 0


async def test_our_transformations_refuse_a_busy_thread_and_queue_nothing(house: House) -> None:
    """demand 22"""
    house.offline([{"say": "done"}], [{"say": "part", "partial": True}, {"hang": True}])
    async with house.daemon() as daemon:
        Later(daemon)
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        running = await client.begin(thread, "two")
        await client.event("item/agentMessage/delta", turnId=running)
        logs = house.logs()
        for method, params in (
            ("thread/rollback", {"numTurns": 1}),
            ("thread/compact", {"summary": "S"}),
            ("thread/rollback/undo", {}),
        ):
            refused = await client.refused(method, {"threadId": thread, **params})
            assert (refused.code, refused.data) == (-32600, {"reason": "activeTurn", "turnId": running})
        assert house.logs() == logs
        await client.call("turn/interrupt", {"threadId": thread, "turnId": running})
        await client.ended(running)
        assert await client.shown(thread) == [["one", "done"], ["two", "part"]]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_transformation_that_cannot_be_written_is_an_error_and_changes_nothing(house: House, mode: str) -> None:
    """demand 23"""
    house.faults = faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turns(thread, "one", "two")
        before, live = await client.read(thread), model_side(daemon, thread)
        logs = house.logs()
        for method, params in (
            ("thread/rollback", {"numTurns": 1}),
            ("thread/compact", {"summary": "S"}),
            ("thread/inject_items", {"items": [{"type": "message", "role": "user", "content": []}]}),
            ("thread/fork", {}),
        ):
            faults.plan("append", errno.ENOSPC, times=50)
            faults.plan("publish", errno.ENOSPC, times=50)
            refused = await client.refused(method, {"threadId": thread, **params})
            assert (refused.code, refused.reason) == (-32603, "writeFailed"), method
            faults.clear()
            assert model_side(daemon, thread) == live, method
            assert {**await client.read(thread), "updatedAt": before["updatedAt"]} == before
            assert house.logs() == logs, method
        assert client.count("thread/reverted") == 0
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        await client.turn(thread, "three")
        live = model_side(daemon, thread)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert model_side(daemon, thread) == live


async def test_forking_onto_an_existing_thread_is_refused(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """demand 24"""
    async with house.daemon() as daemon:
        client = await daemon.connect()
        source = await client.start(cwd=str(house.work))
        target = await client.start(cwd=str(house.work))
        await client.turn(source, "one")
        await client.turn(target, "two")
        logs = house.logs()
        monkeypatch.setattr("unspool_server.sessions.branches.forking.new_id", lambda: target)
        refused = await client.refused("thread/fork", {"threadId": source})
        assert (refused.code, refused.reason) == (-32600, "exists")
        assert house.logs() == logs
        assert await client.shown(target) == [["two", "two"]]
