"""A client that follows threads through everything: cut off, asleep, not reading, and back with its last cursors."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.torture.heard import Account, Message, Words
from tests.torture.line import Cut, Line, Refused, pause
from tests.torture.server_process import ServerProcess

THE_END = "the end"
"""The name that threads get last, so that clients know when they have heard everything."""


class Follower:
    """One client with its accounts.

    Args:
        watches: Follow with `thread/subscribe`, which keeps nothing loaded, instead of `thread/resume`.
        slow: Its policy for when it is too slow; None leaves the choice to the server.
        dawdles: Stop reading for so long that the server notices, and with little room for what comes meanwhile.
    """

    def __init__(
        self,
        name: str,
        server: ServerProcess,
        chance: random.Random,
        words: Words,
        *,
        watches: bool,
        slow: str | None,
        dawdles: bool = False,
    ) -> None:
        self.name, self.watches, self.slow, self._dawdles = name, watches, slow, dawdles
        self.accounts: dict[str, Account] = {}
        self.complaints: list[str] = []
        self.connections = self.messages = self.given_up = 0
        self._server, self._chance, self._words = server, chance, words
        self._following: set[str] = set()
        self._line: Line | None = None
        self._news = asyncio.Event()
        self._ended: set[str] = set()

    @property
    def about(self) -> str:
        """Who it is, and how it follows."""
        return f"{self.name} ({'watching' if self.watches else 'resuming'}, {self.slow or 'no policy'})"

    def follow(self, thread_id: str) -> None:
        """Follow a thread from its beginning, from the next connection on."""
        self.accounts.setdefault(thread_id, Account(thread_id, self._words))

    async def live(self, forks: Callable[[], str | None]) -> None:
        """Be a difficult client until cancelled.

        Args:
            forks: Names a thread that came up meanwhile, if there is one, to be followed as well.
        """
        while True:
            if self._chance.random() < 0.05 and (fork := forks()) is not None and len(self.accounts) < 8:
                self.follow(fork)
            try:
                line = await self._connect()
                await self._misbehave(line)
            except Cut:
                pass
            finally:
                await self._leave()
            await asyncio.sleep(pause(self._chance, 0.7))

    async def catch_up(self) -> None:
        """Come back a last time and hear everything to the end, which every followed thread has by now."""
        while True:
            try:
                line = await self._connect()
                while not self.accounts.keys() <= self._ended:
                    if line.gone.is_set():
                        raise Cut
                    self._news.clear()
                    await self._news.wait()
                if line.unanswered():
                    self._complain(f"{line.unanswered()} requests were not answered")
                return
            except Cut:
                await asyncio.sleep(0.2)
            finally:
                await self._leave()

    async def _connect(self) -> Line:
        self.connections += 1
        self._following.clear()
        wish = {} if self.slow is None else {"slowClient": self.slow}
        small = self._chance.random() < 0.4 or self._dawdles
        self._line = line = await Line.open(
            await self._server.url(), self._hear, self._complain, capabilities=wish, small=small
        )
        line.on_gone(self._news.set)
        wanted = list(self.accounts)
        self._chance.shuffle(wanted)
        for thread_id in wanted:
            await self._resume(line, thread_id)
        return line

    async def _resume(self, line: Line, thread_id: str) -> None:
        after = self.accounts[thread_id].cursor
        answered = partial(self._begin, thread_id)
        try:
            if self.watches:
                replay = {"after": after, "mode": "events"}
                await line.call("thread/subscribe", answered=answered, threadId=thread_id, replay=replay)
            else:
                replay = {"after": after, "mode": "events"}
                await line.call(
                    "thread/resume", answered=answered, threadId=thread_id, replay=replay, excludeTurns=True
                )
        except Refused as refused:
            if refused.reason == "closing":  # it is being unloaded this instant; who comes again loads it
                raise Cut from refused
            self._complain(f"thread {thread_id} after {after}: {refused}")
            raise Cut from refused

    def _begin(self, thread_id: str, _result: Message) -> None:
        self._following.add(thread_id)

    async def _misbehave(self, line: Line) -> None:
        """Stay for a while, perhaps without reading, then be cut."""
        while True:
            await line.rest(pause(self._chance, 2.0))
            dice = self._chance.random()
            if dice < 0.35 or (self._dawdles and dice < 0.9):
                line.stop_reading()
                try:
                    await line.rest(self._chance.uniform(6.0, 15.0) if self._dawdles else pause(self._chance, 2.0))
                finally:
                    line.read_on()
            elif dice < 0.55:
                await line.cut(reset=True)
            elif dice < 0.7:
                await line.cut(reset=False)
            elif dice < 0.8 and self._following:
                await self._come_again(line)

    async def _come_again(self, line: Line) -> None:
        """Leave one thread and come back to it on the same connection."""
        thread_id = self._chance.choice(sorted(self._following))
        await line.call("thread/unsubscribe", answered=partial(self._stop, thread_id), threadId=thread_id)
        await line.rest(pause(self._chance, 0.5))
        await self._resume(line, thread_id)

    def _stop(self, thread_id: str, _result: Message) -> None:
        self._following.discard(thread_id)

    async def _leave(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            await line.cut(reset=False)

    def _hear(self, message: Message) -> None:
        self.messages += 1
        params: dict[str, Any] = message.get("params") or {}
        if message["method"] == "connection/closing":
            self._part(params)
            return
        thread_id = params.get("threadId") or (params.get("thread") or {}).get("id")
        if "cursor" not in message or thread_id not in self.accounts:
            return
        if thread_id not in self._following:
            self._complain(f"an event of a thread that this connection does not follow has a place in it: {message}")
            return
        for wrong in self.accounts[thread_id].take(message, self.connections):
            self._complain(f"thread {thread_id}: {wrong}")
        if message["method"] == "thread/closed" and not self.watches:
            self._following.discard(thread_id)
        if message["method"] == "thread/name/updated" and params.get("threadName") == THE_END:
            self._ended.add(thread_id)
            self._news.set()

    def _part(self, params: Message) -> None:
        """The server ends the connection and says where to go on, which is nowhere before the newest event."""
        self.given_up += params["reason"] == "slowClient"
        for thread_id in self._following:
            account, told = self.accounts[thread_id], params["cursors"].get(thread_id)
            if told is None or not account.go_on(told):
                self._complain(f"thread {thread_id}: the farewell says {told}, the newest event was {account.cursor}")

    def _complain(self, what: str) -> None:
        self.complaints.append(what)
