"""Tools of MCP servers: what the model is offered, what it and the clients get of a call, and what goes wrong."""

import asyncio
import json
from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House, LocalDaemon
from tests.interaction.prompts import assert_prefix, inputs
from tests.interaction.wire import WAIT_S, Client
from tests.tools.peers import SPACE, Peer, output_of, push_call, spaces, texts

MODES = pytest.mark.parametrize("mode", ["paginated", "legacy"])


async def opened(house: House, daemon: LocalDaemon, **params: Any) -> tuple[Client, str]:
    """A client and a thread of its own."""
    client = await daemon.connect()
    return client, await client.start(cwd=str(house.work), **params)


def calls(turn: Any) -> list[Any]:
    """The tool calls that a turn shows."""
    return [item for item in turn["items"] if item["type"] == "mcpToolCall"]


async def test_the_model_is_offered_a_servers_tools_in_a_namespace_by_name(
    house: House, mock: Mock, peer: Peer
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        await client.turn(thread, "hi")
    *_, space = mock.last()["tools"]
    assert (space["type"], space["name"], space["description"]) == ("namespace", SPACE, "Use me well.")
    names = [tool["name"] for tool in space["tools"]]
    assert names == sorted(names)
    assert len([name for name in names if name.startswith("odd_name___")]) == 2
    echo = next(tool for tool in space["tools"] if tool["name"] == "echo")
    assert echo == {
        "type": "function",
        "name": "echo",
        "description": "Does echo.",
        "strict": False,
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    }


async def test_only_tools_that_the_configuration_lets_through_are_offered(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    house.tables["mcp_servers.box"] |= {"enabled_tools": ["echo", "write", "die"], "disabled_tools": ["die"]}
    house.tables["mcp_servers.off"] = {"command": "no-such-program", "enabled": False}
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        await client.turn(thread, "hi")
        assert client.count("mcpServer/startupStatus/updated") == 2
    assert spaces(mock) == {SPACE: ["echo", "write"]}


@MODES
async def test_a_call_is_shown_recorded_and_answered_alike_before_and_after_a_restart(
    house: House, mock: Mock, peer: Peer, mode: str
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon, historyMode=mode)
        push_call(mock, "echo", text="hé")
        turn = await client.turn(thread, "go")
        started = await client.event("item/started", turnId=turn, since=0)
        live = (await client.read(thread))["turns"]
        done = [m["params"]["item"] for m in client.seen if m.get("method") == "item/completed"]
    (item,) = calls(live[0])
    assert started["params"]["item"]["type"] == "userMessage"
    assert item in done
    assert {key: item[key] for key in ("id", "server", "tool", "arguments", "status", "readOnlyHint", "error")} == {
        "id": "c1",
        "server": "box",
        "tool": "echo",
        "arguments": {"text": "hé"},
        "status": "completed",
        "readOnlyHint": True,
        "error": None,
    }
    said = [{"type": "text", "text": 'echo {"text": "h\\u00e9"}'}]
    assert item["result"] == {"content": said, "structuredContent": None, "_meta": None}
    assert texts(output_of(mock)) == ['echo {"text": "h\\u00e9"}']
    (call,) = peer.got("tools/call")
    assert call["arguments"] == {"text": "hé"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.read(thread))["turns"] == live
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "and now?")
    _, second, third = inputs(mock)
    assert_prefix(second, third, new=2)


@pytest.mark.parametrize(
    ("tool", "status", "told"),
    [
        ("mixed", "completed", ["a", "image content omitted because it could not be processed", "{resource}"]),
        ("refuse", "failed", ["no"]),
        ("break", "failed", ["tool call error: tool call failed for `box/break`\n\nCaused by:\n    "]),
    ],
)
async def test_every_kind_of_content_and_failure_comes_to_the_model_as_text(
    *, house: House, mock: Mock, peer: Peer, tool: str, status: str, told: list[str]
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, tool)
        await client.turn(thread, "go")
        (item,) = calls((await client.read(thread))["turns"][0])
    assert item["status"] == status
    got = texts(output_of(mock))
    if tool == "mixed":
        assert json.loads(got[2]) == {"type": "resource", "resource": {"uri": "file:///x", "text": "r"}}
        assert got[:2] == told[:2]
    elif tool == "break":
        assert got == [told[0] + "Mcp error: -32000: it broke"]
        assert item["error"] == {"message": got[0]}
    else:
        assert got == told
        assert item["error"] is None


async def test_structured_content_goes_to_the_model_as_one_text(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, "structured")
        await client.turn(thread, "go")
        (item,) = calls((await client.read(thread))["turns"][0])
    assert output_of(mock).endswith('seconds\nOutput:\n{"n":3,"none":null}')
    assert item["result"]["structuredContent"] == {"n": 3, "none": None}


async def test_an_image_goes_to_the_model_as_an_image(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, "image")
        await client.turn(thread, "go")
    assert texts(output_of(mock))[1].startswith("data:image/png;base64,iVBOR")


async def test_a_long_result_is_cut_as_a_restart_would_cut_it(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, "long")
        await client.turn(thread, "go")
    assert len(texts(output_of(mock))[0]) < 12_000
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "more")
    _, second, third = inputs(mock)
    assert_prefix(second, third, new=2)


async def test_threads_share_a_server_and_the_last_one_to_go_ends_it(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    house.settings["thread_unload_delay_secs"] = 0
    async with house.daemon() as daemon:
        client, first = await opened(house, daemon)
        second = await client.start(cwd=str(house.work))
        for thread in (first, second):
            await client.turn(thread, "hi")
        assert len(peer.starts()) == 1
        await client.call("thread/unsubscribe", {"threadId": first})
        await client.event("thread/closed", threadId=first)
        assert peer.running()
        await client.call("thread/unsubscribe", {"threadId": second})
        await client.event("thread/closed", threadId=second)
        await peer.until_gone()


async def test_new_tools_of_a_server_come_with_the_next_request(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, "grow")
        await client.turn(thread, "go")
        async with asyncio.timeout(WAIT_S):
            while "grown" not in spaces(mock)[SPACE]:
                await client.turn(thread, "again")
    first, *_, last = inputs(mock)
    assert_prefix(first, last[: len(first)], new=0)


async def test_a_server_gets_the_variables_that_are_named_and_no_others(
    house: House, mock: Mock, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PASSED_ON", "yes")
    monkeypatch.setenv("KEPT_SECRET", "no")
    house.service(mock)
    house.tables["mcp_servers.box"] |= {"env_vars": ["PASSED_ON"]}
    house.tables["mcp_servers.box.env"] = {"GIVEN": "s3cret"}
    async with house.daemon() as daemon:
        client, thread = await opened(house, daemon)
        push_call(mock, "env")
        await client.turn(thread, "go")
        status = json.dumps(await client.call("mcpServerStatus/list", {}))
        config = json.dumps(await client.call("config/read", {}))
    environment = json.loads(texts(output_of(mock))[0])
    assert (environment["PASSED_ON"], environment["GIVEN"]) == ("yes", "s3cret")
    assert "KEPT_SECRET" not in environment
    assert "s3cret" not in status + config


async def test_a_thread_may_bring_a_server_of_its_own(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    own = house.tables.pop("mcp_servers.box")
    async with house.daemon() as daemon:
        client, plain = await opened(house, daemon)
        thread = await client.start(cwd=str(house.work), config={"mcp_servers": {"mine": own}})
        await client.turn(plain, "hi")
        assert spaces(mock) == {}
        await client.turn(thread, "hi")
        assert list(spaces(mock)) == ["mcp__mine"]
