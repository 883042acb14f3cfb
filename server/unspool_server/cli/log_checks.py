"""Checking and repairing logs by path or id: finds the home and the thread that a file belongs to."""

from contextlib import aclosing
from pathlib import Path

from unspool_protocol.finding_words import finding
from unspool_protocol.findings import Finding, RepairResult, Severity, ThreadVerifyResult

from unspool_server.errors import LogCorrupt, LogMissing
from unspool_server.history.verify import RecordChecks
from unspool_server.sessions.clock import new_id
from unspool_server.sessions.views.verifying import verify_result, verify_thread
from unspool_server.store import LocalStore
from unspool_server.store.blocks import Bytes
from unspool_server.store.contract import ReadStats, RolloutInfo
from unspool_server.store.files import FileBlob, LocalShelf, decompressed
from unspool_server.store.findings import FoundList
from unspool_server.store.index import find_header, header_info
from unspool_server.store.memory_blob import MemoryBlob
from unspool_server.store.names import Entry
from unspool_server.store.reader import Source, records_backward
from unspool_server.store.repair import NewFile, Repair, RepairReport, new_entry, read_header, repair_mark
from unspool_server.store.rollouts import utc_now
from unspool_server.store.shelf import Blob
from unspool_server.store.verify import verify_file


async def verify_all(home: Path) -> tuple[list[ThreadVerifyResult], list[Finding]]:
    """Every thread of a home, and files beside the logs that are no logs by their names."""
    store = LocalStore(home)
    try:
        threads = dict.fromkeys(entry.thread_id for entry in (await store.index.refresh()).values())
        return [await verify_thread(store, thread_id) for thread_id in threads], _strays(home)
    finally:
        await store.close()


def _strays(home: Path) -> list[Finding]:
    folders = (home / "sessions", home / "archived_sessions")
    paths = [path for folder in folders for path in sorted(folder.rglob("*.jsonl*")) if not path.name.startswith(".")]
    return [
        finding("strayFile", path.name, detail=str(path.parent.relative_to(home)))
        for path in paths
        if Entry.parse(path.name) is None
    ]


async def verify_target(target: str, home: Path) -> ThreadVerifyResult:
    """One thread by id or by a file of it; a file outside any home for itself. Raises LogMissing, OSError."""
    path = Path(target)
    if not _is_path(target):
        return await _verify_id(target, home)
    entry = Entry.parse(path.name)
    own_home = home_of(path)
    if entry is not None and own_home is not None:
        return await _verify_id(entry.thread_id, own_home)
    entry = entry or foreign_entry(path)
    blob = _open(path)
    try:
        data = _bytes(path, blob)
        found = FoundList()
        checks = RecordChecks(found.add)
        await verify_file(data, entry, await _info(data, entry), found, checks.feed)
        checks.finish()
    finally:
        blob.close()
    return verify_result(None, found)


def _is_path(target: str) -> bool:
    return "/" in target or target.endswith((".jsonl", ".zst")) or Path(target).exists()


async def _verify_id(thread_id: str, home: Path) -> ThreadVerifyResult:
    store = LocalStore(home)
    try:
        return await verify_thread(store, thread_id)
    finally:
        await store.close()


def home_of(path: Path) -> Path | None:
    """The home whose log a file is by its place, None for a file elsewhere."""
    parents = path.absolute().parents
    if len(parents) > 1 and parents[0].name == "archived_sessions":
        return parents[1]
    if len(parents) > 4 and parents[3].name == "sessions":
        return parents[4]
    return None


def foreign_entry(path: Path) -> Entry:
    """A file whose name tells nothing."""
    return Entry("1970-01-01T00-00-00", path.stem, path.stem)


def _open(path: Path) -> Blob:
    return MemoryBlob(decompressed(path)) if path.suffix == ".zst" else FileBlob(path, writable=False)


def _bytes(path: Path, blob: Blob) -> Bytes:
    return Bytes(LocalShelf(path.parent), blob, blob.size(), ReadStats())


async def _info(data: Bytes, entry: Entry) -> RolloutInfo | None:
    header = await find_header(data, entry.rollout_id)
    if header is None:
        return None
    try:
        return header_info(_named(entry, header.payload.get("id")), header)
    except LogCorrupt:
        return None


def _named(entry: Entry, header_id: object) -> Entry:
    """A file whose name tells nothing is the log that its header names."""
    if entry.stamp.startswith("1970") and isinstance(header_id, str):
        return Entry(entry.stamp, header_id, entry.rollout_id)
    return entry


async def repair_target(target: str, home: Path, out: Path | None) -> RepairResult:
    """Write a clean copy of a log, if it needs one. Raises LogMissing, WriterHeld, OSError (FileExistsError)."""
    path = Path(target)
    if _is_path(target):
        entry, own_home = Entry.parse(path.name), home_of(path)
        if entry is None or own_home is None:
            return await _repair_file(path, entry or foreign_entry(path), out)
        return await _repair_thread(entry.thread_id, own_home, out, entry.rollout_id)
    return await _repair_thread(target, home, out, None)


async def _repair_file(path: Path, entry: Entry, out: Path | None) -> RepairResult:
    target = out or path.with_name(f"{path.name.removesuffix('.zst').removesuffix('.jsonl')}.repaired.jsonl")
    blob = _open(path)
    try:
        data = _bytes(path, blob)
        header = await find_header(data, entry.rollout_id)
        named = _named(entry, header.payload.get("id") if header else None)
        report, written = await _write(data, named, target, None)
    finally:
        blob.close()
    return _result(named.thread_id, path, target if written else None, report)


async def _repair_thread(thread_id: str, home: Path, out: Path | None, rollout_id: str | None) -> RepairResult:
    store = LocalStore(home)
    try:
        entries = await store.index.of_thread(thread_id)
        if not entries:
            raise LogMissing(thread_id)
        entry = await _to_repair(store, entries, rollout_id)
        # Nobody may append to the old file while its successor is made.
        lease = await store.shelf.run(lambda: store.shelf.lease(thread_id))
        try:
            return await _repair_rollout(store, entry, entries[-1], out)
        finally:
            lease.release()
    finally:
        await store.close()


async def _to_repair(store: LocalStore, entries: list[Entry], rollout_id: str | None) -> Entry:
    """The file that was named, else the newest: it is the present, or would be if it could be read."""
    if rollout_id is not None:
        return next(entry for entry in entries if entry.rollout_id == rollout_id)
    return entries[-1]


async def _repair_rollout(store: LocalStore, entry: Entry, newest: Entry, out: Path | None) -> RepairResult:
    path = store.shelf.path(entry)
    assert path is not None
    blob = _open(path)
    try:
        data = Bytes(store.shelf, blob, blob.size(), store.stats)
        fresh = new_entry(newest, new_id(), utc_now())
        place = store.shelf.path(fresh)
        assert place is not None
        mark = repair_mark(entry, await _end(data, entry)) if out is None else None
        report, written = await _write(data, entry, out or place, mark)
    finally:
        blob.close()
    target = (out or place) if written else None
    remaining = await _remaining(store, entry.thread_id, entry.rollout_id)
    result = _result(entry.thread_id, path, target, report, remaining)
    return result.model_copy(update={"rollout_id": fresh.rollout_id if written and out is None else None})


async def _end(data: Bytes, entry: Entry) -> int:
    """The position behind the old file's newest record."""
    header = await read_header(data, entry)
    source = Source(entry.rollout_id, data, header.legacy, header.first)
    async with aclosing(records_backward(source)) as placed:
        async for each in placed:
            return each.record.ordinal + 1
    return header.first


async def _write(data: Bytes, entry: Entry, target: Path, mark: object) -> tuple[RepairReport, bool]:
    new = NewFile(target)
    try:
        report = await Repair(data, entry, new.write, mark if isinstance(mark, dict) else None).run()
        if report.needed:
            new.keep()
        return report, report.needed
    finally:
        new.close()


async def _remaining(store: LocalStore, thread_id: str, repaired: str) -> tuple[Finding, ...]:
    """Errors in other files of the thread and in what it inherits."""
    result = await verify_thread(store, thread_id)
    return tuple(one for one in result.findings if one.severity is Severity.ERROR and one.rollout_id != repaired)


def _result(
    thread_id: str, source: Path, target: Path | None, report: RepairReport, remaining: tuple[Finding, ...] = ()
) -> RepairResult:
    return RepairResult(
        thread_id=thread_id,
        source=str(source),
        target=str(target) if target is not None else None,
        copied=report.copied,
        recovered=report.recovered,
        renumbered=report.renumbered,
        resealed=report.resealed,
        header=report.header,
        dropped_count=report.dropped_count,
        dropped=tuple(report.dropped),
        remaining=remaining,
    )
