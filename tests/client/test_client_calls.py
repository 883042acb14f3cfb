"""Handshake, correlation of answers, errors, server requests."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from unspool_client import (
    Backoff,
    Client,
    ClientClosed,
    ConnectFailed,
    Overloaded,
    RequestTimeout,
    RpcError,
    ThreadBusy,
    ThreadNotFound,
    UnknownMethod,
)
from unspool_protocol.startup import ModelListParams, ModelListResult
from unspool_protocol.threads import ThreadReadParams
from websockets.asyncio.server import ServerConnection, serve, unix_serve
from websockets.http11 import Request, Response

from tests.client.fake_daemon import THREAD_ID, FakeDaemon, Peer, SocketChannel

MODEL = {"id": "m", "model": "m", "displayName": "M"}


@pytest.mark.parametrize("jsonrpc", [True, False])
async def test_the_handshake_works_in_both_dialects(daemon: FakeDaemon, jsonrpc: bool) -> None:
    async with Client.over(daemon.open_memory, jsonrpc=jsonrpc, name="ide", version="2", opt_out=["warning"]) as client:
        await client.start_thread()
        assert client.server["userAgent"] == "fake/0.171.0"
    assert [message["method"] for message in daemon.received] == ["initialize", "initialized", "thread/start"]
    assert all((message.get("jsonrpc") == "2.0") is jsonrpc for message in daemon.received)
    assert daemon.handshakes[0]["params"] == {
        "clientInfo": {"name": "ide", "version": "2"},
        "capabilities": {"experimentalApi": True, "optOutNotificationMethods": ["warning"]},
    }


async def test_the_handshake_works_over_a_websocket(daemon: FakeDaemon) -> None:
    async with daemon.listen() as url, Client.connect(url, token="secret") as client:
        assert (await client.start_thread()).id == THREAD_ID


async def test_a_unix_socket_serves_the_same(daemon: FakeDaemon, tmp_path: Path) -> None:
    async def handler(socket: ServerConnection) -> None:
        await daemon.serve(SocketChannel(socket))

    path = tmp_path / "app-server.sock"
    async with asyncio.timeout(5), unix_serve(handler, str(path)), Client.connect(f"unix://{path}") as client:
        assert (await client.start_thread()).id == THREAD_ID


async def test_a_refused_upgrade_tells_why_and_is_not_retried() -> None:
    sent: list[str | None] = []

    def refuse(socket: ServerConnection, request: Request) -> Response:
        sent.append(request.headers.get("Authorization"))
        assert "Origin" not in request.headers
        return socket.respond(401, "invalid websocket bearer token")

    async def handler(socket: ServerConnection) -> None:
        raise AssertionError("never reached")

    async with serve(handler, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(ConnectFailed, match=r"401 .*invalid websocket bearer token") as caught:
            async with Client.connect(f"ws://127.0.0.1:{port}", token="secret"):
                pass
    assert not caught.value.retryable
    assert sent == ["Bearer secret"]


async def test_a_port_where_nobody_listens_is_a_typed_error() -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with Client.connect("ws://127.0.0.1:1"):
            pass
    assert caught.value.retryable and not caught.value.maybe_executed


@pytest.mark.parametrize("url", ["ws://127.0.0.1:port", "ws://127.0.0.1:99999", "ws://[::1", "bogus", ""])
async def test_what_is_no_address_is_a_typed_error(url: str) -> None:
    with pytest.raises(ConnectFailed, match="is no WebSocket address") as caught:
        async with Client.connect(url):
            pass
    assert not caught.value.retryable


async def test_what_another_server_answers_does_nothing_to_a_terminal_and_the_address_keeps_its_secret() -> None:
    def refuse(socket: ServerConnection, request: Request) -> Response:
        return socket.respond(404, "no\n\x1b[2J" + "x" * 10_000)

    async def handler(socket: ServerConnection) -> None:
        raise AssertionError("never reached")

    async with serve(handler, "127.0.0.1", 0, process_request=refuse) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        with pytest.raises(ConnectFailed) as caught:
            async with Client.connect(f"ws://user:secret@127.0.0.1:{port}"):
                pass
    told = str(caught.value)
    assert told.startswith(f"ws://127.0.0.1:{port} refused the connection with 404 (no \ufffd[2Jxxx")
    assert len(told) < 500


async def test_answers_find_their_requests_in_any_order(daemon: FakeDaemon) -> None:
    held: list[tuple[Peer, dict[str, Any]]] = []

    async def hold(peer: Peer, message: dict[str, Any]) -> None:
        held.append((peer, message))
        if len(held) == 50:
            for where, asked in reversed(held):
                await daemon.send(where, {"jsonrpc": "2.0", "id": asked["id"], "result": asked["params"]})

    daemon.handlers["echo"] = hold
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        answers = await asyncio.gather(*(client.call("echo", {"n": n}) for n in range(50)))
    assert [answer["n"] for answer in answers] == list(range(50))


async def test_a_message_of_a_megabyte_passes_both_ways(daemon: FakeDaemon) -> None:
    text = "ä\u2028\x85x" * 250_000
    daemon.handlers["echo"] = lambda peer, message: {"result": message["params"]}
    async with asyncio.timeout(10), daemon.listen() as url, Client.connect(url) as client:
        assert (await client.call("echo", {"text": text}))["text"] == text


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": -32600, "message": "m", "data": {"reason": "threadNotFound"}}, ThreadNotFound),
        ({"code": -32600, "message": "m", "data": {"reason": "unknownMethod"}}, UnknownMethod),
        ({"code": -32001, "message": "m"}, Overloaded),
        ({"code": -32600, "message": "m", "data": {"reason": "newOne"}}, RpcError),
        ({"code": -32600, "message": "m", "data": ["odd"]}, RpcError),
    ],
)
async def test_errors_are_typed_by_their_reason(daemon: FakeDaemon, error: dict[str, Any], kind: type) -> None:
    daemon.handlers["thread/archive"] = lambda peer, message: {"error": error}
    async with Client.over(daemon.open_memory) as client:
        with pytest.raises(RpcError) as caught:
            await client.archive(THREAD_ID)
    assert type(caught.value) is kind
    assert (caught.value.code, caught.value.message) == (error["code"], "m")


async def test_a_busy_thread_names_its_turn(daemon: FakeDaemon) -> None:
    busy = {"error": {"code": -32600, "message": "busy", "data": {"reason": "activeTurn", "turnId": "t"}}}
    daemon.handlers["thread/rollback"] = lambda peer, message: busy
    async with Client.over(daemon.open_memory) as client:
        thread = await client.start_thread()
        with pytest.raises(ThreadBusy) as caught:
            await thread.rollback(1)
    assert caught.value.turn_id == "t"


async def test_a_request_without_an_answer_times_out_and_its_late_answer_is_dropped(daemon: FakeDaemon) -> None:
    asked: list[tuple[Peer, dict[str, Any]]] = []
    daemon.handlers["slow"] = lambda peer, message: asked.append((peer, message))
    daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": [MODEL]}}
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        with pytest.raises(RequestTimeout):
            await client.call("slow", timeout_s=0.01)
        await daemon.send(asked[0][0], {"id": asked[0][1]["id"], "result": {}})
        assert [model.id for model in await client.models()] == ["m"]


async def test_foreign_output_and_odd_messages_do_not_end_the_connection(daemon: FakeDaemon) -> None:
    daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": [MODEL]}}
    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        for raw in (b"hello", b"[]", b"{}", b'{"id":null,"error":{}}', b'{"id":99,"result":{}}', b'{"method":"x"}'):
            await daemon.peers[0].channel.send(raw)
        assert [model.id for model in await client.models()] == ["m"]


async def test_requests_by_model_check_that_models_belong_together(daemon: FakeDaemon) -> None:
    daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": [MODEL]}}
    async with Client.over(daemon.open_memory) as client:
        result = await client.request(ModelListParams(limit=3), ModelListResult)
        with pytest.raises(TypeError):
            await client.request(ThreadReadParams(thread_id="x"), ModelListResult)
        with pytest.raises(TypeError, match="no parameter 'modell'"):
            await client.start_thread(modell="x")
    assert result.data[0].display_name == "M"
    assert daemon.received[-1]["params"]["limit"] == 3


async def test_lists_are_fetched_page_by_page(daemon: FakeDaemon) -> None:
    thread = daemon._setup()["thread"]

    def page(peer: Peer, message: dict[str, Any]) -> dict[str, Any]:
        number = int(message["params"].get("cursor") or 0)
        following = str(number + 1) if number < 2 else None
        return {"result": {"data": [{**thread, "id": f"t{number}"}], "nextCursor": following}}

    daemon.handlers["thread/list"] = page
    async with Client.over(daemon.open_memory) as client:
        assert [found.id async for found in client.list_threads(limit=1)] == ["t0", "t1", "t2"]


async def test_calls_outside_the_context_are_refused(daemon: FakeDaemon) -> None:
    client = Client.over(daemon.open_memory)
    with pytest.raises(ClientClosed):
        await client.models()
    async with client:
        pass
    with pytest.raises(ClientClosed):
        await client.models()


async def test_handlers_answer_server_requests_and_others_are_refused(daemon: FakeDaemon) -> None:
    async def tool(params: dict[str, Any]) -> Mapping[str, Any]:
        if params["tool"] == "broken":
            raise ValueError("secret")
        if params["tool"] == "refused":
            raise RpcError(-32600, "not now")
        return {"contentItems": [{"type": "inputText", "text": params["arguments"]["x"]}], "success": True}

    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        client.on_request("item/tool/call", tool)
        await client.start_thread()
        await daemon.ask(0, "item/tool/call", {"tool": "echo", "arguments": {"x": "hi"}})
        await daemon.ask(1, "item/tool/call", {"tool": "broken"})
        await daemon.ask(2, "item/tool/call", {"tool": "refused"})
        await daemon.ask(3, "no/such", {})
        answers = {answer["id"]: answer for answer in [await daemon.answers.get() for _ in range(4)]}
    assert answers[0]["result"]["contentItems"][0]["text"] == "hi"
    assert answers[1]["error"] == {"code": -32603, "message": "the handler of item/tool/call failed"}
    assert answers[2]["error"] == {"code": -32600, "message": "not now"}
    assert answers[3]["error"]["code"] == -32601


async def test_a_request_repeated_after_a_reconnect_runs_its_handler_once(daemon: FakeDaemon) -> None:
    calls, begun, release = 0, asyncio.Event(), asyncio.Event()

    async def tool(params: dict[str, Any]) -> Mapping[str, Any]:
        nonlocal calls
        calls += 1
        begun.set()
        await release.wait()
        return {"success": True, "contentItems": []}

    async with (
        asyncio.timeout(5),
        Client.over(daemon.open_memory, reconnect=Backoff(first_s=0.001)) as client,
    ):
        client.on_request("item/tool/call", tool)
        thread = await client.start_thread()
        await daemon.ask(0, "item/tool/call", {"callId": "c"})
        await begun.wait()
        await daemon.peers[0].channel.close()
        daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": []}}
        await client.models()
        release.set()
        assert (await daemon.answers.get())["result"]["success"] is True
        await client.resume_thread(thread.id)
        assert (await daemon.answers.get())["id"] == 0
    assert calls == 1


async def test_a_request_that_somebody_else_answered_stops_its_handler(daemon: FakeDaemon) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def approve(params: dict[str, Any]) -> Mapping[str, Any]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return {}

    async with asyncio.timeout(5), Client.over(daemon.open_memory) as client:
        client.on_request("item/commandExecution/requestApproval", approve)
        await client.start_thread()
        await daemon.ask(7, "item/commandExecution/requestApproval", {"itemId": "i"})
        await begun.wait()
        await daemon.publish("serverRequest/resolved", {"requestId": 7}, 1)
        await stopped.wait()
    assert daemon.answers.empty()
