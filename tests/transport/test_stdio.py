"""JSON lines over the standard streams of a real process, and over pipes of this one."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from unspool_server.connection import Shared
from unspool_server.transport.framing import LineBuffer, TooLong
from unspool_server.transport.stdio import serve_stdio

from tests.transport.fakes import FakeHub, Table, WatchedOutbox, make_shared

ROOT = Path(__file__).parents[2]
INITIALIZE = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"rec","version":"1"}}}\n'
WAIT_S = 60.0


def run(sent: bytes, *arguments: str) -> tuple[list[Any], dict[str, Any], str]:
    """Send bytes, close the input, and wait: messages, the report of loaded modules, and what else came on stderr."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, str(Path(__file__).with_name("stdio_server.py")), *arguments]
    done = subprocess.run(
        command, input=sent, capture_output=True, check=False, env=environment, cwd=ROOT, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr.decode()
    *noise, report = done.stderr.decode().splitlines()
    return [json.loads(line) for line in done.stdout.split(b"\n") if line], json.loads(report), "\n".join(noise)


def test_the_handshake_imports_nothing_heavy_and_the_end_of_input_ends_the_process() -> None:
    messages, report, noise = run(INITIALIZE + b'{"method":"initialized"}\n')
    assert [message["id"] for message in messages] == [0]
    assert report == {"loaded": []}
    assert noise == ""


def test_the_first_request_imports_the_dispatcher_and_no_server() -> None:
    messages, report, _ = run(INITIALIZE + b'{"id":1,"method":"test/none"}\n')
    assert messages[1] == {"id": 1, "result": {"requirements": None}}
    assert report["loaded"] == ["jsonrpcserver", "jsonschema"]


def test_only_messages_reach_the_real_standard_output() -> None:
    messages, _, noise = run(INITIALIZE, "noise")
    assert [message["id"] for message in messages] == [0]
    assert noise.splitlines() == ["printed by Python", "written to descriptor 1", "printed by a child"]


def test_line_ends_blanks_and_separators_inside_text_are_read_as_the_reference_does() -> None:
    text = "a\u2028b\u2029c\u0085d"
    request = {"id": 3, "method": "test/echo", "params": {"threadId": text}}
    sent = [
        INITIALIZE,
        b"\n\r\n   \n",
        b'{"id":1,"method":"test/none"}\r\n',
        b'  {"id":2,"method":"test/none"}\t \n',
        json.dumps(request, ensure_ascii=False).encode() + b"\n",
        b'{"id":4,"method":"test/none"}',
    ]
    messages, _, _ = run(b"".join(sent))
    assert sorted(message["id"] for message in messages) == [0, 1, 2, 3, 4]
    (echo,) = (message for message in messages if message["id"] == 3)
    assert echo["result"]["threadId"] == text


def test_messages_of_a_megabyte_pass_in_both_directions() -> None:
    text = "x" * 1_000_000
    request = json.dumps({"id": 1, "method": "test/echo", "params": {"threadId": text}}).encode()
    messages, _, _ = run(INITIALIZE + request + b"\n")
    assert messages[1]["result"]["threadId"] == text


class Pipes:
    """A server in this process over two pipes; the client's ends are blocking descriptors."""

    def __init__(self) -> None:
        self.server_in, self.to_server = os.pipe()
        self.from_server, self.server_out = os.pipe()
        self._open = {self.server_in, self.to_server, self.from_server, self.server_out}

    def close(self, *descriptors: int) -> None:
        for descriptor in descriptors or tuple(self._open):
            self._open.discard(descriptor)
            os.close(descriptor)


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    both = Pipes()
    with contextlib.closing(both):
        yield both


async def write_in_thread(descriptor: int, content: bytes) -> None:
    """Write from a thread, since the pipe may be full for a while."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def write() -> None:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        loop.call_soon_threadsafe(done.set)

    threading.Thread(target=write).start()
    await done.wait()


async def lines(descriptor: int) -> AsyncIterator[Any]:
    buffer = LineBuffer()
    while chunk := await asyncio.to_thread(os.read, descriptor, 1 << 16):
        for line in buffer.receive_data(chunk):
            assert isinstance(line, bytes)
            yield json.loads(line)


async def test_a_client_that_writes_everything_before_it_reads_gets_every_answer(shared: Shared, pipes: Pipes) -> None:
    server = asyncio.create_task(serve_stdio(shared, pipes.server_in, pipes.server_out))
    count = 5_000
    requests = b"".join(b'{"id":%d,"method":"test/none"}\n' % number for number in range(1, count + 1))
    await asyncio.wait_for(write_in_thread(pipes.to_server, INITIALIZE + requests), WAIT_S)
    pipes.close(pipes.to_server)
    ids = []
    async with asyncio.timeout(WAIT_S):
        async for message in lines(pipes.from_server):
            ids.append(message["id"])
            if len(ids) == count + 1:
                break
        await server
    assert sorted(ids) == list(range(count + 1))


async def test_a_client_that_never_reads_is_no_longer_read_and_loses_nothing(
    table: Table, hub: FakeHub, pipes: Pipes
) -> None:
    outbox = WatchedOutbox()
    limited = make_shared(table, hub, max_unsent_bytes=100_000, new_outbox=lambda: outbox)
    server = asyncio.create_task(serve_stdio(limited, pipes.server_in, pipes.server_out))
    count, pad = 2_000, b"p" * 1_000
    requests = b"".join(
        b'{"id":%d,"method":"test/big","params":{},"pad":"%s"}\n' % (number, pad) for number in range(1, count + 1)
    )
    writing = asyncio.create_task(write_in_thread(pipes.to_server, INITIALIZE + requests))
    async with asyncio.timeout(WAIT_S):
        await outbox.piled_up.wait()
        assert not writing.done()
        ids = []
        async for message in lines(pipes.from_server):
            ids.append(message["id"])
            if len(ids) == count + 1:
                break
        await writing
        pipes.close(pipes.to_server)
        await server
    assert sorted(ids) == list(range(count + 1))
    assert outbox.most < 128 * 101_000


async def test_a_client_that_closes_our_output_ends_the_connection(shared: Shared, pipes: Pipes) -> None:
    pipes.close(pipes.from_server)
    os.write(pipes.to_server, INITIALIZE)
    await asyncio.wait_for(serve_stdio(shared, pipes.server_in, pipes.server_out), WAIT_S)


async def test_a_line_beyond_the_limit_is_refused_and_the_next_one_served(shared: Shared, pipes: Pipes) -> None:
    server = serve_stdio(shared, pipes.server_in, pipes.server_out, max_message_bytes=1_000)
    os.write(pipes.to_server, INITIALIZE + b'"' + b"x" * 2_000 + b'"\n{"id":1,"method":"test/none"}\n')
    pipes.close(pipes.to_server)
    await asyncio.wait_for(server, WAIT_S)
    pipes.close(pipes.server_out)
    messages = [message async for message in lines(pipes.from_server)]
    text = "Invalid request: message longer than 1000 bytes"
    assert {"id": None, "error": {"code": -32600, "message": text, "data": {"reason": "tooLong"}}} in messages
    assert {"id": 1, "result": {"requirements": None}} in messages


def test_lines_are_cut_at_line_feeds_only_however_the_bytes_arrive() -> None:
    content = b'{"a":"\x0b\x0c\xc2\x85\xe2\x80\xa8"}\r\n\n  \n{"b":1}\n{"c":2}'
    for size in (1, 2, 3, 7, len(content)):
        buffer, found = LineBuffer(), list[bytes | TooLong]()
        for start in range(0, len(content), size):
            found += buffer.receive_data(content[start : start + size])
        found += buffer.receive_eof()
        assert found == [b'{"a":"\x0b\x0c\xc2\x85\xe2\x80\xa8"}', b'{"b":1}', b'{"c":2}']


def test_a_line_that_is_too_long_is_not_kept_in_memory() -> None:
    buffer = LineBuffer(max_bytes=10)
    assert buffer.receive_data(b"x" * 11) == []
    assert buffer.receive_data(b"y" * 1_000 + b"\nshort\n") == [TooLong(10), b"short"]
    assert buffer.receive_data(b"0123456789\n") == [b"0123456789"]
