"""File names, and which rollout is a thread's present."""

from datetime import UTC, datetime, timedelta

import pytest
from unspool_server.store.names import Entry, is_id, present_order, without_twins

THREAD = "01a22ba8-f0c1-7452-b920-faa740eb0516"
OTHER = "01a22ba8-f1f1-7413-9402-2660fdf3394a"
NOW = datetime(2026, 11, 30, 8, 53, 41, 999_000, tzinfo=UTC)


def test_names_are_those_of_the_reference() -> None:
    first, segment = Entry.new(THREAD, THREAD, NOW), Entry.new(THREAD, OTHER, NOW)
    stamp = NOW.astimezone().strftime("%Y-%m-%dT%H-%M-%S")
    assert first.file_name == f"rollout-{stamp}-{THREAD}.jsonl"
    assert segment.file_name == f"rollout-{stamp}-{THREAD}_{OTHER}.jsonl"
    assert str(first.relative_path) == f"sessions/{stamp[:10].replace('-', '/')}/{first.file_name}"
    for entry in (first, segment):
        assert Entry.parse(entry.file_name, folder=entry.folder) == entry
        archived = Entry.parse(entry.file_name, archived=True)
        assert archived is not None
        assert str(archived.relative_path) == f"archived_sessions/{entry.file_name}"


@pytest.mark.parametrize(
    "name",
    [
        f"rollout-2026-11-30T08-53-41-{THREAD} (1).jsonl",
        f"rollout-2026-11-30T08-53-41-{THREAD}.jsonl.tmp",
        f".rollout-2026-11-30T08-53-41-{THREAD}.jsonl.checkpoint",
        f"rollout-2026-11-30-{THREAD}.jsonl",
        "rollout-2026-11-30T08-53-41-.jsonl",
        "notes.jsonl",
    ],
)
def test_other_names_are_no_rollouts(name: str) -> None:
    assert Entry.parse(name) is None


@pytest.mark.parametrize("text", ["", "../x", "a/b", "a_b", "a b", ".a", "x" * 100, "a..b"])
def test_ids_that_could_leave_the_folder_are_refused(text: str) -> None:
    assert not is_id(text)


def test_a_clock_that_went_back_does_not_make_a_branch_older() -> None:
    entry = Entry.new(THREAD, THREAD, NOW)
    for rollout_id in (OTHER, "01000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"):
        newer = Entry.new(THREAD, rollout_id, NOW - timedelta(hours=30), after=entry)
        assert newer.key > entry.key
        entry = newer


def test_the_newest_live_rollout_wins_over_archived_ones() -> None:
    old, new = Entry.new(THREAD, THREAD, NOW), Entry.new(THREAD, OTHER, NOW)
    archived = Entry.parse(new.file_name, archived=True)
    assert archived is not None
    assert present_order([old, new]) == [new, old]
    assert present_order([old, archived]) == [old, archived]


def test_a_plain_file_wins_over_its_compressed_twin() -> None:
    plain = Entry.new(THREAD, THREAD, NOW)
    packed = Entry.parse(f"{plain.file_name}.zst", folder=plain.folder)
    assert packed is not None and packed.compressed
    assert without_twins([plain, packed]) == without_twins([packed, plain]) == {THREAD: plain}
