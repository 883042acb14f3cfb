"""Tools that clients run (`item/tool/call`): who is asked, whose answer counts, and what the model sees of it."""

from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House, LocalDaemon
from tests.interaction.prompts import assert_prefix, inputs, text_of
from tests.interaction.wire import Client, Message

CALL: dict[str, Any] = {"call": "look", "args": {"for": "it"}, "id": "c1"}


def found(text: str, *, success: bool = True) -> dict[str, Any]:
    """A tool's good answer."""
    return {"contentItems": [{"type": "inputText", "text": text}], "success": success}


async def asked(house: House, daemon: LocalDaemon) -> tuple[Client, str, str, Message]:
    """A client whose turn asks it for a tool: client, thread, turn, request."""
    client = await daemon.connect()
    thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
    turn = await client.begin(thread, "look it up")
    return client, thread, turn, await client.event("item/tool/call", threadId=thread)


def outputs(mock: Mock) -> list[str]:
    """Tool outputs in the newest request."""
    return [text_of(item) for item in inputs(mock)[-1] if item.get("type") == "function_call_output"]


async def test_a_call_is_asked_answered_shown_and_told_to_the_model_over_each_transport(
    any_house: House, mock: Mock
) -> None:
    any_house.service(mock)
    mock.push({"say": "let me see"}, CALL)
    async with any_house.running() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(any_house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "look it up")
        request = await client.event("item/tool/call", threadId=thread)
        assert isinstance(request["id"], int)
        assert request["params"] == {
            "threadId": thread,
            "turnId": turn,
            "callId": "c1",
            "namespace": None,
            "tool": "look",
            "arguments": {"for": "it"},
        }
        await client.send({"id": request["id"], "result": found("here")})
        await client.ended(turn)
        resolved = await client.event("serverRequest/resolved")
        assert resolved["params"] == {"threadId": thread, "requestId": request["id"]}
        assert await client.shown(thread) == [["look it up", "let me see", "[look completed]", "ok 2"]]
        item = (await client.read(thread))["turns"][0]["items"][2]
        assert (item["id"], item["success"], item["arguments"]) == ("c1", True, {"for": "it"})
        await client.turn(thread, "on")
    first, second, third = inputs(mock)
    assert_prefix(first, second, new=3)
    assert_prefix(second, third, new=2)
    assert outputs(mock) == ["here"]
    assert [tool["name"] for tool in mock.last()["tools"]] == ["look", "exec_command", "write_stdin"]


@pytest.mark.parametrize(
    ("answer", "output", "status"),
    [
        ({"result": found("sorry", success=False)}, "sorry", "failed"),
        ({"error": {"code": -32000, "message": "no"}}, "dynamic tool request failed", "failed"),
        ({"result": {}}, "dynamic tool request failed", "failed"),
        ({"result": {"contentItems": "x"}}, "dynamic tool request failed", "failed"),
        ({"result": {"contentItems": [], "success": True}}, "", "completed"),
    ],
)
async def test_whatever_a_client_answers_the_model_gets_an_output(
    house: House, mock: Mock, answer: dict[str, Any], output: str, status: str
) -> None:
    house.service(mock)
    mock.push(CALL)
    async with house.daemon() as daemon:
        client, thread, turn, request = await asked(house, daemon)
        await client.send({"id": request["id"], **answer})
        assert (await client.ended(turn))["status"] == "completed"
        assert outputs(mock) == [output]
        assert (await client.shown(thread))[0][1] == f"[look {status}]"


async def test_of_two_clients_the_first_answer_counts_and_later_ones_mean_nothing(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push(CALL)
    async with house.daemon() as daemon:
        client, thread, turn, request = await asked(house, daemon)
        other, stranger = await daemon.connect(), await daemon.connect()
        mark = other.mark
        await other.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        again = await other.event("item/tool/call", since=mark)
        assert again == request
        assert other.outline(mark)[0] == "answer"
        await stranger.send({"id": request["id"], "result": found("stranger")})
        await stranger.settled()
        await other.send({"id": request["id"], "result": found("second")})
        await other.event("serverRequest/resolved", requestId=request["id"])
        await client.event("serverRequest/resolved", requestId=request["id"])
        await client.send({"id": request["id"], "result": found("first")})
        await other.send({"id": request["id"], "result": found("twice")})
        await client.ended(turn)
        assert outputs(mock) == ["second"]
        assert client.count("serverRequest/resolved") == other.count("serverRequest/resolved") == 1
        await client.settled()
        assert not [message for message in client.seen if "error" in message and "id" in message]


async def test_a_call_outlives_the_client_that_was_asked(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push(CALL)
    async with house.daemon() as daemon:
        client, thread, turn, request = await asked(house, daemon)
        await client.close()
        other = await daemon.connect()
        await other.call("thread/resume", {"threadId": thread, "excludeTurns": True})
        again = await other.event("item/tool/call", threadId=thread)
        assert (again["id"], again["params"]) == (request["id"], request["params"])
        await other.send({"id": request["id"], "result": found("late")})
        await other.ended(turn)
    assert outputs(mock) == ["late"]


async def test_an_interrupt_withdraws_the_call_and_history_stays_valid(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push(CALL)
    async with house.daemon() as daemon:
        client, thread, turn, request = await asked(house, daemon)
        mark = client.mark
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.ended(turn))["status"] == "interrupted"
        await client.event("serverRequest/resolved", requestId=request["id"], since=mark)
        await client.send({"id": request["id"], "result": found("too late")})
        await client.turn(thread, "on")
        (output,) = outputs(mock)
        assert output.endswith("aborted by user")
        await client.turn(thread, "and on")
    assert_prefix(inputs(mock)[-2], inputs(mock)[-1], new=2)


async def test_a_daemon_that_ends_during_a_call_leaves_a_history_that_can_go_on(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push(CALL)
    async with house.daemon() as daemon:
        _, thread, turn, _ = await asked(house, daemon)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert [(one["id"], one["status"]) for one in resumed["thread"]["turns"]] == [(turn, "interrupted")]
        await client.turns(thread, "on", "and on")
        assert client.count("item/tool/call") == 0
        assert len(outputs(mock)) == 1
    assert_prefix(inputs(mock)[-2], inputs(mock)[-1], new=2)


async def test_two_calls_run_side_by_side_and_each_gets_its_output(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push(CALL, {**CALL, "id": "c2"})
    async with house.daemon() as daemon:
        client, thread, turn, first = await asked(house, daemon)
        second = await client.until(lambda m: m.get("method") == "item/tool/call" and m["params"]["callId"] == "c2")
        await client.send({"id": second["id"], "result": found("two")})
        await client.event("serverRequest/resolved", requestId=second["id"])
        await client.send({"id": first["id"], "result": found("one")})
        await client.ended(turn)
        assert first["id"] != second["id"]
        assert (await client.shown(thread))[0][1:3] == ["[look completed]", "[look completed]"]
    given = {item["call_id"]: text_of(item) for item in inputs(mock)[-1] if item.get("type") == "function_call_output"}
    assert given == {"c1": "one", "c2": "two"}


async def test_calls_that_nobody_can_run_are_answered_for_the_model(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.push({"call": "unknown", "id": "c1"})
    mock.push({"raw": {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{no json"}})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        await client.turn(thread, "go")
        assert client.count("item/tool/call") == 0
    texts = outputs(mock)
    assert texts[0] == "unsupported call: unknown" and texts[1].startswith("failed to parse function arguments: ")


async def test_tools_and_base_instructions_stay_as_they_were_after_a_restart_and_in_forks(
    house: House, mock: Mock
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL], baseInstructions="BASE")
        await client.turn(thread, "one")
    house.settings["instructions"] = "OTHER"
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "two")
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        await client.turn(child, "three")
    heads = [request["body"]["input"][0] for request in mock.requests]
    assert heads[0] == heads[1] == heads[2] and "BASE" in str(heads[0])
    assert len({str(request["body"]["tools"]) for request in mock.requests}) == 1
