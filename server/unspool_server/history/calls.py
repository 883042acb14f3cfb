"""What a log says of calls that may come again: keyed calls, and messages with an id of their client.

A fold over records, in any log mode. A keyed call's mark is a member of ours on the last record of its change, or a
record of its own where the call writes none, so that change and key are in the log together or not at all. Owns neither
reading nor the decision what a repeated call gets (`sessions/`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from unspool_protocol.log import NewRecord, Position, Record, RecordType

from .event_shapes import TURN_STARTS
from .fields import EMPTY, object_of, text_of

CallId = tuple[str, str, str]
"""Scope, method and key: within a thread, no two calls that were carried out share one."""


@dataclass(frozen=True, slots=True)
class CallMark:
    """A keyed call that was carried out.

    Attributes:
        thread_id: Whose call it was: copies of records in a fork are not its calls.
        digest: Of the parameters, so that a key used for something else is noticed.
        turn_id: The turn that the call began or joined, or that its input waited for.
        queued: Its input had to wait.
        place: Just behind the change, once it is recorded.
    """

    thread_id: str
    scope: str
    method: str
    key: str
    digest: str
    turn_id: str | None = None
    queued: bool = False
    place: Position | None = None

    @property
    def id(self) -> CallId:
        """What makes it the same call."""
        return (self.scope, self.method, self.key)

    def fields(self) -> dict[str, Any]:
        """As it stands in the log."""
        given = {"threadId": self.thread_id, "method": self.method, "key": self.key, "digest": self.digest}
        more = {"scope": self.scope or None, "turnId": self.turn_id, "queued": self.queued or None}
        return given | {name: value for name, value in more.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Said:
    """Where a client's message is: its turn, and a place behind it in the rollout that holds it."""

    turn_id: str
    place: Position


def with_ours(record: NewRecord, **members: Any) -> NewRecord:
    """A record with further members of ours beside its payload."""
    extra = dict(record.extra or {})
    return replace(record, extra={**extra, "unspool": {**(extra.get("unspool") or {}), **members}})


def marked(records: Sequence[NewRecord], mark: CallMark) -> list[NewRecord]:
    """The records of one change, the last one with the call's mark."""
    return [*records[:-1], with_ours(records[-1], call=mark.fields())]


def mark_record(mark: CallMark) -> NewRecord:
    """A record that says nothing but that a call was accepted."""
    return NewRecord(RecordType.CALL, mark.fields())


def call_of(record: Record) -> CallMark | None:
    """The mark of a call on a record."""
    if record.type == RecordType.CALL:
        told: Mapping[str, Any] = record.payload
    else:
        told = object_of(object_of(record.extra, "unspool") or EMPTY, "call") or EMPTY
    words = [text_of(told, name) for name in ("threadId", "method", "key", "digest")]
    thread_id, method, key, digest = words
    if thread_id is None or method is None or key is None or digest is None:
        return None
    place = Position(record.rollout_id, record.ordinal + 1)
    scope, turn_id, queued = text_of(told, "scope") or "", text_of(told, "turnId"), told.get("queued") is True
    return CallMark(thread_id, scope, method, key, digest, turn_id, queued, place)


class CallIndex:
    """Folds records, oldest first within each rollout, into the calls of a thread and its clients' messages."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.calls: dict[CallId, CallMark] = {}
        self.messages: dict[str, Said] = {}
        self.turn_id: str | None = None

    def apply(self, record: Record) -> bool:
        """Fold one record in; says whether it told anything."""
        if record.event in TURN_STARTS:
            self.turn_id = text_of(record.payload, "turn_id")
        mark, said = call_of(record), _message_of(record, self.turn_id)
        if mark is not None and mark.thread_id == self.thread_id:
            self.calls[mark.id] = mark
        if said is not None:
            self.messages[said[0]] = said[1]
        return mark is not None or said is not None

    def part(self, rollout_id: str) -> dict[str, Any]:
        """What one rollout contributed, to be kept beside it. `add_part` is the reverse."""
        calls = [
            [*mark.id, mark.digest, mark.turn_id, mark.queued, mark.place.ordinal]
            for mark in self.calls.values()
            if mark.place is not None and mark.place.rollout_id == rollout_id
        ]
        messages = [
            [client_id, said.turn_id, said.place.ordinal]
            for client_id, said in self.messages.items()
            if said.place.rollout_id == rollout_id
        ]
        return {"threadId": self.thread_id, "turnId": self.turn_id, "calls": calls, "messages": messages}

    def add_part(self, rollout_id: str, kept: Mapping[str, Any], below: int | None) -> None:
        """Take in what was kept beside a rollout; only what lies before ordinal `below` where that is given.

        Raises:
            ValueError, TypeError, KeyError: Not in our shape; some of it may be taken in, which does no harm.
        """
        own = kept["threadId"] == self.thread_id
        for scope, method, key, digest, turn_id, queued, ordinal in kept["calls"] if own else ():
            place = Position(rollout_id, int(ordinal))
            mark = CallMark(
                self.thread_id, str(scope), str(method), str(key), str(digest), turn_id, queued is True, place
            )
            self.calls[mark.id] = mark
        for client_id, turn_id, ordinal in kept["messages"]:
            if below is None or int(ordinal) <= below:
                self.messages[str(client_id)] = Said(str(turn_id), Position(rollout_id, int(ordinal)))
        self.turn_id = kept["turnId"]


def _message_of(record: Record, turn_id: str | None) -> tuple[str, Said] | None:
    """A user message that its client gave an id, in either log mode (01 §3.6)."""
    if record.event == "item_completed":
        shown = object_of(record.payload, "item") or EMPTY
        client_id = text_of(shown, "client_id") if text_of(shown, "type") == "UserMessage" else None
        turn_id = text_of(record.payload, "turn_id") or turn_id
    elif record.event == "user_message":
        client_id = text_of(record.payload, "client_id")
    else:
        return None
    if client_id is None or turn_id is None:
        return None
    return client_id, Said(turn_id, Position(record.rollout_id, record.ordinal + 1))
