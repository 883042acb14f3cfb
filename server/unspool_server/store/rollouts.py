"""The rules of a log store that hold on every medium: the `LogStore` of the contract (DESIGN §4, §7).

Media differ in their `Shelf` only: see `local.py` and `memory.py`.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any

from unspool_protocol.log import HistoryMode, NewRecord, Position, Record, RecordType

from ..errors import DependentThreads, LogCorrupt, LogExists, LogMissing, StoreClosed, WriteFailed, WriterHeld
from ..telemetry import metrics
from ..telemetry.instruments import Sample
from .blocks import LINE_BYTES, Bytes, lines_backward
from .chain import ChainReader
from .contract import Log, NewRollout, ReadReport, ReadStats, RolloutInfo
from .findings import FoundList, OnRecord
from .index import RolloutIndex
from .lines import line_digest
from .log_start import LogStart, find_log_start
from .names import Entry, is_id
from .shelf import Lease, Shelf
from .tail import RolloutTail
from .undisturbed import undisturbed
from .verify import LogVerifier
from .writer import LogHooks, RolloutLog

_THIS_PROCESS = "this process"


def utc_now() -> datetime:
    """The time now, aware."""
    return datetime.now(UTC)


class RolloutStore:
    """See `contract.LogStore`.

    Args:
        clock: The time now, aware; file names use its local form.
        durable: Barriers also sync, so that "written" survives power loss (02 §1, level 2).
    """

    def __init__(self, shelf: Shelf, *, clock: Callable[[], datetime] = utc_now, durable: bool = False) -> None:
        self._shelf = shelf
        self._clock = clock
        self._durable = durable
        self._stats = ReadStats()
        self._index = RolloutIndex(shelf, self._stats)
        self._logs: dict[str, RolloutLog] = {}
        self._chain = ChainReader(shelf, self._index, self._stats, self._live)
        self._hooks = LogHooks(self._on_created, self._on_closed, clock)

    @property
    def stats(self) -> ReadStats:
        """Counters since the store was opened."""
        return self._stats

    def figures(self) -> Iterable[Sample]:
        """What the writers hold, and the totals of the store."""
        logs = list(self._logs.values())
        loads = [log.load for log in logs]
        yield Sample(metrics.OPEN_LOGS, len(logs))
        yield Sample(metrics.PENDING_RECORDS, sum(load.pending_records for load in loads))
        yield Sample(metrics.PENDING_BYTES, sum(load.pending_bytes for load in loads))
        yield Sample(metrics.QUEUED_COMMANDS, sum(load.queue_length for load in loads))
        yield Sample(metrics.REFUSED_LOGS, sum(log.last_error is not None for log in logs))
        yield Sample(metrics.WRITTEN_BYTES, self._stats.bytes_written)
        yield Sample(metrics.READ_BYTES, self._stats.bytes_read)
        yield Sample(metrics.FSYNCS, self._stats.syncs)

    @property
    def clock(self) -> Callable[[], datetime]:
        """The time now."""
        return self._clock

    @property
    def shelf(self) -> Shelf:
        """The medium, for a catalogue of the same store."""
        return self._shelf

    @property
    def index(self) -> RolloutIndex:
        """The rollouts by name, for a catalogue of the same store."""
        return self._index

    def _live(self, rollout_id: str) -> RolloutLog | None:
        return next((log for log in self._logs.values() if log.info.rollout_id == rollout_id), None)

    def _on_created(self, log: RolloutLog) -> None:
        self._index.put(log.entry, log.info)

    def _on_closed(self, log: RolloutLog) -> None:
        if self._logs.get(log.info.thread_id) is log:
            del self._logs[log.info.thread_id]
        if not log.deferred and self._index.known(log.info.rollout_id) not in (None, log.entry):
            # Appending has unpacked a compressed rollout.
            self._index.put(log.entry, log.info)

    async def create(self, header: NewRollout) -> Log:
        """Reserve a new thread; see the contract."""
        return await undisturbed(self._create(header), unwanted=_let_go)

    async def _create(self, header: NewRollout) -> Log:
        lease = await self._new_lease(header.thread_id, header.rollout_id)
        log = self._build(header, None, None)
        log.accept_first([_header_record(header, None, None, None)])
        self._install(log, lease)
        return log

    async def branch(
        self, header: NewRollout, base: Position | None, tail: Sequence[NewRecord] = (), *, replaces: Log | None = None
    ) -> Log:
        """Create and write a rollout whose history begins before `base`; see the contract."""
        if base is not None and header.mode is HistoryMode.LEGACY:
            raise ValueError("a legacy rollout cannot point at a base")
        # Not to be cut short: a segment that appeared while its predecessor goes on writing would hide what follows.
        return await undisturbed(self._branch(header, base, tail, replaces), unwanted=_let_go)

    async def _branch(
        self, header: NewRollout, base: Position | None, tail: Sequence[NewRecord], replaces: Log | None
    ) -> Log:
        if replaces is None:
            lease = await self._new_lease(header.thread_id, header.rollout_id)
            try:
                log = await self._write_branch(header, base, tail, None)
            except BaseException:
                await self._shelf.run(lease.release)
                raise
            self._install(log, lease)
            return log
        if not isinstance(replaces, RolloutLog) or self._logs.get(header.thread_id) is not replaces:
            raise StoreClosed("the log to be replaced is not this thread's writer")

        async def succeed(lease: Lease) -> RolloutLog:
            log = await self._write_branch(header, base, tail, replaces.entry)
            await self._shelf.run(lease.renew)
            self._install(log, lease)
            return log

        return await replaces.hand_over(succeed)

    async def _write_branch(
        self, header: NewRollout, base: Position | None, tail: Sequence[NewRecord], after: Entry | None
    ) -> RolloutLog:
        held: Position | None = None
        offset: int | None = None
        if base is not None:
            source = self._live(base.rollout_id)
            if source is not None and (after is None or source.entry != after):
                with suppress(StoreClosed):  # a writer that is closing has written everything
                    await source.flush()
            located = await self._chain.locate(base)
            if located is not None:
                held, offset = located
        log = self._build(header, held, after)
        try:
            log.accept_first([_header_record(header, held, offset, base), *tail])
            await log.persist()
        except BaseException:
            await log.discard()
            raise
        return log

    def _build(self, header: NewRollout, base: Position | None, after: Entry | None) -> RolloutLog:
        entry = Entry.new(header.thread_id, header.rollout_id, self._clock(), after=after)
        path = self._shelf.path(entry)
        info = RolloutInfo(
            header.thread_id, header.rollout_id, header.mode, None, base, path=str(path) if path else None
        )
        end = RolloutTail(self._shelf, entry, 0, exists=False)
        start = LogStart(base.ordinal if base else 0)
        return RolloutLog(self._shelf, info, end, start, hooks=self._hooks, stats=self._stats, durable=self._durable)

    def _install(self, log: RolloutLog, lease: Lease) -> None:
        log.take_lease(lease)
        self._logs[log.info.thread_id] = log

    async def _new_lease(self, thread_id: str, rollout_id: str) -> Lease:
        if not is_id(thread_id) or not is_id(rollout_id):
            raise ValueError("unusable thread or rollout id")
        if thread_id in self._logs or await self._index.of_thread(thread_id):
            raise LogExists(thread_id)
        try:
            return await self._lease(thread_id)
        except WriterHeld as error:
            raise LogExists(thread_id) from error

    async def _lease(self, thread_id: str) -> Lease:
        if thread_id in self._logs:
            raise WriterHeld(thread_id, _THIS_PROCESS)
        try:
            return await self._shelf.run(lambda: self._shelf.lease(thread_id))
        except OSError as error:
            raise WriteFailed(f"no writer lock: {error.strerror or error}") from error

    async def open(self, thread_id: str) -> Log:
        """Take the writer lock and open the present rollout; see the contract."""
        if not is_id(thread_id):
            raise LogMissing(thread_id)
        return await undisturbed(self._open(thread_id), unwanted=_let_go)

    async def _open(self, thread_id: str) -> Log:
        if thread_id not in self._logs and not await self._index.of_thread(thread_id):
            raise LogMissing(thread_id)
        # Locked before anything is read, or two processes could both load and then append (02 §7).
        lease = await self._lease(thread_id)
        try:
            await self._index.refresh(force=True)
            entry, info = await self._index.present(thread_id)
            if entry.archived:
                raise LogMissing(thread_id, archived=True)
            blob = await self._index.open_blob(entry)
            try:
                data = Bytes(self._shelf, blob, blob.size(), self._stats)
                start = await find_log_start(data, info)
            finally:
                await self._shelf.run(blob.close)
        except BaseException:
            await self._shelf.run(lease.release)
            raise
        end = RolloutTail(self._shelf, entry, data.limit, exists=True)
        log = RolloutLog(
            self._shelf, info, end, start, hooks=self._hooks, stats=self._stats, durable=self._durable, goes_on=True
        )
        self._install(log, lease)
        return log

    async def find(self, thread_id: str) -> RolloutInfo:
        """The present rollout of a thread, archived ones included."""
        log = self._logs.get(thread_id)
        return log.info if log is not None else (await self._index.present(thread_id))[1]

    async def rollout(self, rollout_id: str) -> RolloutInfo:
        """One rollout by its own id."""
        log = self._live(rollout_id)
        if log is not None:
            return log.info
        entry = await self._index.entry(rollout_id)
        if entry is None:
            raise LogMissing(rollout_id)
        return await self._index.info(entry)

    async def rollouts(self, thread_id: str | None = None) -> list[RolloutInfo]:
        """All rollouts (of one thread), oldest first; those not yet written and unreadable ones are left out."""
        if thread_id is None:
            entries = list((await self._index.refresh()).values())
        else:
            entries = await self._index.of_thread(thread_id)
        found: list[RolloutInfo] = []
        for entry in sorted(entries, key=lambda entry: entry.key):
            try:
                found.append(await self._index.info(entry))
            except LogCorrupt:
                continue
        return found

    async def unreadable(self) -> Mapping[str, str]:
        """Logs that cannot be opened at all: rollout id -> what is missing."""
        broken: dict[str, str] = {}
        for entry in list((await self._index.refresh()).values()):
            try:
                await self._index.info(entry)
            except LogCorrupt as error:
                broken[entry.rollout_id] = str(error)
        return broken

    async def read(
        self, rollout_id: str, *, start: int = 0, end: int | None = None, report: ReadReport | None = None
    ) -> AsyncGenerator[Record, None]:
        """Records with start <= ordinal < end, oldest first, through the base chain."""
        async with aclosing(self._chain.read(rollout_id, start, end, report or ReadReport())) as records:
            async for record in records:
                yield record

    async def read_backward(
        self, rollout_id: str, *, end: int | None = None, report: ReadReport | None = None
    ) -> AsyncGenerator[Record, None]:
        """The same newest first, in blocks."""
        async with aclosing(self._chain.read_backward(rollout_id, end, report or ReadReport())) as records:
            async for record in records:
                yield record

    async def verify(self, thread_id: str, found: FoundList, on_record: OnRecord) -> None:
        """Check every rollout of a thread and what it inherits; see the contract."""
        await LogVerifier(self, found, on_record).thread(thread_id)

    async def mentions(self, rollout_id: str, text: bytes) -> bool:
        """Whether a line of the chain holds these bytes."""
        return await self._chain.mentions(rollout_id, text)

    async def archive(self, thread_id: str) -> None:
        """Move all rollouts of an unloaded thread to the archive."""
        await undisturbed(self._move(thread_id, archived=True))

    async def unarchive(self, thread_id: str) -> RolloutInfo:
        """Move them back."""
        await undisturbed(self._move(thread_id, archived=False))
        return await self.find(thread_id)

    async def _move(self, thread_id: str, *, archived: bool) -> None:
        entries = await self._unloaded(thread_id)
        if all(entry.archived is archived for entry in entries):
            raise LogMissing(thread_id, archived=archived)
        lease = await self._lease(thread_id)
        try:
            # Should this be cut short, the newest rollout must not be the archived one while an older one is live.
            for entry in entries if archived else reversed(entries):
                if entry.archived is not archived:
                    self._index.put(await self._change(entry, archived=archived))
        finally:
            await self._shelf.run(lease.release)

    async def _change(self, entry: Entry, *, archived: bool) -> Entry:
        try:
            return await self._shelf.run(lambda: self._shelf.move(entry, archived=archived))
        except OSError as error:
            raise WriteFailed(error.strerror or str(error)) from error

    async def _unloaded(self, thread_id: str) -> list[Entry]:
        if thread_id in self._logs:
            raise WriterHeld(thread_id, _THIS_PROCESS)
        entries = await self._index.of_thread(thread_id)
        if not entries:
            raise LogMissing(thread_id)
        return entries

    async def delete(self, thread_id: str, *, before: Sequence[str] = (), released: Collection[str] = ()) -> None:
        """Remove all rollouts of an unloaded thread; see the contract."""
        await undisturbed(self._delete([*before, thread_id], frozenset(released)))

    async def _delete(self, thread_ids: Sequence[str], released: frozenset[str]) -> None:
        entries = [await self._unloaded(one) for one in thread_ids]
        leases: list[Lease] = []
        try:
            for one in thread_ids:
                leases.append(await self._lease(one))
            for one in thread_ids:
                dependents = set(await self.dependents(one)) - released - set(thread_ids)
                if dependents:
                    raise DependentThreads(one, sorted(dependents))
            for own in entries:
                await self._remove(own)
        finally:
            for lease in leases:
                await self._shelf.run(lease.release)

    async def _remove(self, entries: Sequence[Entry]) -> None:
        """Newest first, so that a thread whose removal is cut short still opens."""
        for entry in reversed(entries):
            try:
                await self._shelf.run(lambda entry=entry: self._shelf.remove(entry))  # type: ignore[misc]
            except OSError as error:
                raise WriteFailed(error.strerror or str(error)) from error
            self._index.drop([entry])

    async def dependents(self, thread_id: str) -> list[str]:
        """Ids of other threads whose history begins in a rollout of this one."""
        own = {entry.rollout_id for entry in await self._index.of_thread(thread_id)}
        others = {
            info.thread_id
            for info in await self.rollouts()
            if info.base is not None and info.base.rollout_id in own and info.thread_id != thread_id
        }
        return sorted(others)

    async def fingerprint(self, rollout_id: str) -> tuple[int, str]:
        """Size and check value of the newest written line; `(0, "")` while nothing is written."""
        log = self._live(rollout_id)
        if log is not None and log.deferred:
            return 0, ""
        entry = log.entry if log is not None else await self._index.entry(rollout_id)
        if entry is None:
            raise LogMissing(rollout_id)
        blob = await self._index.open_blob(entry)
        try:
            limit = log.snapshot()[0] if log is not None else blob.size()
            async with aclosing(
                lines_backward(Bytes(self._shelf, blob, limit, self._stats), block_bytes=LINE_BYTES)
            ) as lines:
                async for line in lines:
                    if line.content.strip():
                        return limit, line_digest(line.content)
            return limit, ""
        finally:
            await self._shelf.run(blob.close)

    async def read_side(self, rollout_id: str, name: str) -> bytes | None:
        """A small cache file beside a rollout."""
        entry = await self._index.entry(rollout_id)
        return None if entry is None else await self._shelf.run(lambda: self._shelf.read_side(entry, name))

    async def write_side(self, rollout_id: str, name: str, content: bytes) -> None:
        """Replace such a cache file; failures are swallowed."""
        entry = await self._index.entry(rollout_id)
        if entry is None:
            return
        try:
            await self._shelf.run(lambda: self._shelf.write_side(entry, name, content))
        except OSError:
            return

    async def close(self) -> None:
        """Close every open log; one whose disk refuses is let go without its pending records."""
        for log in list(self._logs.values()):
            try:
                await log.close()
            except (WriteFailed, StoreClosed):
                await log.discard()


async def _let_go(log: Log) -> None:
    """The caller of `create`, `branch` or `open` was cancelled: what it asked for stands, but nobody holds it."""
    await log.discard()


def _header_record(header: NewRollout, base: Position | None, offset: int | None, wanted: Position | None) -> NewRecord:
    """The `session_meta` record: the payload given, with mode and base as the reference writes them (01 §3.1)."""
    payload: dict[str, Any] = {}
    for key, value in header.payload.items():
        payload[key] = value
        if key == "forked_from_id" and wanted is not None and value is not None:
            payload["forked_from_ordinal_exclusive"] = wanted.ordinal
    payload["history_mode"] = header.mode.value
    if base is not None:
        payload["history_base"] = {
            "thread_id": base.rollout_id,
            "end_ordinal_exclusive": base.ordinal,
            "end_byte_offset": offset,
        }
    return NewRecord(RecordType.SESSION_META, payload, extra=header.extra)
