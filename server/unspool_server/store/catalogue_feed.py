"""Keeping catalogue rows in step with the logs: which rows disagree, and folding what is new into them."""

from collections.abc import AsyncIterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from unspool_protocol.log import HistoryMode, Record, ThreadSummary

from ..errors import LogCorrupt, LogMissing
from .blocks import LINE_BYTES, Bytes, lines_backward
from .catalogue_rows import Head, Row, Rows
from .contract import RolloutInfo, Summariser
from .lines import line_digest
from .memory_blob import MemoryBlob
from .names import Entry, present_order
from .reader import Source, records_forward
from .rollouts import RolloutStore
from .session_names import Names
from .shelf import Blob

_FOLD_RECORDS = 500
"""Records folded at a time, so that a long log does not hold up the event loop."""
_SMALL_BYTES = 64 * 1024
_SAVE_ROWS = 200
"""Rows saved at a time, so that a first scan that is cut short has not been for nothing."""


@dataclass(frozen=True, slots=True)
class _Folded:
    """A summary and how far into the present rollout it goes."""

    summary: ThreadSummary | None
    consumed: int = 0
    expected: int = 0


class CatalogueFeed:
    """Reads logs into rows. Knows size and newest line of each log it has read."""

    def __init__(self, store: RolloutStore, summarise: Summariser, names: Names) -> None:
        self._store = store
        self._shelf = store.shelf
        self._summarise = summarise
        self._names = names

    async def update(self, rows: Rows, *, only: str | None = None) -> None:
        """Make rows agree with the logs: of all threads, or of one."""
        names = await self._names.read()
        threads = await self._threads(only)
        heads = await rows.heads()
        first = [entries[0] for entries in threads.values()]
        stats = await self._shelf.run(lambda: self._shelf.stat_all(first))
        changed: list[Row] = []
        gone = {only} & heads.keys() if only else set(heads)
        for (thread_id, entries), stat in zip(threads.items(), stats, strict=True):
            name, known = names.get(thread_id), heads.get(thread_id)
            if stat is not None and known is not None and _head(entries[0], stat, name) == known:
                gone.discard(thread_id)
                continue
            row = await self._row(rows, entries, known, name, stat)
            if row is None:
                continue
            gone.discard(thread_id)
            if row.head != known:
                changed.append(row)
            if len(changed) >= _SAVE_ROWS:
                await rows.save(changed)
                changed.clear()
        if changed:
            await rows.save(changed)
        if gone:
            await rows.remove(each for each in gone if each is not None)

    async def _threads(self, only: str | None) -> dict[str, list[Entry]]:
        """The rollouts of each thread, candidates for the present first."""
        if only is not None:
            entries = await self._store.index.of_thread(only)
            return {only: present_order(entries)} if entries else {}
        threads: dict[str, list[Entry]] = {}
        for entry in (await self._store.index.refresh()).values():
            threads.setdefault(entry.thread_id, []).append(entry)
        return {each: found if len(found) == 1 else present_order(found) for each, found in threads.items()}

    async def _row(
        self,
        rows: Rows,
        entries: Sequence[Entry],
        known: Head | None,
        name: str | None,
        stat: tuple[int, int] | None,
    ) -> Row | None:
        """The row of a thread's present rollout; None when none of its rollouts is usable.

        Args:
            stat: Of the first entry, if it is there.
        """
        for entry in entries:
            try:
                info = await self._store.index.info(entry)
                if stat is None:
                    [stat] = await self._shelf.run(lambda entry=entry: self._shelf.stat_all([entry]))  # type: ignore[misc]
                if stat is None:
                    continue
                head, stat = _head(entry, stat, name), None
                old = await rows.load(entry.thread_id) if known is not None else None
                if old is not None and head == known:
                    return old
                return await self._fold(head, entry, info, old)
            except (LogCorrupt, OSError):
                stat = None
        return None

    async def _fold(self, head: Head, entry: Entry, info: RolloutInfo, old: Row | None) -> Row:
        same = old is not None and old.head.rollout_id == head.rollout_id
        if old is not None and same and (old.head.size, old.head.modified_ns) == (head.size, head.modified_ns):
            return replace(old, head=head, summary=_shown(old.summary, head))
        blob = await self._load(entry, head.size)
        try:
            data = await self._whole_lines(Bytes(self._shelf, blob, blob.size(), self._store.stats))
            # A log that changed without growing was not appended to: then nothing read before can be relied on.
            grown = old is not None and same and old.head.size < head.size and old.digest != ""
            if old is not None and grown and await _digest(data, old.consumed) == old.digest:
                folded = await self._own(data, info, _Folded(old.summary, old.consumed, old.expected))
            else:
                start = _Folded(await self._inherited(info), 0, info.base.ordinal if info.base else 0)
                folded = await self._own(data, info, start)
            summary = folded.summary or self._summarise(None, info, ())
            digest = await _digest(data, folded.consumed)
        finally:
            await self._shelf.run(blob.close)
        return Row(head, folded.consumed, digest, folded.expected, _shown(summary, head))

    async def _load(self, entry: Entry, size: int) -> Blob:
        """Open a log; a small one is fetched at once, which is what makes a first scan of thousands bearable."""
        if size > _SMALL_BYTES or entry.compressed:
            return await self._store.index.open_blob(entry)

        def fetch() -> bytes:
            blob = self._shelf.open(entry)
            try:
                return blob.read(0, blob.size())
            finally:
                blob.close()

        return MemoryBlob(await self._shelf.run(fetch))

    async def _whole_lines(self, data: Bytes) -> Bytes:
        """Without a last line that is still being written, or torn."""
        async with aclosing(lines_backward(data, block_bytes=LINE_BYTES)) as lines:
            async for line in lines:
                return data if line.terminated else replace(data, limit=line.start)
        return data

    async def _inherited(self, info: RolloutInfo) -> ThreadSummary | None:
        if info.base is None:
            return None
        try:
            async with aclosing(self._store.read(info.rollout_id, end=info.base.ordinal)) as records:
                return await self._all(records, info, None)
        except (LogMissing, LogCorrupt):
            # A thread whose base is gone is listed all the same, by what it holds itself.
            return None

    async def _all(
        self, records: AsyncIterable[Record], info: RolloutInfo, summary: ThreadSummary | None
    ) -> ThreadSummary | None:
        chunk: list[Record] = []
        async for record in records:
            chunk.append(record)
            if len(chunk) >= _FOLD_RECORDS:
                summary = self._summarise(summary, info, chunk)
                chunk.clear()
        return self._summarise(summary, info, chunk) if chunk else summary

    async def _own(self, data: Bytes, info: RolloutInfo, start: _Folded) -> _Folded:
        """Fold the records behind `start.consumed`."""
        legacy = info.mode is HistoryMode.LEGACY
        source = Source(info.rollout_id, data, legacy, info.base.ordinal if info.base else 0)
        consumed, expected = start.consumed, start.expected

        async def following() -> AsyncIterable[Record]:
            nonlocal consumed, expected
            index = start.expected if start.consumed else 0
            records = records_forward(
                source, start=start.consumed, expected=start.expected, line_index=index if legacy else 0
            )
            async with aclosing(records) as placed:
                async for each in placed:
                    consumed, expected = each.end, each.record.ordinal + 1
                    yield each.record

        summary = await self._all(following(), info, start.summary)
        return _Folded(summary, consumed, expected)


def _head(entry: Entry, stat: tuple[int, int], name: str | None) -> Head:
    return Head(entry.rollout_id, entry.archived, *stat, name)


def _shown(summary: ThreadSummary, head: Head) -> ThreadSummary:
    """The summary with what the store knows better than the log."""
    return replace(summary, archived=head.archived, name=head.index_name or summary.name)


async def _digest(data: Bytes, end: int) -> str:
    """`line_digest` of the line that ends at a byte; empty where no line ends there."""
    if not 0 < end <= data.limit:
        return ""
    async with aclosing(lines_backward(data, end, block_bytes=LINE_BYTES)) as lines:
        async for line in lines:
            return line_digest(line.content) if line.terminated else ""
    return ""
