"""Every operation at every await of a running turn: one answer, one turn at a time, no input lost, one truth.

The turn is held at each place by a barrier while the operation comes in, and let go when that got as far as it can.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from unspool_server.history.prompt import prompt_items

from tests.state.agreement import assert_log_tells, assert_memory_is_the_log
from tests.state.barriers import Barrier, HeldModel, held_tool, let_others_run, watch_logs
from tests.state.inprocess import TOOL, WAIT_S, Client, House, Message, house

Request = Callable[["Race"], Awaitable[asyncio.Future[Message]]]
BUSY = "activeTurn"


class Race:
    """One thread with a turn that is held, and what was sent to it."""

    def __init__(self, daemon: House, client: Client, barrier: Barrier, model: HeldModel) -> None:
        self.daemon, self.client, self.barrier, self.model = daemon, client, barrier, model
        self.thread_id = self.first_id = self.turn_id = ""
        self.texts: dict[str, bool] = {}
        self.numbers = 0

    def text(self) -> str:
        """A text that nobody sent before; whether it was accepted is noted in `texts`."""
        self.numbers += 1
        text = f"t{self.numbers}"
        self.texts[text] = False
        return text

    async def begin(self, mode: str) -> None:
        """A thread with two turns behind it."""
        started = await self.client.call("thread/start", historyMode=mode, dynamicTools=[TOOL])
        self.thread_id, self.texts = started["thread"]["id"], {}
        self.barrier.arm("", None)
        for _ in range(2):
            text = self.text()
            turn = await self.client.turn(self.thread_id, text)
            self.texts[text] = True
        self.first_id = turn["id"]

    async def run_into(self, hold_at: int | None) -> None:
        """Start the turn that is held: it says something, calls a tool, and says the end."""
        self.barrier.arm(self.thread_id, hold_at)
        self.model.script.replies.append([{"say": "let me see"}, {"call": "look"}])
        text = self.text()
        asked = [{"type": "text", "text": text}]
        answer = await self.client.call("turn/start", threadId=self.thread_id, input=asked)
        self.turn_id, self.texts[text] = answer["turn"]["id"], True
        if hold_at is not None:
            await self.barrier.reached()

    async def meet(self, request: Request) -> Message:
        """Let an operation come in while the turn is held, then let both run to their ends; returns its answer."""
        sent = await request(self)
        await let_others_run()
        self.barrier.let_go()
        return await asyncio.wait_for(sent, WAIT_S)

    async def settled(self) -> None:
        """No turn runs any more in the thread."""
        async with asyncio.timeout(WAIT_S):
            while (session := self.daemon.services.sessions.get(self.thread_id)) is not None:
                if session.turn is None:
                    return
                await asyncio.sleep(0)


def simple(method: str, **params: Any) -> Request:
    """A request to the thread."""

    async def send(race: Race) -> asyncio.Future[Message]:
        named = {key: race.first_id if value == "FIRST" else value for key, value in params.items()}
        named = {key: race.turn_id if value == "RUNNING" else value for key, value in named.items()}
        return await race.client.begin(method, threadId=race.thread_id, **named)

    return send


def saying(method: str, **params: Any) -> Request:
    """A request with input, which counts as accepted when it was answered with a result."""

    async def send(race: Race) -> asyncio.Future[Message]:
        text = race.text()
        asked = [{"type": "text", "text": text}]
        answer = await simple(method, input=asked, **params)(race)
        answer.add_done_callback(lambda done: race.texts.update({text: "result" in done.result()}))
        return answer

    return send


async def unload(race: Race) -> asyncio.Future[Message]:
    """What the unload timer does."""
    return asyncio.ensure_future(_unload(race))


async def _unload(race: Race) -> Message:
    await race.daemon.services.sessions.unload(race.thread_id)
    return {"result": {}}


OPERATIONS: dict[str, Request] = {
    "start": saying("turn/start"),
    "steer": saying("turn/steer", expectedTurnId="RUNNING"),
    "interrupt": simple("turn/interrupt", turnId="RUNNING"),
    "compact by the model": simple("thread/compact/start"),
    "compact": simple("thread/compact", summary="s", keepLast=1),
    "compact with interrupt": simple("thread/compact", summary="s", keepLast=1, interrupt=True),
    "rollback": simple("thread/rollback", numTurns=1),
    "rollback with interrupt": simple("thread/rollback", numTurns=2, interrupt=True),
    "undo with interrupt": simple("thread/rollback/undo", interrupt=True),
    "revert": simple("thread/revert", beforeTurnId="FIRST"),
    "revert the running turn": simple("thread/revert", beforeTurnId="RUNNING"),
    "fork": simple("thread/fork"),
    "fork before the running turn": simple("thread/fork", beforeTurnId="RUNNING"),
    "fork behind the running turn": simple("thread/fork", lastTurnId="RUNNING"),
    "inject": simple("thread/inject_items", items=[{"type": "message", "role": "developer", "content": []}]),
    "name": simple("thread/name/set", name="n"),
    "unsubscribe": simple("thread/unsubscribe"),
    "unload": unload,
    "archive": simple("thread/archive"),
    "delete": simple("thread/delete"),
}


def some_of(count: int, name: str, mode: str) -> range:
    """The places to try: all of them in a fuzz run, else some, other ones for each operation."""
    if settings.default is not None and settings.default.max_examples > 100:
        return range(count)
    stride = 4 if mode == "paginated" else 9
    return range(list(OPERATIONS).index(name) % stride, count, stride)


async def places(race: Race, mode: str) -> int:
    """How many places an undisturbed turn passes."""
    await race.begin(mode)
    await race.run_into(None)
    await race.client.ended(race.turn_id)
    await race.settled()
    assert {"before add", "behind flush", "model asked", "tool asked"} <= set(race.barrier.passed)
    return len(race.barrier.passed)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_at_each_await_of_a_running_turn_leaves_one_truth(
    name: str, mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    barrier = Barrier()
    watch_logs(barrier, monkeypatch)
    model = HeldModel(barrier)
    # The loop's debug mode keeps a traceback for everything, which here costs more than all the rest.
    asyncio.get_running_loop().set_debug(False)
    async with house(tmp_path / "home", model) as daemon, daemon.client(tool=held_tool(barrier)) as client:
        race = Race(daemon, client, barrier, model)
        count = await places(race, mode)
        for place in some_of(count, name, mode):
            await race.begin(mode)
            await race.run_into(place)
            where = barrier.passed[-1]
            try:
                answer = await race.meet(OPERATIONS[name])
                await _assert_one_truth(race, name, mode, answer)
            except BaseException as error:
                error.add_note(f"{name} at place {place} of {count}: {where}")
                raise


async def _assert_one_truth(race: Race, name: str, mode: str, answer: Message) -> None:
    client, daemon = race.client, race.daemon
    if name == "unsubscribe":  # its tool call waits for somebody to come back
        await client.call("thread/resume", threadId=race.thread_id, excludeTurns=True)
    await race.settled()
    if "result" in answer and name == "fork":
        await _assert_child(race, answer["result"]["thread"])
    if "result" in answer and name == "delete":
        assert "error" in await (await client.begin("thread/read", threadId=race.thread_id))
        return
    await _back_in_memory(race, name, answer)
    await race.settled()
    await assert_memory_is_the_log(daemon, race.thread_id)
    read = await client.call("thread/read", threadId=race.thread_id, includeTurns=True)
    assert all(turn["status"] != "inProgress" for turn in read["thread"]["turns"])
    text = race.text()
    after = await client.turn(race.thread_id, text)
    race.texts[text] = True
    assert after["status"] == "completed"
    await assert_memory_is_the_log(daemon, race.thread_id)
    _assert_calls_are_answered(daemon, race.thread_id)
    if name != "unsubscribe":
        _assert_one_turn_at_a_time(race)
    assert all(len(times) == 1 for times in client.answered.values())
    accepted = {text: 1 for text, taken in race.texts.items() if taken}
    assert await _written_inputs(daemon, race.thread_id) == accepted


async def _back_in_memory(race: Race, name: str, answer: Message) -> None:
    if name == "archive" and "result" in answer:
        await race.client.call("thread/unarchive", threadId=race.thread_id)
    await race.client.call("thread/resume", threadId=race.thread_id, excludeTurns=True)


async def _assert_child(race: Race, child: Message) -> None:
    """A fork made in mid-stream stands still, whatever its parent does, and goes on by itself."""
    await assert_memory_is_the_log(race.daemon, child["id"])
    read = await race.client.call("thread/read", threadId=child["id"], includeTurns=True)
    assert read["thread"]["turns"] == child["turns"]
    assert all(turn["status"] in ("completed", "interrupted") for turn in child["turns"])
    assert (await race.client.turn(child["id"], "child"))["status"] == "completed"
    _assert_calls_are_answered(race.daemon, child["id"])


def _assert_calls_are_answered(daemon: House, thread_id: str) -> None:
    """The next request's input has an output for every call."""
    items = prompt_items(daemon.session(thread_id).history.state.history)
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    assert len(set(outputs)) == len(outputs)


def _assert_one_turn_at_a_time(race: Race) -> None:
    told = race.client.turns[race.thread_id]
    assert [what for what, _ in told] == ["turn/started", "turn/completed"] * (len(told) // 2)
    assert [turn_id for _, turn_id in told[::2]] == [turn_id for _, turn_id in told[1::2]]


async def _written_inputs(daemon: House, thread_id: str) -> dict[str, int]:
    """How often each text stands in the thread's own logs as a user's message."""
    await daemon.session(thread_id).log.flush()
    found: Counter[str] = Counter()
    for path in daemon.shared.home.rglob(f"*{thread_id}*.jsonl"):
        for line in path.read_bytes().splitlines():
            record = json.loads(line)
            payload = record["payload"]
            if record["type"] == "response_item" and payload.get("role") == "user":
                found.update(text for part in payload["content"] if (text := part["text"]).startswith("t"))
    return dict(found)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_closing_the_daemon_at_each_await_of_a_turn_loses_nothing(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.get_running_loop().set_debug(False)
    barrier = Barrier()
    watch_logs(barrier, monkeypatch)
    place, count = 0, 1
    while place < count:
        home, model = tmp_path / f"home-{place}", HeldModel(barrier)
        async with house(home, model) as daemon, daemon.client(tool=held_tool(barrier)) as client:
            race = Race(daemon, client, barrier, model)
            if place == 0:
                count = await places(race, mode)
            await race.begin(mode)
            await race.run_into(place)
            closing = asyncio.ensure_future(daemon.services.sessions.close())
            await let_others_run()
            barrier.let_go()
            await asyncio.wait_for(closing, WAIT_S)
        barrier.arm("", None)
        async with house(home) as daemon, daemon.client() as client:
            await assert_log_tells(daemon.store, await daemon.store.find(race.thread_id))
            resumed = await client.call("thread/resume", threadId=race.thread_id)
            assert [turn["status"] for turn in resumed["thread"]["turns"]][:2] == ["completed", "completed"]
            assert resumed["thread"]["turns"][2]["status"] in ("completed", "interrupted")
            assert await _written_inputs(daemon, race.thread_id) == dict.fromkeys(race.texts, 1)
            _assert_calls_are_answered(daemon, race.thread_id)
        place += 1


async def test_two_starts_at_once_are_one_turn_a_hundred_times(tmp_path: Path) -> None:
    asyncio.get_running_loop().set_debug(False)
    async with house(tmp_path / "home") as daemon, daemon.client() as one, daemon.client() as two:
        thread_id = (await one.call("thread/start"))["thread"]["id"]
        await one.turn(thread_id, "t0")
        await two.call("thread/resume", threadId=thread_id, excludeTurns=True)
        texts = {"t0": 1}
        for number in range(100):
            asked = [[{"type": "text", "text": f"t{number} {who}"}] for who in ("one", "two")]
            first = await one.begin("turn/start", threadId=thread_id, input=asked[0])
            second = await two.begin("turn/start", threadId=thread_id, input=asked[1])
            ids = {(await each)["result"]["turn"]["id"] for each in (first, second)}
            for turn_id in ids:
                await one.ended(turn_id)
                await two.ended(turn_id)
            texts |= {f"t{number} one": 1, f"t{number} two": 1}
        told = [turn_id for _, turn_id in one.turns[thread_id]]
        assert told[::2] == told[1::2]
        assert await _written_inputs(daemon, thread_id) == texts
        await assert_memory_is_the_log(daemon, thread_id)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_a_child_lives_on_while_its_parent_is_archived_reverted_and_restarted(mode: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        parent = (await client.call("thread/start", historyMode=mode))["thread"]["id"]
        turns = [await client.turn(parent, text) for text in ("t1", "t2", "t3")]
        child = (await client.call("thread/fork", threadId=parent, lastTurnId=turns[1]["id"]))["thread"]
        expected = child["turns"]
        assert len(expected) == 2

        async def unchanged(daemon: House, client: Client) -> None:
            read = await client.call("thread/read", threadId=child["id"], includeTurns=True)
            assert read["thread"]["turns"] == expected
            await assert_memory_is_the_log(daemon, child["id"])

        await client.turn(parent, "t4")
        await unchanged(daemon, client)
        await client.call("thread/rollback", threadId=parent, numTurns=3)
        await unchanged(daemon, client)
        await client.call("thread/archive", threadId=parent)
        await unchanged(daemon, client)
        refused = await client.refused("thread/fork", threadId=parent)
        assert refused.data["reason"] == "archived"
    async with house(home) as daemon, daemon.client() as client:
        assert (await client.call("thread/resume", threadId=child["id"]))["thread"]["turns"] == expected
        await client.call("thread/unarchive", threadId=parent)
        await client.turn(child["id"], "t5")
        left = await client.call("thread/read", threadId=parent, includeTurns=True)
        assert [turn["id"] for turn in left["thread"]["turns"]] == [turns[0]["id"]]
        again = await client.call("thread/fork", threadId=child["id"])
        assert len(again["thread"]["turns"]) == 3
