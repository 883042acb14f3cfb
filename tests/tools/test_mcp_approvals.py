"""Which calls of MCP tools the user is asked about, and what an answer does."""

from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.wire import Client
from tests.tools.peers import Peer, output_of, push_call, texts

ASK = "mcpServer/elicitation/request"


async def asked(client: Client, since: int = 0) -> Any:
    """Wait for the question; returns the whole request."""
    return await client.until(lambda message: message.get("method") == ASK, since=since)


async def test_a_tool_that_may_change_something_runs_after_the_user_said_yes(
    house: House, mock: Mock, peer: Peer
) -> None:
    house.service(mock)
    house.settings |= {"sandbox_mode": "read-only", "approval_policy": "on-request"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "write", text="x")
        turn = await client.begin(thread, "go")
        question = await asked(client)
        told = question["params"]
        assert (told["threadId"], told["turnId"], told["serverName"]) == (thread, turn, "box")
        assert told["message"] == 'Allow the box MCP server to run tool "write"?'
        assert told["_meta"] == {
            "codex_approval_kind": "mcp_tool_call",
            "persist": ["session"],
            "tool_name": "write",
            "tool_description": "Does write.",
            "tool_params": {"text": "x"},
            "tool_params_display": [{"name": "text", "value": "x", "display_name": "text"}],
        }
        assert peer.got("tools/call") == []
        assert (await client.read(thread))["status"]["activeFlags"] == ["waitingOnApproval"]
        await client.send({"id": question["id"], "result": {"action": "accept", "content": {}}})
        await client.ended(turn)
        states = [m["params"]["status"] for m in client.seen if m.get("method") == "thread/status/changed"]
        assert [state.get("activeFlags") for state in states] == [[], ["waitingOnApproval"], [], None]
    assert texts(output_of(mock)) == ['write {"text": "x"}']


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"result": {"action": "decline"}}, "user rejected MCP tool call"),
        ({"result": {"action": "cancel"}}, "user cancelled MCP tool call"),
        ({"error": {"code": -32000, "message": "no window"}}, "user cancelled MCP tool call"),
    ],
)
async def test_a_tool_that_the_user_refuses_does_not_run(
    house: House, mock: Mock, peer: Peer, answer: dict[str, Any], told: str
) -> None:
    house.service(mock)
    house.settings |= {"approval_policy": "on-request"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "write")
        turn = await client.begin(thread, "go")
        await client.send({"id": (await asked(client))["id"], **answer})
        await client.ended(turn)
        item = (await client.read(thread))["turns"][0]["items"][1]
    assert (item["status"], item["error"]) == ("failed", {"message": told})
    assert texts(output_of(mock)) == [told]
    assert peer.got("tools/call") == []


async def test_a_yes_for_the_session_asks_no_second_time(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    house.settings |= {"approval_policy": "on-request"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "write", "c1")
        turn = await client.begin(thread, "go")
        yes = {"action": "accept", "_meta": {"persist": "session"}}
        await client.send({"id": (await asked(client))["id"], "result": yes})
        await client.ended(turn)
        push_call(mock, "write", "c2")
        await client.turn(thread, "again")
        assert client.count(ASK) == 1
    assert len(peer.got("tools/call")) == 2


@pytest.mark.parametrize(
    ("settings", "table", "tool", "runs"),
    [
        ({"sandbox_mode": "read-only"}, {}, "write", False),
        ({"sandbox_mode": "read-only"}, {}, "echo", True),
        ({"sandbox_mode": "danger-full-access"}, {}, "write", True),
        ({"sandbox_mode": "read-only"}, {"default_tools_approval_mode": "approve"}, "write", True),
        ({"sandbox_mode": "danger-full-access"}, {"default_tools_approval_mode": "prompt"}, "echo", False),
    ],
)
async def test_where_nobody_may_be_asked_a_tool_runs_or_fails_by_rule(
    *,
    house: House,
    mock: Mock,
    peer: Peer,
    settings: dict[str, str],
    table: dict[str, str],
    tool: str,
    runs: bool,
) -> None:
    house.service(mock)
    house.settings |= {**settings, "approval_policy": "never"}
    house.tables["mcp_servers.box"] |= table
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, tool)
        await client.turn(thread, "go")
    refused = ["MCP tool call requires approval, but approval policy is never"]
    assert texts(output_of(mock)) == ([f"{tool} {{}}"] if runs else refused)
