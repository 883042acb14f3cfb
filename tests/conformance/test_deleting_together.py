"""Deleting threads that build on each other, copies that keep their numbers, and searching raw bytes."""

import pytest
from unspool_protocol.log import NewRecord, Position
from unspool_server.errors import DependentThreads, LogMissing, WriterHeld
from unspool_server.store.contract import Log
from unspool_server.store.rollouts import RolloutStore

from tests.conformance.conftest import Backend
from tests.conformance.threads import header, new_id, notes, ordinals, read, read_backward, texts, thread


async def _pair(store: RolloutStore) -> tuple[str, str]:
    """A thread and a fork of it, both closed."""
    log = await thread(store, "a", "b")
    fork = await store.branch(header(new_id(), forked=log.info.thread_id), Position(log.info.thread_id, 3))
    await log.close()
    await fork.close()
    return log.info.thread_id, fork.info.thread_id


async def test_dependents_named_before_a_thread_go_with_it(store: RolloutStore) -> None:
    root, child = await _pair(store)
    await store.delete(root, before=[child])
    assert await store.rollouts() == []


async def test_nothing_goes_while_one_of_them_is_held_or_another_one_depends(backend: Backend) -> None:
    store, other = backend.open(), backend.open()
    root, child = await _pair(store)
    held = await other.open(child)
    with pytest.raises(WriterHeld):
        await store.delete(root, before=[child])
    await held.close()
    third = await store.branch(header(new_id(), forked=child), Position(child, 4), notes("c"))
    await third.close()
    with pytest.raises(DependentThreads) as caught:
        await store.delete(root, before=[child])
    assert caught.value.thread_ids == (third.info.thread_id,)
    with pytest.raises(LogMissing):
        await store.delete(root, before=[new_id()])
    assert len(await store.rollouts()) == 3
    log = await store.open(root)
    await log.close()


async def test_a_released_dependent_does_not_keep_a_thread(store: RolloutStore) -> None:
    root, child = await _pair(store)
    await store.delete(root, released=[child])
    assert [info.thread_id for info in await store.rollouts()] == [child]


async def _copied(store: RolloutStore, log: Log, *kept: int) -> Log:
    lines = [record for record in await read(store, log.info.rollout_id) if record.ordinal in kept]
    tail = [NewRecord(record.type, record.payload, raw=record.raw) for record in lines]
    return await store.branch(header(log.info.thread_id, new_id()), None, tail, replaces=log)


async def test_copied_lines_keep_their_numbers_and_new_ones_follow_the_last(backend: Backend) -> None:
    store = backend.open()
    copy = await _copied(store, await thread(store, "a", "b", "c", "d"), 1, 2, 4)
    assert copy.next_ordinal == 5
    await copy.append(notes("e"), expected_ordinal=5)
    await copy.add(notes("f"))
    live = await read(store, copy.info.rollout_id)
    assert (texts(live), ordinals(live)) == (["session_meta", "a", "b", "d", "e", "f"], [0, 1, 2, 4, 5, 6])
    await copy.close()
    again = backend.open()
    assert await read(again, copy.info.rollout_id) == live
    assert await read_backward(again, copy.info.rollout_id) == live
    reopened = await again.open(copy.info.thread_id)
    assert reopened.next_ordinal == 7


async def test_bytes_are_found_anywhere_in_a_chain_but_not_behind_its_cuts(store: RolloutStore) -> None:
    log = await thread(store, "needle-one", "needle-two")
    root = log.info.thread_id
    fork = await store.branch(header(new_id(), forked=root), Position(root, 2), notes("needle-three"))
    await log.add(notes("needle-four"))
    own = fork.info.rollout_id
    found = [await store.mentions(own, b"needle-" + word) for word in (b"one", b"two", b"three", b"four")]
    assert found == [True, False, True, False]
    assert await store.mentions(root, b"needle-four")
    with pytest.raises(LogMissing):
        await store.mentions(new_id(), b"x")


async def test_bytes_are_found_across_the_border_of_two_blocks(store: RolloutStore) -> None:
    filler = "x" * (1 << 18)
    log = await thread(store, *([filler] * 5))
    await log.append(notes("the-needle"))
    size = 0
    for record in await read(store, log.info.rollout_id):
        start = record.raw.find(b"the-needle")
        if start >= 0:
            break
        size += len(record.raw) + 1
    assert size > 1 << 20
    assert await store.mentions(log.info.rollout_id, b"the-needle")
    assert not await store.mentions(log.info.rollout_id, b"the-noodle")
