"""Which rollouts there are, found by name, their headers read on demand and remembered (01 §3.1, 07 §7)."""

from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace

from unspool_protocol.log import HistoryMode, Position, Record, RecordType

from ..errors import LogCorrupt, LogMissing
from .blocks import Bytes, lines_forward
from .contract import ReadStats, RolloutInfo
from .lines import line_ordinal, parse_line, record_of
from .memory_blob import MemoryBlob
from .names import Entry, present_order, without_twins
from .shelf import Blob, Shelf

_HEADER_BYTES = 16 * 1024
"""Looked at first for a header; longer ones are read in blocks."""


class RolloutIndex:
    """Rollouts by id and by thread. Rollouts that other processes add are noticed by scanning again."""

    def __init__(self, shelf: Shelf, stats: ReadStats) -> None:
        self._shelf = shelf
        self._stats = stats
        self._entries: dict[str, Entry] | None = None
        self._threads: dict[str, list[Entry]] = {}
        self._infos: dict[Entry, RolloutInfo] = {}
        self._broken: dict[Entry, tuple[tuple[int, int], LogCorrupt]] = {}

    async def refresh(self, *, force: bool = False) -> dict[str, Entry]:
        """Scan names when rollouts may have come or gone; entries by rollout id, oldest first."""
        entries = self._entries
        if entries is None or force or await self._shelf.run(self._shelf.changed):
            entries = without_twins(await self._shelf.run(self._shelf.scan))
            self._entries = entries
            self._threads = {}
            for entry in entries.values():
                self._threads.setdefault(entry.thread_id, []).append(entry)
            known = set(entries.values())
            self._infos = {entry: info for entry, info in self._infos.items() if entry in known}
        return entries

    async def entry(self, rollout_id: str) -> Entry | None:
        """The place of one rollout; scans again before saying that there is none."""
        if self._entries is not None and rollout_id in self._entries:
            return self._entries[rollout_id]
        return (await self.refresh(force=True)).get(rollout_id)

    def known(self, rollout_id: str) -> Entry | None:
        """The place of a rollout as last seen, without looking again."""
        return (self._entries or {}).get(rollout_id)

    async def open_blob(self, entry: Entry) -> Blob:
        """Open a rollout for reading, also when another process has just moved it. Raises LogCorrupt."""
        try:
            try:
                return await self._shelf.run(lambda: self._shelf.open(entry))
            except FileNotFoundError:
                moved = (await self.refresh(force=True)).get(entry.rollout_id)
                if moved is None or moved == entry:
                    raise
                return await self._shelf.run(lambda: self._shelf.open(moved))
        except OSError as error:
            raise LogCorrupt("the log is gone or unreadable", rollout_id=entry.rollout_id) from error

    async def of_thread(self, thread_id: str) -> list[Entry]:
        """The rollouts of one thread, oldest first."""
        await self.refresh()
        if thread_id not in self._threads:
            await self.refresh(force=True)
        return list(self._threads.get(thread_id, ()))

    async def info(self, entry: Entry) -> RolloutInfo:
        """What name and header say. Raises LogCorrupt."""
        known = self._infos.get(entry)
        if known is not None:
            return known
        try:
            stamp, head = await self._shelf.run(lambda: self._peek(entry))
        except OSError as error:
            raise LogCorrupt("the log is gone or unreadable", rollout_id=entry.rollout_id) from error
        broken = self._broken.get(entry)
        if broken is not None and broken[0] == stamp:
            raise broken[1]
        try:
            info = await self._read_info(entry, stamp[0], head)
        except LogCorrupt as error:
            self._broken[entry] = (stamp, error)
            raise
        except OSError as error:
            raise LogCorrupt(f"unreadable: {error.strerror or error}", rollout_id=entry.rollout_id) from error
        self._infos[entry] = info
        return info

    async def present(self, thread_id: str) -> tuple[Entry, RolloutInfo]:
        """The newest usable rollout of a thread. Raises LogMissing, LogCorrupt."""
        entries = present_order(await self.of_thread(thread_id))
        if not entries:
            raise LogMissing(thread_id)
        first: LogCorrupt | None = None
        for entry in entries:
            try:
                return entry, await self.info(entry)
            except LogCorrupt as error:
                first = first or error
        assert first is not None
        raise first

    def put(self, entry: Entry, info: RolloutInfo | None = None) -> None:
        """Enter a rollout that this process has just written or moved."""
        entries = self._entries if self._entries is not None else {}
        self._forget(entry.rollout_id, entries)
        entries[entry.rollout_id] = entry
        siblings = self._threads.setdefault(entry.thread_id, [])
        siblings.append(entry)
        siblings.sort(key=lambda sibling: sibling.key)
        if info is not None:
            self._infos[entry] = info

    def drop(self, entries: Iterable[Entry]) -> None:
        """Strike out rollouts that this process has removed."""
        for entry in entries:
            self._forget(entry.rollout_id, self._entries or {})

    def _forget(self, rollout_id: str, entries: dict[str, Entry]) -> None:
        old = entries.pop(rollout_id, None)
        if old is None:
            return
        self._infos.pop(old, None)
        siblings = self._threads.get(old.thread_id, [])
        if old in siblings:
            siblings.remove(old)
        if not siblings:
            self._threads.pop(old.thread_id, None)

    def _peek(self, entry: Entry) -> tuple[tuple[int, int], bytes]:
        """Size, time of change and the first bytes of a log, which nearly always hold its whole header."""
        stamp = self._shelf.stat(entry)
        if entry.compressed:
            return stamp, b""
        blob = self._shelf.open(entry)
        try:
            return stamp, blob.read(0, _HEADER_BYTES)
        finally:
            blob.close()

    async def _read_info(self, entry: Entry, size: int, head: bytes) -> RolloutInfo:
        if size == 0:
            raise LogCorrupt("the log is empty", rollout_id=entry.rollout_id)
        whole = head[: head.rfind(b"\n") + 1]
        self._stats.bytes_read += len(head) - len(whole)
        header = await find_header(Bytes(self._shelf, MemoryBlob(whole), len(whole), self._stats), entry.rollout_id)
        if header is None and size > len(whole):
            blob = await self.open_blob(entry)
            try:
                header = await find_header(Bytes(self._shelf, blob, blob.size(), self._stats), entry.rollout_id)
            finally:
                await self._shelf.run(blob.close)
        if header is None:
            raise LogCorrupt("the log has no session_meta record", rollout_id=entry.rollout_id)
        path = self._shelf.path(entry)
        return replace(header_info(entry, header), path=str(path) if path else None)


async def find_header(data: Bytes, rollout_id: str) -> Record | None:
    """The first `session_meta`, which is the rollout's own identity (01 §2)."""
    async with aclosing(lines_forward(data)) as lines:
        index = -1
        async for line in lines:
            index += 1
            # A cheap look first: damaged logs are searched to the end, and most lines are no header.
            if b"session_meta" not in line.content:
                continue
            data.stats.lines_parsed += 1
            for value, raw in parse_line(line.content).objects:
                if value["type"] == RecordType.SESSION_META:
                    ordinal = line_ordinal(value)
                    return record_of(value, raw, rollout_id, index if ordinal is None else ordinal)
    return None


def header_info(entry: Entry, header: Record) -> RolloutInfo:
    """Read identity, mode and base from a header. Raises LogCorrupt."""
    payload = header.payload
    # The file's name says whose log it is, also where the header names another thread (a renamed copy): two files can
    # then never be taken for one thread.
    mode = payload.get("history_mode", HistoryMode.LEGACY)
    if mode not in tuple(HistoryMode):
        raise LogCorrupt("unknown history mode", rollout_id=entry.rollout_id, line=header.ordinal)
    base = payload.get("history_base")
    position = None
    if base is not None:
        position = base_position(base)
        if position is None:
            raise LogCorrupt("unusable history base", rollout_id=entry.rollout_id, line=header.ordinal)
        if line_ordinal(header.payload) is None and header.ordinal < position.ordinal:
            header = replace(header, ordinal=position.ordinal)
    return RolloutInfo(entry.thread_id, entry.rollout_id, HistoryMode(mode), header, position, entry.archived)


def base_position(base: object) -> Position | None:
    """The position that a `history_base` member names, None when it is ill-shaped."""
    if not isinstance(base, dict):
        return None
    rollout_id, ordinal = base.get("thread_id"), base.get("end_ordinal_exclusive")
    if not isinstance(rollout_id, str) or type(ordinal) is not int or ordinal < 0:
        return None
    return Position(rollout_id, ordinal)
