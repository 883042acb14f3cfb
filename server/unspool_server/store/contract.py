"""What the sessions ask of a log store, whatever the medium (DESIGN §7; 02 §6).

The store appends and reads. What a record means is decided in `history/`; nothing here looks into payloads except the
header's identity, mode and base.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from unspool_protocol.log import HistoryMode, LineFault, NewRecord, Position, Record, ThreadSummary

from .findings import FoundList, OnRecord


@dataclass(frozen=True, slots=True)
class NewRollout:
    """The header of a rollout to be created.

    Attributes:
        payload: The `session_meta` payload (01 §3.1) without `history_base`, `forked_from_ordinal_exclusive` and
            `history_mode`, which the store adds from `base` and `mode`.
        extra: Members of ours beside the payload (`{"unspool": {"branch": ...}}`).
    """

    thread_id: str
    rollout_id: str
    mode: HistoryMode
    payload: Mapping[str, Any]
    extra: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RolloutInfo:
    """What the store knows of one rollout from its name, place and header.

    Attributes:
        header: The first record, the rollout's own `session_meta`; None while creation is deferred.
        base: Where its history begins in another rollout; None when it begins here.
        path: For display (`thread.path`) only; None where the medium has no files.
    """

    thread_id: str
    rollout_id: str
    mode: HistoryMode
    header: Record | None
    base: Position | None = None
    archived: bool = False
    path: str | None = None


@dataclass(slots=True)
class ReadStats:
    """What reading has cost so far; counts, so that tests hold on any machine."""

    bytes_read: int = 0
    lines_parsed: int = 0
    bytes_written: int = 0
    syncs: int = 0


@dataclass(slots=True)
class ReadReport:
    """Collects what a read met besides records; pass one in to learn of damage."""

    faults: list[LineFault] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class WriterLoad:
    """What a log's writer still has to do."""

    pending_records: int
    pending_bytes: int
    queue_length: int


class Log(Protocol):
    """One thread's present rollout, open for appending by this process alone.

    Durability words are never mixed: *accepted* (queued in order, ordinals given), *written* (handed to the system),
    *synced* (fsync done). Records leave the queue only as a written prefix (02 §3).
    """

    @property
    def info(self) -> RolloutInfo:
        """The rollout; `header` is set once it was persisted."""

    @property
    def epoch(self) -> int:
        """Rises with every writer of the thread; a writer with an older one can never append."""

    @property
    def next_ordinal(self) -> int:
        """The ordinal that the next accepted record gets (pending ones included)."""

    @property
    def load(self) -> WriterLoad:
        """What is accepted and not written yet, and the commands that wait for the writer."""

    @property
    def last_error(self) -> str | None:
        """Why the newest barrier failed, None when nothing is owed to the disk."""

    @property
    def deferred(self) -> bool:
        """True until the rollout exists on its medium (02 §2)."""

    async def add(self, records: Sequence[NewRecord]) -> list[Record]:
        """Accept records in order and, unless creation is deferred, try to write them at once (AddItems).

        Never raises for a disk that refuses: the records stay pending and are retried at the next barrier.

        Returns:
            The records as they will stand in the log, ordinals and raw bytes included.

        Raises:
            StoreClosed: The handle was closed or fenced; nothing was accepted.
            TypeError: A payload that JSON cannot hold; nothing was accepted.
        """

    async def append(self, records: Sequence[NewRecord], *, expected_ordinal: int | None = None) -> list[Record]:
        """Write records as one unit, or nothing (lifecycle operations).

        Pending records are written first. On failure these records are withdrawn: not pending, not in the log.

        Raises:
            LogConflict: `expected_ordinal` is not `next_ordinal`.
            WriteFailed: Refused by the system; withdrawn.
        """

    async def persist(self) -> None:
        """Create the rollout if it is deferred and write everything pending. Raises WriteFailed."""

    async def flush(self) -> None:
        """Write everything pending; a deferred rollout without pending records stays deferred. Raises WriteFailed."""

    async def sync(self) -> None:
        """Flush, then make it survive power loss. Raises WriteFailed."""

    async def close(self) -> None:
        """Flush and release the writer lock. On WriteFailed the handle stays open, so that the caller can retry."""

    async def discard(self) -> None:
        """Release the writer without draining it; pending records are lost on purpose."""


class LogStore(Protocol):
    """Rollouts by id. A thread's present is its newest rollout (01 §8, 07 §7)."""

    @property
    def stats(self) -> ReadStats:
        """Counters since the store was opened."""

    async def create(self, header: NewRollout) -> Log:
        """Reserve a new thread: identity and lock are taken, nothing is written yet.

        Raises:
            LogExists: The id is taken.
        """

    async def branch(
        self, header: NewRollout, base: Position | None, tail: Sequence[NewRecord] = (), *, replaces: Log | None = None
    ) -> Log:
        """Create and write a rollout whose history begins with everything before `base` (DESIGN §4).

        Header and `tail` appear in one step or not at all. A base inside an inherited part is re-pointed at the
        rollout that holds it (01 §8). With `replaces` (same thread id) the new handle takes over lock and epoch and
        the old one is fenced; on failure the old one stays as it was. Without it the thread id must be new.

        Raises:
            LogExists, LogMissing (base), LogConflict (base beyond the end of its rollout), WriterHeld, WriteFailed.
            StoreClosed: `replaces` is not the thread's writer (any more).
        """

    async def open(self, thread_id: str) -> Log:
        """Take the writer lock of a stored thread and open its present rollout for appending.

        A torn last line is closed with a line feed before the first append. Nothing is written otherwise. The first
        record that is appended says `"unspool": {"opened": true}`: whatever was going on before it has ended, since a
        turn does not outlive its writer.

        Raises:
            LogMissing: Unknown, or archived (`archived` is true).
            WriterHeld: Live in this or another process.
            LogCorrupt: No usable header.
            WriteFailed: The lock cannot be taken because the medium refuses writes.
        """

    async def find(self, thread_id: str) -> RolloutInfo:
        """The present rollout of a thread, archived ones included. Raises LogMissing, LogCorrupt."""

    async def rollout(self, rollout_id: str) -> RolloutInfo:
        """One rollout by its own id. Raises LogMissing, LogCorrupt."""

    async def rollouts(self, thread_id: str | None = None) -> list[RolloutInfo]:
        """All rollouts (of one thread), oldest first; unreadable ones are left out (see `unreadable`)."""

    async def unreadable(self) -> Mapping[str, str]:
        """Logs that cannot be opened at all: rollout id (or file name) -> what is missing."""

    def read(
        self, rollout_id: str, *, start: int = 0, end: int | None = None, report: ReadReport | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records with start <= ordinal < end, oldest first, through the base chain, pending ones included.

        Every session_meta of the chain is among them at its place. In legacy logs ordinals are line indices.
        """

    def read_backward(
        self, rollout_id: str, *, end: int | None = None, report: ReadReport | None = None
    ) -> AsyncGenerator[Record, None]:
        """The same newest first, in blocks; stopping early leaves the rest unread (close it then: `aclosing`)."""

    async def verify(self, thread_id: str, found: FoundList, on_record: OnRecord) -> None:
        """Check every rollout of a thread and what it inherits; writes nothing (`store.verify`).

        Args:
            on_record: Gets the records of the thread's present, oldest first, with their line numbers.

        Raises:
            LogMissing.
        """

    async def mentions(self, rollout_id: str, text: bytes) -> bool:
        """Whether a line of the rollout or of what it builds on holds these bytes; nothing is decoded for it."""

    async def archive(self, thread_id: str) -> None:
        """Move all rollouts of an unloaded thread to the archive. Raises LogMissing, WriterHeld."""

    async def unarchive(self, thread_id: str) -> RolloutInfo:
        """Move them back. Raises LogMissing when no archived rollout exists."""

    async def delete(self, thread_id: str, *, before: Sequence[str] = (), released: Collection[str] = ()) -> None:
        """Remove all rollouts of an unloaded thread. Raises LogMissing, WriterHeld, DependentThreads, WriteFailed.

        Args:
            before: Further unloaded threads, removed first in this order; all are locked before any is removed.
            released: Dependents that stand on their own by now: their older rollouts may be left without a base.
        """

    async def dependents(self, thread_id: str) -> list[str]:
        """Ids of other threads whose history begins in a rollout of this one."""

    async def fingerprint(self, rollout_id: str) -> tuple[int, str]:
        """Size and check value of the newest written line: equal means unchanged."""

    async def read_side(self, rollout_id: str, name: str) -> bytes | None:
        """A small cache file beside a rollout (resume checkpoint); None where there is none."""

    async def write_side(self, rollout_id: str, name: str, content: bytes) -> None:
        """Replace such a cache file; failures are swallowed, since it can always be rebuilt."""

    async def close(self) -> None:
        """Close every open log and release what the store holds."""


Summariser = Callable[[ThreadSummary | None, RolloutInfo, Iterable[Record]], ThreadSummary]
"""Folds further records into a thread's summary (None: the first ones); handed in, since it is a history rule."""


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What `thread/list` asks (`wire` §6). None means: no filter.

    `sort_key` is `created_at`, `updated_at` or `recency_at`; `cursor` is opaque, `limit` None means everything.

    Attributes:
        source_kinds: As the wire names them; `subAgent` stands for all kinds of threads that threads have started.
        without_agents: Leave those out.
        thread_ids: Only these.
        excluded: None of these threads.
    """

    limit: int | None = None
    cursor: str | None = None
    sort_key: str = "created_at"
    descending: bool = True
    archived: bool = False
    model_providers: Sequence[str] | None = None
    source_kinds: Sequence[str] | None = None
    without_agents: bool = False
    thread_ids: frozenset[str] | None = None
    cwd: Sequence[str] | None = None
    search: str | None = None
    tenant: str | None = None
    excluded: Sequence[str] = ()
    originators: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of summaries; cursors are opaque, `next_cursor` None at the end."""

    items: Sequence[ThreadSummary]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class Catalogue(Protocol):
    """An index for listing and searching; a cache of the logs, rebuilt for exactly those that disagree (DESIGN §7)."""

    async def list(self, query: ListQuery) -> ListPage:
        """Bring the index up to date, then answer. Raises InvalidParams for a cursor that is none of ours."""

    async def get(self, thread_id: str) -> ThreadSummary | None:
        """One thread's up-to-date summary."""

    async def known(self, info: RolloutInfo) -> ThreadSummary:
        """What can be told of a thread without reading its log: from the index, perhaps out of date, or its header."""

    async def set_name(self, thread_id: str, name: str) -> None:
        """Keep the name where other readers of the format look for it (`session_index.jsonl`)."""

    async def close(self) -> None:
        """Release the index."""
