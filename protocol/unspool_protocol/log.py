"""One log line as the rest of the program sees it, and the words for places in a log.

Owns neither file names, byte offsets nor locks (`store/`), nor what a record means (`history/`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class HistoryMode(StrEnum):
    """How a thread's log is kept (01 §7). `session_meta` without the field means `LEGACY`."""

    LEGACY = "legacy"
    PAGINATED = "paginated"


class RecordType(StrEnum):
    """The record types that carry meaning for us (01 §3). Other types are kept and passed over."""

    SESSION_META = "session_meta"
    RESPONSE_ITEM = "response_item"
    INTER_AGENT = "inter_agent_communication"
    INTER_AGENT_METADATA = "inter_agent_communication_metadata"
    COMPACTED = "compacted"
    ROLLED_BACK = "rolled_back"
    TURN_CONTEXT = "turn_context"
    WORLD_STATE = "world_state"
    EVENT_MSG = "event_msg"
    TOKEN_USAGE = "token_usage_record"
    RETAINED_CONTEXT = "retained_context"
    SECURITY_RISK_SCORE = "security_risk_score"
    REALTIME_ITEM = "realtime_item"
    PARTIAL_MESSAGE = "unspool_partial_message"
    """Ours: text that clients saw of an item before it was complete; other readers pass it over."""
    CALL = "unspool_call"
    """Ours: a keyed call was accepted; readers of the format pass over types that they do not know."""
    QUEUE = "unspool_queue"
    """Ours: a change of the inputs that wait for a turn of their own."""
    MARKS = "unspool_marks"
    """Ours, passed over by the reference: what was read of a thread, its project, git facts that a client gave."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A place in a rollout: just before the record with this ordinal (legacy: line index, blank lines included)."""

    rollout_id: str
    ordinal: int


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to be appended. The store adds timestamp, ordinal and check value and encodes it once.

    Attributes:
        raw: A whole foreign line without its line feed, to be copied byte for byte; then `type` and `payload` only
            describe it (legacy forks copy their source this way).
        extra: Members of ours beside `payload` (DESIGN §4: `unspool`); readers of the format ignore them.
        timestamp: When it happened, as log lines write it; None means now (imports tell what happened earlier).
    """

    type: str
    payload: Mapping[str, Any]
    metadata: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] | None = None
    raw: bytes | None = None
    timestamp: str | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One decoded log line (01 §2): a lenient envelope plus the raw bytes it came from, without the line feed.

    Attributes:
        rollout_id: The file (rollout) that holds the line, which for inherited records is not the thread's own.
        ordinal: `ordinal` of the line; in legacy logs its line index.
        payload: The decoded payload, `{}` where it is missing or no object.
        extra: Decoded members that are none of timestamp, ordinal, type, payload, metadata and check.
        raw: The line itself. Copies of records are copies of these bytes.
    """

    rollout_id: str
    ordinal: int
    type: str
    payload: Mapping[str, Any]
    timestamp: str = ""
    metadata: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    raw: bytes = b""

    @property
    def position(self) -> Position:
        """The place just before this record."""
        return Position(self.rollout_id, self.ordinal)

    @property
    def event(self) -> str | None:
        """The event's name when this is an `event_msg`, else None."""
        if self.type != RecordType.EVENT_MSG:
            return None
        name = self.payload.get("type")
        return name if isinstance(name, str) else None


@dataclass(frozen=True, slots=True)
class LineFault:
    """A line that could not be read as a record: skipped, but never silently.

    Attributes:
        code: `invalidJson`, `invalidUtf8`, `mendedUtf8`, `notARecord`, `zeroBytes`, `tornTail`, `gluedRecords`,
            `duplicate`, `ordinalMissing`; their meanings are in `finding_words`.
        line: The line's ordinal, or the one it would have had; in legacy logs its line index.
    """

    rollout_id: str
    line: int
    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Marks:
    """What is kept of a thread beside its conversation; folded by `history.marks`.

    Attributes:
        first_unread: The oldest turn that ended since somebody said that everything was read.
        revision: Names this state of reading; None before the first turn ended.
        asked: The running turn has input of a user.
        silent: Its end will be nothing to read: it only compacts, or it is a fork's source that ran it.
        git: Git facts that a client gave, in place of the header's.
    """

    first_unread: str | None = None
    revision: str | None = None
    asked: bool = False
    silent: bool = False
    git: Mapping[str, Any] | None = None
    project_id: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadSummary:
    """What lists and searches show of a thread; computed by `history.summarise`, stored by a catalogue.

    Times are seconds since the epoch. `tenant` is whose the thread is, empty for the machine's owner.
    `user_text` holds the texts of user messages for searching, newest last.
    """

    thread_id: str
    rollout_id: str
    mode: HistoryMode
    archived: bool = False
    name: str | None = None
    preview: str = ""
    created_at: float = 0.0
    updated_at: float = 0.0
    cwd: str = ""
    model: str | None = None
    model_provider: str = ""
    source: str | Mapping[str, Any] = "unknown"
    thread_source: str | None = None
    originator: str | None = None
    cli_version: str = ""
    session_id: str = ""
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    git: Mapping[str, Any] | None = None
    user_text: tuple[str, ...] = ()
    has_user_turn: bool = False
    tenant: str = ""
    marks: Marks = field(default_factory=Marks)
