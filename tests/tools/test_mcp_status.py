"""`mcpServerStatus/list`, and servers on the network."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import Receive, Scope, Send

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.tools.peers import Peer, output_of, push_call, spaces, texts


async def test_the_list_tells_servers_and_tools_without_a_thread_and_leaves_nothing_running(
    house: House, peer: Peer
) -> None:
    house.offline()
    house.tables["mcp_servers.off"] = {"url": "https://user:pw@box.example:8443/mcp?key=x", "enabled": False}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        first = await client.call("mcpServerStatus/list", {"limit": 1})
        (box,) = first["data"]
        second = await client.call("mcpServerStatus/list", {"cursor": first["nextCursor"]})
        await peer.until_gone()
    (off,) = second["data"]
    assert second["nextCursor"] is None
    assert (box["name"], box["runtimeStatus"], box["serverInfo"]) == ("box", None, {"name": "peer", "version": "1"})
    assert box["tools"]["echo"]["annotations"] == {"readOnlyHint": True}
    assert (off["name"], off["httpOrigin"], off["tools"]) == ("off", "https://box.example:8443", {})


async def test_the_list_of_a_thread_tells_its_connections(house: House, mock: Mock, peer: Peer) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "hi")
        listed = await client.call("mcpServerStatus/list", {"threadId": thread, "serverName": "box"})
        assert [one["runtimeStatus"] for one in listed["data"]] == ["connected"]
        assert len(peer.starts()) == 1
        assert (await client.refused("mcpServerStatus/list", {"cursor": "x"})).reason == "cursorInvalid"


@asynccontextmanager
async def served(seen: list[str]) -> AsyncIterator[str]:
    """The library's own server behind a real socket; `seen` gets the authorisation of each request."""
    server = MCPServer("web", instructions="From afar.")

    @server.tool(annotations=None)
    async def add(a: int, b: int) -> str:
        """Add two numbers."""
        return str(a + b)

    inner = server.streamable_http_app()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        await inner(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    task = asyncio.create_task(running._serve([listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        running.should_exit = running.force_exit = True
        await task


async def test_a_server_on_the_network_serves_tools_and_comes_back_after_a_restart(
    house: House, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOX_TOKEN", "t0ken")
    house.service(mock)
    house.settings |= {"sandbox_mode": "danger-full-access", "approval_policy": "never"}
    seen: list[str] = []
    async with served(seen) as url:
        house.tables["mcp_servers.web"] = {"url": url, "bearer_token_env_var": "BOX_TOKEN"}
        async with house.daemon() as daemon:
            client = await daemon.connect()
            thread = await client.start(cwd=str(house.work))
            push_call(mock, "add", space="mcp__web", a=2, b=3)
            await client.turn(thread, "go")
            assert spaces(mock) == {"mcp__web": ["add"]}
            assert output_of(mock).endswith('{"result":"5"}') or texts(output_of(mock)) == ["5"]
            (status,) = (await client.call("mcpServerStatus/list", {"threadId": thread}))["data"]
            assert (status["authStatus"], status["httpOrigin"]) == ("bearerToken", url.removesuffix("/mcp"))
    assert set(seen) == {"Bearer t0ken"}
