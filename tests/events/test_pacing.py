"""The past at a pace: each client its own, broken off at once, never in anybody's way."""

import asyncio
from collections.abc import Callable

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import LONGEST_WAIT_S, ReplayOptions
from unspool_server.events.replay import LogReplay

from tests.events.conftest import THREAD, Client, ListedStore, Thread, connect


class Clock:
    """Waits are noted, and end when the test says so."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.now_ms = 1_700_000_000_000
        self._ring = asyncio.Event()
        self.free = False

    async def sleep(self, delay_s: float) -> None:
        self.waits.append(delay_s)
        if not self.free:
            self._ring.clear()
            await self._ring.wait()

    def ring(self) -> None:
        self._ring.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def paced(replay: LogReplay, clock: Clock) -> Hub:
    hub = Hub(replay, clock_ms=lambda: clock.now_ms, sleep=clock.sleep)
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    return hub


def spaced(hub: Hub, store: ListedStore, clock: Clock, *gaps_s: float) -> Thread:
    """A thread whose events came with these pauses between them."""
    thread = Thread(hub, store)
    thread.record()
    for gap in gaps_s:
        clock.now_ms += int(gap * 1000)
        thread.record()
    return thread


async def until(true: Callable[[], object]) -> None:
    """Let others run until something is so."""
    async with asyncio.timeout(5):
        while True:
            if true():
                return
            await asyncio.sleep(0)


def follow(hub: Hub, options: ReplayOptions, name: str = "a", room: int = 256) -> Client:
    client = connect(hub, name, outbox=Outbox(max_messages=room))
    hub.subscribe(client, THREAD, replay=options).release()
    return client


@pytest.mark.parametrize(
    ("factor", "waits"),
    [(1.0, [2.0, 0.5, LONGEST_WAIT_S]), (10.0, [0.2, 0.05, LONGEST_WAIT_S]), (0.5, [4.0, 1.0, 5.0])],
)
async def test_pauses_are_those_of_the_past_by_the_factor_and_never_too_long(
    paced: Hub, store: ListedStore, clock: Clock, factor: float, waits: list[float]
) -> None:
    thread = spaced(paced, store, clock, 2, 0.5, 3_600)
    clock.free = True
    client = connect(paced, "a")
    after = EventCursor("r1", 0, 0)
    paced.subscribe(client, THREAD, after=after, replay=ReplayOptions(factor=factor)).release()
    await client.read_until_quiet(paced)
    assert client.cursors() == thread.published
    assert clock.waits == pytest.approx(waits)
    await paced.close()


async def test_what_happens_meanwhile_follows_behind_and_others_do_not_wait(
    paced: Hub, store: ListedStore, clock: Clock
) -> None:
    thread = spaced(paced, store, clock, 1, 1)
    client, other = follow(paced, ReplayOptions(factor=1.0, announced=True)), connect(paced, "other")
    paced.subscribe(other, THREAD).release()
    await asyncio.sleep(0)
    past = len(thread.published)
    for _ in range(50):
        thread.record()
    assert other.outbox and len(other.read()) == 50
    assert len(client.outbox) <= 1, "nothing is kept for it but its place"
    clock.free = True
    clock.ring()
    await client.read_until_quiet(paced)
    assert client.cursors() == thread.published
    assert [bool(m.get("replayed")) for m in client.got if "cursor" in m] == [True] * past + [False] * 50
    over = [message["method"] for message in client.got].index("thread/replay/completed")
    assert over == past
    await paced.close()


@pytest.mark.parametrize("how", ["unsubscribe", "disconnect"])
async def test_a_replay_that_waits_ends_at_once_when_its_client_leaves(
    paced: Hub, store: ListedStore, clock: Clock, how: str
) -> None:
    spaced(paced, store, clock, 1, 1)
    client = follow(paced, ReplayOptions(factor=1.0))
    await until(lambda: clock.waits)
    if how == "unsubscribe":
        assert paced.unsubscribe(client, THREAD)
    else:
        paced.drop(client)
    read = len(client.read())
    clock.ring()
    await until(lambda: not paced._tasks)
    assert (read, client.read()) == (1, [])


async def test_a_step_that_was_granted_but_not_taken_is_not_lost_when_the_thread_is_loaded(
    paced: Hub, store: ListedStore, clock: Clock
) -> None:
    thread = spaced(paced, store, clock, 1, 1)
    paced.forget(THREAD)
    client = connect(paced, "a", outbox=Outbox(max_messages=1))
    paced.subscribe(client, THREAD, replay=ReplayOptions(stepwise=True), resident=False).release()
    assert paced.step(client, THREAD, 2) == 2
    await until(lambda: len(client.outbox))
    thread.load()
    assert len(client.read()) == 1
    await until(client.read)
    await asyncio.sleep(0)
    assert client.cursors() == thread.published[:2]
    assert paced.step(client, THREAD, 5) == 5
    await client.read_until_quiet(paced)
    assert client.cursors() == thread.published
    await paced.close()
