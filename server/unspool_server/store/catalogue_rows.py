"""What a catalogue keeps of a thread, and how questions and cursors are understood, whatever the rows are kept in."""

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import orjson
from unspool_protocol.log import HistoryMode, Marks, ThreadSummary

from ..errors import InvalidParams
from .contract import ListQuery

SortValue = tuple[float, str]
"""A summary's place in a list: the time sorted by, then the thread id."""


@dataclass(frozen=True, slots=True)
class Head:
    """What tells whether a row is up to date: one look at the file must agree with it."""

    rollout_id: str
    archived: bool
    size: int
    modified_ns: int
    index_name: str | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One thread.

    Attributes:
        consumed: Bytes of the present rollout that are folded into the summary, whole lines.
        digest: `line_digest` of the line that ends there.
        expected: The ordinal of the next record; in legacy logs the next line's index.
    """

    head: Head
    consumed: int
    digest: str
    expected: int
    summary: ThreadSummary


class Rows(Protocol):
    """Where rows are kept."""

    async def heads(self) -> dict[str, Head]:
        """The head of every row by thread id."""

    async def load(self, thread_id: str) -> Row | None:
        """One row."""

    async def save(self, rows: Sequence[Row]) -> None:
        """Insert or replace rows."""

    async def remove(self, thread_ids: Iterable[str]) -> None:
        """Remove rows."""

    async def select(self, question: "Question") -> list[ThreadSummary]:
        """Summaries in order, at most `question.limit`."""

    async def close(self) -> None:
        """Release what is held."""


@dataclass(frozen=True, slots=True)
class Question:
    """A list query whose cursor is understood.

    Attributes:
        start: Begin behind this place, or at it when `inclusive`.
        limit: At most so many rows, None for all.
    """

    query: ListQuery
    column: str
    limit: int | None
    start: SortValue | None = None
    inclusive: bool = False

    def matches(self, summary: ThreadSummary) -> bool:
        """Whether a summary passes the filters; the SQL of `catalogue_db` says the same."""
        query = self.query
        return (
            summary.archived == query.archived
            and (query.tenant is None or summary.tenant == query.tenant)
            and (query.model_providers is None or summary.model_provider in query.model_providers)
            and ((kinds := kinds_of(query)) is None or source_kind(summary) in kinds)
            and not (query.without_agents and source_kind(summary) in AGENT_KINDS)
            and (query.thread_ids is None or summary.thread_id in query.thread_ids)
            and (query.cwd is None or summary.cwd in query.cwd)
            and summary.thread_id not in query.excluded
            and (query.originators is None or summary.originator in query.originators)
            and (not query.search or fold_text(query.search) in haystack(summary))
        )


def ask(query: ListQuery) -> Question:
    """Understand a query. Raises InvalidParams for a cursor that is none of ours."""
    column = "created_at" if query.sort_key == "created_at" else "updated_at"
    limit = None if query.limit is None else max(query.limit, 0) + 1
    if query.cursor is None:
        return Question(query, column, limit)
    try:
        plain = base64.urlsafe_b64decode(query.cursor + "=" * (-len(query.cursor) % 4))
        kind, key, value, thread_id = orjson.loads(plain)
        if key != column or kind not in ("after", "from") or not isinstance(thread_id, str):
            raise ValueError("another list's cursor")
        start = (float(value), thread_id)
    except (binascii.Error, ValueError, TypeError) as error:
        data = {"reason": "cursorInvalid", "field": "cursor"}
        raise InvalidParams(f"invalid cursor: {query.cursor}", data=data) from error
    return Question(query, column, limit, start, kind == "from")


def cursor_at(summary: ThreadSummary, column: str, *, inclusive: bool) -> str:
    """An opaque cursor: go on behind this summary, or (for the other direction) from it."""
    value, thread_id = sort_value(summary, column)
    plain = orjson.dumps(["from" if inclusive else "after", column, value, thread_id])
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


def sort_value(summary: ThreadSummary, column: str) -> SortValue:
    """A summary's place in a list sorted by this column."""
    return (summary.created_at if column == "created_at" else summary.updated_at), summary.thread_id


def source_kind(summary: ThreadSummary) -> str:
    """The kind that `sourceKinds` filters by: the name of the source, or the name of its variant."""
    source = summary.source
    if isinstance(source, str):
        return source
    name, variant = next(iter(source.items()), ("unknown", None))
    if name not in ("subagent", "subAgent"):
        return str(name)
    inner = next(iter(variant), None) if isinstance(variant, Mapping) else variant
    return _AGENT_KINDS.get(str(inner), "subAgentOther")


_AGENT_KINDS = {
    "review": "subAgentReview",
    "compact": "subAgentCompact",
    "thread_spawn": "subAgentThreadSpawn",
}
AGENT_KINDS = (*_AGENT_KINDS.values(), "subAgentOther")
"""Kinds of threads that other threads have started; asked for together as `subAgent`."""


def kinds_of(query: ListQuery) -> Sequence[str] | None:
    """The kinds that a query takes; None for all."""
    if query.source_kinds is None:
        return None
    return [inner for kind in query.source_kinds for inner in (AGENT_KINDS if kind == "subAgent" else (kind,))]


def fold_text(text: str) -> str:
    """Text as it is compared when searching."""
    return text.casefold()


def haystack(summary: ThreadSummary) -> str:
    """Everything that a search looks through, folded."""
    return fold_text("\n".join((summary.name or "", summary.preview, *summary.user_text)))


def encode_summary(summary: ThreadSummary) -> bytes:
    """A summary as JSON."""
    return orjson.dumps(asdict(summary))


def decode_summary(content: bytes) -> ThreadSummary:
    """The reverse of `encode_summary`."""
    members: dict[str, Any] = orjson.loads(content)
    members["mode"] = HistoryMode(members["mode"])
    members["user_text"] = tuple(members["user_text"])
    members["marks"] = Marks(**members["marks"])
    return ThreadSummary(**members)


class MemoryRows:
    """Rows in memory: for ephemeral threads, and where no database can be used."""

    def __init__(self) -> None:
        self._rows: dict[str, Row] = {}

    async def heads(self) -> dict[str, Head]:
        """The head of every row by thread id."""
        return {thread_id: row.head for thread_id, row in self._rows.items()}

    async def load(self, thread_id: str) -> Row | None:
        """One row."""
        return self._rows.get(thread_id)

    async def save(self, rows: Sequence[Row]) -> None:
        """Insert or replace rows."""
        for row in rows:
            self._rows[row.summary.thread_id] = row

    async def remove(self, thread_ids: Iterable[str]) -> None:
        """Remove rows."""
        for thread_id in thread_ids:
            self._rows.pop(thread_id, None)

    async def select(self, question: Question) -> list[ThreadSummary]:
        """Summaries in order, at most `question.limit`."""
        found = [row.summary for row in self._rows.values() if question.matches(row.summary)]
        down = question.query.descending
        found.sort(key=lambda summary: sort_value(summary, question.column), reverse=down)
        if question.start is not None:
            found = [each for each in found if _behind(sort_value(each, question.column), question)]
        return found if question.limit is None else found[: question.limit]

    async def close(self) -> None:
        """Nothing is held."""


def _behind(value: SortValue, question: Question) -> bool:
    start = question.start
    if start is None or (value == start and question.inclusive):
        return True
    return value < start if question.query.descending else value > start
