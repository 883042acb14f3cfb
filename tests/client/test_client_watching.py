"""Watching threads with the client, against the real daemon: through cuts, unloads and restarts."""

import asyncio
from pathlib import Path

import pytest
from unspool_client import Client, Event, EventStream
from unspool_server.cli.daemon import daemon as run_daemon
from unspool_server.config import Config

from tests.client.test_client_daemon import Links, links
from tests.client.test_client_reconnect import QUICK


async def past(stream: EventStream) -> list[Event]:
    """What comes until the replay is over."""
    events: list[Event] = []
    async for event in stream:
        if event.method == "thread/replay/completed":
            return events
        events.append(event)
    raise AssertionError("the stream ended before the replay")


async def test_a_watcher_sees_the_past_and_every_turn_that_others_run_while_the_thread_comes_and_goes(
    tmp_path: Path,
) -> None:
    async with asyncio.timeout(30), run_daemon(Config(), tmp_path) as shared:
        there = Links(shared)
        async with Client.over(there.open) as first:
            thread = await first.start_thread(cwd=str(tmp_path))
            await thread.run("one")
        await shared.services.sessions.unload(thread.id)
        async with Client.over(there.open) as watcher:
            stream = await watcher.subscribe(thread.id, None)
            assert [event.method for event in await past(stream)].count("turn/completed") == 1
            for text in ("two", "three"):
                async with Client.over(there.open) as other:
                    result = await (await other.resume_thread(thread.id)).run(text)
                await shared.services.sessions.unload(thread.id)
                ended = []
                async for event in stream:
                    if event.method == "turn/completed":
                        ended.append(event.turn_id)
                    if event.method == "thread/closed":
                        break
                assert ended == [result.turn_id]
            assert await watcher.unsubscribe(thread.id) == "unsubscribed"


async def test_a_watcher_that_is_cut_off_at_any_message_reads_the_same_list(tmp_path: Path) -> None:
    async with asyncio.timeout(60), links(tmp_path) as there:
        async with Client.over(there.open) as first:
            thread = await first.start_thread(cwd=str(tmp_path))
            await thread.run("one two three")
        async with Client.over(there.open) as watcher:
            whole = [event.cursor for event in await past(await watcher.subscribe(thread.id, None))]
        for boundary in range(1, len(whole) + 2):
            async with Client.over(there.open, reconnect=QUICK, buffer_events=4) as watcher:
                there.left = boundary
                stream = await watcher.subscribe(thread.id, None)
                seen: list[str | None] = []
                while len(seen) < len(whole):
                    event = await anext(stream)
                    if event.cursor is not None:
                        seen.append(event.cursor)
                there.left = None
                assert seen == whole, f"cut before message {boundary}"


async def test_the_past_can_be_limited_to_kinds_of_items_and_a_followed_thread_takes_no_options(tmp_path: Path) -> None:
    async with asyncio.timeout(20), links(tmp_path) as there, Client.over(there.open) as client:
        thread = await client.start_thread(cwd=str(tmp_path))
        await thread.run("one")
        async with Client.over(there.open) as watcher:
            events = await past(await watcher.subscribe(thread.id, None, item_kinds=["userMessage"]))
            kinds = [event.params["item"]["type"] for event in events if event.method == "item/completed"]
            assert kinds == ["userMessage"]
        with pytest.raises(ValueError, match="follows the thread already"):
            await client.subscribe(thread.id, None, speed="real")
