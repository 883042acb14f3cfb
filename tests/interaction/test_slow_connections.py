"""Clients behind a real connection that stop reading: they come back by cursor and have lost nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
from unspool_server.transport.memory import MemoryTransport
from unspool_server.transport.websocket import listen_tcp
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import within

GREETING = {
    "id": 1,
    "method": "initialize",
    "params": {"clientInfo": {"name": "slow", "version": "1"}, "capabilities": {"slowClient": "disconnect"}},
}
PIECE = "word " * 10_000


async def written(daemon: LocalDaemon, thread: str) -> AsyncIterator[str]:
    """An item whose text grows without end; yields the cursor of each piece."""
    hub = daemon.services.hub
    while True:
        told = {"threadId": thread, "turnId": "t", "itemId": "m", "delta": PIECE}
        hub.publish(thread, "item/agentMessage/delta", told)
        position = hub.position(thread)
        assert position is not None
        yield position.encode()
        await asyncio.sleep(0)


async def flooded(daemon: LocalDaemon, thread: str) -> list[str]:
    """Write until the slow client, who follows the thread beside somebody else, is given up."""
    cursors: list[str] = []
    async with asyncio.timeout(20):
        async for cursor in written(daemon, thread):
            cursors.append(cursor)
            if daemon.services.hub.subscribers(thread) == 1:
                return cursors
    raise AssertionError


async def test_a_client_that_stops_reading_is_disconnected_and_goes_on_by_the_cursor_that_it_was_told(
    house: House,
) -> None:
    house.tables["history"] = {"slow_client_bytes": 100_000}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        async with MemoryTransport(daemon.shared) as slow:
            await slow.send(GREETING)
            await slow.send({"id": 2, "method": "thread/resume", "params": {"threadId": thread, "excludeTurns": True}})
            while (await within(slow.recv())).get("id") != 2:
                pass
            published = await flooded(daemon, thread)
            got = await within(everything(slow))
        closing = got[-1]
        assert (closing["method"], closing["params"]["reason"]) == ("connection/closing", "slowClient")
        seen = [message["cursor"] for message in got if "cursor" in message]
        assert closing["params"]["cursors"] == {thread: seen[-1]}
        assert seen == published[: len(seen)]
        again = await daemon.connect()
        await again.call("thread/subscribe", {"threadId": thread, "replay": {"after": seen[-1], "speed": "max"}})
        await again.event("thread/replay/completed")
        assert [event["cursor"] for event in again.events(thread)] == published[len(seen) :]
        assert [event["cursor"] for event in client.events(thread)][-len(published) :] == published


async def everything(client: MemoryTransport) -> list[dict[str, Any]]:
    """Read to the end of the connection."""
    got = []
    while True:
        try:
            got.append(await client.recv())
        except EOFError:
            return got


async def test_a_slow_websocket_client_is_told_why_and_closed_with_a_code_of_its_own(house: House) -> None:
    house.tables["history"] = {"slow_client_bytes": 0}
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0) as listener:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        url = f"ws://127.0.0.1:{listener.address[1]}"
        async with connect(url, compression=None, max_queue=1) as socket:
            await socket.send(orjson.dumps(GREETING).decode())
            resume = {"id": 2, "method": "thread/resume", "params": {"threadId": thread}}
            await socket.send(orjson.dumps(resume).decode())
            while orjson.loads(await within(socket.recv())).get("id") != 2:
                pass
            await flooded(daemon, thread)
            last: dict[str, Any] = {}
            try:
                async with asyncio.timeout(20):
                    while True:
                        last = orjson.loads(await socket.recv())
            except ConnectionClosed as closed:
                assert closed.rcvd is not None
                assert closed.rcvd.code == 1013
            assert (last["method"], last["params"]["reason"]) == ("connection/closing", "slowClient")
            assert list(last["params"]["cursors"]) == [thread]
