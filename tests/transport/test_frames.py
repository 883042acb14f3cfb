"""Frames that no library sends, messages in odd pieces, compression, and what each of them ends with."""

import asyncio
import json
import logging
import struct
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from unspool_server.config_daemon import WebSocketOptions
from unspool_server.connection import Shared
from unspool_server.transport.frames import FrameProtocol
from unspool_server.transport.websocket import Listener, listen_tcp
from websockets.asyncio.client import connect

from tests.transport.fakes import FakeHub, Table
from tests.transport.rawsocket import BINARY, CLOSE, CONT, PING, PONG, TEXT, RawClient, frame, raw_client

INITIALIZE = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"raw","version":"1"}}}'
LIMIT = 20_000_000
DEFLATE = "permessage-deflate; client_max_window_bits"


@pytest.fixture
async def listener(shared: Shared) -> AsyncIterator[Listener]:
    async with listen_tcp(shared, "127.0.0.1", 0, max_message_bytes=LIMIT) as running:
        yield running


async def answer(client: RawClient) -> Any:
    return json.loads(await client.recv_text())


def alarms(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Tracebacks and warnings, without those of asyncio's debug mode about a slow machine."""
    told = [record for record in caplog.records if record.name != "asyncio"]
    return [record for record in told if record.exc_info or record.levelno > logging.INFO]


async def greet(client: RawClient) -> None:
    await client.send(frame(TEXT, INITIALIZE))
    assert (await answer(client))["id"] == 0


BREACHES = {
    "an opcode for data that has no meaning": [frame(3, b"x")],
    "an opcode for control that has no meaning": [frame(11)],
    "the bit of compression that was not agreed to": [frame(TEXT, b"x", rsv=4)],
    "a reserved bit": [frame(TEXT, b"x", rsv=1)],
    "no mask": [frame(TEXT, b"x", masked=False)],
    "a ping of 126 bytes": [frame(PING, bytes(126))],
    "a ping in fragments": [frame(PING, b"x", fin=False)],
    "the continuation of nothing": [frame(CONT, b"x")],
    "a new message within another": [frame(TEXT, b"x", fin=False), frame(TEXT, b"y")],
    "a close code that stands for none": [frame(CLOSE, struct.pack("!H", 1005))],
    "a close code below all ranges": [frame(CLOSE, struct.pack("!H", 999))],
    "half a close code": [frame(CLOSE, b"\x03")],
}


@pytest.mark.parametrize("what", BREACHES)
async def test_a_breach_of_the_protocol_ends_its_connection_with_1002_and_no_traceback(
    listener: Listener, hub: FakeHub, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with raw_client(listener) as client:
        await greet(client)
        await client.send(*BREACHES[what])
        assert (await client.closed_with())[0] == 1002
        await asyncio.wait_for(hub.empty.wait(), 10)
    assert not alarms(caplog)


@pytest.mark.parametrize(
    "frames",
    [
        [frame(TEXT, b"\xff")],
        [frame(TEXT, b"\xed\xa0\x80")],
        [frame(TEXT, b"\xe2\x82")],
        [frame(TEXT, b"abc", fin=False), frame(CONT, b"\xff", fin=False)],
    ],
    ids=["no UTF-8", "a surrogate", "cut off", "seen in the middle of a message"],
)
async def test_text_that_is_not_utf8_ends_its_connection_with_1007_and_no_traceback(
    listener: Listener, frames: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    async with raw_client(listener) as client:
        await greet(client)
        await client.send(*frames, frame(PING, b"too late"))
        assert await client.closed_with() == (1007, "text that is not UTF-8")
    assert not alarms(caplog)


async def test_messages_before_a_breach_in_the_same_packet_are_taken(listener: Listener, table: Table) -> None:
    async with raw_client(listener) as client:
        echo = b'{"id":1,"method":"test/echo","params":{"threadId":"T"}}'
        await client.send(frame(TEXT, INITIALIZE), frame(TEXT, echo), frame(3), frame(TEXT, echo))
        assert (await client.closed_with())[0] == 1002
    assert table.started == ["T"]


async def test_characters_may_be_cut_anywhere_and_control_frames_stand_between_fragments(listener: Listener) -> None:
    async with raw_client(listener) as client:
        await greet(client)
        text = '{"id":1,"method":"test/echo","params":{"threadId":"Straße €😀"}}'.encode()
        pieces = [frame(TEXT, text[:1], fin=False)]
        for at in range(1, len(text)):
            pieces += [frame(PING, bytes([at])), frame(CONT, text[at : at + 1], fin=False), frame(PONG, b"unasked")]
        await client.send(*pieces, frame(CONT))
        received = [await client.recv() for _ in range(len(text))]
    assert received[:-1] == [(PONG, bytes([at])) for at in range(1, len(text))]
    assert json.loads(received[-1][1])["result"]["threadId"] == "Straße €😀"


async def test_a_hundred_thousand_fragments_are_one_message(listener: Listener) -> None:
    async with raw_client(listener) as client:
        await greet(client)
        text = b'{"id":1,"method":"test/none","pad":"' + b"y" * 100_000 + b'"}'
        await client.send(
            frame(TEXT, fin=False), *(frame(CONT, text[at : at + 1], fin=False) for at in range(len(text)))
        )
        await client.send(frame(CONT))
        assert await answer(client) == {"id": 1, "result": {"requirements": None}}


async def test_one_frame_of_16_megabytes_is_one_message(listener: Listener) -> None:
    async with raw_client(listener) as client:
        await greet(client)
        await client.send(frame(TEXT, b'{"id":1,"method":"test/none","pad":"' + b"y" * (16 << 20) + b'"}'))
        assert await answer(client) == {"id": 1, "result": {"requirements": None}}


async def test_a_message_too_long_is_refused_at_its_head_and_the_limit_is_told(shared: Shared) -> None:
    async with listen_tcp(shared, "127.0.0.1", 0, max_message_bytes=1000) as listener:
        for frames in (
            [frame(TEXT, bytes(1001))[:14]],
            [frame(TEXT, bytes(600), fin=False), frame(CONT, bytes(401), fin=False)],
        ):
            async with raw_client(listener) as client:
                await client.send(*frames)
                assert await client.closed_with() == (1009, "message longer than 1000 bytes")


async def test_a_close_within_a_message_is_a_close(listener: Listener) -> None:
    async with raw_client(listener) as client:
        await client.send(frame(TEXT, b"x", fin=False), frame(CLOSE, struct.pack("!H", 1000) + b"bye"))
        assert await client.closed_with() == (1000, "bye")


async def test_pongs_do_not_pile_up_for_a_client_that_does_not_read(listener: Listener) -> None:
    async with raw_client(listener, receive_bytes=65536) as client:
        await greet(client)
        big = json.dumps({"id": 1, "method": "test/echo", "params": {"threadId": "z" * 8_000_000}}).encode()
        await client.send(frame(TEXT, big))
        (protocol,) = listener.server_state.connections
        assert isinstance(protocol, FrameProtocol)
        async with asyncio.timeout(10):
            while protocol.writable.is_set():  # noqa: ASYNC110 - uvicorn's event for the opposite
                await asyncio.sleep(0)
        flood = [frame(PING, number.to_bytes(125, "big")) for number in range(20_000)]
        await client.send(*flood)
        pongs: list[bytes] = []
        while not pongs or pongs[-1] != (19_999).to_bytes(125, "big"):
            opcode, payload = await client.recv()
            if opcode == PONG:
                pongs.append(payload)
        assert len(pongs) < 10_000


@pytest.mark.parametrize("offer", [DEFLATE, "permessage-deflate; server_no_context_takeover", "x-other"])
async def test_offers_of_compression_are_passed_over_unless_it_is_switched_on(listener: Listener, offer: str) -> None:
    async with raw_client(listener, offer=offer) as client:
        assert client.accepted == ""
        await greet(client)


async def test_compression_serves_clients_that_offer_it_and_those_that_do_not(shared: Shared) -> None:
    async with listen_tcp(shared, "127.0.0.1", 0, options=WebSocketOptions(compression=True)) as listener:
        where = f"ws://127.0.0.1:{listener.address[1]}"
        async with connect(where) as with_it, connect(where, compression=None) as without:
            assert with_it.response is not None
            assert with_it.response.headers["Sec-WebSocket-Extensions"].startswith("permessage-deflate")
            assert without.response is not None
            assert "Sec-WebSocket-Extensions" not in without.response.headers
            for client in (with_it, without):
                await client.send(INITIALIZE.decode())
                assert json.loads(await asyncio.wait_for(client.recv(), 10))["id"] == 0
                for number in range(3):
                    text = {"id": number, "method": "test/echo", "params": {"threadId": "again " * 1000}}
                    await client.send(json.dumps(text))
                    echoed = json.loads(await asyncio.wait_for(client.recv(), 10))
                    assert echoed["result"]["threadId"] == "again " * 1000


async def test_what_a_client_compresses_counts_at_its_full_length(shared: Shared) -> None:
    options = WebSocketOptions(compression=True)
    async with (
        listen_tcp(shared, "127.0.0.1", 0, max_message_bytes=100_000, options=options) as listener,
        raw_client(listener, offer=DEFLATE) as client,
    ):
        assert "permessage-deflate" in client.accepted
        squeeze = zlib.compressobj(wbits=-12)
        bomb = squeeze.compress(bytes(50_000_000)) + squeeze.flush(zlib.Z_SYNC_FLUSH)
        assert len(bomb) < 100_000
        await client.send(frame(TEXT, bomb[:-4], rsv=4))
        assert await client.closed_with() == (1009, "message longer than 100000 bytes")


async def test_a_binary_message_is_answered_and_ends_nothing(listener: Listener) -> None:
    async with raw_client(listener) as client:
        await greet(client)
        await client.send(frame(BINARY, b"\x00", fin=False), frame(CONT, b"\xff"))
        assert (await answer(client))["error"]["data"] == {"reason": "binaryFrame"}
        await client.send(frame(TEXT, b'{"id":1,"method":"test/none"}'))
        assert (await answer(client))["id"] == 1
