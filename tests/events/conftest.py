"""A thread with its log, a view that counts, and clients that keep what they get."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from unspool_protocol.cursors import EventCursor
from unspool_protocol.log import HistoryMode, Position, Record
from unspool_server.access.principal import OWNER, Principal
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.replay import LogReplay
from unspool_server.events.slow import SlowClient
from unspool_server.store.contract import LogStore, RolloutInfo

THREAD = "thread-1"


class ListedStore:
    """The reading half of a store over lists; a read can be stopped at a gate to prove interleavings."""

    def __init__(self) -> None:
        self.infos: dict[str, RolloutInfo] = {}
        self.records: dict[str, list[Record]] = {}
        self.gate: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.first_read: list[int] = []

    def add(self, info: RolloutInfo) -> None:
        self.infos[info.rollout_id] = info
        self.records[info.rollout_id] = []

    def start_of(self, rollout_id: str) -> int:
        base = self.infos[rollout_id].base
        return base.ordinal if base else 0

    def end_of(self, rollout_id: str) -> int:
        return self.start_of(rollout_id) + len(self.records[rollout_id])

    def whole(self, rollout_id: str, end: int | None = None) -> list[Record]:
        base = self.infos[rollout_id].base
        older = self.whole(base.rollout_id, base.ordinal) if base else []
        return [r for r in [*older, *self.records[rollout_id]] if end is None or r.ordinal < end]

    async def rollouts(self, thread_id: str | None = None) -> list[RolloutInfo]:
        return [info for info in self.infos.values() if thread_id in (None, info.thread_id)]

    async def read(self, rollout_id: str, *, start: int = 0, end: int | None = None) -> AsyncIterator[Record]:
        self.first_read.append(start)
        for record in self.whole(rollout_id, end):
            if record.ordinal >= start:
                await asyncio.sleep(0)
                if self.gate is not None:
                    self.reached.set()
                    await self.gate.wait()
                yield record

    async def read_backward(self, rollout_id: str, *, end: int | None = None) -> AsyncIterator[Record]:
        for record in reversed(self.whole(rollout_id, end)):
            yield record


@dataclass(frozen=True)
class Viewed:
    method: str
    params: Mapping[str, Any]
    cursor: EventCursor


class CountingView:
    """Each record tells as many events as its payload says; a header with a reason tells of the jump."""

    def __init__(self, thread_id: str, mode: HistoryMode) -> None:
        self.thread_id = thread_id
        self.turn = ""
        del mode

    def settle(self) -> Sequence[Viewed]:
        return ()

    def begin_behind(self, header: Record) -> None:
        """There is nothing to know."""

    def forget_finished(self) -> None:
        """Nothing is kept."""

    def apply(self, record: Record) -> Sequence[Viewed]:
        if record.type == "session_meta":
            names = ["thread/reverted"] if "unspool" in record.extra else []
        else:
            names = [str(record.payload.get("method", "item/completed"))] * int(record.payload.get("events", 0))
        if record.event == "task_started":
            self.turn = str(record.payload["turn"])
        return [
            Viewed(
                name,
                {
                    "threadId": self.thread_id,
                    "turn": self.turn,
                    "at": f"{record.rollout_id}/{record.ordinal}.{counter}",
                },
                EventCursor(record.rollout_id, record.ordinal, counter),
            )
            for counter, name in enumerate(names)
        ]


@dataclass
class Client:
    """A connection whose transport writes only when told to."""

    id: str
    outbox: Outbox = field(default_factory=Outbox)
    opted_out: frozenset[str] = frozenset()
    initialized: bool = True
    principal: Principal = OWNER
    turn_completed_first: bool = False
    slow_client: SlowClient = "disconnect"
    """Until it is far behind, such a client gets every event as it is."""
    last_words: dict[str, Any] | None = None
    got: list[dict[str, Any]] = field(default_factory=list)

    def give_up(self, last_words: bytes) -> None:
        self.last_words = json.loads(last_words)
        self.outbox.put(last_words)
        self.outbox.close()

    def read(self) -> list[dict[str, Any]]:
        """Take what is ready now; returns only the new messages."""
        fresh = [json.loads(body) for body in self.outbox.take()]
        self.got += fresh
        return fresh

    async def read_until_quiet(self, hub: Hub) -> list[dict[str, Any]]:
        """Take messages until the client has caught up with everything."""
        fresh: list[dict[str, Any]] = []
        async with asyncio.timeout(5):
            while True:
                fresh += self.read()
                member = hub._members.get(self.id)
                behind = member is not None and any(
                    not s.live and not s._holds for s in [*member.subscriptions.values(), *member.ending.values()]
                )
                if not behind and not len(self.outbox):
                    return fresh
                await asyncio.sleep(0)

    def cursors(self) -> list[str]:
        return [message["cursor"] for message in self.got if "cursor" in message]


class Thread:
    """A session reduced to its effects: records into the log first, then their events into the hub."""

    def __init__(self, hub: Hub, store: ListedStore, thread_id: str = THREAD, rollout_id: str = "r1") -> None:
        self.hub, self.store, self.id = hub, store, thread_id
        self.rollout_id = rollout_id
        self.published: list[str] = []
        self.recorded: list[str] = []
        self._view = CountingView(thread_id, HistoryMode.PAGINATED)
        self._begin(None, {})

    def _begin(self, base: Position | None, extra: Mapping[str, Any]) -> None:
        header = Record(self.rollout_id, base.ordinal if base else 0, "session_meta", {}, extra=extra)
        self.store.add(RolloutInfo(self.id, self.rollout_id, HistoryMode.PAGINATED, header, base))
        self.store.records[self.rollout_id].append(header)
        self._publish(header)

    def _publish(self, record: Record) -> None:
        for event in self._view.apply(record):
            self.hub.publish(self.id, event.method, event.params, cursor=event.cursor)
            self.published.append(event.cursor.encode())
            self.recorded.append(event.cursor.encode())

    @property
    def end(self) -> int:
        return self.store.end_of(self.rollout_id)

    @property
    def cursor(self) -> EventCursor:
        """Where the newest event stands."""
        position = self.hub.position(self.id)
        assert position is not None
        return position

    def load(self) -> None:
        """Announce the thread's end, as a session does after a restart."""
        self.hub.reset(self.id, EventCursor(self.rollout_id, self.end - 1, 1 << 30))

    def record(self, events: int = 1, *, name: str = "item_completed", **payload: Any) -> None:
        body = {"type": name, "events": events, **payload}
        record = Record(self.rollout_id, self.end, "event_msg", body, timestamp="2026-01-02T03:04:05.678Z")
        self.store.records[self.rollout_id].append(record)
        self._publish(record)

    def delta(self, text: str = "x") -> None:
        self.hub.publish(self.id, "item/agentMessage/delta", {"threadId": self.id, "delta": text})
        self.published.append(self.cursor.encode())

    def cut(self, rollout_id: str, ordinal: int) -> None:
        """Roll back to a position of the present chain: a new rollout whose header explains the jump."""
        rollout = self.rollout_id
        while ordinal <= self.store.start_of(rollout) and (base := self.store.infos[rollout].base) is not None:
            rollout = base.rollout_id
        self.rollout_id = rollout_id
        self._begin(Position(rollout, ordinal), {"unspool": {"branch": "rollback"}})


@pytest.fixture
def store() -> ListedStore:
    return ListedStore()


@pytest.fixture
def replay(store: ListedStore) -> LogReplay:
    return LogReplay(cast(LogStore, store), CountingView)


@pytest.fixture
async def hub(replay: LogReplay) -> AsyncIterator[Hub]:
    hub = Hub(replay)
    yield hub
    async with asyncio.timeout(5):
        await hub.close()


@pytest.fixture
def thread(hub: Hub, store: ListedStore) -> Iterator[Thread]:
    hub.reset(THREAD, EventCursor("r1", 0, 0))
    yield Thread(hub, store)


def connect(hub: Hub, name: str, **options: Any) -> Client:
    client = Client(name, **options)
    hub.register(client)
    return client
