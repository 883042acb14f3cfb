"""Places where a thread can be cut: user messages and agent messages that trigger a turn, newest first (03 §2).

Fed newest first, so that a page of boundaries costs what it shows. Owns no reading and no tree of threads.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from unspool_protocol.log import HistoryMode, Position, Record, RecordType

from .boundaries import envelope_of, is_fork_boundary
from .event_shapes import TURN_STARTS
from .fields import flag_of, object_of, text_of, texts_of
from .items import agent_message
from .labels import short
from .state import Out
from .survival import client_survival


@dataclass(frozen=True, slots=True)
class Boundary:
    """Where input begins.

    Attributes:
        position: Of the record that holds it.
        cut: Where a cut goes that takes all along that was recorded for it: the start of its turn for the first one
            of a turn, else the same as `position`.
    """

    position: Position
    cut: Position
    by_agent: bool
    preview: str
    turn_id: str | None = None


@dataclass(slots=True)
class BoundaryScan:
    """Collects the boundaries of a turn until the record that starts it comes."""

    _turn: list[Boundary] = field(default_factory=list)
    _newer: Record | None = None

    def feed(self, record: Record) -> list[Boundary]:
        """Take the next older record; returns the boundaries of the turn that it completes, newest first."""
        newer, self._newer = self._newer, record
        if record.event in TURN_STARTS:
            return self._flush(text_of(record.payload, "turn_id"), record.position)
        if record.type == RecordType.SESSION_META:
            # A rollout that goes on in the middle of a turn still tells of that turn in its base.
            return []
        if _is_boundary(record):
            self._turn.append(_boundary(record, newer))
        return []

    def finish(self) -> list[Boundary]:
        """The log begins here: what old records without turns have."""
        return self._flush(None, None)

    def _flush(self, turn_id: str | None, start: Position | None) -> list[Boundary]:
        told = [replace(one, turn_id=turn_id or one.turn_id) for one in self._turn]
        if told and start is not None:
            told[-1] = replace(told[-1], cut=start)
        self._turn = []
        return told


def boundaries_of(records: Sequence[Record], mode: HistoryMode) -> list[Boundary]:
    """All boundaries of a whole log that are in force, newest first; the only way for legacy logs."""
    scan = BoundaryScan()
    found: list[Boundary] = []
    for span in reversed(client_survival(records, mode)):
        if span.out is Out.ROLLBACK:
            continue
        for index in range(span.end - 1, span.start - 1, -1):
            found += scan.feed(records[index])
    return found + scan.finish()


def _is_boundary(record: Record) -> bool:
    if record.type == RecordType.INTER_AGENT_METADATA:
        return flag_of(record.payload, "trigger_turn") is True
    return is_fork_boundary(record)


def _boundary(record: Record, newer: Record | None) -> Boundary:
    if record.type == RecordType.INTER_AGENT_METADATA:
        # The message itself is the next record; its envelope says only that it starts a turn.
        item: Mapping[str, object] = (
            newer.payload if newer is not None and newer.type == RecordType.RESPONSE_ITEM else {}
        )
        return Boundary(record.position, record.position, True, short(_text(item)))
    if record.type == RecordType.INTER_AGENT:
        return Boundary(record.position, record.position, True, short(_text(agent_message(record.payload) or {})))
    envelope = envelope_of(record.payload)
    words = str(envelope["content"]) if envelope is not None else _text(record.payload)
    passthrough = object_of(record.payload, "internal_chat_message_metadata_passthrough") or {}
    turn_id = text_of(passthrough, "turn_id")
    return Boundary(record.position, record.position, envelope is not None, short(words), turn_id)


def _text(item: Mapping[str, object]) -> str:
    return " ".join(texts_of(item))
