"""Damaged log files: what can be read is used, what cannot is named, and nothing else suffers."""

import json
import shutil
from pathlib import Path

import pytest
from unspool_server.store import LocalStore, ReadReport

from tests.bugs.cases import CASES, THREAD, lines_of, log_path, place, resume, said, warnings, write_lines
from tests.interaction.house import House

WHOLE = lines_of("B09_unknown_records")


async def records_of(home: Path) -> tuple[list[bytes], list[str]]:
    """Raw records and fault codes as the store reads them."""
    store, report = LocalStore(home), ReadReport()
    raws = [record.raw async for record in store.read(THREAD, report=report)]
    await store.close()
    return raws, [fault.code for fault in report.faults]


async def test_b01_a_record_cut_in_half_costs_that_record_alone_and_is_told(house: House) -> None:
    place(house, "B01_torn_middle_newline")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon) == ["alpha", "A1", "beta", "gamma é 漢字 😀", "A3"]
        assert warnings(client)["invalidJson"]["ordinals"] == [15]
        assert [turn[0] for turn in await client.shown(THREAD)] == ["alpha", "beta", "gamma é 漢字 😀"]
        found = await client.call("thread/verify", {"threadId": THREAD})
        assert [(one["code"], one["line"]) for one in found["findings"] if one["severity"] == "error"] == [
            ("invalidJson", 16)
        ]


async def test_b01_whichever_line_is_cut_all_others_are_read(house: House) -> None:
    lines = lines_of("B01_torn_middle_newline")
    lines.pop(15)
    for index in range(1, len(lines)):
        write_lines(house, [*lines[:index], lines[index][: len(lines[index]) // 2], *lines[index + 1 :]])
        assert await records_of(house.home) == ([*lines[:index], *lines[index + 1 :]], ["invalidJson"])


async def test_b03_half_a_character_at_the_end_is_left_there_and_the_next_turn_has_its_own_line(house: House) -> None:
    path = place(house, "B03_invalid_utf8_tail")
    before = path.read_bytes()
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert path.read_bytes() == before and "tornTail" in warnings(client)
        await client.turn(THREAD, "on")
    assert path.read_bytes().startswith(before + b"\n{")
    assert b'"on"' in path.read_bytes()


async def test_b03_a_log_cut_at_any_byte_of_its_last_line_opens(house: House) -> None:
    last = json.dumps(
        {"timestamp": "2026-01-05T10:09:00.000Z", "type": "event_msg", "payload": {"type": "x", "m": "漢😀"}}
    )
    tail = last.replace("\\u6f22", "漢").replace("\\ud83d\\ude00", "😀").encode()
    sound = b"".join(line + b"\n" for line in WHOLE)
    path = log_path(house)
    path.parent.mkdir(parents=True)
    for end in range(1, len(tail)):
        path.write_bytes(sound + tail[:end])
        assert await records_of(house.home) == (WHOLE, ["tornTail"])


async def test_b05_records_glued_on_one_line_are_all_used_and_it_is_told(house: House) -> None:
    place(house, "B05_merged_lines")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon)[-2:] == ["gamma é 漢字 😀", "A3"]
        assert warnings(client)["gluedRecords"]["ordinals"] == [20]
        assert (await client.shown(THREAD))[-1] == ["gamma é 漢字 😀", "A3"]


@pytest.mark.parametrize("glue", [b"", b" ", b"\r", b"\0\0", b"\t "])
async def test_b05_any_number_of_records_is_taken_apart(house: House, glue: bytes) -> None:
    lines = lines_of("B23_open_turn_then_more")
    write_lines(house, [lines[0], glue.join(lines[1:4]), *lines[4:6], glue.join(lines[6:])])
    assert await records_of(house.home) == (lines, ["gluedRecords"] * 2)


async def test_b07_an_empty_log_is_a_typed_error_and_does_not_hide_the_others(house: House) -> None:
    path = place(house, "B07_empty")
    other = THREAD[:-2] + "bb"
    good = b"\n".join(lines_of("B23_open_turn_then_more")) + b"\n"
    log_path(house, other).write_bytes(good.replace(THREAD.encode(), other.encode()))
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert [one["id"] for one in (await client.call("thread/list", {}))["data"]] == [other]
        for method in ("thread/read", "thread/resume", "thread/fork"):
            refusal = await client.refused(method, {"threadId": THREAD})
            assert (refusal.reason, refusal.message) == ("corrupt", "the log is empty")
        found = await client.call("thread/verify", {"threadId": THREAD})
        assert (found["verdict"], found["findings"][0]["code"]) == ("unusable", "emptyLog")
    assert path.read_bytes() == b""


async def test_b07_copies_of_a_log_are_never_taken_for_the_log(house: House) -> None:
    path = place(house, "B23_open_turn_then_more")
    for name in (f"{path.stem} (1).jsonl", f"Copy of {path.name}", f"{path.name}.bak", f"{path.stem}-conflict.jsonl"):
        path.with_name(name).write_bytes(path.read_bytes() + b'{"type":"event_msg","payload":{"type":"x"}}\n')
    elsewhere = house.home / "sessions/2026/01/04" / path.name
    elsewhere.parent.mkdir(parents=True)
    shutil.copy(CASES / "B13_meta_only.jsonl", elsewhere)
    for _ in range(3):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            assert [one["id"] for one in (await client.call("thread/list", {}))["data"]].count(THREAD) == 1
            thread = (await resume(client))["thread"]
            assert thread["path"] == str(path) and len(thread["turns"]) == 3


@pytest.mark.parametrize("name", ["B09_token_count_new_shape", "B09_unknown_records"])
async def test_b09_records_of_a_newer_shape_are_passed_over_and_kept(house: House, name: str) -> None:
    path = place(house, name)
    before = path.read_bytes()
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        asked = [text for text in said(daemon) if not text.startswith("A")]
        assert [turn[0] for turn in await client.shown(THREAD)] == asked
        assert asked[:2] == ["alpha", "beta"]
        await client.turn(THREAD, "on")
    assert path.read_bytes().startswith(before)


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "token_count", "info": {"total_token_usage": {"total_tokens": {"value": 1}}}},
        {"type": "token_count", "info": [1, 2]},
        {"type": "item_completed", "item": {"type": "Hologram"}},
        {"type": "user_message", "message": {"text": "deep"}},
        {"type": "task_complete", "turn_id": 7},
        {"type": ["list"]},
        {},
    ],
)
async def test_b09_no_ill_shaped_event_hides_the_turns_behind_it(house: House, payload: object) -> None:
    lines = lines_of("B23_open_turn_then_more")
    odd = json.dumps({"timestamp": "2026-01-05T10:00:00.000Z", "type": "event_msg", "payload": payload}).encode()
    write_lines(house, [*lines[:8], odd, *lines[8:]])
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await resume(client)
        assert said(daemon) == ["alpha", "A1", "beta", "gamma", "A3"]
        assert [turn[0] for turn in await client.shown(THREAD)] == ["alpha", "beta", "gamma"]
