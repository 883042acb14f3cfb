"""What is special about files: torn tails, compressed twins, copies, read costs, foreign writers."""

import errno
import os
import stat
from pathlib import Path

import pytest
import zstandard
from unspool_protocol.log import HistoryMode, NewRecord, Position
from unspool_server.errors import LogCorrupt, LogMissing, WriteFailed
from unspool_server.store.contract import Log
from unspool_server.store.lines import chain_link, verify_check
from unspool_server.store.local import LocalStore

from tests.conformance.threads import (
    faults,
    header,
    new_id,
    note,
    notes,
    ordinals,
    read,
    read_backward,
    texts,
    thread,
)


def path_of(log: Log) -> Path:
    """The log's file."""
    assert log.info.path is not None
    return Path(log.info.path)


async def closed_thread(home: Path, *words: str, mode: HistoryMode = HistoryMode.PAGINATED) -> tuple[str, Path]:
    """A stored thread that nobody has open: its id and file."""
    store = LocalStore(home)
    log = await thread(store, *words, mode=mode)
    await store.close()
    return log.info.thread_id, path_of(log)


@pytest.mark.parametrize("mode", list(HistoryMode))
@pytest.mark.parametrize("tail", [b'{"timestamp":"2026', b'{"type":"event_msg","text":"\xf0\x9f', b"\0" * 40, b"}"])
async def test_a_torn_tail_becomes_a_line_of_its_own(tmp_path: Path, mode: HistoryMode, tail: bytes) -> None:
    thread_id, path = await closed_thread(tmp_path, "a", mode=mode)
    with path.open("ab") as file:
        file.write(tail)
    store = LocalStore(tmp_path)
    assert texts(await read(store, thread_id)) == ["session_meta", "a"]
    assert [code for _, code in await faults(store, thread_id)] == ["tornTail" if tail.strip(b"\0") else "zeroBytes"]
    log = await store.open(thread_id)
    await log.add(notes("b"))
    await store.close()
    assert texts(await read(store, thread_id)) == ["session_meta", "a", "b"]
    assert texts(await read_backward(store, thread_id)) == ["session_meta", "a", "b"]
    assert path.read_bytes().split(b"\n")[2] == tail


async def test_lines_that_we_write_verify_as_a_chain(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = await thread(store, "a", "b")
    await log.append(notes("c", "d"))
    await log.close()
    log = await store.open(log.info.thread_id)
    await log.append(notes("e"))
    await store.close()
    previous = b""
    for line in path_of(log).read_bytes().splitlines():
        assert verify_check(previous, line) is True
        previous = chain_link(line)


async def test_glued_records_are_read_in_both_modes(tmp_path: Path) -> None:
    thread_id, path = await closed_thread(tmp_path, "a", "b", "c", "d")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].rstrip(b"\n"), *lines[3:]]))
    store = LocalStore(tmp_path)
    assert texts(await read(store, thread_id)) == ["session_meta", "a", "b", "c", "d"]
    assert await read(store, thread_id) == await read_backward(store, thread_id)
    assert [code for _, code in await faults(store, thread_id)] == ["gluedRecords"]


async def test_a_missing_last_ordinal_is_counted_on(tmp_path: Path) -> None:
    thread_id, path = await closed_thread(tmp_path, "a")
    with path.open("ab") as file:
        file.write(b'{"type":"event_msg","payload":{"text":"b"}}\n')
    store = LocalStore(tmp_path)
    found = await read(store, thread_id)
    assert ordinals(found) == ordinals(await read_backward(store, thread_id)) == [0, 1, 2]
    assert await faults(store, thread_id) == await faults(store, thread_id, backward=True) == [(2, "ordinalMissing")]
    assert (await store.open(thread_id)).next_ordinal == 3
    await store.close()


def compress(path: Path) -> Path:
    """Replace a file by its compressed twin."""
    packed = path.with_name(f"{path.name}.zst")
    packed.write_bytes(zstandard.ZstdCompressor(level=3).compress(path.read_bytes()))
    path.unlink()
    return packed


async def test_a_compressed_log_is_read_in_place_and_unpacked_before_it_is_appended_to(tmp_path: Path) -> None:
    thread_id, path = await closed_thread(tmp_path, "a", "b")
    content = path.read_bytes()
    packed = compress(path)
    store = LocalStore(tmp_path)
    assert texts(await read_backward(store, thread_id)) == ["session_meta", "a", "b"]
    fork = await store.branch(header(new_id(), forked=thread_id), Position(thread_id, 2))
    assert texts(await read(store, fork.info.rollout_id)) == ["session_meta", "a", "session_meta"]
    log = await store.open(thread_id)
    assert packed.exists() and not path.exists()
    await log.append(notes("c"))
    assert path.exists() and not packed.exists()
    assert path.read_bytes().startswith(content)
    assert texts(await read(store, thread_id)) == ["session_meta", "a", "b", "c"]
    await store.close()
    assert texts(await read(store, thread_id)) == ["session_meta", "a", "b", "c"]


async def test_a_damaged_compressed_log_is_unreadable_and_no_more(tmp_path: Path) -> None:
    thread_id, path = await closed_thread(tmp_path, "a")
    other, _ = await closed_thread(tmp_path, "x")
    packed = compress(path)
    packed.write_bytes(b"no zstd at all")
    store = LocalStore(tmp_path)
    assert list(await store.unreadable()) == [thread_id]
    assert [info.thread_id for info in await store.rollouts()] == [other]


async def test_copies_made_by_a_sync_tool_and_empty_files_do_not_confuse(tmp_path: Path) -> None:
    thread_id, path = await closed_thread(tmp_path, "a")
    path.with_name(f"{path.stem} (1).jsonl").write_bytes(path.read_bytes())
    empty = new_id()
    path.with_name(f"rollout-2027-01-01T00-00-00-{empty}.jsonl").touch()
    segment = new_id()
    path.with_name(f"rollout-2027-01-01T00-00-00-{thread_id}_{segment}.jsonl").touch()
    store = LocalStore(tmp_path)
    assert [info.rollout_id for info in await store.rollouts()] == [thread_id]
    assert await store.unreadable() == {empty: "the log is empty", segment: "the log is empty"}
    assert (await store.find(thread_id)).rollout_id == thread_id
    with pytest.raises(LogCorrupt):
        await store.find(empty)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"history_mode":"paginated"', b'"history_mode":"quantum"', "unknown history mode"),
        (b'"cwd":"/ws"', b'"history_base":{"thread_id":7}', "unusable history base"),
    ],
)
async def test_headers_that_cannot_be_honoured_are_refused(tmp_path: Path, old: bytes, new: bytes, reason: str) -> None:
    thread_id, path = await closed_thread(tmp_path, "a")
    path.write_bytes(path.read_bytes().replace(old, new, 1))
    store = LocalStore(tmp_path)
    assert await store.unreadable() == {thread_id: reason}


async def test_a_base_that_is_gone_or_circular_is_an_error_not_a_hole(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    parent = await thread(store, "a")
    child = await store.branch(header(new_id(), forked=parent.info.thread_id), Position(parent.info.thread_id, 2))
    rollout = child.info.rollout_id
    await store.close()
    path_of(parent).unlink()
    fresh = LocalStore(tmp_path)
    with pytest.raises(LogCorrupt, match="base is missing"):
        await read(fresh, rollout)
    path = path_of(child)
    path.write_bytes(path.read_bytes().replace(parent.info.thread_id.encode(), rollout.encode()))
    with pytest.raises(LogCorrupt, match="circle"):
        await read(LocalStore(tmp_path), rollout)


async def test_a_wrong_byte_offset_in_a_base_is_found_out(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    parent = await thread(store, *"abcdef")
    child = await store.branch(header(new_id(), forked=parent.info.thread_id), Position(parent.info.thread_id, 3))
    await parent.add(notes("later"))
    await store.close()
    path, sound = path_of(child), path_of(child).read_bytes()
    right = sum(len(line) + 1 for line in path_of(parent).read_bytes().split(b"\n")[:3])
    for wrong in (0, 1, right - 1, right + 1, right * 2, 10**9):
        path.write_bytes(sound.replace(b'"end_byte_offset":%d' % right, b'"end_byte_offset":%d' % wrong))
        found = await read(LocalStore(tmp_path), child.info.rollout_id)
        assert texts(found) == ["session_meta", "a", "b", "session_meta"]
        assert found == await read_backward(LocalStore(tmp_path), child.info.rollout_id)


async def big_log(home: Path, count: int = 2_200) -> tuple[str, Path]:
    """A log of some 22 MB."""
    store = LocalStore(home)
    log = await thread(store)
    for start in range(0, count, 200):
        await log.append(
            [NewRecord("event_msg", {"text": f"{index}", "x": "y" * 10_000}) for index in range(start, start + 200)]
        )
    await store.close()
    return log.info.thread_id, path_of(log)


async def test_the_cost_of_reading_follows_the_part_asked_for(tmp_path: Path) -> None:
    thread_id, path = await big_log(tmp_path)
    assert path.stat().st_size > 20_000_000
    store = LocalStore(tmp_path)
    await store.find(thread_id)
    wanted: list[bytes] = []
    before = store.stats.bytes_read
    reader = store.read_backward(thread_id)
    async for record in reader:
        wanted.append(record.raw)
        if len(wanted) == 20:
            break
    await reader.aclose()
    needed = sum(map(len, wanted))
    assert store.stats.bytes_read - before < needed + 256 * 1024
    assert store.stats.lines_parsed < 25
    before = store.stats.bytes_read
    assert len(await read(store, thread_id, start=2_190)) == 11
    assert store.stats.bytes_read - before < 22 * 10_100 + 256 * 1024
    before = store.stats.bytes_read
    assert texts(await read(store, thread_id, start=700, end=702)) == ["699", "700"]
    assert store.stats.bytes_read - before < 3_000_000
    before = store.stats.bytes_read
    reader = store.read_backward(thread_id, end=300)
    assert (await anext(reader)).ordinal == 299
    await reader.aclose()
    assert store.stats.bytes_read - before < 3_000_000
    before = store.stats.bytes_read
    log = await store.open(thread_id)
    await log.append(notes("end"))
    child = await store.branch(header(new_id(), forked=thread_id), Position(thread_id, 2_202))
    assert store.stats.bytes_read - before < 512 * 1024
    before = store.stats.bytes_read
    reader = store.read_backward(child.info.rollout_id)
    assert texts([await anext(reader), await anext(reader)]) == ["session_meta", "end"]
    await reader.aclose()
    assert store.stats.bytes_read - before < 256 * 1024
    await store.close()


async def test_rollouts_of_another_process_are_noticed(tmp_path: Path) -> None:
    mine, theirs = LocalStore(tmp_path), LocalStore(tmp_path)
    assert await mine.rollouts() == []
    log = await thread(theirs, "a")
    thread_id = log.info.thread_id
    assert texts(await read(mine, thread_id)) == ["session_meta", "a"]
    assert [info.thread_id for info in await mine.rollouts()] == [thread_id]
    await log.close()
    await theirs.archive(thread_id)
    assert texts(await read(mine, thread_id)) == ["session_meta", "a"]
    assert (await mine.find(thread_id)).archived
    await theirs.delete(thread_id)
    with pytest.raises((LogMissing, LogCorrupt)):
        await read(mine, thread_id)
    assert await mine.rollouts() == []


async def test_a_log_that_somebody_else_changed_is_not_written_to(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = await thread(store, "a")
    path = path_of(log)
    with path.open("ab") as file:
        file.write(b'{"type":"event_msg","ordinal":2,"payload":{"text":"foreign"}}\n')
    content = path.read_bytes()
    with pytest.raises(WriteFailed) as caught:
        await log.append(notes("mine"))
    assert not caught.value.retryable
    assert path.read_bytes() == content
    await log.discard()
    again = await store.open(log.info.thread_id)
    assert ordinals(await again.append(notes("mine"))) == [3]
    await store.close()


async def test_deleting_leaves_no_file_of_the_thread(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    log = await thread(store, "a")
    thread_id = log.info.thread_id
    second = new_id()
    newer = await store.branch(header(thread_id, second), Position(thread_id, 2), replaces=log)
    for rollout in (thread_id, second):
        await store.write_side(rollout, "checkpoint", b"x")
    await newer.close()
    folder = path_of(log).parent
    assert len(list(folder.iterdir())) == 4
    await store.delete(thread_id)
    assert list(folder.iterdir()) == []


async def test_synced_barriers_sync_file_and_create_nothing_else(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, durable=True)
    log = await thread(store, "a")
    before = store.stats.syncs
    await log.append([note("b")])
    await log.flush()
    assert store.stats.syncs >= before + 1
    await store.close()
    assert [path.name for path in path_of(log).parent.iterdir()] == [path_of(log).name]


async def test_where_hard_links_are_not_possible_files_are_created_exclusively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    store = LocalStore(tmp_path)
    log = await thread(store, "a")
    assert texts(await read(store, log.info.rollout_id)) == ["session_meta", "a"]
    assert stat.S_ISREG(path_of(log).stat().st_mode)
    await store.close()
