"""Reading through the base chain: a rollout, the part of its base before the cut, and so on (01 §8).

`end_byte_offset` of a base is a hint that is verified before it is used; ordinals decide.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from unspool_protocol.log import HistoryMode, Position, Record

from ..errors import LogConflict, LogCorrupt, LogMissing
from .blocks import Bytes
from .contract import ReadReport, ReadStats, RolloutInfo
from .index import RolloutIndex
from .memory_blob import MemoryBlob
from .reader import Source, records_backward, records_forward
from .seek import cut, seek
from .shelf import Shelf
from .writer import RolloutLog

_SEARCH_BYTES = 1024 * 1024
"""How much is searched at a time."""


@dataclass(frozen=True, slots=True)
class Link:
    """One rollout of a chain. `end` is the first ordinal that is not inherited, None for the newest rollout."""

    info: RolloutInfo
    first: int = 0
    end: int | None = None
    hint: int | None = None

    @property
    def legacy(self) -> bool:
        """Whether ordinals are line indices."""
        return self.info.mode is HistoryMode.LEGACY


@dataclass(frozen=True, slots=True)
class _Opened:
    source: Source
    pending: tuple[Record, ...]


class ChainReader:
    """Reads rollouts of one store, live ones included.

    Args:
        live: The open log of a rollout, if this process has one.
    """

    def __init__(
        self, shelf: Shelf, index: RolloutIndex, stats: ReadStats, live: Callable[[str], RolloutLog | None]
    ) -> None:
        self._shelf, self._index, self._stats, self._live = shelf, index, stats, live

    async def info(self, rollout_id: str) -> RolloutInfo:
        """One rollout. Raises LogMissing, LogCorrupt."""
        log = self._live(rollout_id)
        if log is not None:
            return log.info
        entry = await self._index.entry(rollout_id)
        if entry is None:
            raise LogMissing(rollout_id)
        return await self._index.info(entry)

    async def links(self, rollout_id: str) -> list[Link]:
        """The chain, newest rollout first. Raises LogMissing, LogCorrupt."""
        links: list[Link] = []
        end, hint = None, None
        at: str | None = rollout_id
        while at is not None:
            if any(link.info.rollout_id == at for link in links):
                raise LogCorrupt("the history base runs in a circle", rollout_id=rollout_id)
            info = await self._base_info(at, rollout_id) if links else await self.info(at)
            first = info.base.ordinal if info.base else 0
            if end is None or end > first or info.base is None:
                links.append(Link(info, first, end, hint))
                end = first
            base = info.base
            at = base.rollout_id if base else None
            # A cut that lies before this rollout begins holds for its base as well.
            end = min(end, base.ordinal) if base else end
            hint = _byte_hint(info) if base and end == base.ordinal else None
        return links

    async def _base_info(self, rollout_id: str, child: str) -> RolloutInfo:
        try:
            return await self.info(rollout_id)
        except LogMissing as error:
            raise LogCorrupt("the history base is missing", rollout_id=child) from error

    async def read(
        self, rollout_id: str, start: int, end: int | None, report: ReadReport
    ) -> AsyncGenerator[Record, None]:
        """Records with start <= ordinal < end, oldest first."""
        for link in reversed(await self.links(rollout_id)):
            if end is not None and link.first >= end and link.info.base is not None:
                return
            if link.end is not None and link.end <= start:
                continue
            stop = _lower(link.end, end)
            async with self._open(link, report) as opened:
                async with aclosing(self._forward(link, opened.source, start, stop)) as records:
                    async for record in records:
                        yield record
                for record in opened.pending:
                    if start <= record.ordinal and (stop is None or record.ordinal < stop):
                        yield record

    async def _forward(self, link: Link, source: Source, start: int, stop: int | None) -> AsyncGenerator[Record, None]:
        offset, expected = 0, None
        if start > link.first and not link.legacy:
            found = await seek(source, start)
            offset, expected = found.offset, found.expected
        beyond = 0
        async with aclosing(records_forward(source, start=offset, expected=expected)) as placed:
            async for each in placed:
                ordinal = each.record.ordinal
                if stop is not None and ordinal >= stop:
                    # One odd ordinal does not end the range, two in a row do.
                    beyond += 1
                    if beyond > 1:
                        return
                    continue
                beyond = 0
                if ordinal >= start:
                    yield each.record

    async def read_backward(self, rollout_id: str, end: int | None, report: ReadReport) -> AsyncGenerator[Record, None]:
        """Records with ordinal < end, newest first."""
        for link in await self.links(rollout_id):
            stop = _lower(link.end, end)
            if stop is not None and stop <= link.first and link.info.base is not None:
                continue
            async with self._open(link, report) as opened:
                for record in reversed(opened.pending):
                    if stop is None or record.ordinal < stop:
                        yield record
                top = None if end is None or stop != end else (await seek(opened.source, end)).offset
                async with aclosing(records_backward(opened.source, end=top)) as placed:
                    async for each in placed:
                        if stop is None or each.record.ordinal < stop:
                            yield each.record

    async def mentions(self, rollout_id: str, text: bytes) -> bool:
        """Whether these bytes are in any rollout of the chain, before its cut."""
        for link in await self.links(rollout_id):
            async with self._open(link, ReadReport()) as opened:
                if any(text in record.raw for record in opened.pending):
                    return True
                data, tail, offset = opened.source.data, b"", 0
                while block := await data.read(offset, _SEARCH_BYTES):
                    if text in tail + block:
                        return True
                    tail, offset = block[-len(text) + 1 :], offset + len(block)
        return False

    async def locate(self, position: Position) -> tuple[Position, int] | None:
        """The rollout that really holds a position, and the byte offset of the cut there; None for the very start.

        Raises:
            LogMissing, LogCorrupt: The position cannot be reached.
            LogConflict: The position lies beyond the end.
        """
        for link in await self.links(position.rollout_id):
            if link.first < position.ordinal:
                held = Position(link.info.rollout_id, position.ordinal)
                async with self._open(link, ReadReport()) as opened:
                    found = await seek(opened.source, position.ordinal)
                    if found.offset >= opened.source.data.limit and found.expected < position.ordinal:
                        raise LogConflict(position.ordinal, found.expected)
                    return held, found.offset
        return None

    @asynccontextmanager
    async def _open(self, link: Link, report: ReadReport) -> AsyncIterator[_Opened]:
        rollout_id = link.info.rollout_id
        log = self._live(rollout_id)
        limit, pending = log.snapshot() if log is not None else (None, ())
        entry = log.entry if log is not None else await self._index.entry(rollout_id)
        if entry is None:
            raise LogMissing(rollout_id)
        if limit == 0:
            nothing = Bytes(self._shelf, MemoryBlob(b""), 0, self._stats)
            yield _Opened(Source(rollout_id, nothing, link.legacy, link.first, report), pending)
            return
        blob = await self._index.open_blob(entry)
        try:
            data = Bytes(self._shelf, blob, blob.size() if limit is None else limit, self._stats)
            source = Source(rollout_id, data, link.legacy, link.first, report)
            if link.end is not None:
                limit = await cut(source, link.end, link.hint)
                data = Bytes(self._shelf, blob, limit, self._stats)
                source, pending = Source(rollout_id, data, link.legacy, link.first, report), ()
            yield _Opened(source, pending)
        finally:
            await self._shelf.run(blob.close)


def _lower(one: int | None, other: int | None) -> int | None:
    return min((bound for bound in (one, other) if bound is not None), default=None)


def _byte_hint(info: RolloutInfo) -> int | None:
    base = info.header.payload.get("history_base") if info.header else None
    offset = base.get("end_byte_offset") if isinstance(base, dict) else None
    return offset if type(offset) is int and offset >= 0 else None
