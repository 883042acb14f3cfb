"""Every prefix of every captured log: it opens, or a typed error says what is missing; bounded reading sees the same.

By default a sample of the cuts is tried; UNSPOOL_ALL_PREFIXES=1 (set by `make fuzz`) tries each line and 200 bytes of
every file.
"""

import json
import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from unspool_protocol.log import Record
from unspool_server.errors import LogCorrupt, LogMissing, StoreError
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.settings import effective_settings
from unspool_server.history.state import Reconstruction
from unspool_server.history.turn_pages import turn_slices
from unspool_server.sessions.loading import load, turns_back
from unspool_server.store import LocalStore
from unspool_server.store.contract import RolloutInfo
from unspool_server.store.names import Entry

from tests.interaction.house import FIXTURES

ALL = os.environ.get("UNSPOOL_ALL_PREFIXES") == "1"
LINES, BYTES = (None, 200) if ALL else (5, 4)
"""How many cuts at line ends (None: all of them) and inside lines are tried for each file."""

FILES = sorted(path.relative_to(FIXTURES) for path in FIXTURES.glob("*/*sessions/**/*.jsonl"))


def cuts(content: bytes, name: str) -> Iterator[int]:
    """Where to cut a file, seeded by its name."""
    chance = random.Random(name)
    ends = [at + 1 for at, byte in enumerate(content) if byte == 0x0A]
    yield 0
    yield from ends if LINES is None else chance.sample(ends, min(LINES, len(ends)))
    yield from (chance.randrange(1, len(content)) for _ in range(BYTES))


@pytest.mark.parametrize("name", FILES, ids=lambda path: f"{path.parts[0]}-{path.stem[-17:]}")
async def test_any_prefix_of_a_log_is_reconstructed_or_refused_with_a_reason(tmp_path: Path, name: Path) -> None:
    scenario = FIXTURES / name.parts[0]
    content = (FIXTURES / name).read_bytes()
    for folder in ("sessions", "archived_sessions"):
        if (scenario / folder).exists():
            shutil.copytree(scenario / folder, tmp_path / folder)
    path = tmp_path.joinpath(*name.parts[1:])
    for end in cuts(content, str(name)):
        path.write_bytes(content[:end])
        store = LocalStore(tmp_path)
        try:
            for info in _touched(await store.rollouts(), path):
                await same_in_every_way_of_reading(store, info)
            await refused_ones_say_why(store, content[:end])
        finally:
            await store.close()


async def same_in_every_way_of_reading(store: LocalStore, info: RolloutInfo) -> None:
    """Whole replay, reading from the end, and the turns in both directions."""
    try:
        whole = [record async for record in store.read(info.rollout_id)]
    except StoreError as error:
        assert str(error)
        return
    assert info.header is not None
    rest = [record for record in whole if record.position != info.header.position]
    records = [info.header, *rest]
    bounded = await load(store, info)
    assert facts(bounded.state) == facts(reconstruct(records, info.mode))
    assert bounded.settings == effective_settings(records)
    assert whole[::-1] == [record async for record in store.read_backward(info.rollout_id)]
    forward = [one.turn for one in turn_slices(whole, info.thread_id, info.mode)]
    backward = [one.turn async for one in turns_back(store, info)]
    assert backward[::-1] == forward


def facts(state: Reconstruction) -> Reconstruction:
    """What must be equal: everything but the fate of records that a bounded reader does not read, and its remarks."""
    return replace(state, spans=(), degradations=())


async def refused_ones_say_why(store: LocalStore, content: bytes) -> None:
    """A log that does not open is refused with a typed error that names what is missing."""
    for rollout_id, missing in (await store.unreadable()).items():
        assert missing in ("the log is empty", "the log has no session_meta record")
        assert not _has_header(content)
        with pytest.raises((LogCorrupt, LogMissing)):
            await store.rollout(rollout_id)


def _touched(infos: list[RolloutInfo], cut: Path) -> list[RolloutInfo]:
    """The file that was cut and those that continue it."""
    entry = Entry.parse(cut.name)
    assert entry is not None
    touched = {entry.rollout_id}
    for info in infos:
        if info.base is not None and info.base.rollout_id in touched:
            touched.add(info.rollout_id)
    return [info for info in infos if info.rollout_id in touched]


def _has_header(content: bytes) -> bool:
    for line in content.split(b"\n"):
        if b'"session_meta"' in line:
            try:
                return bool(json.loads(line)["type"] == "session_meta")
            except ValueError:
                continue
    return False


def test_records_are_compared_with_their_bytes() -> None:
    """The comparison above is one of places and bytes, not only of meaning."""
    one = Record("r", 1, "event_msg", {"type": "x"}, raw=b"{}")
    assert one != replace(one, ordinal=2) and one != replace(one, raw=b"{ }")
