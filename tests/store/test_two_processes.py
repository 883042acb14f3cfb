"""Locks between processes, and what a process that is killed leaves behind (02 §7; DESIGN §9)."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio
from unspool_server.errors import WriterHeld
from unspool_server.store.local import LocalStore

from tests.conformance.threads import faults, notes, ordinals, read, thread

ROOT = Path(__file__).parents[2]
WAIT_S = 30
Start = Callable[..., Awaitable["Writer"]]


class Writer:
    """A running `writer_process`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def line(self) -> str:
        """The next fact it tells."""
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), WAIT_S)).decode().strip()

    async def kill(self) -> None:
        """kill -9."""
        if self.process.returncode is None:
            self.process.kill()
        await asyncio.wait_for(self.process.wait(), WAIT_S)


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Start]:
    """Starts writer processes and ends them with the test."""
    async with AsyncExitStack() as stack:

        async def run(home: Path, thread_id: str = "new", count: int = 1) -> Writer:
            path = os.pathsep.join(str(ROOT / part) for part in ("server", "protocol", "clients", "."))
            writer = Writer(
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    str(Path(__file__).with_name("writer_process.py")),
                    str(home),
                    thread_id,
                    str(count),
                    stdout=asyncio.subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path},
                )
            )
            stack.push_async_callback(writer.kill)
            return writer

        yield run


async def test_a_killed_process_frees_its_thread(tmp_path: Path, start: Start) -> None:
    other = await start(tmp_path)
    thread_id = await other.line()
    await other.line()
    store = LocalStore(tmp_path)
    for refused in (store.open(thread_id), store.archive(thread_id), store.delete(thread_id)):
        with pytest.raises(WriterHeld) as caught:
            await refused
        assert caught.value.holder == f"process {other.process.pid}"
    assert ordinals(await read(store, thread_id)) == [0, 1]
    await other.kill()
    log = await store.open(thread_id)
    assert log.next_ordinal == 2
    assert log.epoch == 2
    await store.close()


async def test_a_thread_live_here_is_refused_there(tmp_path: Path, start: Start) -> None:
    store = LocalStore(tmp_path)
    log = await thread(store, "a")
    other = await start(tmp_path, log.info.thread_id)
    assert await other.line() == f"held by process {os.getpid()}"
    await store.close()
    third = await start(tmp_path, log.info.thread_id)
    assert await third.line() == log.info.thread_id


async def test_two_homes_that_share_a_sessions_folder_share_its_locks(tmp_path: Path, start: Start) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "sessions").mkdir(parents=True)
    second.mkdir()
    (second / "sessions").symlink_to(first / "sessions", target_is_directory=True)
    store = LocalStore(first)
    log = await thread(store, "a")
    other = await start(second, log.info.thread_id)
    assert await other.line() == f"held by process {os.getpid()}"
    await store.close()
    assert await (await start(second, log.info.thread_id)).line() == log.info.thread_id


async def test_the_lock_of_the_reference_is_respected(tmp_path: Path) -> None:
    import fcntl

    store = LocalStore(tmp_path)
    log = await thread(store, "a")
    thread_id = log.info.thread_id
    path = tmp_path / "thread-writer-locks" / f"{thread_id}.lock"
    with path.open("rb") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await log.close()
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(WriterHeld):
            await store.open(thread_id)
    assert (path.parent / ".coordination.lock").exists()


@pytest.mark.parametrize("killed_after", [1, 4, 23])
async def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path, start: Start, killed_after: int) -> None:
    other = await start(tmp_path, count=100_000)
    thread_id = await other.line()
    acknowledged = [int(await other.line()) for _ in range(killed_after)]
    other.process.kill()
    assert other.process.stdout is not None
    rest = await asyncio.wait_for(other.process.stdout.read(), WAIT_S)
    acknowledged += [int(line) for line in rest.decode().splitlines()]
    await other.kill()
    store = LocalStore(tmp_path)
    found = await read(store, thread_id)
    assert ordinals(found) == list(range(len(found)))
    assert found[-1].ordinal >= acknowledged[-1]
    assert [code for _, code in await faults(store, thread_id)] in ([], ["tornTail"])
    log = await store.open(thread_id)
    await log.append(notes("after"), expected_ordinal=len(found))
    await store.close()
    assert len(await read(store, thread_id)) == len(found) + 1
