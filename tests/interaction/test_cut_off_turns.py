"""Turns that the end of the process cuts off: their end has one place, whatever is recorded afterwards (DESIGN §6)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unspool_protocol.notifications import NOTIFICATIONS
from unspool_server.model.offline import OfflineProvider
from unspool_server.model.script import parse_script

from tests.state.inprocess import Client, Message, as_after_a_crash, house

SCRIPT = [[{"say": "before"}], [{"say": "as far as this", "partial": True}, {"hang": True}]]


async def crashed(tmp_path: Path, **start: Any) -> tuple[str, Path]:
    """A thread whose second turn was running, text shown and recorded, when its process died; and the home."""
    provider = OfflineProvider(script=parse_script(SCRIPT))
    async with house(tmp_path / "first", provider) as running, running.client() as client:
        thread_id = str((await client.call("thread/start", **start))["thread"]["id"])
        await client.turn(thread_id, "one")
        await client.call("turn/start", threadId=thread_id, input=[{"type": "text", "text": "two"}])
        await client.event("item/agentMessage/delta", threadId=thread_id, delta="this")
        turn = running.session(thread_id).turn
        assert turn is not None
        await running.session(thread_id).step(turn.partial_text.keep)
        await running.session(thread_id).flushed()
        home = as_after_a_crash(tmp_path / "first", tmp_path / "second")
        await client.call("turn/interrupt", threadId=thread_id, turnId=turn.id)
    return thread_id, home


async def follow(client: Client, thread_id: str, after: str | None) -> None:
    """Resume with everything behind a cursor, and wait for a change made on purpose to come."""
    replay = {"after": after, "mode": "events"}
    await client.call("thread/resume", threadId=thread_id, excludeTurns=True, replay=replay)


def recorded(client: Client, thread_id: str) -> list[tuple[str, Mapping[str, Any], str]]:
    """The events that a log can tell of, with their places."""
    return [
        (message["method"], message["params"], message["cursor"])
        for message in client.log
        if "cursor" in message and message["params"].get("threadId") == thread_id and _is_recorded(message)
    ]


def _is_recorded(message: Message) -> bool:
    begins = message["method"] == "item/started" and message["params"]["item"]["type"] != "userMessage"
    return not begins and NOTIFICATIONS[message["method"]].recorded


async def named(client: Client, thread_id: str, name: str) -> None:
    """Give the thread a name and wait until it is told."""
    await client.call("thread/name/set", threadId=thread_id, name=name)
    await client.event("thread/name/updated", threadId=thread_id, threadName=name)


async def test_the_end_of_a_cut_off_turn_keeps_its_place_when_something_else_is_recorded_next(tmp_path: Path) -> None:
    thread_id, home = await crashed(tmp_path)
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, None)
        await named(client, thread_id, "recorded before any turn")
        await client.turn(thread_id, "three")
        told = recorded(client, thread_id)
    async with house(home) as running, running.client() as newcomer, running.client() as returning:
        await follow(newcomer, thread_id, None)
        await named(newcomer, thread_id, "the end")
        assert recorded(newcomer, thread_id)[:-1] == told
        name = next(cursor for method, _, cursor in told if method == "thread/name/updated")
        await follow(returning, thread_id, name)
        await named(returning, thread_id, "the very end")
        ends = [params["turn"]["status"] for method, params, _ in recorded(returning, thread_id) if "turn/c" in method]
        assert ends == ["completed"]


async def test_a_rollback_behind_a_cut_off_turn_does_not_end_it_again(tmp_path: Path) -> None:
    thread_id, home = await crashed(tmp_path)
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, None)
        await client.turn(thread_id, "three")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.turn(thread_id, "four")
        told = recorded(client, thread_id)
        ends = [params["turn"]["id"] for method, params, _ in told if method == "turn/completed"]
        assert len(ends) == len(set(ends)) == 4
    async with house(home) as running, running.client() as newcomer:
        await follow(newcomer, thread_id, None)
        await named(newcomer, thread_id, "the end")
        [dropped] = [params["turnIds"] for method, params, _ in told if method == "thread/reverted"]
        present = [event for event in told if _turn_of(event[1]) not in dropped]
        assert recorded(newcomer, thread_id)[:-1] == present


async def test_a_thread_loaded_after_such_a_rollback_has_nothing_to_end(tmp_path: Path) -> None:
    thread_id, home = await crashed(tmp_path)
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, None)
        await client.turn(thread_id, "three")
        await client.call("thread/rollback", threadId=thread_id, numTurns=1)
        await client.event("thread/reverted", threadId=thread_id)
        last = recorded(client, thread_id)[-1][2]
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, last)
        await named(client, thread_id, "nothing before this")
        assert [method for method, _, _ in recorded(client, thread_id)] == ["thread/name/updated"]


def _turn_of(params: Mapping[str, Any]) -> Any:
    return params.get("turnId") or (params.get("turn") or {}).get("id")


async def test_a_cursor_behind_a_cut_off_turn_is_good_in_every_later_process(tmp_path: Path) -> None:
    thread_id, home = await crashed(tmp_path)
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, None)
        await client.event("turn/completed", threadId=thread_id)
        for code in ("a", "b", "c", "d"):
            running.session(thread_id).warn("nothing is wrong", code=code)
        await client.event("warning", threadId=thread_id, code="d")
        seen = [message["cursor"] for message in client.log if "cursor" in message][-1]
    async with house(home) as running, running.client() as client:
        await follow(client, thread_id, seen)
        running.session(thread_id).warn("nothing is wrong", code="e")
        await client.event("warning", threadId=thread_id, code="e")
