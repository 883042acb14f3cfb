"""A thousand idle WebSockets and a hundred that do not read, on a real daemon: memory, latency, nothing lost.

Times are given as ratios to those of the same daemon without them; only what clients were sent is asserted.
"""

import asyncio
import json
import os
import socket
import statistics
import time
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from unspool_server.cli.descriptors import allow_many_descriptors
from websockets.asyncio.client import ClientConnection, connect

from tests.real_clients.daemons import WebSocketDaemon
from tests.real_clients.driving import program_in

pytestmark = pytest.mark.bench

IDLE, SLOW, AT_ONCE = 1000, 100, 25
WAIT_S = 300.0
INITIALIZE = {"clientInfo": {"name": "bench", "version": "1"}}

CONFIG = """\
[limits]
connections = 4000
connections_per_token = 4000

[model_providers.steady]
name = "steady"
wire_api = "offline"
script = "{steady}"
pace_s = 0.005

[model_providers.bulky]
name = "bulky"
wire_api = "offline"
script = "{bulky}"
"""


class Follower:
    """One connection that numbers its requests."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.seen: list[dict[str, Any]] = []
        self.late_ms: list[float] = []
        self._sent = 0

    async def recv(self) -> dict[str, Any]:
        """The next message; events are kept, with how late they came."""
        message: dict[str, Any] = orjson.loads(await self.connection.recv(decode=False))
        if "method" in message:
            self.seen.append(message)
            self.late_ms.append(time.time() * 1000 - message["emittedAtMs"])
        return message

    async def call(self, method: str, **params: Any) -> Any:
        """Ask, and wait for the answer."""
        self._sent += 1
        await self.connection.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while (message := await self.recv()).get("id") != self._sent:
            pass
        return message["result"]

    async def begin(self, thread: str) -> None:
        """Start a turn."""
        await self.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])

    async def turns(self, thread: str, number: int) -> None:
        """Read until so many turns of the thread have ended."""
        while self.ended(thread) < number:
            await self.recv()

    def ended(self, thread: str) -> int:
        """Turns of the thread that have ended, as far as was read."""
        return sum(one["method"] == "turn/completed" and one["params"]["threadId"] == thread for one in self.seen)

    def told(self, thread: str) -> tuple[list[tuple[str, str]], str]:
        """What it was told of a thread: methods with cursors, without deltas; and the text of all deltas."""
        about = [one for one in self.seen if one["params"].get("threadId") == thread and "cursor" in one]
        deltas = [one for one in about if one["method"].endswith("/delta")]
        rest = [(one["method"], one["cursor"]) for one in about if not one["method"].endswith("/delta")]
        return rest, "".join(one["params"]["delta"] for one in deltas)


def reaching(url: str) -> connect:
    """A connection to be, with so little room on our side that what is not read stays with the server."""
    where = urlsplit(url)
    assert where.hostname is not None
    ours = socket.socket()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
    ours.connect((where.hostname, where.port))
    return connect(url, sock=ours, max_size=None, max_queue=2, ping_interval=None)


async def behind(url: str) -> int:
    """Subscriptions that have not caught up, as the daemon counts them."""
    address = url.replace("ws://", "http://").rstrip("/") + "/metrics"
    with await asyncio.to_thread(urllib.request.urlopen, address) as answer:
        [line] = [
            line for line in answer.read().decode().splitlines() if line.startswith("unspool_subscriptions_behind")
        ]
    return int(float(line.split()[1]))


@asynccontextmanager
async def followers(url: str, number: int) -> AsyncIterator[list[Follower]]:
    """So many connections after their handshakes. They read no more than a few messages by themselves."""
    made: list[Follower] = []
    try:
        while len(made) < number:
            some = [reaching(url) for _ in range(min(AT_ONCE, number))]
            made += [Follower(one) for one in await asyncio.gather(*some)]
            await asyncio.gather(*(one.call("initialize", **INITIALIZE) for one in made[-len(some) :]))
        yield made
    finally:
        for one in made:
            one.connection.transport.abort()  # a close in order would have to read what was left unread
        await asyncio.gather(*(one.connection.wait_closed() for one in made))


def resident_kb(pid: int) -> int:
    """Memory of a process that is in use."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1])


async def latencies(busy: Follower, asking: Follower, thread: str) -> tuple[float, float, float]:
    """Milliseconds of a request and of an event while a turn runs, medians of a few hundred; and the latest event."""
    ended = busy.ended(thread) + 1
    await busy.begin(thread)
    busy.late_ms.clear()
    following = asyncio.create_task(busy.turns(thread, ended))
    took = []
    while not following.done():
        began = time.perf_counter()
        await asking.call("thread/loaded/list")
        took.append((time.perf_counter() - began) * 1000)
    await following
    return statistics.median(took), statistics.median(busy.late_ms), max(busy.late_ms)


def show(rows: Sequence[tuple[str, float, float, float]]) -> None:
    """A table; ratios are to its first row."""
    print(f"\n\n{'with':34}{'request ms':>12}{'ratio':>7}{'event ms':>12}{'ratio':>7}{'latest ms':>12}{'ratio':>7}")
    for what, *figures in rows:
        shown = (f"{ms:12.2f}{ms / first:7.2f}" for ms, first in zip(figures, rows[0][1:], strict=True))
        print(f"{what:34}{''.join(shown)}")


async def test_a_thousand_idle_and_a_hundred_slow_clients(tmp_path: Path) -> None:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory of another process is read from /proc")
    asyncio.get_running_loop().set_debug(False)
    allow_many_descriptors()
    home = tmp_path / "home"
    home.mkdir()
    scripts = {"steady": "word " * 400, "bulky": ("x" * 5000 + " ") * 200}
    for name, text in scripts.items():
        (tmp_path / name).write_text(json.dumps({"default": [{"say": text}]}))
    (home / "config.toml").write_text(CONFIG.format(steady=tmp_path / "steady", bulky=tmp_path / "bulky"))
    environment = {"UNSPOOL_HOME": str(home), "PYTHONWARNINGS": os.environ.get("PYTHONWARNINGS", "")}
    with WebSocketDaemon(program_in(tmp_path), environment, tmp_path) as daemon:
        async with asyncio.timeout(WAIT_S), followers(daemon.url, 3) as (busy, asking, fast):
            steady = (await busy.call("thread/start", modelProvider="steady", cwd=str(tmp_path)))["thread"]["id"]
            bulky = (await fast.call("thread/start", modelProvider="bulky", cwd=str(tmp_path)))["thread"]["id"]
            await latencies(busy, asking, steady)
            rows = [("nothing else", *await latencies(busy, asking, steady))]
            before = resident_kb(daemon.pid)
            async with followers(daemon.url, IDLE):
                each = (resident_kb(daemon.pid) - before) / IDLE
                rows.append((f"{IDLE} idle connections", *await latencies(busy, asking, steady)))
                async with followers(daemon.url, SLOW) as slow:
                    await fast.begin(bulky)
                    await fast.turns(bulky, 1)
                    for one in slow:
                        await one.call("thread/resume", threadId=bulky, excludeTurns=True)
                    mark = len(fast.seen)
                    for number in (2, 3, 4):
                        await fast.begin(bulky)
                        await fast.turns(bulky, number)
                    rows.append((f"and {SLOW} that read nothing", *await latencies(busy, asking, steady)))
                    assert await behind(daemon.url) == SLOW
                    stuck = resident_kb(daemon.pid)
                    del fast.seen[:mark]
                    expected = fast.told(bulky)
                    began = time.perf_counter()
                    for one in slow:
                        one.seen.clear()
                        await one.turns(bulky, 3)
                        assert one.told(bulky) == expected
                        one.seen.clear()
                    took = time.perf_counter() - began
    show(rows)
    late = (stuck - before - each * (IDLE + SLOW)) / SLOW
    print(f"\nmemory: {each:.1f} KB for each idle connection, {late:.0f} KB more for each that is behind")
    events, megabytes = len(expected[0]), len(expected[1]) / 1e6
    print(f"nothing lost: {events} events and {megabytes:.1f} MB of text in deltas for each, read in {took:.1f} s")
