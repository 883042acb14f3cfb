"""Small makers of threads and records for store tests."""

from collections.abc import Sequence

import uuid_utils
from unspool_protocol.log import HistoryMode, NewRecord, Record
from unspool_server.store.contract import Log, LogStore, NewRollout, ReadReport


def new_id() -> str:
    """A fresh UUIDv7."""
    return str(uuid_utils.uuid7())


def header(
    thread_id: str,
    rollout_id: str | None = None,
    *,
    mode: HistoryMode = HistoryMode.PAGINATED,
    forked: str | None = None,
) -> NewRollout:
    """The header of a new rollout."""
    payload = {"id": thread_id, "cwd": "/ws", "source": "vscode"}
    if forked is not None:
        payload["forked_from_id"] = forked
    return NewRollout(thread_id, rollout_id or thread_id, mode, payload)


def note(text: str) -> NewRecord:
    """A record whose text identifies it."""
    return NewRecord("event_msg", {"type": "note", "text": text})


def notes(*texts: str) -> list[NewRecord]:
    """Several of them."""
    return [note(text) for text in texts]


async def thread(store: LogStore, *texts: str, mode: HistoryMode = HistoryMode.PAGINATED) -> Log:
    """A thread whose log holds its header and these notes, written."""
    log = await store.create(header(new_id(), mode=mode))
    await log.add(notes(*texts))
    await log.persist()
    return log


async def read(store: LogStore, rollout_id: str, start: int = 0, end: int | None = None) -> list[Record]:
    """Records forwards."""
    return [record async for record in store.read(rollout_id, start=start, end=end)]


async def read_backward(store: LogStore, rollout_id: str, end: int | None = None) -> list[Record]:
    """Records backwards, turned round."""
    return [record async for record in store.read_backward(rollout_id, end=end)][::-1]


async def faults(store: LogStore, rollout_id: str, *, backward: bool = False) -> list[tuple[int, str]]:
    """What reading met besides records: line and code, in file order."""
    report = ReadReport()
    reader = store.read_backward if backward else store.read
    async for _ in reader(rollout_id, report=report):
        pass
    return sorted((fault.line, fault.code) for fault in report.faults)


def texts(records: Sequence[Record]) -> list[str]:
    """The notes' texts; other records by their type."""
    return [record.payload.get("text", record.type) for record in records]


def ordinals(records: Sequence[Record]) -> list[int]:
    """The ordinals."""
    return [record.ordinal for record in records]
