"""Threads through all operations in any order, against a plain model: memory, log and clients agree (DESIGN §9.1)."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from unspool_server.model.offline import OfflineProvider

from tests.examples import examples
from tests.state.agreement import as_model, assert_as_modelled, visible_turns
from tests.state.inprocess import TOOL, Client, House, Message, as_after_a_crash, house
from tests.state.turn_model import ModelThread, ModelTurn

T = TypeVar("T")
Which = Callable[[ModelThread], bool]

CUTS = st.sampled_from(["whole", "last", "before"])
NUMBER = st.integers(0, 11)


def is_open(thread: ModelThread) -> bool:
    """Loaded and able to run."""
    return not thread.archived


def is_kept(thread: ModelThread) -> bool:
    """On disk and not archived."""
    return thread.written and not thread.archived and not thread.ephemeral


def told(turns: list[Message]) -> list[Message]:
    """Turns without the times of an interruption: a fork that cuts a turn ends it at its own time."""
    loose = {"completedAt": None, "durationMs": None}
    return [turn | loose if turn["status"] == "interrupted" else turn for turn in turns]


class Lifecycle(RuleBasedStateMachine):
    """Every rule does one thing through a client and says what it means; afterwards everything is compared."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(debug=True)
        self.folder = Path(tempfile.mkdtemp(prefix="unspool-state-"))
        self.stack = AsyncExitStack()
        self.homes = 0
        self.texts = 0
        self.threads: dict[str, ModelThread] = {}
        self.provider = OfflineProvider()
        self.house: House
        self.client: Client
        self.home = self.folder / "home-0"
        self.home.mkdir()

    # -- the machinery ---------------------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run in the machine's loop, then compare every thread with the model."""

        async def all_of_it() -> T:
            result = await work
            for thread in self.threads.values():
                await assert_as_modelled(self.house, self.client, thread)
            return result

        return self.runner.run(all_of_it())

    async def open(self) -> None:
        """Start a daemon on the present home and connect."""
        self.provider = OfflineProvider()
        self.house = await self.stack.enter_async_context(house(self.home, self.provider, thread_unload_delay_secs=600))
        self.client = await self.stack.enter_async_context(self.house.client())

    def text(self) -> str:
        """A text that nobody sent before."""
        self.texts += 1
        return f"t{self.texts}"

    def pick(self, number: int, which: Which) -> ModelThread | None:
        """Some thread of this kind."""
        fitting = [thread for thread in self.threads.values() if which(thread)]
        return fitting[number % len(fitting)] if fitting else None

    def any(self, which: Which) -> bool:
        """Whether a thread of this kind exists."""
        return any(which(thread) for thread in self.threads.values())

    @initialize()
    def begin(self) -> None:
        self.runner.run(self.open())

    def teardown(self) -> None:
        self.runner.run(self.stack.aclose())
        self.runner.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- starting and running --------------------------------------------------------------------------------------

    @rule(mode=st.sampled_from(["paginated", "legacy"]), ephemeral=st.integers(0, 5).map(lambda n: n == 0))
    @precondition(lambda self: len(self.threads) < 5)
    def start(self, mode: str, ephemeral: bool) -> None:
        self.run(self._start(mode, ephemeral))

    async def _start(self, mode: str, ephemeral: bool) -> None:
        made = await self.client.call("thread/start", historyMode=mode, ephemeral=ephemeral, dynamicTools=[TOOL])
        thread_id = made["thread"]["id"]
        self.threads[thread_id] = ModelThread(
            thread_id, mode, ephemeral, model=made["model"], created=made["thread"]["createdAt"]
        )

    @rule(number=NUMBER, how=st.sampled_from(["plain", "plain", "tool", "fail", "interrupt", "steer"]))
    @precondition(lambda self: self.any(is_open))
    def turn(self, number: int, how: str) -> None:
        thread = self.pick(number, is_open)
        assert thread is not None
        self.run(self._turn(thread, how))

    async def _turn(self, thread: ModelThread, how: str) -> None:
        texts: tuple[str, ...] = (self.text(),)
        status = "completed"
        match how:
            case "tool":
                self.provider.script.replies.append([{"say": "let me see"}, {"call": "look"}])
            case "fail":
                self.provider.script.replies.append([{"say": "well"}, {"fail": "invalid_prompt"}])
                status = "failed"
            case "interrupt" | "steer":
                self.provider.script.replies.append([{"say": "first words", "partial": True}, {"hang": True}])
        since = len(self.client.log)
        asked = [{"type": "text", "text": texts[0]}]
        turn_id = (await self.client.call("turn/start", threadId=thread.id, input=asked))["turn"]["id"]
        if how in ("interrupt", "steer"):
            await self.client.event("item/agentMessage/delta", after=since, turnId=turn_id)
        if how == "steer":
            texts = (*texts, self.text())
            more = [{"type": "text", "text": texts[1]}]
            await self.client.call("turn/steer", threadId=thread.id, expectedTurnId=turn_id, input=more)
        if how == "interrupt":
            await self.client.call("turn/interrupt", threadId=thread.id, turnId=turn_id)
            status = "interrupted"
        await self.client.ended(turn_id)
        thread.add(ModelTurn(turn_id, texts, status))
        await self._assert_streamed(thread, turn_id, since)

    async def _assert_streamed(self, thread: ModelThread, turn_id: str, since: int) -> None:
        """The items that clients were told of are those that the log tells of."""
        told = [
            message["params"]["item"]
            for message in self.client.log[since:]
            if message["method"] == "item/completed" and message["params"]["turnId"] == turn_id
        ]
        stored = (await visible_turns(self.house, self.client, thread))[-1]
        assert stored["id"] == turn_id
        assert told == stored["items"]

    @rule(number=NUMBER, model=st.sampled_from(["model-a", "model-b"]))
    @precondition(lambda self: self.any(is_open))
    def settings_change(self, number: int, model: str) -> None:
        thread = self.pick(number, is_open)
        assert thread is not None

        async def change() -> None:
            await self.client.call("thread/settings/update", threadId=thread.id, model=model)
            await self._turn(thread, "plain")
            thread.model = model

        self.run(change())

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(is_open))
    def inject(self, number: int) -> None:
        thread = self.pick(number, is_open)
        assert thread is not None
        self.texts += 1
        text = f"injected {self.texts}"
        item = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": text}]}

        async def put() -> None:
            await self.client.call("thread/inject_items", threadId=thread.id, items=[item])
            thread.inject(text)

        self.run(put())

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(is_kept))
    def rename(self, number: int) -> None:
        thread = self.pick(number, is_kept)
        assert thread is not None

        async def name() -> None:
            thread.name = self.text()
            await self.client.call("thread/name/set", threadId=thread.id, name=thread.name)
            read = await self.client.call("thread/read", threadId=thread.id)
            assert read["thread"]["name"] == thread.name

        self.run(name())

    # -- transformations -------------------------------------------------------------------------------------------

    @rule(number=NUMBER, keep=st.integers(0, 3), by_model=st.booleans())
    @precondition(lambda self: self.any(lambda t: is_open(t) and t.written))
    def compact(self, number: int, keep: int, by_model: bool) -> None:
        thread = self.pick(number, lambda t: is_open(t) and t.written)
        assert thread is not None
        self.run(self._compact(thread, keep, by_model))

    async def _compact(self, thread: ModelThread, keep: int, by_model: bool) -> None:
        if by_model:
            since = len(self.client.log)
            await self.client.call("thread/compact/start", threadId=thread.id)
            begun = await self.client.event("turn/started", after=since, threadId=thread.id)
            ended = await self.client.ended(begun["params"]["turn"]["id"])
            assert ended["status"] == "completed"
            thread.add(ModelTurn(ended["id"]))
            return
        answer = await self.client.call("thread/compact", threadId=thread.id, summary="In short.", keepLast=keep)
        thread.add(as_model(answer["thread"]["turns"][-1]))

    @rule(number=NUMBER, count=st.integers(1, 3))
    @precondition(lambda self: self.any(lambda t: is_open(t) and t.counted > 0))
    def rollback(self, number: int, count: int) -> None:
        thread = self.pick(number, lambda t: is_open(t) and t.counted > 0)
        assert thread is not None
        count = min(count, thread.counted)

        async def roll() -> None:
            answer = await self.client.call("thread/rollback", threadId=thread.id, numTurns=count)
            thread.rollback(count)
            await self._assert_answer(thread, answer)

        self.run(roll())

    async def _assert_answer(self, thread: ModelThread, answer: Message) -> None:
        assert answer["thread"]["turns"] == await visible_turns(self.house, self.client, thread)

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(lambda t: is_open(t) and t.written))
    def undo(self, number: int) -> None:
        thread = self.pick(number, lambda t: is_open(t) and t.written and (t.undo is not None or t.vague))
        if thread is None:
            thread = self.pick(number, lambda t: is_open(t) and t.written and not t.vague)
        if thread is not None:
            self.run(self._undo(thread))

    async def _undo(self, thread: ModelThread) -> None:
        if thread.vague:
            answered = await (await self.client.begin("thread/rollback/undo", threadId=thread.id))
            if "result" in answered:
                thread.turns = tuple(as_model(turn) for turn in answered["result"]["thread"]["turns"])
                thread.first = ()
            return
        if thread.undo is None:
            refused = await self.client.refused("thread/rollback/undo", threadId=thread.id)
            assert refused.data["reason"] == "nothingToUndo"
            return
        answer = await self.client.call("thread/rollback/undo", threadId=thread.id)
        thread.bring_back()
        await self._assert_answer(thread, answer)

    @rule(number=NUMBER, place=NUMBER)
    @precondition(lambda self: self.any(lambda t: is_kept(t) and t.mode == "paginated" and bool(t.turns)))
    def revert(self, number: int, place: int) -> None:
        thread = self.pick(number, lambda t: is_kept(t) and t.mode == "paginated" and bool(t.turns))
        assert thread is not None

        async def back() -> None:
            index = place % len(thread.turns)
            await self.client.call("thread/revert", threadId=thread.id, beforeTurnId=thread.turns[index].id)
            thread.keep(index)

        self.run(back())

    @rule(number=NUMBER, place=NUMBER, cut=CUTS, ephemeral=st.integers(0, 3).map(lambda n: n == 0))
    @precondition(lambda self: self.any(is_kept) and len(self.threads) < 6)
    def fork(self, number: int, place: int, cut: str, ephemeral: bool) -> None:
        thread = self.pick(number, is_kept)
        assert thread is not None
        self.run(self._fork(thread, place, cut if thread.turns else "whole", ephemeral))

    async def _fork(self, source: ModelThread, place: int, cut: str, ephemeral: bool) -> None:
        before = await visible_turns(self.house, self.client, source)
        kept, named = len(source.turns), {}
        if cut != "whole":
            index = place % kept
            named = {"lastTurnId" if cut == "last" else "beforeTurnId": source.turns[index].id}
            kept = index + (cut == "last")
        answer = await self.client.call(
            "thread/fork", threadId=source.id, ephemeral=ephemeral, excludeTurns=ephemeral, **named
        )
        assert answer["thread"]["forkedFromId"] == source.id
        child = ModelThread(
            answer["thread"]["id"],
            source.mode,
            ephemeral,
            source.turns[:kept],
            source.first,
            written=True,
            model=answer["model"],
            source=source.id,
            created=answer["thread"]["createdAt"],
            oldest_text=answer["thread"]["preview"],
            vague=source.mode == "legacy",
        )
        self.threads[child.id] = child
        source.children.append(child.id)
        after = await visible_turns(self.house, self.client, source)
        assert after == before
        seen = await visible_turns(self.house, self.client, child)
        if ephemeral and source.mode == "paginated" and source.compacted:
            # It holds what the model needs, from the newest checkpoint on.
            child.turns = child.turns[len(child.turns) - len(seen) :]
        assert told(seen) == told(before[:kept][kept - len(seen) :])

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(is_open))
    def bad_requests(self, number: int) -> None:
        thread = self.pick(number, is_open)
        assert thread is not None

        async def ask() -> None:
            for count in (0, thread.counted + 1, True, "1", 1.5):
                await self.client.refused("thread/rollback", threadId=thread.id, numTurns=count)
            await self.client.refused("thread/revert", threadId=thread.id, beforeTurnId="no such turn")
            await self.client.refused("thread/fork", threadId=thread.id, lastTurnId="no such turn")
            await self.client.refused("thread/fork", threadId=thread.id, lastTurnId="a", beforeTurnId="b")
            await self.client.refused("thread/compact", threadId=thread.id, summary="s", keepLast=-1)
            await self.client.refused("thread/inject_items", threadId=thread.id, items=[{"no": "type"}])
            await self.client.refused("turn/interrupt", threadId=thread.id, turnId="")
            await self.client.refused("turn/steer", threadId=thread.id, expectedTurnId="x", input=[])

        self.run(ask())

    # -- whole threads and the process -----------------------------------------------------------------------------

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(is_kept))
    def archive(self, number: int) -> None:
        thread = self.pick(number, is_kept)
        assert thread is not None

        async def away() -> None:
            await self.client.call("thread/archive", threadId=thread.id)
            thread.archived = True
            await self.client.refused("thread/fork", threadId=thread.id)

        self.run(away())

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(lambda t: t.archived))
    def unarchive(self, number: int) -> None:
        thread = self.pick(number, lambda t: t.archived)
        assert thread is not None

        async def back() -> None:
            await self.client.call("thread/unarchive", threadId=thread.id)
            thread.archived = False
            await self._resume(thread)

        self.run(back())

    @rule(number=NUMBER)
    @precondition(lambda self: self.any(is_kept) and len(self.threads) > 2)
    def delete(self, number: int) -> None:
        thread = self.pick(number, is_kept)
        assert thread is not None
        self.run(self._delete(thread))

    async def _delete(self, thread: ModelThread) -> None:
        answer = await (await self.client.begin("thread/delete", threadId=thread.id))
        if "error" in answer:
            assert answer["error"]["data"]["reason"] == "dependentThreads", answer
            assert set(answer["error"]["data"]["threadIds"]) <= set(self.threads) - {thread.id}
            assert self.any(lambda other: other.id != thread.id and other.mode == "paginated")
            return
        del self.threads[thread.id]
        await self.client.refused("thread/read", threadId=thread.id)

    @rule(running=st.booleans(), number=NUMBER)
    def crash(self, running: bool, number: int) -> None:
        self.run(self._crash(self.pick(number, is_open) if running else None))

    async def _crash(self, running: ModelThread | None) -> None:
        """Die, in the middle of a turn or between two, and come back on what is on disk."""
        if running is not None:
            text = self.text()
            self.provider.script.replies.append([{"say": "first words", "partial": True}, {"hang": True}])
            since = len(self.client.log)
            asked = [{"type": "text", "text": text}]
            turn_id = (await self.client.call("turn/start", threadId=running.id, input=asked))["turn"]["id"]
            await self.client.event("item/agentMessage/delta", after=since, turnId=turn_id)
            # Items of a running turn are only accepted when they are shown; the writer is a moment behind.
            await self.house.session(running.id).log.flush()
            running.add(ModelTurn(turn_id, (text,), "interrupted"))
        self.homes += 1
        home = as_after_a_crash(self.home, self.folder / f"home-{self.homes}")
        await self.stack.aclose()
        self.home = home
        await self._reopen()

    @rule()
    def restart(self) -> None:
        async def again() -> None:
            await self.stack.aclose()
            await self._reopen()

        self.run(again())

    async def _reopen(self) -> None:
        await self.open()
        for thread in list(self.threads.values()):
            if thread.ephemeral or not thread.written:
                del self.threads[thread.id]
            elif not thread.archived:
                await self._resume(thread)

    async def _resume(self, thread: ModelThread) -> None:
        size = self._bytes_of_logs()
        answer = await self.client.call("thread/resume", threadId=thread.id)
        assert self._bytes_of_logs() == size, "resuming wrote something"
        assert answer["thread"]["turns"] == await visible_turns(self.house, self.client, thread)
        assert answer["thread"]["name"] == thread.name
        assert answer["model"] == thread.model
        assert answer["thread"]["forkedFromId"] == thread.source
        assert answer["thread"]["createdAt"] == thread.created
        assert answer["thread"]["preview"] == thread.preview

    def _bytes_of_logs(self) -> int:
        return sum(path.stat().st_size for path in self.home.rglob("*.jsonl"))


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=examples(8), stateful_step_count=15)
