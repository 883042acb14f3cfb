"""Creating, adding, flushing and guarded appends on every backend (02 §2-§4)."""

import asyncio
import errno
from dataclasses import replace

import pytest
from unspool_protocol.log import HistoryMode, NewRecord
from unspool_server.errors import LogConflict, LogExists, LogMissing, StoreClosed, WriteFailed, WriterHeld
from unspool_server.store.rollouts import RolloutStore

from tests.conformance.conftest import Backend
from tests.conformance.threads import header, new_id, note, notes, ordinals, read, read_backward, texts, thread


async def test_a_created_thread_leaves_no_trace_before_its_first_record(store: RolloutStore) -> None:
    log = await store.create(header(new_id()))
    await log.flush()
    assert log.deferred
    assert log.info.header is None
    assert await store.rollouts() == []
    await log.close()
    with pytest.raises(LogMissing):
        await store.find(log.info.thread_id)


async def test_flush_with_pending_records_creates_the_rollout(store: RolloutStore) -> None:
    log = await store.create(header(new_id()))
    added = await log.add(notes("a"))
    assert log.deferred
    await log.flush()
    assert not log.deferred
    assert ordinals(added) == [1]
    assert log.info.header is not None and log.info.header.payload["history_mode"] == "paginated"
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a"]


async def test_persist_without_records_writes_the_header_alone(store: RolloutStore) -> None:
    log = await store.create(header(new_id()))
    await log.persist()
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta"]


async def test_a_taken_id_is_refused(store: RolloutStore) -> None:
    log = await thread(store, "a")
    with pytest.raises(LogExists):
        await store.create(header(log.info.thread_id))
    await log.close()
    with pytest.raises(LogExists):
        await store.create(header(log.info.thread_id))


async def test_added_records_are_returned_as_they_stand_in_the_log(store: RolloutStore) -> None:
    log = await thread(store)
    record = NewRecord("response_item", {"a": (1, 2)}, metadata={"m": 1}, extra={"unspool": {"x": True}})
    [added] = await log.add([record])
    await log.flush()
    assert (await read(store, log.info.rollout_id))[1] == added
    assert added.payload == {"a": [1, 2]}
    assert added.metadata == {"m": 1}
    assert added.extra == {"unspool": {"x": True}}


async def test_pending_records_are_read_like_written_ones(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", errno.ENOSPC, times=100)
    await log.add(notes("b", "c"))
    with pytest.raises(WriteFailed):
        await log.flush()
    rollout = log.info.rollout_id
    assert texts(await read(store, rollout)) == ["session_meta", "a", "b", "c"]
    assert texts(await read_backward(store, rollout, end=3)) == ["session_meta", "a", "b"]
    assert log.last_error is not None
    backend.faults.clear()
    await log.flush()
    assert log.last_error is None


async def test_a_payload_that_json_cannot_hold_is_refused_with_its_whole_batch(
    store: RolloutStore,
) -> None:
    log = await thread(store, "a")
    with pytest.raises(TypeError):
        await log.add([note("b"), NewRecord("event_msg", {"x": object()})])
    with pytest.raises(TypeError):
        await log.append([NewRecord("event_msg", {"x": {1, 2}})])
    assert log.next_ordinal == 2
    await log.add(notes("c"))
    await log.flush()
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a", "c"]


async def test_half_characters_and_huge_numbers_are_kept(store: RolloutStore) -> None:
    log = await thread(store)
    [added] = await log.add([NewRecord("event_msg", {"s": "a\ud800b", "n": 2**70})])
    await log.flush()
    [_, found] = await read(store, log.info.rollout_id)
    assert found == added
    assert found.payload["n"] == 2**70
    assert b"\\ud800" in found.raw


async def test_the_first_record_of_a_writer_that_goes_on_with_a_log_says_so(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    await log.close()
    again = await store.open(log.info.thread_id)
    backend.faults.plan("append", errno.ENOSPC, times=9)
    with pytest.raises(WriteFailed):
        await again.append(notes("withdrawn"))
    backend.faults.clear()
    await again.append([replace(note("b"), extra={"unspool": {"x": 1}}), note("c")])
    await again.add(notes("d"))
    await again.close()
    last = await store.open(log.info.thread_id)
    await last.add(notes("e"))
    await last.close()
    extras = [dict(record.extra) for record in (await read(store, log.info.rollout_id))[1:]]
    opened = {"opened": True}
    assert extras == [{}, {"unspool": {"x": 1, **opened}}, {}, {}, {"unspool": opened}]


async def test_an_append_at_another_end_is_a_conflict_and_writes_nothing(store: RolloutStore) -> None:
    log = await thread(store, "a")
    with pytest.raises(LogConflict) as caught:
        await log.append(notes("b"), expected_ordinal=1)
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert ordinals(await log.append(notes("b", "c"), expected_ordinal=2)) == [2, 3]
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a", "b", "c"]


@pytest.mark.parametrize("partial", [0, 7, 250])
@pytest.mark.parametrize("truncates", [True, False])
async def test_a_failed_append_is_withdrawn_whole(backend: Backend, partial: int, truncates: bool) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", errno.ENOSPC, partial=partial)
    backend.faults.plan("append", errno.ENOSPC, times=9)
    if not truncates:
        backend.faults.plan("truncate", errno.EIO, times=1)
    with pytest.raises(WriteFailed) as caught:
        await log.append(notes("b" * 100, "c" * 100), expected_ordinal=2)
    assert caught.value.retryable
    assert log.next_ordinal == 2
    backend.faults.clear()
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a"]
    assert ordinals(await log.append(notes("d"), expected_ordinal=2)) == [2]
    await log.close()
    again = backend.open()
    assert texts(await read(again, log.info.rollout_id)) == ["session_meta", "a", "d"]


@pytest.mark.parametrize("mode", list(HistoryMode))
@pytest.mark.parametrize("partial", [0, 5, 110, 400])
async def test_a_full_disk_loses_nothing_and_keeps_the_order(backend: Backend, partial: int, mode: HistoryMode) -> None:
    store = backend.open()
    log = await thread(store, "a", mode=mode)
    backend.faults.plan("append", errno.ENOSPC, partial=partial)
    backend.faults.plan("append", errno.ENOSPC, times=200)
    accepted = []
    for index in range(20):
        accepted += await log.add(notes(f"{index}", "x" * 30))
    with pytest.raises(WriteFailed):
        await log.flush()
    with pytest.raises(WriteFailed):
        await log.close()
    backend.faults.clear()
    await log.close()
    found = await read(backend.open(), log.info.rollout_id)
    assert found[2:] == accepted
    assert ordinals(found) == list(range(42))


async def test_a_short_write_is_completed(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", None, partial=3)
    await log.append(notes("b", "c"))
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a", "b", "c"]
    assert log.last_error is None


async def test_one_barrier_makes_two_attempts(backend: Backend) -> None:
    log = await thread(backend.open(), "a")
    backend.faults.plan("append", errno.EIO, times=2)
    backend.faults.calls.clear()
    with pytest.raises(WriteFailed):
        await log.append(notes("b"))
    assert backend.faults.calls["append"] == 2


async def test_creation_that_fails_stays_deferred_and_is_retried(backend: Backend) -> None:
    store = backend.open()
    log = await store.create(header(new_id()))
    await log.add(notes("a"))
    backend.faults.plan("publish", errno.ENOSPC, times=2)
    with pytest.raises(WriteFailed):
        await log.persist()
    assert log.deferred
    assert await store.rollouts() == []
    await log.persist()
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a"]


async def test_a_write_whose_answer_was_lost_is_not_written_twice(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", errno.EIO, partial=10_000)
    await log.append(notes("b"))
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a", "b"]


async def test_sync_reports_a_disk_that_refuses(backend: Backend) -> None:
    log = await thread(backend.open(), "a")
    backend.faults.plan("sync", errno.EIO, times=2)
    with pytest.raises(WriteFailed):
        await log.sync()
    await log.sync()
    assert log.last_error is None


async def test_a_closed_log_accepts_nothing(store: RolloutStore) -> None:
    log = await thread(store, "a")
    await log.close()
    await log.close()
    with pytest.raises(StoreClosed):
        await log.add(notes("b"))
    with pytest.raises(StoreClosed):
        await log.append(notes("b"))
    with pytest.raises(StoreClosed):
        await log.flush()


async def test_discard_drops_what_is_pending_and_frees_the_thread(backend: Backend) -> None:
    store = backend.open()
    log = await thread(store, "a")
    backend.faults.plan("append", errno.ENOSPC, times=50)
    await log.add(notes("b"))
    with pytest.raises(WriteFailed):
        await log.flush()
    await log.discard()
    backend.faults.clear()
    again = await store.open(log.info.thread_id)
    assert again.next_ordinal == 2
    assert again.epoch > log.epoch


async def test_a_live_thread_has_one_writer(backend: Backend) -> None:
    store, other = backend.open(), backend.open()
    log = await thread(store, "a")
    for each in (store, other):
        with pytest.raises(WriterHeld):
            await each.open(log.info.thread_id)
    assert texts(await read(other, log.info.rollout_id)) == ["session_meta", "a"]
    await log.close()
    taken = await other.open(log.info.thread_id)
    with pytest.raises(WriterHeld):
        await store.open(log.info.thread_id)
    assert taken.epoch > log.epoch


async def test_many_callers_keep_one_order(store: RolloutStore) -> None:
    log = await thread(store)

    async def caller(name: int) -> list[int]:
        mine: list[int] = []
        for index in range(40):
            if index % 10 == 9:
                mine += ordinals(await log.append(notes(f"{name}.{index}")))
            else:
                mine += ordinals(await log.add(notes(f"{name}.{index}")))
        return mine

    given = await asyncio.wait_for(asyncio.gather(*(caller(name) for name in range(10))), 30)
    await log.flush()
    assert all(mine == sorted(mine) for mine in given)
    found = await read(store, log.info.rollout_id)
    assert ordinals(found) == list(range(401))
    assert {record.ordinal: record.payload["text"].split(".")[0] for record in found[1:]} == {
        ordinal: str(name) for name, mine in enumerate(given) for ordinal in mine
    }


async def test_a_cancelled_append_is_decided_by_the_writer(store: RolloutStore) -> None:
    log = await thread(store, "a")
    task = asyncio.create_task(log.append(notes("b", "c")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await log.append(notes("d"))
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a", "b", "c", "d"]


async def test_legacy_logs_carry_no_ordinals_and_count_lines(store: RolloutStore) -> None:
    log = await thread(store, "a", mode=HistoryMode.LEGACY)
    foreign = b'{"type":"event_msg",  "payload":{"text":"copied"}}'
    await log.append([NewRecord("event_msg", {}, raw=foreign)])
    found = await read(store, log.info.rollout_id)
    assert ordinals(found) == [0, 1, 2]
    assert texts(found) == ["session_meta", "a", "copied"]
    assert found[2].raw == foreign
    assert all(b'"ordinal"' not in record.raw for record in found)
    await log.close()
    assert (await store.open(log.info.thread_id)).next_ordinal == 3


async def test_a_writer_that_dies_accepts_nothing_more_and_frees_the_thread(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = backend.open()
    log = await thread(store, "a")

    def die(_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr("unspool_server.store.tail.RolloutTail.extend", lambda *_: die(None))
        with pytest.raises(StoreClosed):
            await log.append(notes("b"))
    for refused in (log.add(notes("c")), log.flush(), log.append(notes("d"))):
        with pytest.raises(StoreClosed):
            await refused
    await log.discard()
    again = await store.open(log.info.thread_id)
    assert again.next_ordinal == 2


async def test_records_added_while_the_rollout_is_created_are_written_without_another_barrier(
    store: RolloutStore,
) -> None:
    log = await store.create(header(new_id()))
    creating = asyncio.create_task(log.persist())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await log.add(notes("a"))
    await creating
    await log.append([])
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a"]
