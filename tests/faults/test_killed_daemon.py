"""kill -9 at any instant: what was acknowledged is there afterwards; torn tails, second daemons (DESIGN §9.2)."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.daemon_process import DaemonProcess, Killed, daemon_process
from tests.state.agreement import as_model, assert_memory_is_the_log
from tests.state.inprocess import house, user_texts
from tests.state.turn_model import ModelThread, ModelTurn

ROUNDS = 3
UNANSWERED = "unanswered"
"""Stands for the id of a turn that was asked for when the daemon was killed."""

TORN = {
    "half a record": b'{"timestamp":"2026-01-01T00:00:00.000Z","ty',
    "half a character": '{"x":"\U0001f980'.encode()[:-2],
    "a hole left by the file system": b"\0" * 64,
}


class Work:
    """Operations on one thread in a row; `now` is what was acknowledged, `perhaps` what was asked for last."""

    def __init__(self, thread: ModelThread, rng: random.Random) -> None:
        self.now, self.rng = thread, rng
        self.perhaps: list[tuple[ModelTurn, ...]] = []
        self.forks: list[tuple[str, tuple[ModelTurn, ...]]] = []
        self.numbers = 0

    async def go_on(self, daemon: DaemonProcess) -> None:
        """Work until the daemon is killed."""
        while True:
            what = self.rng.choice(["turn", "turn", "turn", "rollback", "compact", "undo", "fork"])
            await getattr(self, what)(daemon)

    async def turn(self, daemon: DaemonProcess) -> None:
        self.numbers += 1
        text = f"t{self.numbers} " + "word " * self.rng.randrange(20)
        # Until it is completed nothing is promised: it may be missing, empty or cut off, also with its answer unread.
        self.perhaps = [
            (*self.now.turns, ModelTurn(UNANSWERED, texts, status))
            for status in ("interrupted", "completed")
            for texts in ((), (text,))
        ]
        asked = [{"type": "text", "text": text}]
        begun = await daemon.result("turn/start", threadId=self.now.id, input=asked)
        turn = ModelTurn(begun["turn"]["id"], (text,))
        self.perhaps = [(*turns[:-1], replace(turns[-1], id=turn.id)) for turns in self.perhaps]
        ended = await daemon.completed(turn.id)
        assert "durability" not in ended
        self.now.add(turn)
        self.perhaps = []

    async def rollback(self, daemon: DaemonProcess) -> None:
        if self.now.counted == 0:
            return
        after = replace(self.now)
        after.rollback(1)
        await self._change(daemon, after, "thread/rollback", numTurns=1)

    async def undo(self, daemon: DaemonProcess) -> None:
        if self.now.undo is None:
            return
        after = replace(self.now)
        after.bring_back()
        await self._change(daemon, after, "thread/rollback/undo")

    async def compact(self, daemon: DaemonProcess) -> None:
        self.perhaps = [(*self.now.turns, ModelTurn("compaction"))]
        answer = await daemon.result("thread/compact", threadId=self.now.id, summary="s", keepLast=1)
        self.now.add(as_model(answer["thread"]["turns"][-1]))
        self.perhaps = []

    async def fork(self, daemon: DaemonProcess) -> None:
        if not self.now.written:
            return
        made = await daemon.result("thread/fork", threadId=self.now.id)
        self.forks.append((made["thread"]["id"], self.now.turns))

    async def _change(self, daemon: DaemonProcess, after: ModelThread, method: str, **params: int) -> None:
        self.perhaps = [after.turns]
        await daemon.result(method, threadId=self.now.id, **params)
        self.now, self.perhaps = after, []

    def accept(self, seen: tuple[ModelTurn, ...]) -> None:
        """Compare what a restarted daemon shows with what was acknowledged or asked for last, and take it over."""
        allowed = [self.now.turns, *self.perhaps]
        if (
            self.perhaps
            and self.perhaps[0]
            and self.perhaps[0][-1].id == "compaction"
            and len(seen) > len(self.now.turns)
        ):
            allowed.append((*self.now.turns, replace(seen[-1], texts=())))
        newest = (*seen[:-1], replace(seen[-1], id=UNANSWERED)) if seen else seen
        assert seen in allowed or newest in allowed
        if seen != self.now.turns:
            # The last operation came through without its answer.
            if len(seen) < len(self.now.turns):
                self.now.rollback(1)
            elif self.now.undo is not None and seen == self.now.undo.turns:
                self.now.bring_back()
            else:
                self.now.add(seen[-1])
        self.perhaps = []


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_what_was_acknowledged_survives_kill_9_at_any_instant(mode: str, tmp_path: Path) -> None:
    home, rng = tmp_path / "home", random.Random(f"kill {mode}")
    async with daemon_process(home) as daemon:
        made = await daemon.result("thread/start", historyMode=mode)
        work = Work(ModelThread(made["thread"]["id"], mode), rng)
        await work.turn(daemon)
        await work.fork(daemon)
    for _ in range(ROUNDS):
        with pytest.raises(Killed):
            async with daemon_process(home, kill_after=rng.randrange(20, 160)) as daemon:
                resumed = await daemon.result("thread/resume", threadId=work.now.id)
                work.accept(tuple(as_model(turn) for turn in resumed["thread"]["turns"]))
                await work.go_on(daemon)
    async with house(home) as after, after.client() as client:
        resumed = await client.call("thread/resume", threadId=work.now.id)
        work.accept(tuple(as_model(turn) for turn in resumed["thread"]["turns"]))
        await assert_memory_is_the_log(after, work.now.id)
        for fork_id, turns in work.forks:
            resumed = await client.call("thread/resume", threadId=fork_id)
            assert tuple(as_model(turn) for turn in resumed["thread"]["turns"]) == turns


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
@pytest.mark.parametrize("torn", TORN)
async def test_a_torn_tail_is_told_kept_and_passed_over(mode: str, torn: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with house(home) as daemon, daemon.client() as client:
        thread_id = (await client.call("thread/start", historyMode=mode))["thread"]["id"]
        await client.turn(thread_id, "t1")
        path = Path(daemon.session(thread_id).log.info.path or "")
    with path.open("ab") as log:
        log.write(TORN[torn])
    left = path.read_bytes()
    async with house(home) as daemon, daemon.client() as client:
        await client.call("thread/resume", threadId=thread_id)
        warning = await client.event("warning", threadId=thread_id)
        assert warning["params"]["code"] in ("tornTail", "zeroBytes")
        assert len(warning["params"]["ordinals"]) == 1
        assert path.read_bytes() == left
        await client.turn(thread_id, "t2")
        assert path.read_bytes().startswith(left + b"\n")
        await assert_memory_is_the_log(daemon, thread_id)
    async with house(home) as daemon, daemon.client() as client:
        resumed = await client.call("thread/resume", threadId=thread_id)
        assert [user_texts(turn) for turn in resumed["thread"]["turns"]] == [["t1"], ["t2"]]
        await assert_memory_is_the_log(daemon, thread_id)


async def test_a_second_daemon_on_the_same_home_may_read_and_fork_but_not_write(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with daemon_process(home) as holder:
        thread_id = (await holder.result("thread/start"))["thread"]["id"]
        turn_id = (await holder.result("turn/start", threadId=thread_id, input=[{"type": "text", "text": "t1"}]))[
            "turn"
        ]["id"]
        await holder.completed(turn_id)
        async with house(home) as daemon, daemon.client() as client:
            refused = await client.refused("thread/resume", threadId=thread_id)
            assert refused.data["reason"] == "held"
            assert refused.message == f"thread {thread_id} already has an active writer"
            assert (await client.refused("thread/name/set", threadId=thread_id, name="n")).data["reason"] == "held"
            assert (await client.refused("thread/archive", threadId=thread_id)).data["reason"] == "held"
            assert (await client.refused("thread/delete", threadId=thread_id)).data["reason"] == "held"
            read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
            assert [turn["id"] for turn in read["thread"]["turns"]] == [turn_id]
            child = await client.call("thread/fork", threadId=thread_id)
            await client.turn(child["thread"]["id"], "t2")
            again = await holder.result("turn/start", threadId=thread_id, input=[{"type": "text", "text": "t3"}])
            await holder.completed(again["turn"]["id"])
            read = await client.call("thread/read", threadId=thread_id, includeTurns=True)
            assert [user_texts(turn) for turn in read["thread"]["turns"]] == [["t1"], ["t3"]]
            await holder.kill()
            resumed = await client.call("thread/resume", threadId=thread_id)
            assert len(resumed["thread"]["turns"]) == 2
            await client.turn(thread_id, "t4")
