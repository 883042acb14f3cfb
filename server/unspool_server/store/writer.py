"""One thread's log, open for appending: the `Log` of the contract (02 §2-§4).

One task per log owns the rollout's end and handles commands strictly in queue order. Records get ordinals and bytes
when they are accepted; they leave the pending list only as a written prefix. A failed write therefore reuses the
ordinals, since the very same lines are written again.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar

from unspool_protocol.log import HistoryMode, NewRecord, Record

from ..errors import LogConflict, StoreClosed, WriteFailed
from ..telemetry import metrics
from ..telemetry.logs import event
from .contract import ReadStats, RolloutInfo, WriterLoad
from .lines import EncodedRecord, chain_link, encode_record, line_ordinal, parse_line, record_of, seal_line
from .log_start import LogStart
from .names import Entry
from .shelf import Lease, Shelf
from .tail import ForeignChange, RolloutTail, whole_lines
from .undisturbed import undisturbed

QUEUE_COMMANDS = 256
"""Commands that may wait for the disk; a full queue makes the caller wait, nothing is dropped (02 §2)."""

logger = logging.getLogger(__name__)
T = TypeVar("T")


class _Op(Enum):
    ADD_ITEMS = "add items"
    PERSIST = "persist"
    FLUSH = "flush"
    SYNC = "sync"
    APPEND = "append"
    SHUTDOWN = "shutdown"
    DISCARD = "discard"


_LAZY = frozenset({_Op.FLUSH, _Op.SYNC, _Op.SHUTDOWN})


@dataclass(frozen=True, slots=True)
class _Command:
    op: _Op
    done: asyncio.Future[None] | None = None
    unit: tuple[Record, ...] = ()


@dataclass(frozen=True, slots=True)
class LogHooks:
    """What the store wants to know of its logs."""

    on_created: Callable[["RolloutLog"], None]
    on_closed: Callable[["RolloutLog"], None]
    clock: Callable[[], datetime]


class RolloutLog:
    """See `contract.Log`. Built by the store; writes under the lease that `take_lease` gave it."""

    def __init__(
        self,
        shelf: Shelf,
        info: RolloutInfo,
        tail: RolloutTail,
        start: LogStart,
        *,
        hooks: LogHooks,
        stats: ReadStats,
        durable: bool = False,
        goes_on: bool = False,
    ) -> None:
        self._shelf = shelf
        self._info = info
        self._lease: Lease | None = None
        self._epoch = 0
        self._tail = tail
        self._hooks = hooks
        self._stats = stats
        self._durable = durable
        self._says_opened = goes_on
        self._next = start.next_ordinal
        self._link = start.link
        self._pending: list[Record] = []
        self._gate = asyncio.Lock()
        self._queue: asyncio.Queue[_Command] = asyncio.Queue(QUEUE_COMMANDS)
        self._last_error: str | None = None
        self._logged_error: str | None = None
        self._closed: str | None = None
        self._task = asyncio.create_task(self._run(), name=f"log-writer:{info.thread_id}")

    @property
    def info(self) -> RolloutInfo:
        """The rollout; `header` is set once it was persisted."""
        return self._info

    @property
    def entry(self) -> Entry:
        """Name and place of the rollout."""
        return self._tail.entry

    @property
    def epoch(self) -> int:
        """Rises with every writer of the thread."""
        return self._epoch

    @property
    def next_ordinal(self) -> int:
        """The ordinal that the next accepted record gets."""
        return self._next

    @property
    def last_error(self) -> str | None:
        """Why the newest barrier failed."""
        return self._last_error

    @property
    def deferred(self) -> bool:
        """True until the rollout exists on its medium."""
        return not self._tail.exists

    @property
    def closed(self) -> bool:
        """True after `close`, `discard` or fencing."""
        return self._closed is not None

    @property
    def load(self) -> WriterLoad:
        """What is accepted and not written yet, and the commands that wait for the writer."""
        size = sum(len(record.raw) + 1 for record in self._pending)
        return WriterLoad(len(self._pending), size, self._queue.qsize())

    def snapshot(self) -> tuple[int, tuple[Record, ...]]:
        """For readers: how many bytes of the rollout are good, and the accepted records that are not among them."""
        return (self._tail.good if self._tail.exists else 0), tuple(self._pending)

    def accept_first(self, records: Sequence[NewRecord]) -> list[Record]:
        """Accept records of a log that nobody else knows yet: the header and what belongs to it."""
        return self._accept([(record, encode_record(record)) for record in records])

    async def add(self, records: Sequence[NewRecord]) -> list[Record]:
        """Accept records in order; see the contract."""
        encoded = [(record, encode_record(record)) for record in records]
        async with self._gate:
            self._check_open()
            if not encoded:
                return []
            await self._queue.put(_Command(_Op.ADD_ITEMS))
            self._check_open()
            accepted = self._accept(self._opening(encoded))
            self._says_opened = False
            return accepted

    async def append(self, records: Sequence[NewRecord], *, expected_ordinal: int | None = None) -> list[Record]:
        """Write records as one unit, or nothing; see the contract.

        Being cancelled does not take the unit back: it is decided by the writer.
        """
        encoded = [(record, encode_record(record)) for record in records]
        return await undisturbed(self._append(encoded, expected_ordinal))

    async def _append(self, encoded: list[tuple[NewRecord, EncodedRecord]], expected: int | None) -> list[Record]:
        async with self._gate:
            self._check_open()
            if expected is not None and expected != self._next:
                raise LogConflict(expected, self._next)
            unit, _ = self._seal(self._opening(encoded))
            await self._command(_Op.APPEND, tuple(unit))
            self._says_opened = self._says_opened and not unit
            return unit

    async def persist(self) -> None:
        """Create the rollout if it is deferred and write everything pending."""
        await self._barrier_command(_Op.PERSIST)

    async def flush(self) -> None:
        """Write everything pending; a deferred rollout without pending records stays deferred."""
        await self._barrier_command(_Op.FLUSH)

    async def sync(self) -> None:
        """Flush, then make it survive power loss."""
        await self._barrier_command(_Op.SYNC)

    async def close(self) -> None:
        """Flush and release the writer lock. On WriteFailed the handle stays open."""
        if self._closed is None:
            await undisturbed(self._close())

    async def _close(self) -> None:
        async with self._gate:
            if self._closed is None:
                await self._command(_Op.SHUTDOWN)
                await self._end("the log was closed")

    async def discard(self) -> None:
        """Release the writer without draining it; pending records are lost on purpose."""
        if self._closed is None:
            await undisturbed(self._discard())

    async def _discard(self) -> None:
        async with self._gate:
            if self._closed is None:
                await self._end("the log was discarded")

    async def hand_over(self, build: Callable[[Lease], Coroutine[Any, Any, T]]) -> T:
        """Let a successor take the lease while nothing can be accepted here; fence this log when it did.

        If `build` raises, this log stays as it was.
        """
        async with self._gate:
            self._check_open()
            await self._command(_Op.FLUSH)
            assert self._lease is not None
            result = await build(self._lease)
            self._lease = None
            await self._end("the log was replaced by a newer writer")
            return result

    async def _end(self, reason: str) -> None:
        self._closed = reason
        if not self._task.done():
            await self._queue.put(_Command(_Op.DISCARD))
        await asyncio.wait([self._task])
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            logger.error("log writer of thread %s ended: %r", self._info.thread_id, error)
        await self._shelf.run(self._tail.close)
        lease, self._lease = self._lease, None
        if lease is not None:
            await self._shelf.run(lease.release)
        self._hooks.on_closed(self)

    def take_lease(self, lease: Lease) -> None:
        """Become the thread's writer under the epoch that the lease has now."""
        self._lease, self._epoch = lease, lease.epoch

    def _check_open(self) -> None:
        if self._closed is not None:
            raise StoreClosed(self._closed)
        if self._task.done():
            raise StoreClosed("the writer ended unexpectedly")

    def _seal(self, encoded: Sequence[tuple[NewRecord, EncodedRecord]]) -> tuple[list[Record], bytes]:
        """Give the records time, ordinals and check values as they will stand, without accepting them."""
        moment = self._hooks.clock().astimezone(UTC)
        timestamp = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
        legacy = self._info.mode is HistoryMode.LEGACY
        link, records = self._link, []
        ordinal = self._next
        for record, parts in encoded:
            time = record.timestamp or timestamp
            raw = seal_line(parts, timestamp=time, ordinal=None if legacy else ordinal, previous=link)
            link = chain_link(raw)
            records.append(_as_read(record, raw, self._info.rollout_id, ordinal, own=not legacy))
            ordinal = records[-1].ordinal + 1
        return records, link

    def _opening(self, encoded: list[tuple[NewRecord, EncodedRecord]]) -> list[tuple[NewRecord, EncodedRecord]]:
        """Let the first record of a writer that goes on with a log say so; copied lines stay as they are."""
        if not self._says_opened or not encoded or encoded[0][0].raw is not None:
            return encoded
        first = opened(encoded[0][0])
        return [(first, encode_record(first)), *encoded[1:]]

    def _accept(self, encoded: Sequence[tuple[NewRecord, EncodedRecord]]) -> list[Record]:
        records, self._link = self._seal(encoded)
        self._pending.extend(records)
        self._next = records[-1].ordinal + 1 if records else self._next
        return records

    async def _barrier_command(self, op: _Op) -> None:
        self._check_open()
        await self._command(op)

    async def _command(self, op: _Op, unit: tuple[Record, ...] = ()) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self._queue.put(_Command(op, done, unit))
        await asyncio.wait([done, self._task], return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise StoreClosed(self._closed or "the writer ended unexpectedly")
        done.result()

    async def _run(self) -> None:
        try:
            await self._handle_all()
        finally:
            # Whoever still waits for room in the queue goes on, and is told that the writer has ended.
            while not self._queue.empty():
                self._queue.get_nowait()

    async def _handle_all(self) -> None:
        while True:
            command = await self._queue.get()
            if command.op is _Op.DISCARD:
                return
            try:
                await self._handle(command)
            except WriteFailed as error:
                if command.done is not None and not command.done.done():
                    command.done.set_exception(error)
                    # The caller may be gone; the error is kept in `last_error` all the same.
                    command.done.exception()
            else:
                if command.done is not None and not command.done.done():
                    command.done.set_result(None)

    async def _handle(self, command: _Command) -> None:
        op = command.op
        if self.deferred and (op is _Op.ADD_ITEMS or (op in _LAZY and len(self._pending) <= 1)):
            # Creation waits for a barrier that has something besides the header to write (02 §2).
            return
        await self._barrier(sync=op is _Op.SYNC or (self._durable and op is not _Op.ADD_ITEMS and not command.unit))
        if command.unit:
            await self._write_unit(command.unit)

    async def _barrier(self, *, sync: bool) -> None:
        """Write everything pending, with a second attempt on a fresh handle (02 §3)."""
        await self._attempt_twice(lambda: self._write_pending(sync=sync))

    async def _write_unit(self, unit: tuple[Record, ...]) -> None:
        content = b"".join(record.raw + b"\n" for record in unit)

        before = self._tail.good

        async def write() -> None:
            if self._tail.good == before:
                await self._shelf.run(lambda: self._tail.extend(content))
            if self._durable:
                await self._sync_tail()

        try:
            await self._attempt_twice(write)
        except WriteFailed:
            await self._shelf.run(lambda: self._tail.withdraw(content, before))
            raise
        self._stats.bytes_written += len(content)
        self._next = unit[-1].ordinal + 1
        self._link = chain_link(unit[-1].raw)

    async def _attempt_twice(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        error: OSError | None = None
        for _ in range(2):
            try:
                await write()
            except OSError as caught:
                error = caught
                await self._shelf.run(self._tail.close)
            else:
                self._last_error = self._logged_error = None
                return
        metrics.WRITE_FAILURES.add()
        self._last_error = error.strerror or str(error) if error else "unknown"
        if self._last_error != self._logged_error:
            self._logged_error = self._last_error
            event(
                logger,
                "the disk refused a write",
                level=logging.WARNING,
                thread=self._info.thread_id,
                reason=self._last_error,
                pending_records=len(self._pending),
            )
        raise WriteFailed(self._last_error, retryable=not isinstance(error, ForeignChange)) from error

    async def _write_pending(self, *, sync: bool) -> None:
        """One write-once: leave the unwritten suffix pending whatever happens. Raises OSError."""
        lines = [record.raw + b"\n" for record in self._pending]
        content = b"".join(lines)
        if self.deferred:
            await self._shelf.run(lambda: self._tail.publish(content, sync=self._durable))
            self._wrote(len(lines), len(content))
            self._hooks.on_created(self)
        elif lines:
            try:
                await self._shelf.run(lambda: self._tail.extend(content))
            except OSError:
                number, size = whole_lines(lines, self._tail.partial)
                self._tail.settle(size)
                self._wrote(number, size)
                raise
            self._wrote(len(lines), len(content))
        if sync:
            await self._sync_tail()

    async def _sync_tail(self) -> None:
        await self._shelf.run(self._tail.sync)
        self._stats.syncs += 1

    def _wrote(self, count: int, size: int) -> None:
        if self._info.header is None and count:
            self._info = replace(self._info, header=self._pending[0])
        del self._pending[:count]
        self._stats.bytes_written += size


def opened(record: NewRecord) -> NewRecord:
    """The same record, saying that a writer begins with it (`contract.LogStore.open`)."""
    extra = record.extra or {}
    ours = extra.get("unspool")
    known = ours if isinstance(ours, Mapping) else {}
    return replace(record, extra={**extra, "unspool": {**known, "opened": True}})


def _as_read(new: NewRecord, raw: bytes, rollout_id: str, ordinal: int, *, own: bool) -> Record:
    """The record as any later reader will see it, so that memory and log cannot differ.

    Args:
        own: The log's lines tell their ordinals, so a copied line keeps the one that it brings along.
    """
    objects = parse_line(raw).objects
    if len(objects) == 1:
        told = line_ordinal(objects[0][0]) if own else None
        return record_of(objects[0][0], raw, rollout_id, ordinal if told is None else told)
    return Record(rollout_id, ordinal, new.type, new.payload, metadata=new.metadata, raw=raw)
