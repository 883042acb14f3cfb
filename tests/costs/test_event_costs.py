"""What an event costs with many watchers, and when an answer leaves (DESIGN §1.5, §6)."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.state.inprocess import Message, house, result_of

WATCHERS = 50


async def test_an_event_goes_to_fifty_subscribers_with_one_encoding(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        daemon = await stack.enter_async_context(house(tmp_path / "home"))
        watchers = [await stack.enter_async_context(daemon.client()) for _ in range(WATCHERS)]
        thread_id = (await watchers[0].call("thread/start"))["thread"]["id"]
        await watchers[0].turn(thread_id, "so that there is a log")
        for watcher in watchers[1:]:
            await watcher.call("thread/resume", threadId=thread_id, excludeTurns=True)
        marks = [len(watcher.log) for watcher in watchers]
        encoder = daemon.services.hub.encoder
        before = encoder.count
        turn = await watchers[0].turn(thread_id, "one two three four five")
        seen: list[list[dict[str, Any]]] = []
        for watcher, mark in zip(watchers, marks, strict=True):
            await watcher.ended(turn["id"])
            seen.append(watcher.log[mark:])
        assert len(seen[0]) > 10
        assert all(each == seen[0] for each in seen)
        assert encoder.count - before == len(seen[0])


async def test_answers_leave_before_the_notifications_that_they_bring(tmp_path: Path) -> None:
    async with house(tmp_path / "home") as daemon, daemon.client() as client:

        async def told_after_answer(told: str, method: str, **params: Any) -> Message:
            mark = len(client.log)
            answer = await (await client.begin(method, **params))
            notification = await client.event(told, after=mark)
            [place] = client.answered[answer["id"]]
            assert client.log.index(notification, mark) >= place, f"{told} came before the answer to {method}"
            return result_of(answer)

        started = await told_after_answer("thread/started", "thread/start")
        on = {"threadId": started["thread"]["id"]}
        asked = [{"type": "text", "text": "hello"}]
        turns = []
        for _ in range(3):
            begun = await told_after_answer("turn/started", "turn/start", input=asked, **on)
            turns.append(begun["turn"]["id"])
            await client.ended(turns[-1])
        await told_after_answer("turn/completed", "thread/compact", summary="s", keepLast=1, **on)
        await told_after_answer("thread/reverted", "thread/rollback", numTurns=1, **on)
        await told_after_answer("thread/reverted", "thread/rollback/undo", **on)
        await told_after_answer("thread/reverted", "thread/revert", beforeTurnId=turns[1], **on)
        await told_after_answer("thread/name/updated", "thread/name/set", name="n", **on)
        await told_after_answer("thread/started", "thread/fork", excludeTurns=True, **on)
        await told_after_answer("turn/started", "thread/compact/start", **on)
        await told_after_answer("thread/archived", "thread/archive", **on)
