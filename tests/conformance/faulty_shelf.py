"""A medium that fails on request, over any other medium: the seam for disk-full and broken-disk tests."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from unspool_server.store.names import Entry
from unspool_server.store.shelf import Blob, Lease, Shelf

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """One failing call: `partial` bytes get in before the error; without an error the write is only short."""

    error: int | None
    partial: int = 0


class Faults:
    """Faults to come, by operation: `append`, `publish`, `sync`, `truncate`."""

    def __init__(self) -> None:
        self._planned: dict[str, deque[Fault]] = {}
        self.calls: dict[str, int] = {}

    def plan(self, operation: str, error: int | None, *, partial: int = 0, times: int = 1) -> None:
        """Let the next calls of an operation fail."""
        self._planned.setdefault(operation, deque()).extend([Fault(error, partial)] * times)

    def clear(self) -> None:
        """The disk is well again."""
        self._planned.clear()

    def next(self, operation: str) -> Fault | None:
        """The fault for this call, if any."""
        self.calls[operation] = self.calls.get(operation, 0) + 1
        planned = self._planned.get(operation)
        return planned.popleft() if planned else None

    def meet(self, operation: str) -> None:
        """Raise the fault for this call, if any."""
        fault = self.next(operation)
        if fault is not None and fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error))


class FaultyBlob:
    """See `shelf.Blob`."""

    def __init__(self, inner: Blob, faults: Faults) -> None:
        self._inner, self._faults = inner, faults

    def size(self) -> int:
        return self._inner.size()

    def read(self, offset: int, length: int) -> bytes:
        return self._inner.read(offset, length)

    def append(self, content: bytes) -> int:
        fault = self._faults.next("append")
        if fault is None:
            return self._inner.append(content)
        written = self._inner.append(content[: fault.partial]) if fault.partial else 0
        if fault.error is not None:
            raise OSError(fault.error, os.strerror(fault.error))
        return written

    def truncate(self, size: int) -> None:
        self._faults.meet("truncate")
        self._inner.truncate(size)

    def sync(self) -> None:
        self._faults.meet("sync")
        self._inner.sync()

    def rewrite(self, offset: int, content: bytes) -> None:
        self._faults.meet("rewrite")
        self._inner.rewrite(offset, content)

    def close(self) -> None:
        self._inner.close()


class FaultyShelf:
    """See `shelf.Shelf`."""

    def __init__(self, inner: Shelf, faults: Faults) -> None:
        self.inner, self._faults = inner, faults

    async def run(self, call: Callable[[], T]) -> T:
        return await self.inner.run(call)

    def scan(self) -> list[Entry]:
        return self.inner.scan()

    def changed(self) -> bool:
        return self.inner.changed()

    def stat(self, entry: Entry) -> tuple[int, int]:
        return self.inner.stat(entry)

    def stat_all(self, entries: Sequence[Entry]) -> list[tuple[int, int] | None]:
        return self.inner.stat_all(entries)

    def open(self, entry: Entry, *, writable: bool = False) -> Blob:
        blob = self.inner.open(entry, writable=writable)
        return FaultyBlob(blob, self._faults) if writable else blob

    def unpack(self, entry: Entry) -> Entry:
        return self.inner.unpack(entry)

    def publish(self, entry: Entry, content: bytes, *, sync: bool) -> None:
        self._faults.meet("publish")
        self.inner.publish(entry, content, sync=sync)

    def move(self, entry: Entry, *, archived: bool) -> Entry:
        return self.inner.move(entry, archived=archived)

    def remove(self, entry: Entry) -> None:
        self.inner.remove(entry)

    def read_side(self, entry: Entry, name: str) -> bytes | None:
        return self.inner.read_side(entry, name)

    def write_side(self, entry: Entry, name: str, content: bytes) -> None:
        self.inner.write_side(entry, name, content)

    def lease(self, thread_id: str) -> Lease:
        return self.inner.lease(thread_id)

    def path(self, entry: Entry) -> Path | None:
        return self.inner.path(entry)
