"""What a client that reads too slowly is spared: consecutive deltas of one text as one, or no deltas at all.

Only events are changed here that a client may lose without losing anything: what a delta says, its item's end says
again. Where a client stands is the subscription's business.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import orjson

from unspool_server.events.stream import Event

SlowClient = Literal["coalesce", "drop", "disconnect"]
"""What a client wants to happen when it reads too slowly (`initialize`, `capabilities.slowClient`)."""

MERGED_BYTES = 64 * 1024
"""Encoded deltas that are put together at most, so that one message does not fill an outbox."""

SLOW_LIMIT_BYTES = 4 * 1024 * 1024
"""How far behind a client may be that asked to be disconnected then."""


@dataclass(frozen=True, slots=True)
class Run:
    """One message to send: an event, several deltas as one, or (without body) deltas that are left out."""

    first: Event
    last: Event
    body: bytes | None


def runs(events: Iterable[Event], policy: SlowClient | None, *, whole_before: int = 0) -> Iterator[Run]:
    """Events as they are sent, oldest first.

    Args:
        policy: None for a client that keeps up: it gets every event as it is.
        whole_before: Events before this number are a replay that the client asked for; they are sent as they are.
    """
    waiting: list[Event] = []
    size = 0
    for event in events:
        key = event.delta if policy is not None and event.seq >= whole_before else None
        if waiting and (key != waiting[0].delta or size + len(event.body) > MERGED_BYTES):
            yield _merged(waiting)
            waiting, size = [], 0
        if key is None or policy == "disconnect":
            yield Run(event, event, event.body)
        elif policy == "drop":
            yield Run(event, event, None)
        else:
            waiting.append(event)
            size += len(event.body)
    if waiting:
        yield _merged(waiting)


def _merged(events: list[Event]) -> Run:
    """Deltas of one text as one, with the cursor and the time of the last."""
    first, last = events[0], events[-1]
    if first is last:
        return Run(first, last, first.body)
    message = orjson.loads(last.body)
    message["params"]["delta"] = "".join(orjson.loads(event.body)["params"]["delta"] for event in events)
    return Run(first, last, orjson.dumps(message))
