"""Walking the logs of a thread and saying what is wrong with them: lines, numbers, check values, references.

Reads every file once, in blocks, and keeps findings only; at most `MAX_OF_A_CODE` of each kind are kept in full.
"""

from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from unspool_protocol.finding_words import finding
from unspool_protocol.log import HistoryMode, Record

from ..errors import LogCorrupt, LogMissing
from .blocks import Bytes, lines_forward
from .contract import ReadStats, RolloutInfo
from .findings import FoundList, OnRecord
from .index import RolloutIndex, find_header
from .line_checks import LineChecks, is_header
from .lines import line_ordinal, parse_line
from .names import Entry
from .reader import Source
from .seek import cut
from .shelf import Shelf


class Verifiable(Protocol):
    """What is needed of a store."""

    @property
    def stats(self) -> ReadStats:
        """Reading is counted here."""

    @property
    def shelf(self) -> Shelf:
        """The medium."""

    @property
    def index(self) -> RolloutIndex:
        """The rollouts by name."""

    async def fingerprint(self, rollout_id: str) -> tuple[int, str]:
        """Where the written part of a rollout ends, also while it is being written."""


@dataclass(frozen=True, slots=True)
class _Link:
    """One file of the present's chain; `end` and `hint` are how the next newer file refers to it."""

    entry: Entry
    info: RolloutInfo | None
    end: int | None = None
    hint: int | None = None
    child: str | None = None


class LogVerifier:
    """Checks logs of one store.

    Args:
        on_record: Gets the records of a thread's present, oldest first.
    """

    def __init__(self, store: Verifiable, found: FoundList, on_record: OnRecord) -> None:
        self._store, self._found, self._on_record = store, found, on_record

    async def thread(self, thread_id: str) -> None:
        """Check every rollout of a thread, and what they inherit. Raises LogMissing."""
        entries = await self._store.index.of_thread(thread_id)
        if not entries:
            raise LogMissing(thread_id)
        chain = await self._present(thread_id, entries)
        for link in reversed(chain):
            await self._file(link, present=True)
        seen = {link.entry.rollout_id for link in chain}
        for entry in entries:
            if entry.rollout_id not in seen:
                await self._file(_Link(entry, await self._info(entry)), present=False)

    async def _present(self, thread_id: str, entries: list[Entry]) -> list[_Link]:
        """The chain of the present, newest first; broken references are reported."""
        try:
            entry, info = await self._store.index.present(thread_id)
        except LogCorrupt:
            self._found.usable = False
            return [_Link(entries[-1], await self._info(entries[-1]))]
        links = [_Link(entry, info)]
        while (base := info.base) is not None:
            held = await self._store.index.entry(base.rollout_id)
            if any(link.entry.rollout_id == base.rollout_id for link in links):
                self._broken("baseCycle", info, base.rollout_id)
                break
            found = None if held is None else await self._info(held)
            if held is None or found is None:
                self._broken("baseMissing", info, base.rollout_id)
                break
            end = min(base.ordinal, links[-1].end) if links[-1].end is not None else base.ordinal
            links.append(_Link(held, found, end, _hint(info) if end == base.ordinal else None, info.rollout_id))
            info = found
        return links

    def _broken(self, code: str, info: RolloutInfo, base: str) -> None:
        self._found.usable = False
        self._found.add(finding(code, info.rollout_id, 1, info.header.ordinal if info.header else None, base))

    async def _info(self, entry: Entry) -> RolloutInfo | None:
        """What the header says, None (reported) where it says nothing usable."""
        try:
            return await self._store.index.info(entry)
        except LogCorrupt as error:
            self._found.add(finding(_header_code(error), entry.rollout_id, detail=str(error)))
            return None

    async def _file(self, link: _Link, *, present: bool) -> None:
        rollout_id = link.entry.rollout_id
        try:
            blob = await self._store.index.open_blob(link.entry)
        except LogCorrupt as error:
            self._found.add(finding("unreadable", rollout_id, detail=str(error)))
            return
        try:
            size = min(blob.size(), (await self._store.fingerprint(rollout_id))[0])
            data = Bytes(self._store.shelf, blob, size, self._store.stats)
            await FileWalk(data, link.info, rollout_id, self._found).run(
                self._on_record if present else None, end=link.end, hint=link.hint, child=link.child
            )
        finally:
            await self._store.shelf.run(blob.close)


class FileWalk:
    """Checks one file."""

    def __init__(self, data: Bytes, info: RolloutInfo | None, rollout_id: str, found: FoundList) -> None:
        self._data, self._info, self._rollout_id, self._found = data, info, rollout_id, found
        self._headers = 0

    async def run(
        self, on_record: OnRecord | None, *, end: int | None = None, hint: int | None = None, child: str | None = None
    ) -> None:
        """Walk through it.

        Args:
            end, hint, child: The rollout `child` inherits what is before the number `end`, and says that this is byte
                `hint`; only that part is handed to `on_record`.
        """
        found, info = self._found, self._info
        legacy = info.mode is HistoryMode.LEGACY if info else await looks_legacy(self._data)
        first = info.base.ordinal if info and info.base else 0
        border = self._data.limit
        if end is not None:
            border = await cut(Source(self._rollout_id, self._data, legacy, first), end, None)
        checks = LineChecks(self._rollout_id, legacy=legacy, first_ordinal=first, add=found.add, copied=is_copy(info))
        reached = first
        async with aclosing(lines_forward(self._data)) as lines:
            async for line in lines:
                for record in checks.feed(line):
                    self._header(record, checks)
                    if line.start < border:
                        reached = max(reached, record.ordinal + 1)
                        if on_record is not None:
                            on_record(record, checks.lines)
        checks.finish()
        if child is not None and end is not None:
            if reached < end:
                found.add(finding("baseTooShort", child, 1, None, f"{reached} instead of {end}"))
            elif hint is not None and hint != border:
                found.add(finding("baseBorder", child, 1, None, f"{hint} instead of {border}"))
        found.rollouts += 1
        found.lines += checks.lines
        found.records += checks.records
        found.bytes += self._data.limit

    def _header(self, record: Record, checks: LineChecks) -> None:
        if not is_header(record):
            return
        self._headers += 1
        info, own = self._info, record.payload.get("id")
        if self._headers == 1:
            if checks.records > 1:
                self._found.add(finding("headerNotFirst", self._rollout_id, checks.lines, record.ordinal))
            if info is not None and own != info.thread_id:
                self._found.add(finding("headerOtherThread", self._rollout_id, checks.lines, record.ordinal))
        elif info is not None and own == info.thread_id and not is_copy(info):
            self._found.add(finding("extraHeader", self._rollout_id, checks.lines, record.ordinal))


def is_copy(info: RolloutInfo | None) -> bool:
    """Whether a thread got this file as a copy of what it inherited, older headers of its own included."""
    ours = info.header.extra.get("unspool") if info is not None and info.header is not None else None
    return isinstance(ours, dict) and isinstance(ours.get("copied"), list)


async def looks_legacy(data: Bytes) -> bool:
    """The mode of a log without a header: numbered records are a paginated log's."""
    async with aclosing(lines_forward(data)) as lines:
        async for line in lines:
            for value, _ in parse_line(line.content).objects:
                return line_ordinal(value) is None
    return True


async def verify_file(data: Bytes, entry: Entry, info: RolloutInfo | None, found: FoundList, add: OnRecord) -> None:
    """Check one file for itself; what it inherits is not looked at."""
    if info is None:
        found.usable = False
        header = await find_header(data, entry.rollout_id)
        code = "emptyLog" if data.limit == 0 else "noHeader" if header is None else "headerUnusable"
        found.add(finding(code, entry.rollout_id))
    await FileWalk(data, info, entry.rollout_id, found).run(add)


def _header_code(error: LogCorrupt) -> str:
    text = str(error)
    if "empty" in text:
        return "emptyLog"
    if "session_meta" in text:
        return "noHeader"
    return "headerUnusable" if error.line is not None else "unreadable"


def _hint(info: RolloutInfo) -> int | None:
    base = info.header.payload.get("history_base") if info.header else None
    offset = base.get("end_byte_offset") if isinstance(base, dict) else None
    return offset if type(offset) is int else None
