"""Whatever happens, and wherever a client left, it assembles the thread's events once and in order (DESIGN §9.4)."""

import asyncio
from typing import cast

from hypothesis import given, settings
from hypothesis import strategies as st
from unspool_protocol.cursors import EventCursor
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import ReplayOptions
from unspool_server.events.replay import LogReplay
from unspool_server.store.contract import LogStore

from tests.events.conftest import THREAD, Client, CountingView, ListedStore, Thread, connect

Step = tuple[str, int]

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 3)),
        st.tuples(st.just("delta"), st.integers(1, 4)),
        st.tuples(st.just("cut"), st.integers(0, 100)),
        st.tuples(st.just("reconnect"), st.just(0)),
        st.tuples(st.just("read"), st.just(0)),
        st.tuples(st.just("yield"), st.integers(1, 5)),
        st.tuples(st.just("restart"), st.just(0)),
    ),
    max_size=25,
)


class Story:
    """A thread, and one client that comes, goes and dawdles while it runs."""

    def __init__(self, ring_events: int, outbox: int) -> None:
        self.store = ListedStore()
        self.ring_events, self.outbox = ring_events, outbox
        self.clock = 1_700_000_000_000
        self.hub = self._hub()
        self.hub.reset(THREAD, EventCursor("r0", 0, 0))
        self.thread = Thread(self.hub, self.store, rollout_id="r0")
        self.cuts = 0
        self.seen: list[str] = []
        self.client = self._join(None, replay=None)

    def _hub(self) -> Hub:
        self.clock += 1_000
        replay = LogReplay(cast(LogStore, self.store), CountingView)
        return Hub(replay, ring_events=self.ring_events, clock_ms=lambda: self.clock)

    def _join(self, after: EventCursor | None, *, replay: ReplayOptions | None) -> Client:
        client = connect(self.hub, f"c{len(self.seen)}", outbox=Outbox(max_messages=self.outbox))
        self.hub.subscribe(client, THREAD, after=after, replay=replay).release()
        return client

    def _leave(self) -> None:
        """Only what the client has read counts as seen."""
        self.hub.drop(self.client)
        self.seen += self.client.cursors()

    async def _come_back(self) -> None:
        after = EventCursor.decode(self.seen[-1]) if self.seen else None
        if after is not None:
            await self.hub.check_cursor(THREAD, after)
        self.client = self._join(after, replay=ReplayOptions())

    async def step(self, step: Step) -> None:
        kind, number = step
        if kind == "record":
            self.thread.record(number)
        elif kind == "delta":
            for _ in range(number):
                self.thread.delta()
        elif kind == "cut":
            self.cuts += 1
            self.thread.cut(f"r{self.cuts}", 1 + number % self.thread.end)
        elif kind == "read":
            self.client.read()
        elif kind == "yield":
            for _ in range(number):
                await asyncio.sleep(0)
        elif kind == "reconnect":
            self._leave()
            await self._come_back()
        else:
            await self._restart()

    async def _restart(self) -> None:
        self._leave()
        await self.hub.close()
        self.hub = self.thread.hub = self._hub()
        self.thread.load()
        await self._come_back()

    async def finish(self) -> list[str]:
        await self.client.read_until_quiet(self.hub)
        self._leave()
        return self.seen

    def present(self) -> set[str]:
        """Cursors of recorded events that no cut removed."""
        records = {(r.rollout_id, r.ordinal) for r in self.store.whole(self.thread.rollout_id)}
        decoded = {text: EventCursor.decode(text) for text in self.thread.recorded}
        return {text for text, cursor in decoded.items() if (cursor.rollout_id, cursor.ordinal) in records}


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, outbox=st.integers(1, 6))
def test_with_the_past_in_memory_every_cursor_leads_to_exactly_the_rest(steps: list[Step], outbox: int) -> None:
    async def run() -> None:
        story = Story(10_000, outbox)
        for step in steps:
            if step[0] != "restart":
                await story.step(step)
        assert await story.finish() == story.thread.published
        for index, text in enumerate(story.thread.published):
            story.seen = [text]
            await story._come_back()
            assert await story.finish() == story.thread.published[index:]
        await story.hub.close()

    asyncio.run(run())


@settings(max_examples=250, deadline=None)
@given(steps=STEPS, outbox=st.integers(1, 6), ring=st.integers(1, 8))
def test_from_log_and_ring_together_nothing_recorded_is_lost_repeated_or_reordered(
    steps: list[Step], outbox: int, ring: int
) -> None:
    async def run() -> None:
        story = Story(ring, outbox)
        for step in steps:
            await story.step(step)
        _check(story, await story.finish(), story.thread.published)
        for index, text in enumerate(story.thread.published):
            story.seen = [text]
            await story._come_back()
            _check(story, await story.finish(), story.thread.published[index:])
        await story.hub.close()

    asyncio.run(run())


def _check(story: Story, seen: list[str], published: list[str]) -> None:
    """What was seen is the list itself, less unrecorded events that memory lost and records that a cut removed."""
    places = [published.index(text) for text in seen]
    assert places == sorted(set(places))
    assert set(published) & story.present() <= set(seen)
