"""One storm from start to end: actors, kills, quiet, and what everybody says afterwards."""

import asyncio
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from unspool_server.store.local import LocalStore

from tests.torture.driver import Driver, Promises
from tests.torture.follower import THE_END, Follower
from tests.torture.heard import Words
from tests.torture.judge import gathered
from tests.torture.line import Line
from tests.torture.log_truth import Truth, truth_of
from tests.torture.server_process import ServerProcess
from tests.torture.sizes import Sizes

POLICIES = (None, "coalesce", "drop", "disconnect")
END_S = 600.0
"""Longest wait for everybody to catch up."""


class Storm:
    """The actors of a storm on one home."""

    def __init__(self, home: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self.server = ServerProcess(home, sizes)
        self.words = Words()
        self.promises = Promises()
        self.drivers: list[Driver] = []
        self.followers: list[Follower] = []
        self.readers: list[Follower] = []
        self._began = time.monotonic()
        self._forks = sizes.chance("forks")

    async def run(self) -> list[str]:
        """Everything; returns what is wrong."""
        try:
            await self.server.start()
            await self._make_threads()
            self._make_followers()
            await self._blow()
            await self._calm_down()
            await self.server.look()
        finally:
            await self.server.end(signal.SIGKILL)
        return await self._judged()

    async def _make_threads(self) -> None:
        """Threads with one turn, so that there is something to follow; every fifth in the older log mode."""
        line = await Line.open(await self.server.url(), lambda message: None, self._fail, capabilities={})
        try:
            for number in range(self.sizes.threads):
                mode = "legacy" if number % 5 == 4 else "paginated"
                made = await line.call("thread/start", historyMode=mode)
                thread_id = made["thread"]["id"]
                greeting = [{"type": "text", "text": "hello"}]
                await line.call("turn/start", threadId=thread_id, input=greeting)
                chance = self.sizes.chance(f"driver {number}")
                self.drivers.append(Driver(thread_id, self.server, chance, self.promises, words=self.sizes.words))
            for driver in self.drivers:
                while (await line.call("thread/read", threadId=driver.thread_id))["thread"]["status"]["type"] != "idle":
                    await line.rest(0.05)
        finally:
            await line.cut(reset=False)

    def _make_followers(self) -> None:
        threads = [driver.thread_id for driver in self.drivers]
        for number in range(self.sizes.clients):
            chance = self.sizes.chance(f"client {number}")
            policy = POLICIES[(number // 2) % len(POLICIES)]
            dawdles = number % 10 in (4, 5)
            client = self._follower(f"client {number}", chance, watches=number % 2 == 1, slow=policy, dawdles=dawdles)
            follows = self.sizes.follows * (3 if dawdles else 1)
            for thread_id in chance.sample(threads, min(follows, len(threads))):
                client.follow(thread_id)
            self.followers.append(client)

    async def _blow(self) -> None:
        """Turns, cuts and kills at the same time."""
        actors = [asyncio.create_task(driver.live(), name="driver") for driver in self.drivers]
        actors += [asyncio.create_task(one.live(self._fork), name=one.name) for one in self.followers]
        chance = self.sizes.chance("kills")
        ends = [signal.SIGKILL] * self.sizes.kills
        if self.sizes.kills:
            ends.insert(chance.randrange(len(ends) + 1), signal.SIGTERM)
        weather = asyncio.create_task(self._weather(ends), name="kills")
        try:
            await asyncio.wait({weather, *actors}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (weather, *actors):
                task.cancel()
            outcomes = await asyncio.gather(weather, *actors, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _weather(self, ends: list[signal.Signals]) -> None:
        chance = self.sizes.chance("instants")
        share = self.sizes.seconds / (len(ends) + 1)
        for end in ends:
            await asyncio.sleep(share * chance.uniform(0.7, 1.3))
            await self.server.look()
            await self.server.end(end)
            await self.server.start()
        await asyncio.sleep(share)

    def _follower(
        self, name: str, chance: random.Random, *, watches: bool, slow: str | None = None, dawdles: bool = False
    ) -> Follower:
        return Follower(name, self.server, chance, self.words, watches=watches, slow=slow, dawdles=dawdles)

    def _fork(self) -> str | None:
        forks = self.promises.forks
        return self._forks.choice(forks) if forks else None

    async def _calm_down(self) -> None:
        """No new turns; what runs ends; everybody hears the end, and a newcomer everything from the beginning."""
        followed = {name for one in self.followers for name in one.accounts}
        forks = [name for name in self.promises.forks if name in followed]
        settling = [Driver(name, self.server, self._forks, self.promises, words=1) for name in forks]
        everyone = [*self.drivers, *settling]
        async with asyncio.timeout(END_S):
            await asyncio.gather(*(driver.settle(THE_END) for driver in everyone))
            for number, driver in enumerate(everyone):
                self.readers.append(self._follower(f"newcomer {number}", self._forks, watches=number % 2 == 1))
                self.readers[-1].follow(driver.thread_id)
            waiting = [asyncio.create_task(one.catch_up(), name=one.name) for one in (*self.followers, *self.readers)]
            await asyncio.gather(*waiting)

    async def _judged(self) -> list[str]:
        store = LocalStore(self.server.home)
        try:
            names = {name for one in (*self.followers, *self.readers) for name in one.accounts}
            names |= {name for name, _ in (*self.promises.turns.values(), *self.promises.completed.values())}
            truths = {name: await truth_of(store, name, self.words) for name in sorted(names)}
        finally:
            await store.close()
        wrong = [text for one in self.drivers for text in one.complaints]
        wrong += gathered((*self.followers, *self.readers), truths, self.words)
        wrong += self._broken_promises(truths)
        wrong += [line for line in self.server.stderr if _is_alarm(line)]
        return wrong

    def _broken_promises(self, truths: dict[str, Truth]) -> Iterator[str]:
        """Turns that were acknowledged under a key, and ends that were shown, are in the log, once.

        A message may have another turn than it was promised where it joined one that did not live to take it in, or
        waited, and the process ended when its turn had begun without it.
        """
        for number, (thread_id, turn_id) in self.promises.turns.items():
            truth = truths[thread_id]
            found = truth.clients.get(number, set())
            excused = number in self.promises.joined or (
                truth.turns.get(turn_id) == "interrupted" and turn_id not in truth.inputs
            )
            if len(found) > 1 or (found - {turn_id} and not excused):
                yield f"message {number} ran as {found}, acknowledged was {turn_id}"
            elif turn_id not in truth.turns and number not in self.promises.joined:
                yield f"thread {thread_id}: the acknowledged turn {turn_id} of message {number} is not in the log"
        for turn_id, (thread_id, written) in self.promises.completed.items():
            if written and turn_id not in truths[thread_id].turns:
                yield f"thread {thread_id}: the end of turn {turn_id} was shown and is not in the log"

    def _fail(self, what: str) -> None:
        raise AssertionError(what)

    def figures(self) -> str:
        """What happened, in numbers."""
        accounts = [account for one in (*self.followers, *self.readers) for account in one.accounts.values()]
        moves: dict[str, int] = {}
        for driver in self.drivers:
            for kind, count in driver.moves.items():
                moves[kind] = moves.get(kind, 0) + count
        return (
            f"seed {self.sizes.seed}: {len(self.followers)} clients on {len(self.drivers)} threads and "
            f"{len(self.promises.forks)} forks, {sum(one.messages for one in self.followers)} messages with "
            f"{sum(len(one.events) for one in accounts)} events and {sum(one.deltas for one in accounts)} deltas, "
            f"{sum(one.connections for one in self.followers)} connections "
            f"({sum(one.given_up for one in self.followers)} ended as too slow), {self.server.starts - 1} restarts, "
            f"published {self.server.published}, served late {self.server.replayed}, moves {moves}, "
            f"memory {self.server.max_rss_kib // 1024} MiB, {time.monotonic() - self._began:.0f} s"
        )


def _is_alarm(line: str) -> bool:
    """Whether a line of a daemon tells of something that must not happen; who does not read is cut off at its end."""
    return "Traceback" in line or ('"level": "error"' in line and "timeout graceful shutdown exceeded" not in line)
