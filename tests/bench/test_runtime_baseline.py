"""How long the main operations take, beside what the bare machine needs for the same bytes; a table, no verdict."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.costs.big_log import make_big_thread
from tests.state.inprocess import house

pytestmark = pytest.mark.bench

ROOT = Path(__file__).parents[2]
Row = tuple[str, float, float, str]


@pytest.fixture(scope="module")
def rows() -> Iterator[list[Row]]:
    """Rows of the table, printed at the end: what, seconds, seconds of the reference, which reference that is."""
    found: list[Row] = []
    yield found
    print(f"\n\n{'operation':44}{'ms':>10}{'raw ms':>10}{'ratio':>9}  raw reference")
    for what, took_s, raw_s, reference in found:
        print(f"{what:44}{took_s * 1000:10.2f}{raw_s * 1000:10.2f}{took_s / raw_s:9.1f}  {reference}")


def best(work: Callable[[], object], times: int = 5) -> float:
    """Seconds of the quickest run."""
    durations = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        durations.append(time.perf_counter() - began)
    return min(durations)


async def timed(work: Callable[[], Awaitable[Any]], times: int = 5) -> float:
    """Seconds of the quickest run."""
    durations = []
    for _ in range(times):
        began = time.perf_counter()
        await work()
        durations.append(time.perf_counter() - began)
    return min(durations)


def read_and_parse(path: Path, size: int) -> int:
    """Read the last bytes of a log and decode their lines."""
    with path.open("rb") as log:
        log.seek(-size, os.SEEK_END)
        return sum(bool(json.loads(line)) for line in log.read().splitlines()[1:])


def write_and_sync(path: Path, content: bytes) -> None:
    """Append some bytes and see them on the disk."""
    with path.open("ab") as log:
        log.write(content)
        log.flush()
        os.fsync(log.fileno())


async def test_a_thread_of_50_mb(tmp_path: Path, rows: list[Row]) -> None:
    home = tmp_path / "home"
    thread_id = await make_big_thread(home)
    [path] = home.rglob("rollout-*.jsonl")
    began = time.perf_counter()
    async with house(home) as daemon, daemon.client() as client:
        await client.call("thread/resume", threadId=thread_id, excludeTurns=True)
        took, size = time.perf_counter() - began, daemon.store.stats.bytes_read
        rows.append(("start and cold resume", took, best(lambda: read_and_parse(path, size)), "read and parse as much"))

        async def page() -> None:
            await client.call("thread/turns/list", threadId=thread_id, limit=20, itemsView="full")

        before = daemon.store.stats.bytes_read
        await page()
        size = daemon.store.stats.bytes_read - before
        rows.append(
            ("page of 20 turns", await timed(page), best(lambda: read_and_parse(path, size)), "read and parse as much")
        )

        async def fork() -> None:
            await client.call("thread/fork", threadId=thread_id, excludeTurns=True)

        small = best(lambda: write_and_sync(tmp_path / "raw", b"x" * 2000))
        rows.append(("fork", await timed(fork), small, "write and sync 2 KB"))

        async def back_and_forth() -> None:
            await client.call("thread/rollback", threadId=thread_id, numTurns=1)
            await client.call("thread/rollback/undo", threadId=thread_id)

        whole = best(lambda: read_and_parse(path, path.stat().st_size), 1)
        rows.append(("rollback with undo, answers with all turns", await timed(back_and_forth, 1), whole, "parse all"))

        async def turn() -> None:
            await client.turn(thread_id, "hello")

        rows.append(("turn", await timed(turn), small, "write and sync 2 KB"))
    assert len(rows) == 5


def test_start_up_to_the_first_answer(tmp_path: Path, rows: list[Row]) -> None:
    hello = b'{"id":0,"method":"initialize","params":{"clientInfo":{"name":"bench","version":"1"}}}\n'
    path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients"))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, "-m", "unspool_server.cli.main", "app-server", "--home", str(tmp_path)]

    def start(arguments: list[str]) -> bytes:
        return subprocess.run(arguments, input=hello, capture_output=True, check=True, env=environment).stdout

    assert b"userAgent" in start(command)
    bare = best(lambda: start([sys.executable, "-c", "pass"]), 3)
    rows.append(("process: start, initialize, end", best(lambda: start(command), 3), bare, "start Python"))
