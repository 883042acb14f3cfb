"""What is acknowledged as synced survives power loss, simulated: a medium that forgets what was not synced."""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from unspool_protocol.log import Position
from unspool_server.errors import WriteFailed
from unspool_server.store.memory import MemoryShelf, MemoryStore
from unspool_server.store.memory_blob import MemoryBlob
from unspool_server.store.names import Entry
from unspool_server.store.rollouts import RolloutStore
from unspool_server.store.shelf import Blob

from tests.conformance.threads import header, new_id, notes, read, texts


@dataclass
class Disk:
    """What lies on the platters, and which bytes of each file the system believes it still has to store."""

    stored: dict[Entry, bytearray] = field(default_factory=dict)
    dirty: dict[Entry, set[int]] = field(default_factory=dict)
    failing_syncs: int = 0

    def touch(self, entry: Entry, start: int, end: int) -> None:
        self.dirty.setdefault(entry, set()).update(range(start, end))

    def sync(self, entry: Entry, content: bytes) -> None:
        dirty, self.dirty[entry] = self.dirty.get(entry, set()), set()
        if self.failing_syncs:
            # As Linux does: the pages count as clean from now on, though they were never stored.
            self.failing_syncs -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        stored = self.stored.setdefault(entry, bytearray())
        stored += b"?" * (len(content) - len(stored))
        for index in dirty:
            stored[index] = content[index]


class PowerBlob(MemoryBlob):
    """A blob on that disk."""

    def __init__(self, content: bytearray, entry: Entry, disk: Disk) -> None:
        super().__init__(content)
        self._buffer, self._entry, self._disk = content, entry, disk

    def append(self, content: bytes) -> int:
        self._disk.touch(self._entry, len(self._buffer), len(self._buffer) + len(content))
        return super().append(content)

    def rewrite(self, offset: int, content: bytes) -> None:
        self._disk.touch(self._entry, offset, offset + len(content))

    def sync(self) -> None:
        self._disk.sync(self._entry, bytes(self._buffer))


class PowerShelf(MemoryShelf):
    """A shelf on that disk."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self.disk = disk

    def open(self, entry: Entry, *, writable: bool = False) -> Blob:
        return PowerBlob(self._find(entry).content, entry, self.disk)

    def publish(self, entry: Entry, content: bytes, *, sync: bool) -> None:
        super().publish(entry, content, sync=sync)
        self.disk.touch(entry, 0, len(content))
        if sync:
            self.disk.sync(entry, content)

    def after_power_loss(self) -> RolloutStore:
        """A store over what was left."""
        shelf = MemoryShelf()
        for entry, content in self.disk.stored.items():
            shelf.publish(entry, bytes(content), sync=False)
        return MemoryStore(shelf=shelf)


class Powered:
    """A durable store on that disk."""

    def __init__(self, *, durable: bool) -> None:
        self.shelf = PowerShelf(Disk())
        self.store = RolloutStore(self.shelf, durable=durable)

    async def left(self, rollout_id: str) -> Sequence[str]:
        """The notes of a rollout after power loss."""
        return texts(await read(self.shelf.after_power_loss(), rollout_id))


async def test_a_durable_store_loses_nothing_that_a_barrier_acknowledged() -> None:
    powered = Powered(durable=True)
    log = await powered.store.create(header(new_id()))
    await log.add(notes("a"))
    await log.persist()
    rollout = log.info.rollout_id
    assert await powered.left(rollout) == ["session_meta", "a"]
    await log.add(notes("b"))
    await log.flush()
    await log.append(notes("c", "d"))
    assert await powered.left(rollout) == ["session_meta", "a", "b", "c", "d"]
    child_id = new_id()
    await powered.store.branch(header(child_id, forked=rollout), Position(rollout, 2), notes("x"))
    assert await powered.left(child_id) == ["session_meta", "a", "session_meta", "x"]
    await powered.store.close()


async def test_an_ordinary_store_promises_it_for_sync_only() -> None:
    powered = Powered(durable=False)
    log = await powered.store.create(header(new_id()))
    await log.add(notes("a"))
    await log.flush()
    assert powered.shelf.disk.stored == {}
    await log.sync()
    assert await powered.left(log.info.rollout_id) == ["session_meta", "a"]
    await powered.store.close()


@pytest.mark.parametrize("failures", [2, 4])
async def test_bytes_of_a_failed_sync_are_stored_by_the_next_good_one(failures: int) -> None:
    powered = Powered(durable=False)
    log = await powered.store.create(header(new_id()))
    await log.add(notes("a"))
    await log.sync()
    await log.add(notes("b"))
    powered.shelf.disk.failing_syncs = failures
    for _ in range(failures // 2):
        with pytest.raises(WriteFailed):
            await log.sync()
    await log.add(notes("c"))
    await log.sync()
    assert await powered.left(log.info.rollout_id) == ["session_meta", "a", "b", "c"]
    await powered.store.close()


async def test_a_unit_that_could_not_be_synced_is_withdrawn_from_a_durable_store() -> None:
    powered = Powered(durable=True)
    log = await powered.store.create(header(new_id()))
    await log.persist()
    powered.shelf.disk.failing_syncs = 2
    with pytest.raises(WriteFailed):
        await log.append(notes("lost"))
    await log.append(notes("kept"), expected_ordinal=1)
    rollout: Any = log.info.rollout_id
    assert await powered.left(rollout) == ["session_meta", "kept"]
    await powered.store.close()
