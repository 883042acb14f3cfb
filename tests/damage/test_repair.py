"""`unspool repair`: a clean copy beside the damaged log, with a loss report; the old file is never touched."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from unspool_protocol.log import NewRecord
from unspool_server.cli.main import main
from unspool_server.store import LocalStore
from unspool_server.store.lines import chain_link, encode_record, seal_line

from tests.damage.test_damaged_logs import CASES, SCENARIOS, damages
from tests.interaction.house import FIXTURES, House
from tests.interaction.wire import texts_of

NOTHING_TO_DO = {
    *("untouched", "no_final_newline", "blank_lines", "only_meta", "crlf", "lone_surrogate", "extra_fields"),
    *("unknown_record_type", "unknown_record_with_ordinal", "unknown_event", "unknown_response_item"),
    *("missing_timestamp", "bad_timestamp", "meta_other_id"),
}
"""Odd at most: nothing is lost and nothing stands in anybody's way. A file elsewhere is the log its header names."""

LEFT_ALONE = {
    "legacy": {
        "ordinals_missing",
        "ordinal_gap",
        "response_items_swapped",
        "same_ordinal_other_item",
        "last_ordinal_lower",
    }
}
"""Lines of legacy logs carry no numbers."""

STAYS = {"missing_payload": {"payloadMissing"}, "duplicate_event_line": {"repeatedLine"}}
"""What a copy cannot mend, since it would have to make something up or leave out what other readers count."""


def run(*args: str) -> tuple[int, Any]:
    """Run `unspool … --json` in this process; exit status and what it printed."""
    result = CliRunner().invoke(main, [*args, "--json"])
    return result.exit_code, json.loads(result.output) if result.output.startswith("{") else result.output


async def later(*args: str) -> tuple[int, Any]:
    """The same beside a running loop."""
    return await asyncio.to_thread(run, *args)


@pytest.mark.parametrize(("mode", "name"), CASES)
def test_a_repaired_file_is_clean_and_the_old_one_stays(tmp_path: Path, mode: str, name: str) -> None:
    source = next((FIXTURES / SCENARIOS[mode]).rglob("*.jsonl"))
    path = tmp_path / "broken.jsonl"
    damaged = damages()[name](source.read_bytes())
    path.write_bytes(damaged)
    status, report = run("repair", str(path))
    assert (status, path.read_bytes()) == (0, damaged)
    target = tmp_path / "broken.repaired.jsonl"
    # A record of another writer in a paginated log lacks its number.
    unnumbered = name == "unknown_record_type" and mode == "paginated"
    if not unnumbered and name in NOTHING_TO_DO | LEFT_ALONE.get(mode, set()):
        assert report["target"] is None and not target.exists()
        return
    assert report["target"] == str(target)
    _, checked = run("verify", str(target))
    bad = {one["code"] for one in checked["findings"] if one["severity"] != "info"}
    stays = STAYS.get(name, set()) | ({"repeatedLine"} if name.startswith("duplicate") and mode == "legacy" else set())
    assert bad - {"callWithoutOutput", "outputWithoutCall", "turnUnfinished"} <= stays
    written, old = target.read_bytes().split(b"\n")[1:-1], set(damaged.split(b"\n"))
    notes = sum(b"unspool_lost_records" in line for line in written)
    assert report["copied"] + report["renumbered"] + report["recovered"] == len(written) - notes
    assert sum(line in old for line in written) == report["copied"]


def test_a_loss_report_names_every_line_that_was_left_out(tmp_path: Path) -> None:
    source = next((FIXTURES / "tool_loop").rglob("*.jsonl")).read_bytes().split(b"\n")
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join([*source[:8], source[8][:50], source[9] + source[10], *source[11:]]) + b"{torn")
    status, report = run("repair", str(path), "--out", str(tmp_path / "out.jsonl"))
    assert status == 0
    assert [(one["code"], one["line"]) for one in report["dropped"]] == [
        ("invalidJson", 9),
        ("tornTail", len(source) - 1),
    ]
    assert all(one["lost"] for one in report["dropped"])
    assert report["recovered"] == 2
    lines = (tmp_path / "out.jsonl").read_bytes().split(b"\n")
    assert source[9] in lines and source[10] in lines
    note = next(json.loads(line) for line in lines if b"unspool_lost_records" in line)
    assert (note["payload"]["from"], note["ordinal"]) == (8, 8)


async def test_a_repaired_thread_goes_on_in_a_new_file_and_its_old_one_stays(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
    old = house.log_file(thread)
    lines = old.read_bytes().split(b"\n")
    torn = next(n for n, line in enumerate(lines) if b'"two"' in line and b"response_item" in line)
    old.write_bytes(b"\n".join([*lines[:torn], lines[torn][:40], *lines[torn + 1 :]]))
    damaged = old.read_bytes()
    status, report = await later("repair", thread, "--home", str(house.home))
    assert status == 0 and report["droppedCount"] == 1
    new = Path(report["target"])
    assert new != old and old.read_bytes() == damaged
    assert (await later("verify", str(new)))[1]["verdict"] == "usable"  # The old file still has its error.
    header = json.loads(new.read_bytes().split(b"\n")[0])
    assert header["unspool"]["branch"] == "repair" and header["unspool"]["left"]["rolloutId"] == thread
    store = LocalStore(house.home)
    assert (await store.find(thread)).rollout_id == report["rolloutId"]
    await store.close()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert texts_of(resumed["thread"]["turns"])[0][0] == "one"
        assert not [m for m in client.seen if m.get("method") == "warning"]
        await client.turn(thread, "three")
        assert (await client.shown(thread))[-1][0] == "three"
    assert old.read_bytes() == damaged
    assert (await later("repair", thread, "--home", str(house.home)))[1]["target"] is None


async def test_a_thread_without_a_header_opens_again_after_a_repair(house: House) -> None:
    shutil.copytree(FIXTURES / "tool_loop" / "sessions", house.home / "sessions")
    path = next((house.home / "sessions").rglob("*.jsonl"))
    thread = json.loads(path.read_bytes().split(b"\n")[0])["payload"]["id"]
    path.write_bytes(b"\n".join(path.read_bytes().split(b"\n")[1:]))
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.refused("thread/resume", {"threadId": thread})).reason == "corrupt"
    status, report = await later("repair", thread, "--home", str(house.home))
    assert (status, report["header"]) == (0, "made")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "modelProvider": "offline"})
        assert len(daemon.session(thread).history.state.history) == 13
        assert daemon.session(thread).settings.cwd == "/tmp/ws"


async def test_a_thread_that_is_being_written_is_not_repaired(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        before = house.logs()
        status, text = await later("repair", thread, "--home", str(house.home))
        assert status == 2 and "already has an active writer" in text
        assert house.logs() == before


def test_a_line_that_was_changed_is_kept_as_it_stands_and_its_check_value_renewed(tmp_path: Path) -> None:
    line = NewRecord("event_msg", {"type": "x", "text": "before"})
    header = NewRecord("session_meta", {"id": "t", "history_mode": "paginated"})
    lines: list[bytes] = []
    for number, record in enumerate([header, line, line, line]):
        previous = chain_link(lines[-1]) if lines else b""
        stamp = "2026-01-01T00:00:00.000Z"
        lines.append(seal_line(encode_record(record), timestamp=stamp, ordinal=number, previous=previous))
    lines[2] = lines[2].replace(b"before", b"edited")
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert run("verify", str(path))[0] == 1
    _, report = run("repair", str(path))
    new = (tmp_path / "x.repaired.jsonl").read_bytes()
    assert report["resealed"] >= 1 and b"edited" in new and b"before" in new
    assert run("verify", str(tmp_path / "x.repaired.jsonl"))[1]["summary"]["errors"] == 0


def test_nothing_is_ever_written_over(tmp_path: Path) -> None:
    source = next((FIXTURES / "tool_loop").rglob("*.jsonl"))
    path, taken = tmp_path / "x.jsonl", tmp_path / "x.repaired.jsonl"
    path.write_bytes(b"garbage\n" + source.read_bytes())
    taken.write_bytes(b"mine")
    status, _ = run("repair", str(path))
    assert status == 2 and taken.read_bytes() == b"mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["x.jsonl", "x.repaired.jsonl"]


async def test_a_repaired_thread_can_be_listed_branched_and_undone_like_any_other(house: House) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        cursor = client.events(thread)[-1]["cursor"]
    old = house.log_file(thread)
    old.write_bytes(b"garbage\n" + old.read_bytes())
    assert (await later("repair", thread, "--home", str(house.home)))[1]["target"]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call(
            "thread/resume", {"threadId": thread, "replay": {"after": cursor, "mode": "events"}}
        )
        assert [turn["status"] for turn in resumed["thread"]["turns"]] == ["completed", "completed"]
        assert [one["id"] for one in (await client.call("thread/list", {}))["data"]] == [thread]
        assert (await client.refused("thread/rollback/undo", {"threadId": thread})).reason == "nothingToUndo"
        await client.call("thread/branches", {"threadId": thread})
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert [turn[0] for turn in await client.shown(thread)] == ["one"]
        await client.call("thread/rollback/undo", {"threadId": thread})
        assert [turn[0] for turn in await client.shown(thread)] == ["one", "two"]
        child = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        assert [turn[0] for turn in await client.shown(child)] == ["one", "two"]
