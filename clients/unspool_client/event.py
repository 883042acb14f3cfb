"""A thread's event as clients hold it, and the order of events."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import ValidationError
from unspool_protocol.base import WireModel
from unspool_protocol.cursors import EventCursor
from unspool_protocol.notifications import NOTIFICATIONS


@dataclass(frozen=True, slots=True)
class Event:
    """One notification.

    Attributes:
        params: The raw parameters; treat them as read-only, other readers share them.
        cursor: The event's place in its thread; None for servers without cursors and for what has no place.
        replayed: The event was sent to catch up and may have happened long ago.
        thread_id: The thread it is about, None for notifications about none.
        emitted_at_ms: When it happened, in milliseconds since the epoch; for replayed events the time of its record.
            No part of an event's identity.
    """

    method: str
    params: Mapping[str, Any]
    cursor: str | None = None
    replayed: bool = False
    thread_id: str | None = None
    emitted_at_ms: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Self:
        """Read a notification's message (DESIGN §6: cursor and replayed ride beside `params`)."""
        given, cursor, emitted = message.get("params"), message.get("cursor"), message.get("emittedAtMs")
        params: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
        thread_id, thread = params.get("threadId"), params.get("thread")
        if thread_id is None and isinstance(thread, Mapping):
            thread_id = thread.get("id")
        return cls(
            method=message["method"],
            params=params,
            cursor=cursor if isinstance(cursor, str) else None,
            replayed=message.get("replayed") is True,
            thread_id=thread_id if isinstance(thread_id, str) else None,
            emitted_at_ms=emitted if isinstance(emitted, int) else None,
        )

    def typed(self) -> WireModel | None:
        """The notification's model, or None where the method is unknown here or the parameters have another shape."""
        kind = NOTIFICATIONS.get(self.method)
        if kind is None:
            return None
        try:
            return kind.params.model_validate(self.params)
        except ValidationError:
            return None

    @property
    def turn_id(self) -> str | None:
        """The turn it belongs to."""
        turn = self.params.get("turn")
        turn_id = self.params.get("turnId") if not isinstance(turn, Mapping) else turn.get("id")
        return turn_id if isinstance(turn_id, str) else None


def order(cursor: str, other: str) -> int | None:
    """-1, 0 or 1 as an event lies before, at or behind another of the same thread; None where that cannot be told.

    Rollouts of a thread are ordered by their creation, which their ids (UUIDv7) tell; inside one the cursor's key
    decides. Cursors in a form unknown here can only be equal.
    """
    if cursor == other:
        return 0
    try:
        one, two = EventCursor.decode(cursor), EventCursor.decode(other)
    except ValueError:
        return None
    return 1 if (one.rollout_id, one.key) > (two.rollout_id, two.key) else -1
