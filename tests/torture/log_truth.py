"""What a thread's log files say happened, worked out from the records alone: no daemon, no ring, no replay."""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from unspool_protocol.cursors import EventCursor
from unspool_server.events.encoding import plain
from unspool_server.history.client_view import ClientView
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.store.contract import LogStore, RolloutInfo

from tests.torture.heard import Words


@dataclass(frozen=True, slots=True)
class Recorded:
    """One event of a log."""

    cursor: EventCursor
    method: str
    mark: str

    def __str__(self) -> str:
        return f"{self.cursor.rollout_id[-6:]}:{self.cursor.ordinal}:{self.cursor.counter} {self.method} {self.mark}"


@dataclass(frozen=True, slots=True)
class Truth:
    """A thread's whole story.

    Attributes:
        events: All that was ever recorded, what was rolled back included, in order.
        index: The place of each of them.
        rollouts: Rollouts in their order, those that the thread inherits from first.
        histories: For each rollout, which events are its history, its own and those of its bases.
        texts: The texts of finished items, by turn and item, with whether their turn was cut off.
        turns: Statuses of all turns that have an end, by their ids.
        clients: Turn ids of the user messages, by the ids that their clients gave them.
        inputs: User messages of each turn; a further one cuts off the answer to those before it.
    """

    events: list[Recorded]
    index: dict[EventCursor, int]
    rollouts: list[str]
    histories: dict[str, frozenset[int]]
    texts: dict[tuple[str, str], str]
    turns: dict[str, str]
    clients: dict[str, set[str]]
    inputs: dict[str, int]

    @property
    def present(self) -> list[int]:
        """Indices of the events that are the thread's history now."""
        return sorted(self.histories[self.rollouts[-1]])


async def truth_of(store: LogStore, thread_id: str, words: Words) -> Truth:
    """Fold every rollout of a thread from its first record on, each with a view of its own."""
    truth = Truth([], {}, [], {}, {}, {}, {}, {})
    for info in await store.rollouts(thread_id):
        history: list[int] = []
        for event in await _events(store, info):
            if event.cursor not in truth.index:
                truth.index[event.cursor] = len(truth.events)
                said = plain(event.params)
                truth.events.append(Recorded(event.cursor, event.method, words.mark(said)))
                _note(truth, event.method, said)
            history.append(truth.index[event.cursor])
            if event.cursor.rollout_id not in truth.rollouts:
                truth.rollouts.append(event.cursor.rollout_id)
            truth.histories.setdefault(event.cursor.rollout_id, frozenset())
        if info.rollout_id not in truth.rollouts:
            truth.rollouts.append(info.rollout_id)
        truth.histories[info.rollout_id] = frozenset(history)
        for rollout_id in truth.rollouts:
            # What was inherited is told as a part of the first rollout that inherits it.
            truth.histories[rollout_id] = truth.histories[rollout_id] or frozenset(history)
    return truth


async def _events(store: LogStore, info: RolloutInfo) -> list[ClientEvent]:
    view = ClientView(info.thread_id, info.mode)
    events: list[ClientEvent] = []
    async with aclosing(store.read(info.rollout_id)) as records:
        async for record in records:
            events += view.apply(record)
    return [*events, *view.settle()]


def _note(truth: Truth, method: str, said: Any) -> None:
    if method == "turn/completed":
        truth.turns[said["turn"]["id"]] = said["turn"]["status"]
    elif method == "item/completed":
        item = said["item"]
        if item["type"] == "agentMessage":
            truth.texts[said["turnId"], item["id"]] = item["text"]
        elif item["type"] == "userMessage":
            truth.inputs[said["turnId"]] = truth.inputs.get(said["turnId"], 0) + 1
            if item.get("clientId"):
                truth.clients.setdefault(item["clientId"], set()).add(said["turnId"])
