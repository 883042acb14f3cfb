"""MCP servers that do not start, do not answer, die, or outlive their daemon."""

import asyncio
import signal
import sys

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House, StdioWire
from tests.interaction.wire import WAIT_S, Client
from tests.tools.peers import SPACE, Peer, output_of, push_call, spaces, texts

MUTE = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"], "startup_timeout_sec": 0.3}


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({"command": "no-such-program"}, "failed to start: MCP startup failed: No such file or directory (os error 2)"),
        (MUTE, "timed out after 0.3 seconds. Add or adjust `startup_timeout_sec` in your config.toml"),
        (
            {"command": sys.executable, "args": ["-c", "pass"]},
            "failed to start: MCP startup failed: connection closed: the server ended before it was ready",
        ),
        (
            {"url": "http://127.0.0.1:9/mcp?key=s3cret", "bearer_token_env_var": "NOT_SET"},
            "failed to start: MCP startup failed: Environment variable NOT_SET is empty or not set",
        ),
        ({"url": "http://127.0.0.1:9/mcp?key=s3cret"}, "failed to start: MCP startup failed: "),
    ],
)
async def test_a_server_that_does_not_start_is_told_and_missed(
    house: House, mock: Mock, table: dict[str, object], error: str
) -> None:
    house.service(mock)
    house.tables["mcp_servers.bad"] = table
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "hi")
        states = [m["params"] for m in client.seen if m.get("method") == "mcpServer/startupStatus/updated"]
        assert [(state["name"], state["status"], state["threadId"]) for state in states] == [
            ("bad", "starting", thread),
            ("bad", "failed", thread),
        ]
        assert states[1]["error"].startswith(f"MCP client for `bad` {error}")
        assert "s3cret" not in states[1]["error"]
        await client.turn(thread, "again")
        assert client.count("mcpServer/startupStatus/updated") == 2, "it was tried again at once"
        listed = await client.call("mcpServerStatus/list", {"threadId": thread})
        (status,) = listed["data"]
        assert (status["runtimeStatus"], status["tools"]) == ("failed", {})
        assert status["toolsError"] == states[1]["error"]
        await client.call("config/mcpServer/reload", {})
        await client.turn(thread, "once more")
        assert client.count("mcpServer/startupStatus/updated") == 4


async def test_a_turn_fails_when_a_required_server_is_missing(house: House, mock: Mock) -> None:
    house.service(mock)
    house.tables["mcp_servers.bad"] = {"command": "no-such-program", "required": True}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ended = await client.ended(await client.begin(thread, "hi"))
    assert ended["status"] == "failed"
    assert ended["error"]["message"].startswith("required MCP servers failed to initialize: MCP client for `bad`")
    assert mock.requests == []


async def test_a_server_that_starts_slowly_holds_up_no_other_thread(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        servers = {"mute": {**MUTE, "startup_timeout_sec": 60}}
        slow = await client.start(cwd=str(house.work), config={"mcp_servers": servers})
        waiting = await client.begin(slow, "hi")
        await client.event("mcpServer/startupStatus/updated", name="mute", status="starting")
        other = await client.start(cwd=str(house.work))
        await client.turn(other, "hi")
        await client.call("turn/interrupt", {"threadId": slow, "turnId": waiting})
        assert (await client.ended(waiting))["status"] == "interrupted"


async def test_a_server_that_dies_fails_its_call_and_runs_again_for_the_next(
    house: House, mock: Mock, peer: Peer
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "die", "c1")
        await client.turn(thread, "go")
        assert texts(output_of(mock, "c1"))[0].endswith("the server ended before it answered")
        before = spaces(mock)
        push_call(mock, "echo", "c2")
        await client.turn(thread, "go on")
        assert texts(output_of(mock, "c2")) == ["echo {}"]
        assert spaces(mock) == before
    assert len(peer.starts()) == 2


async def test_a_call_that_takes_too_long_is_cancelled_at_the_server(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    house.tables["mcp_servers.box"] |= {"tool_timeout_sec": 0.2}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "hang")
        await client.turn(thread, "go")
        assert texts(output_of(mock))[0].endswith("timed out awaiting tools/call after 200ms")
        push_call(mock, "echo", "c2")
        await client.turn(thread, "go on")
    (late,) = peer.got("notifications/cancelled")
    assert late["requestId"] is not None
    assert len(peer.starts()) == 1


async def test_an_interrupt_cancels_the_call_at_the_server_and_leaves_an_output(
    house: House, mock: Mock, peer: Peer
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        push_call(mock, "hang")
        turn = await client.begin(thread, "go")
        progress = await client.event("item/mcpToolCall/progress", turnId=turn)
        assert (progress["params"]["itemId"], progress["params"]["message"]) == ("c1", "on it")
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.ended(turn))["status"] == "interrupted"
        mock.replies.clear()
        await client.turn(thread, "and now?")
        assert output_of(mock).endswith("aborted by user")
        push_call(mock, "echo", "c2")
        await client.turn(thread, "go on")
        assert texts(output_of(mock, "c2")) == ["echo {}"]
    assert len(peer.got("notifications/cancelled")) == 1
    assert len(peer.starts()) == 1


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_ends_with_its_daemon(house: House, mock: Mock, peer: Peer, end: signal.Signals) -> None:
    house.service(mock)
    async with house.process() as process:
        client = Client(StdioWire(process))
        await client.call("initialize", {"clientInfo": {"name": "tester", "version": "1"}})
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "hi")
        assert list(spaces(mock)) == [SPACE]
        process.send_signal(end)
        await client.close()
        async with asyncio.timeout(WAIT_S):
            await process.wait()
        await peer.until_gone()
