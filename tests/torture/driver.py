"""Who makes things happen on one thread: turns, interrupts, queues, rollbacks, compactions, forks, names.

Every call that changes something has a key. When its connection is cut before the answer comes, it is made again on the
next one, and must have happened once. So is a `turn/start` whose turn was not seen to end: its answer promises no more
than the turn's id, and a turn that never began, because the process ended, begins then.
"""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from tests.torture.line import Cut, Line, Message, Refused, pause
from tests.torture.server_process import ServerProcess

EXPECTED = frozenset({"activeTurn", "turnsOutOfRange", "nothingToUndo", "noActiveTurn", "turnMismatch"})
"""Refusals that a lively thread may give."""

LONG = 1500
"""Characters that make a word a long one: what such a turn says does not fit into buffers."""

TURN_S = 240.0
"""Longest wait for the end of a turn."""


@dataclass(slots=True)
class Promises:
    """What the server has acknowledged: turns by their message's id, and the texts that they answer."""

    turns: dict[str, tuple[str, str]] = field(default_factory=dict)
    completed: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """Turn id to thread id, and whether its end was written."""
    joined: set[str] = field(default_factory=set)
    """Messages that joined a turn of another one, and have its id only if it lived long enough to take them in."""
    forks: list[str] = field(default_factory=list)


class Driver:
    """Moves on one thread, one after the other, over any number of connections and daemons."""

    def __init__(
        self, thread_id: str, server: ServerProcess, chance: random.Random, promises: Promises, *, words: int
    ) -> None:
        self.thread_id = thread_id
        self.complaints: list[str] = []
        self.moves: dict[str, int] = {}
        self._server, self._chance, self._promises, self._words = server, chance, promises, words
        self._numbers = 0
        self._open: list[tuple[str, Message]] = []
        self._running: dict[str, Message] = {}
        self._line: Line | None = None
        self._deltas = asyncio.Event()
        self._news = asyncio.Event()
        self._over: set[str] = set()

    async def live(self) -> None:
        """Make moves until cancelled."""
        while True:
            try:
                line = await self._connect()
                while True:
                    await self._move(line)
            except Cut:
                await asyncio.sleep(pause(self._chance, 0.2))
            finally:
                await self.leave()

    async def settle(self, name: str) -> None:
        """Let everything run out, repeat what was not answered, and give the thread its last name."""
        while True:
            try:
                line = await self._connect()
                await self._idle(line, self.thread_id)
                await line.call("thread/name/set", threadId=self.thread_id, name=name)
                return
            except Cut:
                await asyncio.sleep(0.2)
            finally:
                await self.leave()

    async def leave(self) -> None:
        """Close the connection."""
        line, self._line = self._line, None
        if line is not None:
            await line.cut(reset=False)

    async def _connect(self) -> Line:
        no_replay = {"optOutNotificationMethods": ["thread/status/changed"]}
        self._line = line = await Line.open(
            await self._server.url(), self._hear, self.complaints.append, capabilities=no_replay
        )
        line.on_gone(self._wake)
        await self._resume(line, self.thread_id)
        while self._open:
            method, params = self._open[0]
            if params["threadId"] != self.thread_id:
                await self._resume(line, params["threadId"])
            await self._ask(line, method, params)
        for turn_id, params in list(self._running.items()):
            if params["threadId"] != self.thread_id:
                await self._resume(line, params["threadId"])
            await self._idle(line, params["threadId"])
            again = await self._ask(line, "turn/start", params)
            if again is None or again["turn"]["status"] != "inProgress":
                self._running.pop(turn_id, None)
        return line

    async def _idle(self, line: Line, thread_id: str) -> None:
        """Wait until a thread does nothing and nothing waits for it."""
        while True:
            waiting = await line.call("thread/queue/list", threadId=thread_id)
            thread = (await line.call("thread/read", threadId=thread_id))["thread"]
            active = thread["status"]["type"] == "active"
            if not waiting["data"] and not active:
                return
            if waiting.get("paused") and not active:
                await line.call("thread/queue/resume", threadId=thread_id)
            await line.rest(0.2)

    async def _resume(self, line: Line, thread_id: str) -> None:
        try:
            await line.call("thread/resume", threadId=thread_id, excludeTurns=True)
        except Refused as refused:
            if refused.reason != "closing":
                raise
            raise Cut from refused

    async def _move(self, line: Line) -> None:
        kinds = ["turn"] * 6 + ["interrupt", "queue", "rollback", "undo", "compact", "summarise", "fork", "name"]
        kind = self._chance.choice(kinds)
        await getattr(self, f"_{kind}")(line)
        self.moves[kind] = self.moves.get(kind, 0) + 1
        await line.rest(pause(self._chance, 0.2))

    # -- moves ---------------------------------------------------------------------------------------------------------

    async def _turn(self, line: Line) -> None:
        turn_id = await self._begin(line, self.thread_id)
        await self._ended(line, turn_id)

    async def _interrupt(self, line: Line) -> None:
        turn_id = await self._begin(line, self.thread_id)
        await self._first_delta(line)
        await line.rest(pause(self._chance, 0.5))
        await self._change(line, "turn/interrupt", keyed=False, turnId=turn_id)
        await self._ended(line, turn_id)

    async def _queue(self, line: Line) -> None:
        first = await self._begin(line, self.thread_id)
        second = await self._begin(line, self.thread_id, ifBusy="queue")
        await self._ended(line, first)
        await self._ended(line, second)

    async def _rollback(self, line: Line) -> None:
        turn_id = None
        if self._chance.random() < 0.4:
            turn_id = await self._begin(line, self.thread_id)
            await self._first_delta(line)
        await self._change(line, "thread/rollback", numTurns=self._chance.randint(1, 2), interrupt=True)
        if turn_id is not None:
            await self._ended(line, turn_id)

    async def _undo(self, line: Line) -> None:
        await self._change(line, "thread/rollback/undo")

    async def _compact(self, line: Line) -> None:
        await self._change(line, "thread/compact", summary="what was before", keepLast=1, interrupt=True)

    async def _summarise(self, line: Line) -> None:
        await self._change(line, "thread/compact/start", keyed=False)

    async def _fork(self, line: Line) -> None:
        result = await self._change(line, "thread/fork", excludeTurns=True)
        if result is not None:
            fork = result["thread"]["id"]
            await self._ended(line, await self._begin(line, fork))
            await line.call("thread/unsubscribe", threadId=fork)
            self._promises.forks.append(fork)

    async def _name(self, line: Line) -> None:
        await self._change(line, "thread/name/set", keyed=False, name=f"name {self._next()}")

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _begin(self, line: Line, thread_id: str, **more: Any) -> str:
        number = self._next()
        count = self._chance.randint(1, self._words)
        long = "-" * LONG if self._chance.random() < 0.25 else ""
        text = " ".join(f"{number}.{word}{long}" for word in range(count))
        params = {
            "threadId": thread_id,
            "input": [{"type": "text", "text": text}],
            "clientUserMessageId": number,
            "idempotencyKey": number,
            **more,
        }
        result = await self._keyed(line, "turn/start", params)
        return str(result["turn"]["id"]) if result is not None else ""

    async def _change(self, line: Line, method: str, *, keyed: bool = True, **params: Any) -> Message | None:
        params = {"threadId": self.thread_id, **params}
        if keyed:
            return await self._keyed(line, method, {**params, "idempotencyKey": self._next()})
        return await self._call(line, method, params)

    async def _keyed(self, line: Line, method: str, params: Message) -> Message | None:
        self._open.append((method, params))
        return await self._ask(line, method, params)

    async def _ask(self, line: Line, method: str, params: Message) -> Message | None:
        """A call that is made again until it was answered."""
        result = await self._call(line, method, params)
        if (method, params) in self._open:
            self._open.remove((method, params))
        if method == "turn/start" and result is not None:
            self._promised(params, result["turn"])
        return result

    def _promised(self, params: Message, turn: Message) -> None:
        """A turn was acknowledged: with the id that was told before, unless it had joined another one then."""
        number, turn_id = params["clientUserMessageId"], str(turn["id"])
        joined = turn_id in {one for name, (_, one) in self._promises.turns.items() if name != number}
        if joined:
            self._promises.joined.add(number)
        known = self._promises.turns.setdefault(number, (params["threadId"], turn_id))
        if known[1] != turn_id and number not in self._promises.joined:
            self.complaints.append(f"two turns for {number}: {known[1]}, {turn}")
        if turn["status"] == "inProgress" and turn_id not in self._over:
            self._running[turn_id] = params

    async def _call(self, line: Line, method: str, params: Message) -> Message | None:
        try:
            return await line.call(method, **params)
        except Refused as refused:
            if refused.reason not in EXPECTED:
                self.complaints.append(f"{params}: {refused}")
            return None

    def _next(self) -> str:
        self._numbers += 1
        return f"{self.thread_id[-6:]}-{self._numbers}"

    # -- what comes of it ----------------------------------------------------------------------------------------------

    async def _ended(self, line: Line, turn_id: str) -> None:
        """Wait for the end of a turn."""
        async with asyncio.timeout(TURN_S):
            while turn_id and turn_id not in self._over:
                if line.gone.is_set():
                    raise Cut
                self._news.clear()
                await self._news.wait()

    async def _first_delta(self, line: Line) -> None:
        """Wait until the next piece of an answer comes, but not for long: the answer may be over."""
        self._deltas.clear()
        delta = asyncio.create_task(self._deltas.wait())
        await asyncio.wait({delta}, timeout=1.0)
        delta.cancel()
        if line.gone.is_set():
            raise Cut

    def _hear(self, message: Message) -> None:
        params = message.get("params") or {}
        if message["method"] == "item/agentMessage/delta":
            self._deltas.set()
        elif message["method"] == "turn/completed":
            turn = params["turn"]
            self._over.add(turn["id"])
            self._running.pop(turn["id"], None)
            self._promises.completed[turn["id"]] = params["threadId"], turn.get("durability") != "accepted"
            self._wake()

    def _wake(self) -> None:
        self._news.set()
