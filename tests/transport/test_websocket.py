"""WebSocket over TCP and over a Unix socket: frames, health, refusals, limits."""

import asyncio
import json
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from unspool_server.access.bearer import Capability, CapabilityTokens, digest_of
from unspool_server.access.principal import OWNER
from unspool_server.connection import Shared
from unspool_server.transport import heads
from unspool_server.transport.gate import Rules
from unspool_server.transport.unix import UnixListener
from unspool_server.transport.websocket import Listener, ListenRefused, listen_tcp
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.transport.fakes import FakeHub, Table, make_shared

INITIALIZE = '{"id":0,"method":"initialize","params":{"clientInfo":{"name":"rec","version":"1"}}}'
WAIT_S = 10.0


@pytest.fixture
async def listener(shared: Shared) -> AsyncIterator[Listener]:
    async with listen_tcp(shared, "127.0.0.1", 0) as running:
        yield running


def url(listener: Listener, path: str = "/") -> str:
    host, port = listener.address
    return f"ws://{host}:{port}{path}"


async def recv(client: ClientConnection) -> Any:
    return json.loads(await asyncio.wait_for(client.recv(), WAIT_S))


async def http(listener: Listener, start: str, headers: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """One plain HTTP exchange: status and body."""
    reader, writer = await asyncio.open_connection(*listener.address)
    lines = [
        start,
        "Host: 127.0.0.1",
        "Connection: close",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    answer = await asyncio.wait_for(reader.read(), WAIT_S)
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    "start", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET"]
)
async def test_whoever_does_not_come_out_with_a_request_is_let_go_and_no_websocket_is(
    listener: Listener, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(heads, "HEAD_S", 0.05)
    async with connect(url(listener)) as client:
        reader, writer = await asyncio.open_connection(*listener.address)
        writer.write(start)
        with suppress(ConnectionResetError):
            await asyncio.wait_for(reader.read(), WAIT_S)
        writer.close()
        await client.send(INITIALIZE)
        assert (await recv(client))["id"] == 0


@pytest.mark.parametrize("path", ["/", "/foo", "/a/b?c=d", "/healthz"])
async def test_any_path_upgrades_without_compression(listener: Listener, path: str) -> None:
    async with connect(url(listener, path)) as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers
        await client.send(INITIALIZE)
        frame = await asyncio.wait_for(client.recv(), WAIT_S)
        assert isinstance(frame, str)
        assert json.loads(frame)["result"]["codexHome"] == "/home/of/logs"
        await asyncio.wait_for(await client.ping(), WAIT_S)


async def test_frames_that_are_no_message_get_one_error_each(listener: Listener) -> None:
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)
        two = '{"id":7,"method":"test/none"}\n{"id":8,"method":"test/none"}'
        for frame, code, reason in (
            ("{bad", -32700, "parseError"),
            ("", -32700, "parseError"),
            (two, -32700, "parseError"),
            ("[]", -32600, "batch"),
            (INITIALIZE.encode(), -32600, "binaryFrame"),
        ):
            await client.send(frame)
            answer = await recv(client)
            assert (answer["id"], answer["error"]["code"]) == (None, code)
            assert answer["error"]["data"] == {"reason": reason}
        await client.send('{"id":9,"method":"test/none"}')
        assert await recv(client) == {"id": 9, "result": {"requirements": None}}


async def test_pipelined_requests_are_all_answered(listener: Listener) -> None:
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)

        async def flood() -> None:
            for number in range(1_000):
                await client.send(f'{{"id":{number},"method":"test/empty","params":{{}}}}')

        flooding = asyncio.create_task(flood())
        answers = [await recv(client) for _ in range(1_000)]
        await flooding
    assert sorted(answer["id"] for answer in answers) == list(range(1_000))


async def test_health_answers_and_other_plain_requests_are_refused(listener: Listener) -> None:
    assert await http(listener, "GET /healthz HTTP/1.1") == (200, b"")
    assert await http(listener, "GET /readyz HTTP/1.1") == (200, b"")
    assert await http(listener, "GET / HTTP/1.1") == (400, b"Connection header did not include 'upgrade'")
    assert (await http(listener, "POST / HTTP/1.1"))[0] == 405
    assert (await http(listener, "POST /healthz HTTP/1.1"))[0] == 405


@pytest.mark.parametrize("origin", ["null", "http://127.0.0.1", "https://evil.example"])
async def test_whoever_carries_an_origin_gets_nothing(
    listener: Listener, origin: str, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/healthz", "/readyz", "/"):
        assert await http(listener, f"GET {path} HTTP/1.1", {"Origin": origin}) == (403, b"")
    with pytest.raises(InvalidStatus) as refused:
        await connect(url(listener), additional_headers={"Origin": origin}).__aenter__()
    assert (refused.value.response.status_code, refused.value.response.body) == (403, b"")
    await listener.close()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_authority_is_asked_for_at_the_upgrade_and_not_for_health(shared: Shared) -> None:
    tokens = CapabilityTokens([Capability(digest_of("right"), OWNER)])
    async with listen_tcp(shared, "127.0.0.1", 0, rules=Rules(tokens)) as listener:
        assert (await http(listener, "GET /healthz HTTP/1.1"))[0] == 200
        for path in ("/", "/healthz"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url(listener, path)).__aenter__()
            assert refused.value.response.status_code == 401
            assert refused.value.response.body == b"missing websocket bearer token"
        async with connect(url(listener), additional_headers={"Authorization": "Bearer right"}) as client:
            await client.send(INITIALIZE)
            assert (await recv(client))["id"] == 0


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "::", "192.0.2.1", ""])
def test_names_and_open_addresses_without_authentication_are_not_listened_on(shared: Shared, host: str) -> None:
    with pytest.raises(ListenRefused):
        listen_tcp(shared, host, 0)


async def test_small_messages_are_not_held_back_by_the_kernel(listener: Listener) -> None:
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)
        (connection,) = listener.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


async def test_messages_of_a_megabyte_pass_and_longer_ones_than_allowed_close_with_1009(shared: Shared) -> None:
    async with (
        listen_tcp(shared, "127.0.0.1", 0, max_message_bytes=2_000_000) as listener,
        connect(url(listener), max_size=None) as client,
    ):
        await client.send(INITIALIZE)
        await recv(client)
        text = "y" * 1_000_000
        await client.send(json.dumps({"id": 1, "method": "test/echo", "params": {"threadId": text}}))
        assert (await recv(client))["result"]["threadId"] == text
        await client.send("z" * 2_000_001)
        with pytest.raises(ConnectionClosed) as closed:
            await recv(client)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_a_client_that_does_not_read_holds_up_nobody_else(table: Table, hub: FakeHub) -> None:
    shared = make_shared(table, hub, max_unsent_bytes=1_000_000)
    async with (
        listen_tcp(shared, "127.0.0.1", 0) as listener,
        connect(url(listener), max_queue=1) as slow,
        connect(url(listener)) as quick,
    ):
        for client in (slow, quick):
            await client.send(INITIALIZE)
            await recv(client)

        async def flood() -> None:
            for number in range(1, 1_001):
                await slow.send(f'{{"id":{number},"method":"test/big","params":{{}},"pad":"{"p" * 20_000}"}}')

        flooding = asyncio.create_task(flood())
        peer = min(hub.peers.values(), key=lambda peer: peer.id)
        async with asyncio.timeout(WAIT_S):
            while peer.outbox.waiting_bytes <= 1_000_000:
                await quick.send('{"id":1,"method":"test/none"}')
                assert (await recv(quick))["id"] == 1
        for number in range(100):
            await quick.send(f'{{"id":{number},"method":"test/none"}}')
            assert (await recv(quick))["id"] == number
        assert peer.outbox.waiting_bytes < 20_000_000
        assert not flooding.done()
        answers = [await recv(slow) for _ in range(1_000)]
        await flooding
    assert sorted(answer["id"] for answer in answers) == list(range(1, 1_001))


async def test_closing_the_server_ends_its_connections(shared: Shared, hub: FakeHub) -> None:
    listener = listen_tcp(shared, "127.0.0.1", 0)
    await listener.start()
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)
        assert len(hub.peers) == 1
        await asyncio.wait_for(listener.close(), WAIT_S)
        with pytest.raises(ConnectionClosed):
            await recv(client)
    assert hub.peers == {}
    await asyncio.wait_for(listener.wait_closed(), WAIT_S)


async def test_a_connection_that_we_end_is_closed_properly(listener: Listener, hub: FakeHub) -> None:
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)
        (peer,) = hub.peers.values()
        peer.outbox.put(b'{"method":"test/last"}')
        peer.outbox.close()
        assert await recv(client) == {"method": "test/last"}
        with pytest.raises(ConnectionClosed) as closed:
            await recv(client)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000
    assert hub.peers == {}


async def test_a_client_that_leaves_is_dropped_and_its_requests_end(
    listener: Listener, table: Table, hub: FakeHub
) -> None:
    async with connect(url(listener)) as client:
        await client.send(INITIALIZE)
        await recv(client)
        await client.send('{"id":1,"method":"test/wait","params":{}}')
        await asyncio.wait_for(table.running.wait(), WAIT_S)
        assert len(hub.peers) == 1
    await asyncio.wait_for(hub.empty.wait(), WAIT_S)
    assert table.cancelled == 1


async def test_a_unix_socket_is_private_and_goes_with_the_server(shared: Shared, tmp_path: Path) -> None:
    path = tmp_path / "unspool.sock"
    async with UnixListener(shared, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        async with unix_connect(str(path)) as client:
            await client.send(INITIALIZE)
            assert (await recv(client))["id"] == 0
    assert not path.exists()


async def test_a_unix_socket_left_by_a_dead_server_is_replaced_and_a_served_one_is_not(
    shared: Shared, tmp_path: Path
) -> None:
    path = tmp_path / "unspool.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(path))
    async with UnixListener(shared, path):
        with pytest.raises(ListenRefused):
            await UnixListener(shared, path).start()
    path.write_text("not a socket")
    with pytest.raises(ListenRefused):
        await UnixListener(shared, path).start()
    assert path.read_text() == "not a socket"
