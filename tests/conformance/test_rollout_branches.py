"""Branches, fencing, archive and deletion on every backend (DESIGN §4; 01 §8)."""

import asyncio
import contextlib
import errno

import pytest
from unspool_protocol.log import HistoryMode, Position
from unspool_server.errors import (
    DependentThreads,
    LogConflict,
    LogExists,
    LogMissing,
    StoreClosed,
    WriteFailed,
    WriterHeld,
)
from unspool_server.store.contract import Log
from unspool_server.store.rollouts import RolloutStore

from tests.conformance.conftest import Backend
from tests.conformance.threads import header, new_id, notes, ordinals, read, read_backward, texts, thread


async def test_a_fork_sees_its_base_and_nothing_written_there_later(store: RolloutStore) -> None:
    parent = await thread(store, "a", "b", "c")
    child_id, parent_id = new_id(), parent.info.thread_id
    child = await store.branch(header(child_id, forked=parent_id), Position(parent_id, 3), notes("x"))
    await parent.append(notes("late"))
    await child.append(notes("y"))
    assert not child.deferred
    found = await read(store, child_id)
    assert texts(found) == ["session_meta", "a", "b", "session_meta", "x", "y"]
    assert ordinals(found) == [0, 1, 2, 3, 4, 5]
    assert [record.rollout_id for record in found] == [parent_id] * 3 + [child_id] * 3
    assert found == await read_backward(store, child_id)
    assert child.info.header is not None
    payload = child.info.header.payload
    assert payload["forked_from_ordinal_exclusive"] == 3
    offset = sum(len(record.raw) + 1 for record in found[:3])
    assert payload["history_base"] == {
        "thread_id": parent_id,
        "end_ordinal_exclusive": 3,
        "end_byte_offset": offset,
    }
    assert texts(await read(store, parent_id)) == ["session_meta", "a", "b", "c", "late"]


async def test_a_branch_without_base_begins_at_nothing(store: RolloutStore) -> None:
    log = await thread(store, "a")
    thread_id, second = log.info.thread_id, new_id()
    newer = await store.branch(header(thread_id, second), None, notes("x"), replaces=log)
    assert ordinals(await read(store, second)) == [0, 1]
    assert newer.info.header is not None
    assert "history_base" not in newer.info.header.payload
    assert texts(await read(store, thread_id)) == ["session_meta", "a"]


async def test_a_replaced_log_can_never_append_again(store: RolloutStore) -> None:
    log = await thread(store, "a", "b")
    thread_id, second = log.info.thread_id, new_id()
    newer = await store.branch(header(thread_id, second), Position(thread_id, 2), replaces=log)
    assert newer.epoch > log.epoch
    for refused in (log.add(notes("z")), log.append(notes("z")), log.flush(), log.persist()):
        with pytest.raises(StoreClosed):
            await refused
    assert (await store.find(thread_id)).rollout_id == second
    await newer.append(notes("c"))
    await newer.close()
    reopened = await store.open(thread_id)
    assert reopened.info.rollout_id == second
    assert texts(await read(store, second)) == ["session_meta", "a", "session_meta", "c"]


async def test_branches_made_within_one_second_keep_the_newest_present(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    thread_id = log.info.thread_id
    rollouts = [thread_id]
    # Ids that do not rise with time must not decide either.
    for rollout_id in sorted((new_id() for _ in range(6)), reverse=True):
        log = await store.branch(header(thread_id, rollout_id), Position(rollouts[-1], 2), replaces=log)
        rollouts.append(rollout_id)
        assert (await backend.open().find(thread_id)).rollout_id == rollout_id
    assert [info.rollout_id for info in await store.rollouts(thread_id)] == rollouts


async def test_a_cut_inside_an_inherited_part_points_at_the_rollout_that_holds_it(store: RolloutStore) -> None:
    first = await thread(store, *"abcdef")
    one = first.info.thread_id
    two, three = new_id(), new_id()
    await store.branch(header(two, forked=one), Position(one, 5), notes("x", "y"))
    deep = await store.branch(header(three, forked=two), Position(two, 3), notes("z"))
    assert deep.info.base == Position(one, 3)
    assert texts(await read(store, three)) == ["session_meta", "a", "b", "session_meta", "z"]
    at_border = await store.branch(header(new_id(), forked=two), Position(two, 5))
    assert at_border.info.base == Position(one, 5)
    at_start = await store.branch(header(new_id(), forked=two), Position(two, 0))
    assert at_start.info.base is None


async def test_chains_of_branches_read_alike_in_both_directions_and_every_range(store: RolloutStore) -> None:
    log = await thread(store, *"abcdef")
    at, end = log.info.rollout_id, 5
    for step in range(4):
        child = await store.branch(
            header(new_id(), forked=at), Position(at, end), notes(f"{step}a", f"{step}b", f"{step}c")
        )
        at, end = child.info.rollout_id, child.next_ordinal - 1
    whole = await read(store, at)
    assert ordinals(whole) == list(range(len(whole)))
    for end in range(len(whole) + 2):
        assert await read_backward(store, at, end=end) == whole[:end]
        for start in range(end + 1):
            assert await read(store, at, start=start, end=end) == whole[start:end]


async def test_a_position_beyond_the_end_is_a_conflict(store: RolloutStore) -> None:
    log = await thread(store, "a")
    with pytest.raises(LogConflict):
        await store.branch(header(new_id(), forked=log.info.thread_id), Position(log.info.thread_id, 9))
    with pytest.raises(LogMissing):
        await store.branch(header(new_id()), Position(new_id(), 1))
    assert len(await store.rollouts()) == 1


async def test_a_branch_includes_what_was_still_pending(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", errno.ENOSPC, times=2)
    await log.add(notes("b"))
    child = await store.branch(header(new_id(), forked=log.info.thread_id), Position(log.info.thread_id, 3))
    assert texts(await read(store, child.info.rollout_id)) == ["session_meta", "a", "b", "session_meta"]


async def test_a_branch_that_cannot_be_written_leaves_everything_as_it_was(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a", "b")
    thread_id = log.info.thread_id
    backend.faults.plan("publish", errno.ENOSPC, times=4)
    with pytest.raises(WriteFailed):
        await store.branch(header(thread_id, new_id()), Position(thread_id, 2), notes("x"), replaces=log)
    fork = new_id()
    with pytest.raises(WriteFailed):
        await store.branch(header(fork, forked=thread_id), Position(thread_id, 2), notes("x"))
    assert [info.rollout_id for info in await store.rollouts()] == [thread_id]
    assert ordinals(await log.append(notes("c"), expected_ordinal=3)) == [3]
    await store.branch(header(fork, forked=thread_id), Position(thread_id, 2))


async def test_a_branch_of_a_stored_thread_needs_its_writer(store: RolloutStore) -> None:
    log = await thread(store, "a")
    thread_id = log.info.thread_id
    with pytest.raises(LogExists):
        await store.branch(header(thread_id, new_id()), Position(thread_id, 1))
    await log.close()
    with pytest.raises(StoreClosed):
        await store.branch(header(thread_id, new_id()), Position(thread_id, 1), replaces=log)


async def test_all_rollouts_of_a_thread_are_archived_and_come_back(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a", "b")
    thread_id, second = log.info.thread_id, new_id()
    newer = await store.branch(header(thread_id, second), Position(thread_id, 2), replaces=log)
    fork_id = new_id()
    fork = await store.branch(header(fork_id, forked=thread_id), Position(thread_id, 3))
    with pytest.raises(WriterHeld):
        await store.archive(thread_id)
    await newer.close()
    await store.write_side(second, "checkpoint", b"kept")
    await store.archive(thread_id)
    assert [info.archived for info in await store.rollouts(thread_id)] == [True, True]
    assert (await store.find(thread_id)).rollout_id == second
    with pytest.raises(LogMissing) as caught:
        await store.open(thread_id)
    assert caught.value.archived
    with pytest.raises(LogMissing):
        await store.archive(thread_id)
    assert texts(await read(store, fork.info.rollout_id)) == ["session_meta", "a", "b", "session_meta"]
    other = backend.open()
    assert (await other.unarchive(thread_id)).rollout_id == second
    assert await other.read_side(second, "checkpoint") == b"kept"
    with pytest.raises(LogMissing):
        await other.unarchive(thread_id)
    assert (await store.open(thread_id)).info.rollout_id == second


async def test_a_thread_that_others_build_on_is_not_deleted(store: RolloutStore) -> None:
    log = await thread(store, "a")
    thread_id, second = log.info.thread_id, new_id()
    newer = await store.branch(header(thread_id, second), Position(thread_id, 2), notes("b"), replaces=log)
    fork = await store.branch(header(new_id(), forked=thread_id), Position(second, 4))
    fork_id = fork.info.thread_id
    with pytest.raises(WriterHeld):
        await store.delete(thread_id)
    await newer.close()
    assert await store.dependents(thread_id) == [fork_id]
    with pytest.raises(DependentThreads) as caught:
        await store.delete(thread_id)
    assert caught.value.thread_ids == (fork_id,)
    await fork.close()
    await store.delete(fork_id)
    await store.delete(thread_id)
    assert await store.rollouts() == []
    for call in (store.delete(thread_id), store.open(thread_id), store.find(thread_id)):
        with pytest.raises(LogMissing):
            await call


async def test_side_files_are_replaced_and_missing_ones_are_none(store: RolloutStore) -> None:
    log = await thread(store, "a")
    rollout = log.info.rollout_id
    assert await store.read_side(rollout, "checkpoint") is None
    await store.write_side(rollout, "checkpoint", b"one")
    await store.write_side(rollout, "checkpoint", b"two")
    assert await store.read_side(rollout, "checkpoint") == b"two"
    assert await store.read_side(new_id(), "checkpoint") is None
    await store.write_side(new_id(), "checkpoint", b"nobody")


async def test_the_fingerprint_moves_with_every_write_and_only_then(store: RolloutStore) -> None:
    log = await thread(store, "a")
    rollout = log.info.rollout_id
    before = await store.fingerprint(rollout)
    assert await store.fingerprint(rollout) == before
    await log.append(notes("b"))
    after = await store.fingerprint(rollout)
    assert after != before
    await log.close()
    assert await store.fingerprint(rollout) == after


async def test_reopening_goes_on_where_the_log_ended_and_writes_nothing(backend: Backend) -> None:
    log = await thread(backend.open(), "a", "b")
    rollout = log.info.rollout_id
    await log.close()
    store = backend.open()
    before = await store.fingerprint(rollout)
    again = await store.open(log.info.thread_id)
    assert again.next_ordinal == 3
    assert again.info.header == log.info.header
    await again.close()
    assert await store.fingerprint(rollout) == before
    assert store.stats.bytes_written == 0


async def test_a_legacy_rollout_points_at_no_base(store: RolloutStore) -> None:
    log = await thread(store, "a", mode=HistoryMode.LEGACY)
    with pytest.raises(ValueError, match="legacy"):
        await store.branch(header(new_id(), mode=HistoryMode.LEGACY), Position(log.info.thread_id, 1))


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_cancelled_branch_happens_whole_or_not_at_all(store: RolloutStore, steps: int) -> None:
    log = await thread(store, "a", "b")
    thread_id, second = log.info.thread_id, new_id()
    task = asyncio.create_task(
        store.branch(header(thread_id, second), Position(thread_id, 2), notes("x"), replaces=log)
    )
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await (await task).close()
    with contextlib.suppress(StoreClosed):
        await log.close()
    reopened = await asyncio.wait_for(_open_when_free(store, thread_id), 10)
    present = texts(await read(store, reopened.info.rollout_id))
    assert present in (["session_meta", "a", "session_meta", "x"], ["session_meta", "a", "b"])


async def _open_when_free(store: RolloutStore, thread_id: str) -> Log:
    while True:
        try:
            return await store.open(thread_id)
        except WriterHeld:
            await asyncio.sleep(0)


async def test_readers_of_a_growing_log_see_prefixes_of_it(backend: Backend) -> None:
    writer, reader = backend.open(), backend.open()
    log = await thread(writer)
    rollout = log.info.rollout_id

    async def write() -> None:
        for index in range(60):
            await log.append(notes(f"{index}", "x" * 3_000))

    writing = asyncio.create_task(write())
    seen = 0
    while not writing.done():
        for store in (writer, reader):
            found = await read(store, rollout)
            assert ordinals(found) == list(range(len(found)))
            assert len(found) >= seen
            seen = len(found)
        child = await writer.branch(header(new_id(), forked=rollout), Position(rollout, seen))
        assert len(await read(writer, child.info.rollout_id)) == seen + 1
        await child.close()
    await writing
    assert len(await read(reader, rollout)) == 121
