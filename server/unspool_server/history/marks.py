"""What is kept of a thread beside its conversation: what was read of it, its project, git facts that a client gave.

A fold over the present records, like all of history. Bounded reading may begin at the newest checkpoint, so it
begins anew here as well, and whoever writes one records the marks again behind it (`marks_payload`).
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from unspool_protocol.log import Marks, Record, RecordType

from .fields import object_of, text_of
from .user_texts import user_text

_NAMESPACE = uuid.UUID("6f0f3c9e-6f0b-5d0a-9a57-3a2d6a5b7c11")


def fold_marks(marks: Marks, records: Iterable[Record], thread_id: str) -> Marks:
    """The marks after further records, oldest first."""
    for record in records:
        marks = _with_record(marks, record, thread_id)
    return marks


def revision(marks: Marks, thread_id: str) -> str:
    """What names this state of reading; the reference's word for a thread of which nothing was ever unread."""
    return marks.revision or f"initial:{thread_id}"


def marks_payload(marks: Marks, thread_id: str, *, reading: bool) -> dict[str, Any] | None:
    """The record that brings marks back behind a checkpoint or on a branch; None when there is nothing to bring.

    Args:
        reading: Also what is unread; a branch leaves that to the records that it keeps.
    """
    payload: dict[str, Any] = {}
    if marks.git is not None:
        payload["git"] = dict(marks.git)
    if marks.project_id is not None:
        payload["projectId"] = marks.project_id
    if reading and marks.revision is not None:
        payload |= {"firstUnread": marks.first_unread, "revision": marks.revision}
    return {"threadId": thread_id, **payload} if payload else None


def _with_record(marks: Marks, record: Record, thread_id: str) -> Marks:
    match record.type:
        case RecordType.COMPACTED:
            # Without input it is a turn that only compacts, which leaves nothing to read.
            silent = marks.silent or not marks.asked
            return Marks(asked=marks.asked, silent=silent, revision=_name(record))
        case RecordType.MARKS if record.payload.get("threadId") == thread_id:
            return _set(marks, record)
        case RecordType.EVENT_MSG:
            return _with_event(marks, record, thread_id)
    return marks


def _with_event(marks: Marks, record: Record, thread_id: str) -> Marks:
    match record.event:
        case "task_started":
            return replace(marks, asked=False, silent=False)
        case "thread_rolled_back":
            return replace(marks, first_unread=None, revision=_name(record))
        case "task_complete" if not marks.silent:
            first = marks.first_unread or text_of(record.payload, "turn_id")
            return replace(marks, first_unread=first, asked=False, revision=_name(record))
    if user_text(record) is None:
        return marks
    # What a fork inherited names the thread that it was said in; it was there to be read, not here.
    own = record.payload.get("thread_id") in (None, thread_id)
    return replace(marks, asked=True, silent=marks.silent or not own)


def _set(marks: Marks, record: Record) -> Marks:
    payload = record.payload
    if "firstUnread" in payload:
        name = text_of(payload, "revision") or _name(record)
        marks = replace(marks, first_unread=text_of(payload, "firstUnread"), revision=name)
    if "git" in payload:
        marks = replace(marks, git=object_of(payload, "git"))
    return replace(marks, project_id=text_of(payload, "projectId")) if "projectId" in payload else marks


def _name(record: Record) -> str:
    """A name for the state after a record, the same after every restart."""
    return str(uuid.uuid5(_NAMESPACE, f"{record.rollout_id}:{record.ordinal}"))


def updated_git(known: Mapping[str, Any] | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Git facts after an update: absent members stay, null ones are cleared."""
    kept = {**(known or {}), **changes}
    return {name: value for name, value in kept.items() if value is not None}
