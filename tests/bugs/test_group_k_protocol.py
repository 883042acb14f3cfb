"""The streams and the protocol: every request is answered, however it comes and however late it is read."""

import asyncio
import itertools
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from unspool_client import Client
from unspool_server.connection import Connection, Shared
from unspool_server.transport.websocket import listen_tcp
from websockets.asyncio.client import connect

from tests.interaction.house import House
from tests.interaction.wire import within

BURST = int(os.environ.get("UNSPOOL_BURST", "2000"))
"""Requests written at once; `make fuzz` writes ten times as many."""
WAIT_S = 60.0
HELLO = b'{"id":"hello","method":"initialize","params":{"clientInfo":{"name":"burst","version":"1"}}}\n'
MALFORMED = (
    ("{oops", None, -32700, "parseError"),
    ('[{"id":78,"method":"thread/loaded/list","params":{}}]', None, -32600, "batch"),
    ('{"id":null,"method":"thread/loaded/list","params":{}}', None, -32600, "invalidId"),
    ('{"id":1.5,"method":"thread/loaded/list","params":{}}', None, -32600, "invalidId"),
    ('{"id":80,"method":"thread/loaded/list"}{"id":81,"method":"thread/loaded/list"}', None, -32700, "parseError"),
    ('{"id":82,"method":"turn/start","params":{"input":[{"text":"\\ud83d"}]}}', 82, -32600, "invalidUnicode"),
)
"""What is no message, and the answer to it."""


@asynccontextmanager
async def process(home: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A daemon of its own process on its standard streams, ended whatever happens."""
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "unspool_server.cli.main", "app-server", "--home", str(home), *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=1 << 24,
    )
    try:
        yield daemon
    finally:
        assert daemon.stdin is not None
        daemon.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(daemon.communicate(), WAIT_S)
        if daemon.returncode is None:
            daemon.kill()
            await daemon.wait()


def asks(count: int) -> list[bytes]:
    """Requests with the ids 0, 1, 2, …"""
    return [b'{"id":%d,"method":"thread/loaded/list","params":{}}' % number for number in range(count)]


async def collected(receive: Callable[[], Awaitable[bytes | str]], count: int) -> list[dict[str, Any]]:
    """The answers to `initialize` and to the burst."""
    answers: list[dict[str, Any]] = []
    while len(answers) <= count:
        message = orjson.loads(await receive())
        if "method" not in message:
            answers.append(message)
    return answers


def judged(answers: list[dict[str, Any]], count: int) -> Counter[str]:
    """How often requests were served and refused; each of the burst must have one answer."""
    given = [answer for answer in answers if isinstance(answer.get("id"), int)]
    assert sorted(answer["id"] for answer in given) == list(range(count))
    refused = [answer["error"] for answer in given if "error" in answer]
    assert all(one["code"] == -32001 and one["data"]["codexErrorInfo"] == "server_overloaded" for one in refused)
    return Counter({"served": count - len(refused), "refused": len(refused)})


@pytest.mark.parametrize(("reader", "count"), [("active", 20_000), ("late", BURST)])
async def test_b80_a_burst_in_one_write_is_answered_completely_over_stdio(
    tmp_path: Path, reader: str, count: int
) -> None:
    """Under load answers to requests were dropped, and clients waited for ever."""
    async with asyncio.timeout(WAIT_S), process(tmp_path) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        daemon.stdin.write(HELLO + b"\n".join(asks(count)) + b"\n")
        writing = asyncio.ensure_future(daemon.stdin.drain())
        if reader == "late":
            await asyncio.wait({writing}, timeout=1)  # all of it may not fit anywhere before somebody reads
        answers = await collected(daemon.stdout.readline, count)
        await writing
        assert judged(answers, count)["served"] > 0


@pytest.mark.parametrize("reader", ["active", "late"])
async def test_b80_a_burst_is_answered_completely_over_a_websocket(house: House, reader: str) -> None:
    """Over WebSocket too, whether the client reads while it writes or only afterwards."""
    async with (
        asyncio.timeout(WAIT_S),
        house.daemon() as daemon,
        listen_tcp(daemon.shared, "127.0.0.1", 0) as listener,
        connect(f"ws://127.0.0.1:{listener.address[1]}", compression=None, max_queue=None) as socket,
    ):
        reading = asyncio.ensure_future(collected(socket.recv, BURST)) if reader == "active" else None
        await socket.send(HELLO.decode())
        for request in asks(BURST):
            await socket.send(request.decode())
        judged(await (reading or collected(socket.recv, BURST)), BURST)


async def test_b80_too_much_at_once_is_refused_in_the_words_that_clients_retry(house: House) -> None:
    """The official client retries only where `codexErrorInfo` says so."""
    async with house.daemon() as daemon:
        narrow = Shared(
            daemon.shared.dispatcher,
            daemon.shared.hub,
            house.home,
            daemon.shared.services,
            max_in_flight=2,
        )
        connection = Connection(narrow)
        for line in (HELLO.strip(), *asks(5)):
            connection.receive(line)
        answers: list[dict[str, Any]] = []
        while len([one for one in answers if isinstance(one.get("id"), int)]) < 5:
            answers += [orjson.loads(body) for body in await within(connection.take())]
        refused = [answer["error"] for answer in answers if "error" in answer]
        assert len(refused) == 3
        assert all(one["message"] == "Server overloaded; retry later." for one in refused)
        assert {(one["data"]["reason"], one["data"]["codexErrorInfo"]) for one in refused} == {
            ("overloaded", "server_overloaded")
        }
        await connection.close()


async def test_b82_our_client_takes_lines_of_any_size_the_protocol_allows(tmp_path: Path) -> None:
    """Python clients died of lines over 64 KiB, the default of asyncio's readers."""
    async with asyncio.timeout(WAIT_S), Client.stdio(home=tmp_path) as client:
        for size in (70_000, 1_000_000, 20_000_000):
            text = "x" * size
            item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
            thread = await client.start_thread(cwd=str(tmp_path))
            await client.call("thread/inject_items", {"threadId": thread.id, "items": [item]})
            context = await client.call("thread/context", {"threadId": thread.id})
            assert text in orjson.dumps(context["items"]).decode()


async def test_b84_requests_of_a_client_that_does_not_read_wait_and_memory_stays_bounded(house: House) -> None:
    """A client that did not read had 200,000 requests taken, at 880 MB."""
    limit, largest = 32 * 1024, 64 * 1024
    async with house.daemon() as daemon:
        shared = daemon.shared
        connection = Connection(
            Shared(shared.dispatcher, shared.hub, house.home, shared.services, max_unsent_bytes=limit)
        )
        connection.receive(HELLO.strip())
        taken = 0

        async def write() -> None:
            nonlocal taken
            for request in itertools.cycle(asks(1000)):
                await connection.ready()
                connection.receive(request)
                taken += 1

        writing = asyncio.ensure_future(write())
        for _ in range(2):
            for _ in range(100_000):  # turns of the loop; a few thousand are needed
                await asyncio.sleep(0)
                if connection.outbox.waiting_bytes > limit:
                    break
            before = taken
            for _ in range(200):
                await asyncio.sleep(0)
            assert taken <= before + 1 and limit < connection.outbox.waiting_bytes < limit + largest
            assert len(await within(connection.take())) > 100  # it reads again, and is served again
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await connection.close()


async def test_b84_a_flood_of_events_does_not_keep_an_answer_from_a_client_that_reads_late(house: House) -> None:
    """Answers and events shared a queue, and both sides waited for each other."""
    house.offline(default=[{"say": "word " * 400}])
    async with house.daemon() as daemon:
        client, slow = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await slow.call("thread/resume", {"threadId": thread})
        number = await slow.ask("thread/loaded/list", {})
        await client.turns(thread, "one", "two")
        assert (await slow.answer(number))["result"]["data"] == [thread]


_NOISY = """
import os, subprocess, sys
from unspool_server.cli import daemon
built = daemon._table
def noisy():
    print("a plugin prints")
    sys.stdout.write("and writes\\n"); sys.stdout.flush()
    os.write(1, b"and writes below python\\n")
    subprocess.run(["sh", "-c", "echo a child prints"], check=True)
    return built()
daemon._table = noisy
from unspool_server.cli.main import main
main()
"""


async def test_b86_what_plugins_hooks_and_their_children_print_never_reaches_the_protocol(tmp_path: Path) -> None:
    """A stray print on standard output broke the stream of messages."""
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _NOISY, "app-server", "--home", str(tmp_path)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(os.environ),
    )
    async with asyncio.timeout(WAIT_S):
        output, errors = await daemon.communicate(HELLO + asks(1)[0] + b"\n")
    messages = [orjson.loads(line) for line in output.splitlines()]
    assert [message["id"] for message in messages if "id" in message] == ["hello", 0]
    for words in (b"a plugin prints", b"and writes\n", b"and writes below python", b"a child prints"):
        assert words in errors and words not in output


async def test_b88_line_separators_inside_text_divide_nothing(tmp_path: Path) -> None:
    """Texts with U+2028, U+0085, VT or FF were cut into two messages."""
    name = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg"
    async with asyncio.timeout(WAIT_S), process(tmp_path) as daemon:
        assert daemon.stdin is not None and daemon.stdout is not None
        daemon.stdin.write(HELLO + b'{"id":1,"method":"thread/start","params":{}}\n')
        thread = ""
        while not thread:
            message = orjson.loads(await daemon.stdout.readline())
            thread = message["result"]["thread"]["id"] if message.get("id") == 1 else ""
        daemon.stdin.write(
            orjson.dumps({"id": 2, "method": "thread/name/set", "params": {"threadId": thread, "name": name}}) + b"\n"
        )
        while (message := orjson.loads(await daemon.stdout.readline())).get("method") != "thread/name/updated":
            pass
        assert message["params"]["threadName"] == name


async def test_b90_every_malformed_line_gets_one_answer_and_the_connection_goes_on(tmp_path: Path) -> None:
    """Broken JSON, batches, ids that are none and lone surrogates got no answer at all."""
    lines = "\n".join(text for text, *_ in MALFORMED).encode()
    async with asyncio.timeout(WAIT_S), process(tmp_path) as daemon:
        output, _ = await daemon.communicate(HELLO + lines + b"\n\r\n  \n" + asks(1)[0] + b"\r\n")
    answers = [message for message in map(orjson.loads, output.splitlines()) if "method" not in message]
    told = [(one["id"], one["error"]["code"], one["error"]["data"]["reason"]) for one in answers if "error" in one]
    assert told == [(number, code, reason) for _, number, code, reason in MALFORMED]
    assert answers[-1] == {"id": 0, "result": {"data": [], "nextCursor": None}}


async def test_b90_over_a_websocket_as_well_and_for_frames_that_are_no_text(house: House) -> None:
    """A frame holds one message; two in one, or a binary one, are told so."""
    async with (
        house.daemon() as daemon,
        listen_tcp(daemon.shared, "127.0.0.1", 0) as listener,
        connect(f"ws://127.0.0.1:{listener.address[1]}", compression=None) as socket,
    ):
        await socket.send(HELLO.decode())
        for text, *_ in MALFORMED:
            await socket.send(text)
        await socket.send(b"{}")
        await socket.send(asks(1)[0].decode())
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1].get("id") != 0:
            answers.append(orjson.loads(await within(socket.recv())))
        reasons = [one["error"]["data"]["reason"] for one in answers if "error" in one]
        assert reasons == [*(reason for *_, reason in MALFORMED), "binaryFrame"]
