"""`store.verify`, `history.verify` and `unspool verify` on logs that we wrote: changed lines, gaps, references."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from unspool_protocol.finding_words import MEANINGS
from unspool_protocol.findings import Severity, ThreadVerifyResult
from unspool_server.cli.main import main
from unspool_server.errors import LogMissing
from unspool_server.sessions.views.verifying import verify_thread
from unspool_server.store import LocalStore
from unspool_server.store.findings import MAX_OF_A_CODE

from tests.interaction.house import FIXTURES, House

Lines = list[bytes]


async def checked(home: Path, thread_id: str) -> ThreadVerifyResult:
    """Verify with a store of its own."""
    store = LocalStore(home)
    try:
        return await verify_thread(store, thread_id)
    finally:
        await store.close()


def told(result: ThreadVerifyResult) -> list[tuple[str, int | None]]:
    """Codes and lines of everything but remarks."""
    return [(one.code, one.line) for one in result.findings if one.severity is not Severity.INFO]


async def own_log(house: House, *texts: str) -> str:
    """A log that we wrote; its thread id."""
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, *texts)
    return thread


def edit(path: Path, change: Callable[[Lines], Lines]) -> None:
    """Rewrite a file's lines."""
    path.write_bytes(b"".join(line + b"\n" for line in change(path.read_bytes().split(b"\n")[:-1])))


async def test_a_log_of_ours_verifies_without_a_finding(house: House) -> None:
    thread = await own_log(house, "one", "two")
    result = await checked(house.home, thread)
    assert (result.verdict.value, result.findings) == ("clean", ())
    assert result.summary.records == len(house.records(thread))


@pytest.mark.parametrize("scenario", sorted(path.name for path in FIXTURES.iterdir() if (path / "sessions").exists()))
async def test_no_captured_log_of_the_reference_has_an_error(scenario: str) -> None:
    store = LocalStore(FIXTURES / scenario)
    for thread_id in {info.thread_id for info in await store.rollouts()}:
        result = await verify_thread(store, thread_id)
        assert result.summary.errors == 0, result.findings
        assert set(result.summary.counts) <= {
            "noCheckValues",
            "legacyCompaction",
            "callWithoutOutput",
            "turnUnfinished",
        }


def _changed(line: bytes) -> bytes:
    return line.replace(b'"two"', b'"TWO"')


async def test_a_line_that_was_changed_after_writing_is_named(house: House) -> None:
    thread = await own_log(house, "one", "two")
    path = house.log_file(thread)
    number = next(n for n, line in enumerate(path.read_bytes().split(b"\n"), 1) if b'"two"' in line)
    edit(path, lambda lines: [*lines[: number - 1], _changed(lines[number - 1]), *lines[number:]])
    assert told(await checked(house.home, thread)) == [("lineChanged", number)]


async def test_removed_lines_are_noticed_where_they_are_missing(house: House) -> None:
    thread = await own_log(house, "one")
    edit(house.log_file(thread), lambda lines: [*lines[:4], *lines[6:]])
    assert told(await checked(house.home, thread)) == [("linesMissing", 5)]


async def test_a_line_put_in_by_somebody_else_is_noticed(house: House) -> None:
    thread = await own_log(house, "one")
    foreign = b'{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":3,"type":"event_msg","payload":{"type":"error"}}'
    edit(house.log_file(thread), lambda lines: [*lines[:4], foreign, *lines[4:]])
    result = await checked(house.home, thread)
    assert told(result) == [("ordinalRepeated", 5), ("lineInserted", 6)]
    assert result.summary.counts["foreignLines"] == 1


async def test_a_torn_line_in_the_middle_does_not_blame_the_lines_behind_it(house: House) -> None:
    """What a crash leaves: the torn line was closed, and our next line covers its bytes."""
    thread = await own_log(house, "one")
    path = house.log_file(thread)
    path.write_bytes(path.read_bytes() + b'{"timestamp":"2026-01-01T00:')
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "two")
    result = await checked(house.home, thread)
    assert [code for code, _ in told(result)] == ["invalidJson"]


async def test_a_missing_base_makes_the_thread_unusable_and_is_named(house: House) -> None:
    shutil.copytree(FIXTURES / "fork_parent_continues" / "sessions", house.home / "sessions")
    parent, child = sorted(
        (house.home / "sessions").rglob("*.jsonl"), key=lambda path: b"history_base" in path.read_bytes()
    )
    child_id = json.loads(child.read_bytes().split(b"\n")[0])["payload"]["id"]
    assert (await checked(house.home, child_id)).verdict.value == "clean"
    kept = parent.read_bytes()
    lines = kept.split(b"\n")
    parent.write_bytes(b"\n".join(lines[:4]) + b"\n")
    assert "baseTooShort" in dict(told(await checked(house.home, child_id)))
    parent.unlink()
    result = await checked(house.home, child_id)
    assert (result.verdict.value, told(result)) == ("unusable", [("baseMissing", 1)])


async def test_a_byte_offset_that_is_off_is_only_a_warning(house: House) -> None:
    shutil.copytree(FIXTURES / "revert" / "sessions", house.home / "sessions")
    newest = max((house.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)
    header = json.loads(newest.read_bytes().split(b"\n")[0])
    header["payload"]["history_base"]["end_byte_offset"] += 3
    edit(newest, lambda lines: [json.dumps(header, separators=(",", ":")).encode(), *lines[1:]])
    result = await checked(house.home, header["payload"]["id"])
    assert told(result) == [("baseBorder", 1)]


async def test_logs_that_continue_each_other_in_a_circle_are_found_out(house: House) -> None:
    shutil.copytree(FIXTURES / "revert" / "sessions", house.home / "sessions")
    first, second = sorted((house.home / "sessions").rglob("*.jsonl"), key=lambda path: path.name)
    base = second.stem[-36:]
    header = json.loads(first.read_bytes().split(b"\n")[0])
    header["payload"]["history_base"] = {"thread_id": base, "end_ordinal_exclusive": 1}
    edit(first, lambda lines: [json.dumps(header, separators=(",", ":")).encode(), *lines[1:]])
    result = await checked(house.home, header["payload"]["id"])
    assert result.verdict.value == "unusable" and "baseCycle" in dict(told(result))


async def test_pairs_of_calls_and_outputs_are_checked(house: House) -> None:
    shutil.copytree(FIXTURES / "tool_loop" / "sessions", house.home / "sessions")
    path = next((house.home / "sessions").rglob("*.jsonl"))
    thread_id = json.loads(path.read_bytes().split(b"\n")[0])["payload"]["id"]

    def renamed(lines: Lines) -> Lines:
        at = next(n for n, line in enumerate(lines) if b'"function_call_output"' in line)
        record = json.loads(lines[at])
        record["payload"]["call_id"] = "another"
        return [*lines[:at], json.dumps(record).encode(), *lines[at + 1 :]]

    edit(path, renamed)
    assert {code for code, _ in told(await checked(house.home, thread_id))} == {
        "callWithoutOutput",
        "outputWithoutCall",
    }


async def test_findings_of_one_kind_are_bounded_and_counted(house: House) -> None:
    thread = await own_log(house, "one")
    path = house.log_file(thread)
    path.write_bytes(path.read_bytes() + b"garbage\n" * 500)
    result = await checked(house.home, thread)
    assert sum(one.code == "invalidJson" for one in result.findings) == MAX_OF_A_CODE
    assert result.summary.counts["invalidJson"] == 500 and result.summary.truncated


async def test_every_error_says_what_is_lost() -> None:
    assert all(meaning.lost for meaning in MEANINGS.values() if meaning.severity is Severity.ERROR)
    with pytest.raises(LogMissing):
        await checked(FIXTURES, "01900000-0000-7000-8000-0000000000ff")


# -- the command -------------------------------------------------------------------------------------------------------


def run(*args: str) -> tuple[int, str]:
    """Run `unspool` in this process."""
    result = CliRunner().invoke(main, list(args))
    return result.exit_code, result.output


def test_the_command_exits_with_one_only_when_something_is_lost(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "tool_loop" / "sessions", tmp_path / "sessions")
    path = next(tmp_path.rglob("*.jsonl"))
    thread_id = json.loads(path.read_bytes().split(b"\n")[0])["payload"]["id"]
    assert run("verify", thread_id, "--home", str(tmp_path))[0] == 0
    path.write_bytes(path.read_bytes() + b"garbage\n")
    for target in (thread_id, str(path)):
        status, text = run("verify", target, "--home", str(tmp_path), "--json")
        found: Mapping[str, Any] = json.loads(text)
        assert (status, found["verdict"], found["summary"]["errors"]) == (1, "usable", 1)
    status, text = run("verify", thread_id, "--home", str(tmp_path))
    assert status == 1 and "invalidJson" in text and "Lost: The record on this line." in text


@pytest.mark.parametrize(
    "args", [(), ("01900000-0000-7000-8000-0000000000ff",), ("/nowhere/x.jsonl",), ("/",), ("/tmp",), ("x", "--all")]
)
def test_the_command_exits_with_two_where_there_is_nothing_to_look_at(tmp_path: Path, args: Sequence[str]) -> None:
    assert run("verify", *args, "--home", str(tmp_path))[0] == 2


def test_all_threads_are_checked_and_copies_are_named(tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "fork_parent_continues" / "sessions", tmp_path / "sessions")
    path = next(tmp_path.rglob("*.jsonl"))
    shutil.copy(path, path.with_name(f"{path.stem} (1).jsonl"))
    status, text = run("verify", "--all", "--home", str(tmp_path), "--json")
    found = json.loads(text)
    assert status == 0 and len(found["threads"]) == 2
    assert [one["rolloutId"] for one in found["stray"]] == [f"{path.stem} (1).jsonl"]


def test_a_file_outside_a_home_is_checked_for_itself(tmp_path: Path) -> None:
    source = next((FIXTURES / "tool_loop").rglob("*.jsonl"))
    path = tmp_path / "a log.jsonl"
    path.write_bytes(source.read_bytes()[:-40])
    status, text = run("verify", str(path), "--json")
    found = json.loads(text)
    assert (status, found["threadId"], found["summary"]["counts"]["tornTail"]) == (1, None, 1)
    path.write_bytes(b"")
    assert json.loads(run("verify", str(path), "--json")[1])["verdict"] == "unusable"


def test_checking_a_large_log_needs_little_memory(tmp_path: Path) -> None:
    """Memory grows by less than half of the size of the file, whatever it is made of."""
    source = next((FIXTURES / "tool_loop").rglob("*.jsonl")).read_bytes()
    header, line = source.split(b"\n")[0], source.split(b"\n")[10]
    path = tmp_path / "large.jsonl"
    block = (line + b"\n") * (4 * 1024 * 1024 // len(line))
    with path.open("wb") as file:
        file.write(header + b"\n")
        for _ in range(6):
            file.write(block)
    code = (
        "import asyncio, resource, sys\n"
        "from pathlib import Path\n"
        "from unspool_server.cli import log_checks\n"
        "usage = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = usage()\n"
        "result = asyncio.run(log_checks.verify_target(sys.argv[1], Path('/nowhere')))\n"
        "print(result.summary.lines, usage() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    lines, grown_kb = map(int, done.stdout.split())
    assert lines > 1000
    assert grown_kb * 1024 < path.stat().st_size / 2
