"""Changes of a thread's marks, loaded or not: what was read, its project, its git facts (`history.marks`).

Each is one record in the thread's log. What the marks mean to clients is the handlers' business.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from unspool_protocol.log import Marks, NewRecord, RecordType

from unspool_server.errors import LogMissing, RequestError
from unspool_server.history.marks import fold_marks, revision
from unspool_server.sessions.registry import Sessions
from unspool_server.sessions.session import Session, read_state

Decide = Callable[[Marks, Mapping[str, Any] | None], Mapping[str, Any] | None]
"""Looks at the present marks and the git facts in force; gives the members to record, or None for no change. May raise
to refuse, which changes nothing."""


async def mark_thread(sessions: Sessions, thread_id: str, decide: Decide) -> tuple[Marks, bool]:
    """Record a change of a thread's marks.

    Returns:
        The marks now, and whether anything changed.

    Raises:
        LogMissing, WriterHeld, WriteFailed: nothing changed.
    """
    async with sessions.alone(thread_id):
        session = sessions.get(thread_id)
        if session is not None:
            return await session.step(partial(_mark_live, session, decide))
        return await _mark_stored(sessions, thread_id, decide)


async def mark_read(sessions: Sessions, thread_id: str, expected_revision: str | None) -> Marks:
    """Note that all of a thread was read, and tell everyone. Where nothing is unread nothing is written.

    Raises:
        RequestError: Reason `conflict`; somebody else changed it since the caller looked.
    """

    def decide(marks: Marks, _git: object) -> Mapping[str, Any] | None:
        present = revision(marks, thread_id)
        if expected_revision not in (None, present):
            data = {"reason": "conflict", "expected": expected_revision, "actual": present}
            raise RequestError("the read state has changed since it was looked at", data=data)
        return None if marks.first_unread is None else {"firstUnread": None}

    marks, changed = await mark_thread(sessions, thread_id, decide)
    if changed:
        session, told = sessions.get(thread_id), read_state(marks, thread_id)
        if session is not None:
            session.publish_read_state()
        else:
            params = {"threadId": thread_id, "readState": told.model_dump(by_alias=True, mode="json")}
            sessions.env.sink.broadcast("thread/readState/changed", params)
    return marks


async def _mark_live(session: Session, decide: Decide) -> tuple[Marks, bool]:
    found = decide(session.marks, session.marks.git or session.history.header.payload.get("git"))
    if found is not None:
        session.take_in(await session.log.append([_record(session.thread_id, found)]))
    return session.marks, found is not None


async def _mark_stored(sessions: Sessions, thread_id: str, decide: Decide) -> tuple[Marks, bool]:
    env = sessions.env
    await env.store.find(thread_id)
    summary = await env.catalogue.get(thread_id)
    if summary is None:
        raise LogMissing(thread_id)
    found = decide(summary.marks, summary.marks.git or summary.git)
    if found is None:
        return summary.marks, False
    log = await env.store.open(thread_id)
    try:
        written = await log.append([_record(thread_id, found)])
    finally:
        await log.close()
    return fold_marks(summary.marks, written, thread_id), True


def _record(thread_id: str, members: Mapping[str, Any]) -> NewRecord:
    return NewRecord(RecordType.MARKS, {"threadId": thread_id, **members})
