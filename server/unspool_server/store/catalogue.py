"""The catalogue of a store: summaries of threads, brought up to date from the logs before every answer (DESIGN §7).

Fed by a summariser that is handed in, because what a thread shows is a history rule. Only logs whose size or time of
change moved are looked at, and of those only what was appended, as long as the newest line known is still there.
"""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from unspool_protocol.log import ThreadSummary

from ..errors import WriteFailed
from .catalogue_feed import CatalogueFeed
from .catalogue_rows import MemoryRows, Rows, ask, cursor_at
from .contract import ListPage, ListQuery, RolloutInfo, Summariser
from .rollouts import RolloutStore
from .session_names import MemoryNames, Names, SessionIndex

T = TypeVar("T")
logger = logging.getLogger(__name__)


class StoreCatalogue:
    """See `contract.Catalogue`.

    Args:
        path: The database file; None keeps the rows in memory.
        names: Where names are kept besides the logs.
    """

    def __init__(
        self, store: RolloutStore, summarise: Summariser, *, path: Path | None = None, names: Names | None = None
    ) -> None:
        self._path = path
        self._names = names or MemoryNames()
        self._summarise = summarise
        self._feed = CatalogueFeed(store, summarise, self._names)
        self._rows: Rows | None = None
        self._renewed = False
        self._lock = asyncio.Lock()

    @classmethod
    def local(
        cls, store: RolloutStore, summarise: Summariser, home: Path, *, path: Path | None = None
    ) -> "StoreCatalogue":
        """The catalogue of a home folder: names from the reference's index, rows in `unspool/catalogue.sqlite`."""
        names = SessionIndex(home / "session_index.jsonl", store.clock)
        return cls(store, summarise, path=path or home / "unspool" / "catalogue.sqlite", names=names)

    async def list(self, query: ListQuery) -> ListPage:
        """Bring the index up to date, then answer."""
        question = ask(query)
        async with self._lock:
            found = await self._answer(lambda rows: rows.select(question))
        more = query.limit is not None and len(found) > query.limit
        items = found[: query.limit] if more else found
        return ListPage(
            items,
            cursor_at(items[-1], question.column, inclusive=False) if more and items else None,
            cursor_at(items[0], question.column, inclusive=True) if items else None,
        )

    async def get(self, thread_id: str) -> ThreadSummary | None:
        """One thread's up-to-date summary."""
        async with self._lock:
            row = await self._answer(lambda rows: rows.load(thread_id), only=thread_id)
        return row.summary if row else None

    async def known(self, info: RolloutInfo) -> ThreadSummary:
        """What can be told of a thread without reading its log."""
        async with self._lock:
            rows = await self._open_rows()
            try:
                row = await rows.load(info.thread_id)
            except sqlite3.Error:
                row = None  # the next list mends the database
            name = (await self._names.read()).get(info.thread_id)
        same = row is not None and row.head.rollout_id == info.rollout_id
        summary = row.summary if row is not None and same else self._summarise(None, info, ())
        return replace(summary, name=name or summary.name)

    async def set_name(self, thread_id: str, name: str) -> None:
        """Keep a name where other readers of the format look for it. Raises WriteFailed."""
        try:
            await self._names.write(thread_id, name)
        except OSError as error:
            raise WriteFailed(error.strerror or str(error)) from error

    async def close(self) -> None:
        """Release the index."""
        async with self._lock:
            rows, self._rows = self._rows, None
            if rows is not None:
                await rows.close()

    async def _answer(self, question: Callable[[Rows], Awaitable[T]], *, only: str | None = None) -> T:
        """Bring rows up to date and ask them; a database that fails is made anew once, then done without."""
        while True:
            rows = await self._open_rows()
            try:
                await self._feed.update(rows, only=only)
                return await question(rows)
            except sqlite3.Error as error:
                logger.warning("the catalogue database failed: %s", error)
                self._rows = None
                await self._drop(rows, anew=not isinstance(error, sqlite3.OperationalError))

    async def _drop(self, rows: Rows, *, anew: bool) -> None:
        try:
            await rows.close()
        except sqlite3.Error as error:
            logger.debug("closing the catalogue database: %s", error)
        if self._path is not None and anew and not self._renewed:
            from .catalogue_db import delete_file

            self._renewed = True
            delete_file(self._path)
        else:
            self._path = None

    async def _open_rows(self) -> Rows:
        if self._rows is None:
            self._rows = await self._new_rows()
        return self._rows

    async def _new_rows(self) -> Rows:
        if self._path is not None:
            # Imported here: a daemon that is never asked for a list needs no database library.
            from .catalogue_db import SqliteRows

            try:
                return await SqliteRows.open(self._path)
            except (sqlite3.Error, OSError) as error:
                logger.warning("no catalogue database, listing from memory: %s", error)
                self._path = None
        return MemoryRows()
