"""The inputs that wait for a turn of their own, as a fold over a thread's records.

The queue is no part of the conversation: a rollback does not undo it, a fork does not inherit it. A further rollout of
the thread and a checkpoint therefore carry it along (`carried`), so that reading back to them is enough. An input
leaves the queue with the record of its message, in one unit, so that it neither runs twice nor gets lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from unspool_protocol.log import NewRecord, Record, RecordType
from unspool_protocol.turns import QueueChange, QueuedTurn, ThreadQueueChanged

from .fields import EMPTY, count_of, list_of, object_of, text_of


@dataclass(frozen=True, slots=True)
class QueuedInput:
    """One waiting input.

    Attributes:
        turn_id: The id that its turn will have.
        params: The `turn/start` that brought it, in the wire's shape, without the thread and the key.
        begun: Its turn began and was cut off before the message was recorded, so the next one needs an id of its own.
    """

    queue_id: str
    turn_id: str
    params: Mapping[str, Any]
    begun: bool = False

    def fields(self) -> dict[str, Any]:
        """As it stands in the log."""
        return {"queue_id": self.queue_id, "turn_id": self.turn_id, "params": dict(self.params)}


@dataclass(frozen=True, slots=True)
class Queue:
    """What waits, in order. A paused queue waits for the next `turn/start` or to be resumed."""

    entries: tuple[QueuedInput, ...] = ()
    paused: bool = False

    @property
    def runnable(self) -> bool:
        """Whether its first input may run as soon as the thread is idle."""
        return bool(self.entries) and not self.paused

    def find(self, queue_id: str | None) -> QueuedInput | None:
        """The input with this id."""
        return next((one for one in self.entries if one.queue_id == queue_id), None)

    def position(self, queue_id: str) -> int:
        """Its place from the front, 0 for the next one; raises ValueError for one that does not wait."""
        return [one.queue_id for one in self.entries].index(queue_id)


_TURN_STARTS = frozenset({"task_started", "turn_started"})

NOTHING = Queue()
"""A queue in which nothing waits."""


def folded_queue(records: Iterable[Record], thread_id: str, rollout_id: str) -> Queue:
    """The queue at the end of a rollout, from its header and its own records from any checkpoint on."""
    queue = NOTHING
    for record in records:
        if record.rollout_id == rollout_id:
            queue = applied(queue, record, thread_id)
    return queue


def applied(queue: Queue, record: Record, thread_id: str) -> Queue:
    """The queue after one more record."""
    ours = object_of(record.extra, "unspool") or EMPTY
    if record.type == RecordType.SESSION_META:
        return _carried_here(ours, thread_id) if record.payload.get("id") == thread_id else queue
    if record.type == RecordType.COMPACTED:
        return _carried_here(ours, thread_id)
    if record.type == RecordType.QUEUE:
        return _changed(queue, record.payload) if record.payload.get("thread_id") == thread_id else queue
    if record.event in _TURN_STARTS:
        turn_id = text_of(record.payload, "turn_id")
        return replace(
            queue, entries=tuple(replace(one, begun=one.begun or one.turn_id == turn_id) for one in queue.entries)
        )
    taken = text_of(ours, "queued")
    return queue if taken is None else _without(queue, taken)


def queue_record(
    thread_id: str, change: str, entry: QueuedInput | None = None, position: int | None = None
) -> NewRecord:
    """The record of one change: `added`, `updated`, `moved`, `removed` (with the input), `paused` or `resumed`."""
    told: dict[str, Any] = {"thread_id": thread_id, "change": change}
    if entry is not None:
        told |= entry.fields()
    if position is not None:
        told["position"] = position
    return NewRecord(RecordType.QUEUE, told)


def carried(queue: Queue, thread_id: str) -> dict[str, Any]:
    """The member of ours that takes the queue along; empty where nothing waits."""
    if queue == NOTHING:
        return {}
    entries = [{**one.fields(), "begun": one.begun} for one in queue.entries]
    return {"queue": {"thread_id": thread_id, "entries": entries, "paused": queue.paused}}


def _carried_here(ours: Mapping[str, Any], thread_id: str) -> Queue:
    told = object_of(ours, "queue") or EMPTY
    if told.get("thread_id") != thread_id:
        return NOTHING
    found = [entry_of(one) for one in list_of(told, "entries") or () if isinstance(one, Mapping)]
    return Queue(tuple(one for one in found if one is not None), told.get("paused") is True)


def entry_of(told: Mapping[str, Any]) -> QueuedInput | None:
    """A waiting input as a record tells it; None for something else."""
    queue_id, turn_id, params = text_of(told, "queue_id"), text_of(told, "turn_id"), object_of(told, "params")
    if queue_id is None or turn_id is None or params is None:
        return None
    return QueuedInput(queue_id, turn_id, params, told.get("begun") is True)


def queued_turn(entry: QueuedInput) -> QueuedTurn:
    """A waiting input as clients see it; pieces that are none are left out."""
    given = list_of(entry.params, "input") or ()
    return QueuedTurn(
        queue_id=entry.queue_id,
        turn_id=entry.turn_id,
        input=tuple(part for part in given if isinstance(part, Mapping)),
        client_user_message_id=text_of(entry.params, "clientUserMessageId"),
    )


def queue_change(record: Record, thread_id: str) -> ThreadQueueChanged | None:
    """What a record tells clients of the queue; None for one that does not change it."""
    if record.type == RecordType.QUEUE:
        told = record.payload
        change = text_of(told, "change")
        if told.get("thread_id") != thread_id or change not in get_args(QueueChange):
            return None
        entry = entry_of(told)
        return ThreadQueueChanged(
            thread_id=thread_id,
            change=change,
            queue_id=entry.queue_id if entry is not None else None,
            position=count_of(told, "position"),
            entry=queued_turn(entry) if entry is not None and change != "removed" else None,
        )
    taken = text_of(object_of(record.extra, "unspool") or EMPTY, "queued")
    return None if taken is None else ThreadQueueChanged(thread_id=thread_id, change="started", queue_id=taken)


def _changed(queue: Queue, told: Mapping[str, Any]) -> Queue:
    change = text_of(told, "change")
    if change in ("paused", "resumed"):
        return replace(queue, paused=change == "paused")
    entry = entry_of(told)
    if entry is None:
        return queue
    known = queue.find(entry.queue_id)
    rest = _without(queue, entry.queue_id)
    if change == "removed" or (known is None and change != "added"):
        return rest
    position = count_of(told, "position")
    place = len(rest.entries) if position is None else position
    newer = replace(entry, begun=known is not None and known.begun)
    return replace(rest, entries=(*rest.entries[:place], newer, *rest.entries[place:]))


def _without(queue: Queue, queue_id: str) -> Queue:
    left = tuple(one for one in queue.entries if one.queue_id != queue_id)
    return replace(queue, entries=left, paused=queue.paused and bool(left))
