"""The client against the real daemon: in this process, over a socket, and as a child process."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from unspool_client import Channel, Client, CursorInvalid, Event

from tests.client.test_client_reconnect import QUICK, until_end

pytest.importorskip("unspool_server.cli.daemon")

from unspool_server.cli.connect import MemoryLink
from unspool_server.cli.daemon import daemon as run_daemon
from unspool_server.config import Config
from unspool_server.connection import Shared
from unspool_server.transport.memory import MemoryTransport


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
