"""Catalogue rows in SQLite, searched through FTS5 (DESIGN §7). A cache: a doubtful file is made anew."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiosqlite
from unspool_protocol.log import ThreadSummary

from .catalogue_rows import (
    AGENT_KINDS,
    Head,
    Question,
    Row,
    decode_summary,
    encode_summary,
    fold_text,
    haystack,
    kinds_of,
    source_kind,
)
from .contract import ListQuery

VERSION = 4
"""Of the tables below and of the summaries in them; another version in the file means: make it anew."""

_SCHEMA = """
CREATE TABLE threads (
  id INTEGER PRIMARY KEY, thread_id TEXT UNIQUE NOT NULL, rollout_id TEXT NOT NULL, archived INTEGER NOT NULL,
  size INTEGER NOT NULL, modified_ns INTEGER NOT NULL, index_name TEXT, consumed INTEGER NOT NULL, digest TEXT NOT NULL,
  expected INTEGER NOT NULL, created_at REAL NOT NULL, updated_at REAL NOT NULL, model_provider TEXT NOT NULL,
  source_kind TEXT NOT NULL, cwd TEXT NOT NULL, tenant TEXT NOT NULL, haystack TEXT NOT NULL, summary BLOB NOT NULL);
CREATE INDEX by_created ON threads (tenant, archived, created_at, thread_id);
CREATE INDEX by_updated ON threads (tenant, archived, updated_at, thread_id);
CREATE VIRTUAL TABLE search USING fts5(haystack, content='threads', content_rowid='id', tokenize='trigram');
CREATE TRIGGER threads_ai AFTER INSERT ON threads BEGIN
  INSERT INTO search(rowid, haystack) VALUES (new.id, new.haystack); END;
CREATE TRIGGER threads_ad AFTER DELETE ON threads BEGIN
  INSERT INTO search(search, rowid, haystack) VALUES ('delete', old.id, old.haystack); END;
CREATE TRIGGER threads_au AFTER UPDATE OF haystack ON threads WHEN old.haystack IS NOT new.haystack BEGIN
  INSERT INTO search(search, rowid, haystack) VALUES ('delete', old.id, old.haystack);
  INSERT INTO search(rowid, haystack) VALUES (new.id, new.haystack); END;
"""
_COLUMNS = (
    "thread_id, rollout_id, archived, size, modified_ns, index_name, consumed, digest, expected, "
    "created_at, updated_at, model_provider, source_kind, cwd, tenant, haystack, summary"
)
_UPSERT = (
    f"INSERT INTO threads ({_COLUMNS}) VALUES ({', '.join('?' * 17)}) ON CONFLICT (thread_id) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[1:])
)
_TRIGRAM = 3


class SqliteRows:
    """See `catalogue_rows.Rows`. Every method may raise `sqlite3.Error`."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection
        self._heads: dict[str, Head] = {}
        self._version: int | None = None

    @classmethod
    async def open(cls, path: Path) -> "SqliteRows":
        """Open the file, or make it anew when it is damaged or of another version. Raises sqlite3.Error, OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return await cls._open_once(path)
        except sqlite3.OperationalError:
            # Locked, read-only or not there at all: making it anew would not help.
            raise
        except (sqlite3.DatabaseError, ValueError, TypeError):
            delete_file(path)
            return await cls._open_once(path)

    @classmethod
    async def _open_once(cls, path: Path) -> "SqliteRows":
        connection = await aiosqlite.connect(path, timeout=5.0)
        try:
            await connection.execute("PRAGMA journal_mode=WAL")
            await connection.execute("PRAGMA synchronous=OFF")
            version = await _value(connection, "PRAGMA user_version")
            if version not in (0, VERSION) or await _value(connection, "PRAGMA quick_check") != "ok":
                raise sqlite3.DatabaseError("another version, or damaged")
            if version == 0:
                await connection.executescript(f"BEGIN;{_SCHEMA}PRAGMA user_version={VERSION};COMMIT;")
            rows = cls(connection)
            await rows.heads()
        except BaseException:
            await connection.close()
            raise
        return rows

    async def heads(self) -> dict[str, Head]:
        """The head of every row by thread id; read again when another process has written."""
        version = await _value(self._connection, "PRAGMA data_version")
        if version != self._version:
            query = "SELECT thread_id, rollout_id, archived, size, modified_ns, index_name FROM threads"
            async with self._connection.execute(query) as found:
                self._heads = {row[0]: Head(row[1], bool(row[2]), row[3], row[4], row[5]) async for row in found}
            self._version = version
        return dict(self._heads)

    async def load(self, thread_id: str) -> Row | None:
        """One row."""
        query = "SELECT consumed, digest, expected, summary FROM threads WHERE thread_id = ?"
        async with self._connection.execute(query, (thread_id,)) as found:
            row = await found.fetchone()
        head = self._heads.get(thread_id)
        if row is None or head is None:
            return None
        try:
            return Row(head, row[0], row[1], row[2], decode_summary(row[3]))
        except (ValueError, TypeError, KeyError) as error:
            raise sqlite3.DatabaseError("a damaged row") from error

    async def save(self, rows: Sequence[Row]) -> None:
        """Insert or replace rows in one transaction."""
        await self._connection.executemany(_UPSERT, [_values(row) for row in rows])
        await self._connection.commit()
        for row in rows:
            self._heads[row.summary.thread_id] = row.head

    async def remove(self, thread_ids: Iterable[str]) -> None:
        """Remove rows."""
        gone = list(thread_ids)
        await self._connection.executemany("DELETE FROM threads WHERE thread_id = ?", [(each,) for each in gone])
        await self._connection.commit()
        for thread_id in gone:
            self._heads.pop(thread_id, None)

    async def select(self, question: Question) -> list[ThreadSummary]:
        """Summaries in order, at most `question.limit`."""
        sql, values = _statement(question)
        async with self._connection.execute(sql, values) as found:
            try:
                return [decode_summary(row[0]) async for row in found]
            except (ValueError, TypeError, KeyError) as error:
                raise sqlite3.DatabaseError("a damaged row") from error

    async def close(self) -> None:
        """Close the file."""
        await self._connection.close()


def delete_file(path: Path) -> None:
    """Remove a catalogue file and what SQLite keeps beside it."""
    for name in (path.name, f"{path.name}-wal", f"{path.name}-shm", f"{path.name}-journal"):
        with suppress(FileNotFoundError):
            path.with_name(name).unlink()


async def _value(connection: aiosqlite.Connection, query: str) -> Any:
    async with connection.execute(query) as found:
        row = await found.fetchone()
    return row[0] if row else None


def _values(row: Row) -> tuple[Any, ...]:
    head, summary = row.head, row.summary
    where = (head.rollout_id, head.archived, head.size, head.modified_ns, head.index_name)
    fold = (row.consumed, row.digest, row.expected)
    sort = (summary.created_at, summary.updated_at)
    filters = (summary.model_provider, source_kind(summary), summary.cwd, summary.tenant, haystack(summary))
    return (summary.thread_id, *where, *fold, *sort, *filters, encode_summary(summary))


def _member(name: str) -> str:
    """A member of the summary that has no column of its own; asked for too seldom to need one."""
    return f"json_extract(CAST(summary AS TEXT), '$.{name}')"


def _narrow(query: ListQuery, terms: list[str], values: list[Any]) -> None:
    """The filters that allow or leave out values of one column."""
    for name, allowed in (
        ("model_provider", query.model_providers),
        ("source_kind", kinds_of(query)),
        ("cwd", query.cwd),
        (_member("originator"), query.originators),
    ):
        if allowed is not None:
            terms.append(f"{name} IN ({', '.join('?' * len(allowed))})")
            values.extend(allowed)
    if query.without_agents:
        terms.append(f"source_kind NOT IN ({', '.join('?' * len(AGENT_KINDS))})")
        values.extend(AGENT_KINDS)
    if query.thread_ids is not None:
        terms.append("thread_id IN (SELECT value FROM json_each(?))")
        values.append(json.dumps(sorted(query.thread_ids)))
    if query.excluded:
        terms.append(f"thread_id NOT IN ({', '.join('?' * len(query.excluded))})")
        values.extend(query.excluded)


def _statement(question: Question) -> tuple[str, list[Any]]:
    """The SQL of `Question.matches`, order and start."""
    query, column = question.query, question.column
    terms: list[str] = ["archived = ?"]
    values: list[Any] = [query.archived]
    if query.tenant is not None:
        terms.append("tenant = ?")
        values.append(query.tenant)
    _narrow(query, terms, values)
    if query.search:
        needle = fold_text(query.search)
        if len(needle) >= _TRIGRAM and "\0" not in needle:
            # The index narrows; what decides is the plain comparison below, here as in memory.
            terms.append("id IN (SELECT rowid FROM search WHERE search MATCH ?)")
            values.append('"' + needle.replace('"', '""') + '"')
        terms.append("instr(haystack, ?) > 0")
        values.append(needle)
    if question.start is not None:
        sign = ("<" if query.descending else ">") + ("=" if question.inclusive else "")
        terms.append(f"({column}, thread_id) {sign} (?, ?)")
        values.extend(question.start)
    order = "DESC" if query.descending else "ASC"
    sql = f"SELECT summary FROM threads WHERE {' AND '.join(terms)} ORDER BY {column} {order}, thread_id {order}"
    if question.limit is not None:
        sql += " LIMIT ?"
        values.append(question.limit)
    return sql, values
