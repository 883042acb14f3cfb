"""Codex sessions folders come over byte for byte, and mean the same here as there."""

import json
import shutil
from pathlib import Path

import pytest
import zstandard
from unspool_server.importers import Outcome, import_paths
from unspool_server.store.local import LocalStore

from tests.importers.looking import bounded, files_of, thread_ids, whole

FIXTURES = Path(__file__).parents[1] / "fixtures" / "codex"
STORIES = sorted(path.name for path in FIXTURES.iterdir() if (path / "expected.json").is_file())


def forked() -> tuple[Path, Path]:
    """A by-reference fork of the fixtures and the file that it begins in."""
    for path in sorted((FIXTURES / "fork_parent_continues").rglob("rollout-*.jsonl")):
        with path.open() as file:
            base = json.loads(file.readline())["payload"].get("history_base")
        if base is not None:
            [parent] = FIXTURES.rglob(f"fork_parent_continues/**/rollout-*{base['thread_id']}.jsonl")
            return path, parent
    raise AssertionError("no fork among the fixtures")


@pytest.mark.parametrize("story", STORIES)
async def test_every_thread_of_the_fixtures_means_the_same_after_an_import(story: str, tmp_path: Path) -> None:
    source, home = FIXTURES / story, tmp_path / "home"
    report = import_paths([source], home)
    assert (report.status, report.losses) == (0, 0)
    threads = await thread_ids(source)
    assert threads and threads == await thread_ids(home)
    for thread_id in threads:
        assert await bounded(home, thread_id) == await bounded(source, thread_id)
    there, here = LocalStore(source), LocalStore(home)
    for info in await there.rollouts():
        moved, state = await whole(home, info.rollout_id)
        assert (moved.archived, moved.header, moved.base) == (info.archived, info.header, info.base)
        assert state == (await whole(source, info.rollout_id))[1]
    await there.close()
    await here.close()


async def test_all_fixtures_fit_into_one_home_and_a_second_import_changes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = import_paths([FIXTURES], home)
    assert first.status == 0
    before = files_of(home)
    logs = {Path(name).name: content for name, content in before.items() if name.endswith(".jsonl")}
    for path in FIXTURES.rglob("rollout-*.jsonl"):
        assert logs[path.name] == path.read_bytes()
    second = import_paths([FIXTURES], home)
    assert second.status == 0
    assert {file.outcome for file in second.files} == {Outcome.UNCHANGED}
    assert files_of(home) == before


def test_archived_compressed_and_named_threads_keep_all_that(tmp_path: Path) -> None:
    source, home = tmp_path / "codex", tmp_path / "home"
    plain, packed = (
        sorted((FIXTURES / "plain_turns").rglob("*.jsonl"))[0],
        sorted((FIXTURES / "revert").rglob("*.jsonl")),
    )
    archived = source / "archived_sessions" / plain.name
    archived.parent.mkdir(parents=True)
    shutil.copy(plain, archived)
    day = source / "sessions/2026/11/30"
    day.mkdir(parents=True)
    for path in packed:
        content = zstandard.ZstdCompressor().compress(path.read_bytes())
        (day / f"{path.name}.zst").write_bytes(content)
    thread_id = plain.stem[-36:]
    other = {"id": "00000000-0000-7000-8000-000000000000", "thread_name": "elsewhere"}
    index = [{"id": thread_id, "thread_name": "old"}, other, {"id": thread_id, "thread_name": "new", "updated_at": "x"}]
    (source / "session_index.jsonl").write_text("".join(json.dumps(line) + "\n" for line in index))

    assert import_paths([source], home).status == 0
    expected = {name: content for name, content in files_of(source).items() if name != "session_index.jsonl"}
    found = files_of(home)
    assert json.loads(found.pop("session_index.jsonl")) == index[2]
    assert found == expected
    assert import_paths([source], home).status == 0
    assert files_of(home) == {**expected, "session_index.jsonl": json.dumps(index[2]).encode() + b"\n"}


def test_a_single_fork_brings_along_what_it_begins_in(tmp_path: Path) -> None:
    fork, parent = forked()
    home = tmp_path / "home"
    report = import_paths([fork], home)
    assert report.status == 0
    assert sorted(file.path for file in report.files) == sorted([str(fork), str(parent)])
    assert {Path(name).name for name in files_of(home)} == {fork.name, parent.name}


def test_a_fork_whose_base_is_nowhere_comes_over_with_a_loss_that_names_it(tmp_path: Path) -> None:
    fork, parent = forked()
    alone = tmp_path / "alone" / fork.name
    alone.parent.mkdir()
    shutil.copy(fork, alone)
    report = import_paths([alone], tmp_path / "home")
    assert report.status == 1
    [file] = report.files
    assert (file.outcome, [(loss.kind, loss.id) for loss in file.losses]) == (
        Outcome.IMPORTED,
        [("history_base", parent.stem[-36:])],
    )


def test_a_different_log_of_the_same_name_is_never_overwritten(tmp_path: Path) -> None:
    [path] = (FIXTURES / "plain_turns").rglob("*.jsonl")
    home = tmp_path / "home"
    place = home / path.relative_to(FIXTURES / "plain_turns")
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes()[:-200])
    before = files_of(home)
    report = import_paths([FIXTURES / "plain_turns"], home)
    assert (report.status, report.files[0].outcome) == (1, Outcome.FAILED)
    assert files_of(home) == before


def test_a_thread_that_went_on_here_counts_as_there(tmp_path: Path) -> None:
    home = tmp_path / "home"
    import_paths([FIXTURES / "plain_turns"], home)
    [path] = home.rglob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type":"event_msg","payload":{"type":"later"}}\n')
    before = files_of(home)
    report = import_paths([FIXTURES / "plain_turns"], home)
    assert (report.status, report.files[0].outcome) == (0, Outcome.UNCHANGED)
    assert files_of(home) == before


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    home = tmp_path / "home"
    dry = import_paths([FIXTURES / "revert"], home, dry_run=True)
    assert not home.exists()
    wet = import_paths([FIXTURES / "revert"], home)
    assert [file.as_json() for file in dry.files] == [file.as_json() for file in wet.files]


def test_unreadable_files_are_losses(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    name = "rollout-2026-11-30T08-55-09-01a22baa-4888-70e1-8866-5fb5579ff82{}.jsonl"
    (source / name.format(0)).write_bytes(b"")
    (source / f"{name.format(1)}.zst").write_bytes(b"no zstandard at all")
    (source / "other.jsonl").write_bytes(b"no json\n")
    (source / "rollout-2025-04-16-old.json").write_bytes(b"{}")
    report = import_paths([source], tmp_path / "home")
    assert report.status == 1
    kinds = {Path(file.path).name: (file.outcome, [loss.kind for loss in file.losses]) for file in report.files}
    assert kinds == {
        name.format(0): (Outcome.IMPORTED, ["session_meta"]),
        f"{name.format(1)}.zst": (Outcome.FAILED, ["file"]),
        "other.jsonl": (Outcome.FAILED, ["file"]),
        "rollout-2025-04-16-old.json": (Outcome.FAILED, ["file"]),
    }
