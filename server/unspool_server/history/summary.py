"""What lists and searches show of a thread, folded from its records; a catalogue keeps it (DESIGN §7)."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

from unspool_protocol.log import HistoryMode, Record, RecordType, ThreadSummary

from .fields import EMPTY, object_of, text_of
from .marks import fold_marks
from .settings import applied_settings, turn_context_of
from .tenancy import tenant_of
from .user_texts import user_text

PREVIEW_CHARACTERS = 4_000
"""Previews are one line in a list; longer texts are only kept for searching."""


class Described(Protocol):
    """What a store knows of a rollout; the members of `RolloutInfo` that are needed here."""

    @property
    def thread_id(self) -> str:
        """The thread."""

    @property
    def rollout_id(self) -> str:
        """The rollout that is the thread's present."""

    @property
    def mode(self) -> HistoryMode:
        """How the log is kept."""

    @property
    def archived(self) -> bool:
        """Whether the thread lies in the archive."""

    @property
    def header(self) -> Record | None:
        """The rollout's own `session_meta`."""


def summarise(summary: ThreadSummary | None, info: Described, records: Iterable[Record]) -> ThreadSummary:
    """Fold further records into a thread's summary.

    Args:
        summary: What came out so far; None for the first records.
        info: The present rollout. Its header gives the thread's facts; headers of sources among the records do not.
        records: The records after those already folded, oldest first.
    """
    result = _from_header(info) if summary is None else _moved(summary, info)
    marks = result.marks
    for record in records:
        result = _with_record(result, record)
        marks = fold_marks(marks, (record,), result.thread_id)
    return replace(result, marks=marks)


def epoch_seconds(timestamp: str | None) -> float:
    """Seconds since the epoch of an ISO time; 0.0 where it is none. Without zone it is UTC."""
    try:
        moment = datetime.fromisoformat(timestamp or "")
    except ValueError:
        return 0.0
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError, ValueError):
        return 0.0


def _moved(summary: ThreadSummary, info: Described) -> ThreadSummary:
    return replace(summary, rollout_id=info.rollout_id, mode=info.mode, archived=info.archived)


def _from_header(info: Described) -> ThreadSummary:
    header = info.header
    meta: Mapping[str, Any] = header.payload if header is not None else EMPTY
    stamp = text_of(meta, "timestamp") or (header.timestamp if header is not None else None)
    created = epoch_seconds(stamp)
    source = meta.get("source")
    ours = object_of(header.extra, "unspool") if header is not None else None
    origin = object_of(ours or EMPTY, "origin") or EMPTY
    summary = ThreadSummary(
        thread_id=info.thread_id,
        rollout_id=info.rollout_id,
        mode=info.mode,
        archived=info.archived,
        created_at=created,
        updated_at=max(created, epoch_seconds(header.timestamp) if header is not None else 0.0),
        cwd=text_of(meta, "cwd") or "",
        model_provider=text_of(meta, "model_provider") or "",
        source=source if isinstance(source, str | Mapping) else "unknown",
        thread_source=text_of(meta, "thread_source"),
        originator=text_of(meta, "originator"),
        cli_version=text_of(meta, "cli_version") or "",
        session_id=text_of(meta, "session_id") or info.thread_id,
        forked_from_id=text_of(meta, "forked_from_id"),
        parent_thread_id=text_of(meta, "parent_thread_id"),
        git=object_of(meta, "git"),
        tenant=tenant_of(header),
    )
    return _with_origin(summary, text_of(origin, "timestamp"), text_of(origin, "forkedFromId"))


def _with_origin(summary: ThreadSummary, timestamp: str | None, forked_from_id: str | None) -> ThreadSummary:
    """A branch is younger than its thread; an older header, or what a branch says of it, tells where it began."""
    created = epoch_seconds(timestamp)
    if created and (not summary.created_at or created < summary.created_at):
        summary = replace(summary, created_at=created)
    return summary if forked_from_id is None else replace(summary, forked_from_id=forked_from_id)


def _with_record(summary: ThreadSummary, record: Record) -> ThreadSummary:
    if record.type == RecordType.MARKS:
        return summary  # to read a thread does not make it newer
    if record.type == RecordType.SESSION_META and text_of(record.payload, "id") == summary.thread_id:
        older = record.payload
        summary = replace(summary, tenant=summary.tenant or tenant_of(record))
        return _with_origin(summary, text_of(older, "timestamp"), text_of(older, "forked_from_id"))
    stamp = epoch_seconds(record.timestamp)
    if stamp > summary.updated_at:
        summary = replace(summary, updated_at=stamp)
    if record.type == RecordType.TURN_CONTEXT:
        context = turn_context_of(record)
        return summary if context is None else replace(summary, model=text_of(context, "model"))
    if record.type != RecordType.EVENT_MSG:
        return summary
    if record.event == "thread_name_updated":
        return _named(summary, record.payload)
    applied = applied_settings(record)
    if applied is not None:
        return _with_settings(summary, applied)
    text = user_text(record)
    return summary if text is None else _with_input(summary, text)


def _named(summary: ThreadSummary, payload: Mapping[str, Any]) -> ThreadSummary:
    # A fork's history holds its source's names; they are not its own (04 §6).
    if text_of(payload, "thread_id") not in (None, summary.thread_id):
        return summary
    name = payload.get("thread_name", payload.get("name"))
    return replace(summary, name=(name.strip() or None) if isinstance(name, str) else None)


def _with_settings(summary: ThreadSummary, applied: Mapping[str, Any]) -> ThreadSummary:
    return replace(
        summary,
        model=text_of(applied, "model") or summary.model,
        cwd=text_of(applied, "cwd") or summary.cwd,
        model_provider=text_of(applied, "model_provider_id") or summary.model_provider,
    )


def _with_input(summary: ThreadSummary, text: str) -> ThreadSummary:
    if not text.strip():
        return replace(summary, has_user_turn=True)
    preview = summary.preview or text.strip()[:PREVIEW_CHARACTERS]
    return replace(summary, has_user_turn=True, preview=preview, user_text=(*summary.user_text, text))
