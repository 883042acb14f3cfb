"""A daemon as a child process: long lines, its end, its stderr."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from unspool_client import Client, ConnectFailed, ConnectionLost
from unspool_client.stdio import LineBuffer

CHILD = """
import json, os, sys, time
out = sys.stdout.buffer
for raw in sys.stdin.buffer:
    message = json.loads(raw)
    method, params = message["method"], message.get("params") or {}
    if "id" not in message:
        continue
    if method == "die":
        sys.stderr.write("out of luck\\n")
        sys.exit(3)
    result = {"userAgent": "child/0.171.0 (x)", "pid": os.getpid(), "home": os.environ.get("UNSPOOL_HOME")}
    if method == "print":
        out.write(b"a stray print\\n\\n")
    if method == "echo":
        result = params
    if method == "fill":
        result = {"text": "x" * params["size"]}
    if method == "noise":
        sys.stderr.write("noise\\n" * 100_000)
    out.write(json.dumps({"id": message["id"], "result": result}).encode() + b"\\r\\n")
    out.flush()
if "stubborn" in sys.argv:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    out.write(b"x" * 1_000_000)
    out.flush()
    time.sleep(60)
"""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    return [sys.executable, str(script)]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_child_is_started_with_its_home_and_ended_with_the_client(command: list[str]) -> None:
    async with asyncio.timeout(10):
        async with Client.stdio(command, home="/some/home") as client:
            pid = int(client.server["pid"])
            assert client.server["home"] == "/some/home"
            assert is_alive(pid)
        assert not is_alive(pid)


async def test_a_child_that_will_not_end_is_killed(command: list[str]) -> None:
    async with asyncio.timeout(10):
        async with Client.stdio([*command, "stubborn"], grace_s=0.3) as client:
            pid = int(client.server["pid"])
        assert not is_alive(pid)


@pytest.mark.parametrize("size", [70_000, 2_000_000])
async def test_lines_have_no_limit_of_the_reader(command: list[str], size: int) -> None:
    async with asyncio.timeout(20), Client.stdio(command) as client:
        assert len((await client.call("fill", {"size": size}))["text"]) == size
        text = "\x0b\x0c\x1c\u2028\x85" * (size // 10)
        assert (await client.call("echo", {"text": text}))["text"] == text


async def test_a_stray_print_does_not_break_the_stream(command: list[str]) -> None:
    async with asyncio.timeout(10), Client.stdio(command) as client:
        assert "pid" in await client.call("print")


async def test_a_child_that_dies_is_reported_with_its_status_and_stderr(command: list[str]) -> None:
    async with asyncio.timeout(10), Client.stdio(command) as client:
        with pytest.raises(ConnectionLost, match="exited with 3") as caught:
            await client.call("die")
        assert "out of luck" in str(caught.value)
        assert caught.value.maybe_executed


async def test_stderr_is_read_and_handed_on_without_blocking_the_child(command: list[str]) -> None:
    chunks: list[bytes] = []
    async with asyncio.timeout(10):
        async with Client.stdio(command, stderr=chunks.append) as client:
            await client.call("noise")
    assert b"".join(chunks) == b"noise\n" * 100_000


async def test_a_program_that_does_not_exist_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed) as caught:
        async with Client.stdio([str(tmp_path / "missing")]):
            pass
    assert not caught.value.retryable


def test_lines_are_cut_at_line_feeds_only_however_the_bytes_come() -> None:
    stream = 'a\u2028b\x85\n\r\n{"c"}\r\nrest'.encode()
    for size in range(1, len(stream) + 1):
        buffer = LineBuffer()
        lines = [line for at in range(0, len(stream), size) for line in buffer.receive(stream[at : at + size])]
        assert lines == ["a\u2028b\x85".encode(), b'{"c"}']


def test_a_line_beyond_the_protocols_limit_is_refused() -> None:
    buffer = LineBuffer(max_bytes=10)
    with pytest.raises(ConnectionLost):
        buffer.receive(b"x" * 11)
