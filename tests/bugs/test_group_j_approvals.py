"""Approvals that reconnecting clients, interrupts and parallel questions used to break."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.wire import Client
from tests.tools.commands import ASKING, REQUEST, asked, command, decided, done, output_lines, outputs, shell_house

CASE = Path(__file__).parents[1] / "fixtures" / "bugs" / "B74_approval.rpc.jsonl"


def answers_of_the_case() -> list[tuple[str, str]]:
    """Who answers what, in the case's order."""
    lines = [json.loads(line) for line in CASE.read_text().splitlines()]
    sent = [(line["c"], line["send"]) for line in lines if "send" in line]
    return [(who, message["result"]["decision"]) for who, message in sent if message["id"] == "R"]


async def test_b74_a_pending_approval_is_asked_again_behind_the_answer_to_resume_and_answered_once(
    house: House, mock: Mock
) -> None:
    """A pending approval is repeated before the client listens to the thread, and dropped."""
    shell_house(house, mock)
    mock.push(command("echo ran >> log"))
    async with house.daemon() as daemon:
        first = await daemon.connect()
        thread = await first.start(cwd=str(house.work), **ASKING)
        turn = await first.begin(thread, "run it")
        request = await asked(first)
        await first.close()
        later: dict[str, Client] = {"B": await daemon.connect(), "C": await daemon.connect()}
        for client in later.values():
            mark = client.mark
            resumed = await client.call("thread/resume", {"threadId": thread})
            assert resumed["thread"]["status"] == {"type": "active", "activeFlags": ["waitingOnApproval"]}
            assert await asked(client, since=mark) == request
            words = client.outline(mark)
            assert words.index("answer") < words.index(REQUEST)
        for who, decision in answers_of_the_case():
            await later[who].send(decided(request, decision))
            await later["C"].event("serverRequest/resolved", requestId=request["id"])
        for client in later.values():
            assert (await client.ended(turn))["status"] == "completed"
            words = client.outline()
            assert words.index("serverRequest/resolved") < words.index("turn/completed")
            assert words.count(REQUEST) == words.count("serverRequest/resolved") == 1
            assert (await done(client))["status"] == "completed"
    assert (house.work / "log").read_text() == "ran\n"


async def test_b76_an_interrupt_closes_what_the_turn_asked_and_the_next_message_is_served(
    house: House, mock: Mock
) -> None:
    """Cancelling the run leaves the approval pending, and every later message is refused."""
    shell_house(house, mock)
    mock.push(command("touch a", "c1"), command("touch b", "c2"))
    async with house.daemon() as daemon:
        client, other = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work), **ASKING)
        turn = await client.begin(thread, "go")
        requests = [await asked(client, "c1"), await asked(client, "c2")]
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        for request in requests:
            await client.event("serverRequest/resolved", requestId=request["id"])
            await client.send(decided(request, "accept"))
        resumed = await other.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["status"] == {"type": "idle"}
        await client.turn(thread, "on")
        assert other.count(REQUEST) == 0
        assert [text.endswith("aborted by user") for text in outputs(mock).values()] == [True, True]
    assert not list(house.work.iterdir())


@pytest.mark.parametrize("order", [("c2", "c1"), ("c1", "c2")])
async def test_b78_of_two_open_questions_each_gets_its_own_answer_in_any_order(
    house: House, mock: Mock, order: tuple[str, str]
) -> None:
    """Two questions are open; an answer goes to the wrong one, or their ids collide."""
    shell_house(house, mock)
    mock.push(command("touch c1", "c1"), command("touch c2", "c2"))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), **ASKING)
        turn = await client.begin(thread, "go")
        requests: dict[str, Any] = {call: await asked(client, call) for call in ("c1", "c2")}
        assert requests["c1"]["id"] != requests["c2"]["id"]
        await client.send({"result": {"decision": "accept"}})
        await client.send({"id": 99, "result": {"decision": "accept"}})
        for call, decision in zip(order, ("decline", "accept"), strict=True):
            await client.send(decided(requests[call], decision))
        await client.ended(turn)
        refused, allowed = order
        assert "rejected by user" in outputs(mock)[refused]
        assert output_lines(mock, allowed)[0] == "Process exited with code 0"
        assert [(await done(client, call))["status"] for call in order] == ["declined", "completed"]
    assert [path.name for path in house.work.iterdir()] == [allowed]
