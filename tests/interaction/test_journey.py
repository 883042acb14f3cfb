"""The core journey over every transport: start, turns, compact, fork, roll back, undo, restart, resume, replay."""

from typing import Any

from tests.interaction.house import House
from tests.interaction.wire import Client


async def test_a_thread_lives_its_whole_life_over_each_transport(any_house: House) -> None:
    """demand 27"""
    async with any_house.running() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(any_house.work))
        turns = await client.turns(thread, "one", "two", "three")
        assert await client.shown(thread) == [["one", "one"], ["two", "two"], ["three", "three"]]

        child = (await client.call("thread/fork", {"threadId": thread, "lastTurnId": turns[1]}))["thread"]["id"]
        assert await client.shown(child) == [["one", "one"], ["two", "two"]]

        rolled_back = await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert [turn["id"] for turn in rolled_back["thread"]["turns"]] == turns[:1]
        back = await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn["id"] for turn in back["thread"]["turns"]] == turns

        await client.call("thread/compact", {"threadId": thread, "summary": "so far", "keepLast": 1})
        await client.turn(thread, "four")
        before = await client.read(thread)
        await client.settled()
        live = _story(client, thread)

    async with any_house.running() as daemon:
        client = await daemon.connect()
        mark = client.mark
        resumed = await client.call("thread/resume", {"threadId": thread, "replay": {"after": None}})
        assert resumed["thread"]["turns"] == before["turns"]
        await client.event("thread/tokenUsage/updated", since=mark)
        await client.turn(thread, "five")
        replayed = _story(client, thread)
        # The rollback was undone, so the present knows of the undo alone.
        assert replayed[: len(live) - 1] == [line for line in live if line != ("thread/reverted", "rollback")]
        assert replayed[-1] == ("turn/completed", "five")
        cursors = [event["cursor"] for event in client.events(thread, mark)]
        assert len(set(cursors)) == len(cursors)


def _story(client: Client, thread: str) -> list[tuple[str, Any]]:
    """Finished items and turns of a thread's events, as a client lived them."""
    told = []
    for event in client.events(thread):
        params = event["params"]
        if event["method"] == "item/completed":
            told.append(("item/completed", params["item"]["id"]))
        elif event["method"] == "turn/completed":
            items = params["turn"]["items"]
            told.append(("turn/completed", items[-1]["text"] if items and "text" in items[-1] else ""))
        elif event["method"] == "thread/reverted":
            told.append(("thread/reverted", params.get("reason")))
    return told
