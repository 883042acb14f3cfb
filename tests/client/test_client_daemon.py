"""The client against the real daemon: in this process, over a socket, and as a child process."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from unspool_client import Channel, Client, CursorInvalid, Event, TurnsOutOfRange
from unspool_client.stdio import open_stdio

from tests.client.test_client_reconnect import QUICK, until_end

pytest.importorskip("unspool_server.cli.daemon")

from unspool_server.cli.connect import MemoryLink
from unspool_server.cli.daemon import daemon as run_daemon
from unspool_server.config import Config
from unspool_server.connection import Shared
from unspool_server.transport.memory import MemoryTransport
from unspool_server.transport.websocket import listen_tcp


class Links:
    """Opens channels to a daemon in this process and cuts them after so many messages of the server."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.left: int | None = None
        self.cuts = 0

    async def open(self) -> Channel:
        transport = MemoryTransport(self._shared)
        transport.start()
        return CutLink(transport, self)


class CutLink(MemoryLink):
    """A channel that ends when its owner's count has run out."""

    def __init__(self, transport: MemoryTransport, owner: Links) -> None:
        super().__init__(transport)
        self._owner = owner

    async def receive(self) -> bytes | None:
        if self._owner.left == 0:
            self._owner.left = None
            self._owner.cuts += 1
            await self.close()
            return None
        message = await super().receive()
        if self._owner.left is not None:
            self._owner.left -= 1
        return message


@asynccontextmanager
async def links(home: Path) -> AsyncIterator[Links]:
    async with run_daemon(Config(), home) as shared:
        yield Links(shared)


def outline(events: list[Event]) -> list[tuple[str, str]]:
    """Methods and texts; ids and times differ from thread to thread."""
    return [(event.method, str(event.params.get("delta", ""))) for event in events]


async def test_a_turn_runs_and_its_events_can_be_read_from_the_beginning(tmp_path: Path) -> None:
    async with asyncio.timeout(20), links(tmp_path) as there, Client.over(there.open) as client:
        thread = await client.start_thread(cwd=str(tmp_path))
        result = await thread.run("hello")
        assert result.ok and "hello" in result.text
        live = await until_end(thread.events())
        assert [turn.id async for turn in thread.turns()] == [result.turn_id]
        assert all(event.typed() is not None for event in live)
        assert result.cursor == live[-1].cursor


async def test_a_cut_at_every_message_of_a_real_turn_leaves_the_event_list_as_it_was(tmp_path: Path) -> None:
    text = "one two three four five six"
    async with asyncio.timeout(60), links(tmp_path) as there:
        async with Client.over(there.open, reconnect=QUICK) as client:
            thread = await client.start_thread(cwd=str(tmp_path))
            stream = thread.events("now")
            await thread.start_turn(text)
            wanted = outline(await until_end(stream))
        for boundary in range(len(wanted) + 1):
            async with Client.over(there.open, reconnect=QUICK) as client:
                thread = await client.start_thread(cwd=str(tmp_path))
                stream = thread.events("now")
                there.left = boundary
                await thread.start_turn(text)
                assert outline(await until_end(stream)) == wanted, f"cut before message {boundary}"
                there.left = None
    assert there.cuts > len(wanted) // 2


async def test_slow_readers_have_the_same_list_as_quick_ones(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(20),
        links(tmp_path) as there,
        Client.over(there.open, buffer_events=3) as slow,
        Client.over(there.open) as quick,
    ):
        thread = await slow.start_thread(cwd=str(tmp_path))
        watched = await quick.resume_thread(thread.id)
        readers = [watched.events("now"), *(thread.events("now") for _ in range(3))]
        await thread.start_turn("one two three four five six seven eight")
        lists = await asyncio.gather(*(until_end(reader) for reader in readers))
    assert [[event.cursor for event in seen] for seen in lists[1:]] == [[event.cursor for event in lists[0]]] * 3


async def test_the_daemon_serves_websockets(tmp_path: Path) -> None:
    async with (
        asyncio.timeout(20),
        run_daemon(Config(), tmp_path) as shared,
        listen_tcp(shared, "127.0.0.1", 0) as there,
        Client.connect(f"ws://127.0.0.1:{there.address[1]}") as client,
    ):
        thread = await client.start_thread(cwd=str(tmp_path))
        assert (await thread.run("hello")).ok
        assert [found.id async for found in client.list_threads()] == [thread.id]
        assert [model.is_default for model in await client.models()].count(True) == 1


async def test_changes_of_a_thread_are_carried_out(tmp_path: Path) -> None:
    async with asyncio.timeout(20), links(tmp_path) as there, Client.over(there.open) as client:
        thread = await client.start_thread(cwd=str(tmp_path))
        first, second = await thread.run("one"), await thread.run("two")
        events = thread.events("now")
        await thread.rollback(1)
        assert [turn.id async for turn in thread.turns()] == [first.turn_id]
        await thread.undo_rollback()
        assert [turn.id async for turn in thread.turns(newest_first=True)] == [second.turn_id, first.turn_id]
        await thread.revert(second.turn_id)
        await thread.compact("what was said", 1)
        await thread.set_name("a name")
        await thread.inject_items([{"type": "message", "role": "user", "content": []}])
        assert (await thread.read()).name == "a name"
        child = await client.fork_thread(thread.id)
        assert child.info.forked_from_id == thread.id
        with pytest.raises(TurnsOutOfRange):
            await thread.rollback(9)
        await client.archive(thread.id)
        seen = [event.method async for event in events]
        assert seen.count("thread/reverted") == 3
        assert seen[-1] == "thread/archived"
        assert (await client.unarchive(thread.id)).id == thread.id


async def test_a_cursor_is_good_after_a_restart_of_the_daemon(tmp_path: Path) -> None:
    async with asyncio.timeout(20):
        async with links(tmp_path) as there, Client.over(there.open) as client:
            thread = await client.start_thread(cwd=str(tmp_path))
            first = await thread.run("one")
            second = await thread.run("two")
        async with links(tmp_path) as there, Client.over(there.open) as client:
            again = await client.resume_thread(thread.id)
            seen = await until_end(again.events(first.cursor))
            assert seen[-1].turn_id == second.turn_id
            assert {event.turn_id for event in seen} <= {second.turn_id, None}
            other = await client.start_thread(cwd=str(tmp_path))
            await other.run("three")
            with pytest.raises(CursorInvalid):
                await anext(other.events(first.cursor))


async def test_the_daemon_as_a_child_process_serves_a_turn(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unspool_server.cli.main", "app-server"]
    async with asyncio.timeout(30), Client.stdio(command, home=tmp_path) as client:
        thread = await client.start_thread(cwd=str(tmp_path))
        assert (await thread.run("hello")).ok


async def test_a_killed_daemon_is_started_again_and_the_thread_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "unspool_server.cli.main", "app-server"]
    pids: list[int] = []

    async def start() -> Channel:
        channel = await open_stdio(command, home=tmp_path)
        pids.append(channel.pid)
        return channel

    async with asyncio.timeout(60), Client.over(start, reconnect=QUICK) as client:
        thread = await client.start_thread(cwd=str(tmp_path))
        events = thread.events()
        first = await thread.run("one")
        os.kill(pids[0], signal.SIGKILL)
        assert (await thread.read()).id == thread.id
        second = await thread.run("two")
        assert second.ok
        seen = await until_end(events) + await until_end(events)
        assert [event.turn_id for event in seen if event.method == "turn/completed"] == [first.turn_id, second.turn_id]
        assert len({event.cursor for event in seen}) == len(seen)
    assert len(pids) == 2


async def test_a_keyed_call_whose_answer_was_cut_off_is_sent_again_and_carried_out_once(tmp_path: Path) -> None:
    async with asyncio.timeout(20), links(tmp_path) as there, Client.over(there.open, reconnect=QUICK) as client:
        thread = await client.start_thread(idempotency_key="t")
        for text in ("one", "two", "three"):
            await thread.run(text)
        there.left = 1  # the first of two answers comes through
        _, shown = await asyncio.gather(thread.read(), thread.rollback(1, idempotency_key="r"))
        assert (there.cuts, len(shown.turns)) == (1, 2)
        assert len((await thread.read(include_turns=True)).turns) == 2
