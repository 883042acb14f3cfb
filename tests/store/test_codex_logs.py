"""Logs that Codex wrote, opened where they are, and the same logs damaged."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from unspool_protocol.log import HistoryMode
from unspool_server.errors import LogCorrupt
from unspool_server.store.local import LocalStore

from tests.conformance.threads import faults, note, ordinals, read, read_backward

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
SCENARIOS = sorted(folder.name for folder in FIXTURES.iterdir() if (folder / "sessions").is_dir())

Damage = Callable[[bytes], bytes]


def _damages() -> dict[str, Damage]:
    spec = importlib.util.spec_from_file_location("codex_damage", FIXTURES / "_damaged" / "damage.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: dict[str, Damage] = module.CASES
    return cases


DAMAGES = _damages()


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_a_codex_home_reads_whole_without_faults_in_both_directions(scenario: str) -> None:
    store = LocalStore(FIXTURES / scenario)
    assert await store.unreadable() == {}
    infos = await store.rollouts()
    assert infos
    for info in infos:
        records = await read(store, info.rollout_id)
        assert records == await read_backward(store, info.rollout_id)
        assert await faults(store, info.rollout_id) == await faults(store, info.rollout_id, backward=True) == []
        assert ordinals(records) == list(range(len(records)))
        assert info.header in records
        own = [record for record in records if record.rollout_id == info.rollout_id]
        content = Path(info.path or "").read_bytes()
        assert b"".join(record.raw + b"\n" for record in own) == content
        await _ranges_agree(store, info.rollout_id, len(records))
    assert store.stats.bytes_written == 0


async def _ranges_agree(store: LocalStore, rollout_id: str, count: int) -> None:
    for start, end in ((0, 1), (1, count // 2), (count // 2, count), (count - 1, count), (count, count + 5)):
        assert ordinals(await read(store, rollout_id, start=start, end=end)) == list(range(start, min(end, count)))
        assert ordinals(await read_backward(store, rollout_id, end=end)) == list(range(min(end, count)))


def test_there_are_enough_scenarios() -> None:
    assert len(SCENARIOS) >= 40


async def test_a_reverted_thread_is_present_in_its_newest_segment() -> None:
    store = LocalStore(FIXTURES / "revert")
    oldest, newest = await store.rollouts()
    found = await store.find(oldest.thread_id)
    assert found == newest
    assert newest.base is not None and newest.base.rollout_id == oldest.rollout_id == oldest.thread_id


async def test_an_archived_thread_is_found_as_archived() -> None:
    infos = await LocalStore(FIXTURES / "name_archive").rollouts()
    assert sorted(info.archived for info in infos) == [False, True]


def damaged_home(home: Path, name: str, *, legacy: bool) -> tuple[str, Path, bytes]:
    """A home with one log damaged as named: thread id, file, and the sound content."""
    source = next((FIXTURES / ("legacy_tool_loop" if legacy else "tool_loop")).rglob("*.jsonl"))
    target = home / source.relative_to(source.parents[4])
    target.parent.mkdir(parents=True)
    sound = source.read_bytes()
    target.write_bytes(DAMAGES[name](sound))
    return target.stem[len("rollout-2026-11-30T08-51-58-") :], target, sound


UNUSABLE = {
    "empty_file": "the log is empty",
    "only_newline": "the log has no session_meta record",
    "missing_meta": "the log has no session_meta record",
}
FAULTS: dict[str, list[str]] = {
    "truncated_last_line": ["tornTail"],
    "truncated_mid_last_response_item": ["tornTail"],
    "garbage_middle": ["invalidJson"],
    "half_json_middle": ["invalidJson"],
    "garbage_first_line": ["invalidJson"],
    "invalid_utf8": ["mendedUtf8"] * 2,
    "nul_tail": ["zeroBytes"],
}
PAGINATED_FAULTS = FAULTS | {
    "duplicate_event_line": ["duplicate"],
    "duplicate_response_item_line": ["duplicate"],
    "unknown_record_type": ["ordinalMissing"],
}


@pytest.mark.parametrize("legacy", [False, True], ids=["paginated", "legacy"])
@pytest.mark.parametrize("name", sorted(DAMAGES))
async def test_a_damaged_log_gives_all_its_sound_records_and_says_what_is_wrong(
    tmp_path: Path, name: str, legacy: bool
) -> None:
    thread_id, path, _ = damaged_home(tmp_path, name, legacy=legacy)
    before = path.read_bytes()
    store = LocalStore(tmp_path)
    if name in UNUSABLE:
        assert await store.unreadable() == {thread_id: UNUSABLE[name]}
        assert await store.rollouts() == []
        with pytest.raises(LogCorrupt):
            await store.open(thread_id)
        return
    records = await read(store, thread_id)
    assert records == await read_backward(store, thread_id)
    codes = [code for _, code in await faults(store, thread_id)]
    if name == "ordinals_missing":
        assert codes == ([] if legacy else ["ordinalMissing"] * len(records))
        assert ordinals(records) == list(range(len(records)))
    else:
        assert codes == (FAULTS if legacy else PAGINATED_FAULTS).get(name, [])
    assert await faults(store, thread_id) == await faults(store, thread_id, backward=True)
    lost = sum(code not in ("duplicate", "ordinalMissing", "mendedUtf8") for code in codes)
    lines = [line for line in before.replace(b"\0", b"").split(b"\n") if line.strip()]
    extra = sum(code == "duplicate" for code in codes)
    assert len(records) == len(lines) - extra - (lost if name != "nul_tail" else 0)
    assert path.read_bytes() == before


@pytest.mark.parametrize("legacy", [False, True], ids=["paginated", "legacy"])
@pytest.mark.parametrize("name", sorted(set(DAMAGES) - set(UNUSABLE)))
async def test_appending_to_a_damaged_log_keeps_every_byte_of_it(tmp_path: Path, name: str, legacy: bool) -> None:
    thread_id, path, _ = damaged_home(tmp_path, name, legacy=legacy)
    before = path.read_bytes()
    old = await read(LocalStore(tmp_path), thread_id)
    store = LocalStore(tmp_path)
    log = await store.open(thread_id)
    assert path.read_bytes() == before
    [added] = await log.append([note("new")])
    await log.close()
    after = path.read_bytes()
    torn = b"" if before.endswith(b"\n") else b"\n"
    assert after == before + torn + added.raw + b"\n"
    found = await read(LocalStore(tmp_path), thread_id)
    assert found == [*old, added]
    assert found == await read_backward(LocalStore(tmp_path), thread_id)
    assert added.ordinal not in ordinals(old)
    expected_mode = HistoryMode.LEGACY if legacy else HistoryMode.PAGINATED
    assert log.info.mode is expected_mode
