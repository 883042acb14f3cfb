"""The damages of `fixtures/codex/_damaged`: we open all that the reference opens, as well as it, and explain all."""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.house import FIXTURES, House
from tests.interaction.wire import Refused

DAMAGED = FIXTURES / "_damaged"
SCENARIOS = {"paginated": "tool_loop", "legacy": "legacy_tool_loop"}
Damage = Callable[[bytes], bytes]


@cache
def damages() -> Mapping[str, Damage]:
    """Name -> what it does to a file's bytes."""
    spec = spec_from_file_location("codex_damage", DAMAGED / "damage.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    cases: Mapping[str, Damage] = module.CASES
    return cases


@cache
def reference() -> Mapping[str, Any]:
    """What the reference did."""
    table: Mapping[str, Any] = json.loads((DAMAGED / "table.json").read_text(encoding="utf-8"))
    return table


CASES = [(mode, name) for mode in SCENARIOS for name in damages()]

HARMLESS = {"untouched", "extra_fields", "only_meta"}
"""Nothing is wrong with these logs."""

UNEXPLAINED = {("legacy", "ordinals_missing"), ("legacy", "ordinal_gap"), ("legacy", "response_items_swapped")}
"""Lines of legacy logs carry no numbers, so these leave no trace."""

WITHOUT_HEADER = {"empty_file": "empty", "only_newline": "session_meta", "missing_meta": "session_meta"}
"""What the typed error names as missing."""

CODES = {
    "truncated_last_line": {"tornTail"},
    "no_final_newline": {"noFinalNewline"},
    "truncated_mid_last_response_item": {"tornTail"},
    "garbage_middle": {"invalidJson"},
    "half_json_middle": {"invalidJson"},
    "garbage_first_line": {"invalidJson"},
    "blank_lines": {"blankLine"},
    "empty_file": {"emptyLog"},
    "only_newline": {"noHeader"},
    "missing_meta": {"noHeader"},
    "meta_not_first": {"headerNotFirst"},
    "two_metas": {"extraHeader"},
    "meta_other_id": {"headerOtherThread"},
    "unknown_record_type": {"unknownRecord"},
    "unknown_record_with_ordinal": {"unknownRecord"},
    "unknown_event": {"unknownEvent"},
    "unknown_response_item": {"unknownItem"},
    "missing_timestamp": {"timestampUnreadable"},
    "bad_timestamp": {"timestampUnreadable"},
    "missing_payload": {"payloadMissing"},
    "invalid_utf8": {"mendedUtf8"},
    "crlf": {"carriageReturns"},
    "bom": {"byteOrderMark"},
    "nul_tail": {"zeroBytes"},
    "lone_surrogate": {"halfCharacter"},
    "last_ordinal_lower": {"ordinalFalling"},
    "response_items_swapped": {"ordinalFalling"},
}
"""Codes that must be among the findings. Numbers are told of paginated logs only."""

PAGINATED_CODES = {
    "duplicate_event_line": {"duplicate"},
    "duplicate_response_item_line": {"duplicate"},
    "same_ordinal_other_item": {"ordinalFalling"},
    "ordinal_gap": {"ordinalGap"},
    "ordinals_missing": {"ordinalMissing"},
}
LEGACY_CODES = {
    "duplicate_event_line": {"repeatedLine"},
    "duplicate_response_item_line": {"repeatedLine"},
    "same_ordinal_other_item": {"ordinalInLegacyLog"},
    "last_ordinal_lower": {"ordinalInLegacyLog"},
    "response_items_swapped": set(),
}


def _damage(house: House, mode: str, name: str) -> tuple[str, Path]:
    """Put a damaged log into the home; its thread id and file."""
    shutil.copytree(FIXTURES / SCENARIOS[mode] / "sessions", house.home / "sessions")
    path = next((house.home / "sessions").rglob("*.jsonl"))
    before = path.read_bytes()
    thread_id: str = json.loads(before.splitlines()[0])["payload"]["id"]
    path.write_bytes(damages()[name](before))
    return thread_id, path


def _codes(result: Mapping[str, Any]) -> set[str]:
    return set(result["summary"]["counts"])


@pytest.mark.parametrize(("mode", "name"), CASES)
async def test_a_damaged_log_opens_where_the_reference_opens_it_and_with_as_much_history(
    house: House, mode: str, name: str
) -> None:
    expected = reference()[f"{mode}/{name}"]
    thread_id, path = _damage(house, mode, name)
    before = path.read_bytes()
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        if name in WITHOUT_HEADER:
            assert "error" in expected["resume"] and not expected["read"].startswith("ok")
            for method in ("thread/resume", "thread/read"):
                refusal = await client.refused(method, {"threadId": thread_id, "includeTurns": True})
                assert (refusal.code, refusal.reason) == (-32603, "corrupt")
                assert WITHOUT_HEADER[name] in refusal.message
                assert str(house.home) not in json.dumps(refusal.data) + refusal.message
            assert path.read_bytes() == before
            return
        await client.read(thread_id)
        await client.call("thread/resume", {"threadId": thread_id, "modelProvider": "offline"})
        history = list(daemon.session(thread_id).history.state.history)
        assert path.read_bytes() == before, "resume wrote something"
        assert len(history) >= _least(mode, name)
        listed = await client.call("thread/list", {})
        assert [one["id"] for one in listed["data"]] == [thread_id]
        await client.turn(thread_id, "go on")
        assert "go on" in str((await client.shown(thread_id))[-1])
    # What was there is still there byte for byte; whatever we wrote begins on a line of its own.
    after = path.read_bytes()
    assert after.startswith(before)
    assert before.endswith(b"\n") or after[len(before) : len(before) + 1] == b"\n"


def _least(mode: str, name: str) -> int:
    """How many items must be there: as many as the reference sent, or as many as there were where it refused."""
    untouched: int = reference()[f"{mode}/untouched"]["resume"]["history_items"]
    if (mode, name) == ("paginated", "duplicate_response_item_line"):
        return untouched  # Written twice with one number: counts once.
    theirs: int = reference()[f"{mode}/{name}"]["resume"].get("history_items", untouched)
    return theirs


@pytest.mark.parametrize(("mode", "name"), CASES)
async def test_a_damaged_log_is_explained(house: House, mode: str, name: str) -> None:
    thread_id, path = _damage(house, mode, name)
    before = path.read_bytes()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        result = await client.call("thread/verify", {"threadId": thread_id})
    assert path.read_bytes() == before
    codes = _codes(result) - {"noCheckValues"}
    if name in HARMLESS or (mode, name) in UNEXPLAINED:
        assert codes == set()
        return
    special = PAGINATED_CODES if mode == "paginated" else LEGACY_CODES
    assert special.get(name, CODES.get(name, set())) <= codes
    assert codes, "nothing was found"
    for found in result["findings"]:
        assert found["what"] and found["stillWorks"]
        assert found["severity"] != "error" or found["lost"]
    expected_verdict = {"unusable"} if name in WITHOUT_HEADER else {"usable", "clean"}
    assert result["verdict"] in expected_verdict


async def test_a_finding_names_the_line_as_editors_count(house: House) -> None:
    thread_id, _ = _damage(house, "paginated", "garbage_middle")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        result = await client.call("thread/verify", {"threadId": thread_id})
    (found,) = [one for one in result["findings"] if one["code"] == "invalidJson"]
    assert (found["line"], found["ordinal"], found["severity"]) == (9, 8, "error")


async def test_reading_and_resuming_warn_of_the_damage_with_code_place_and_effect(house: House) -> None:
    thread_id, _ = _damage(house, "paginated", "garbage_middle")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for method in ("thread/read", "thread/resume"):
            since = client.mark
            params = {"threadId": thread_id, "includeTurns": True, "modelProvider": "offline"}
            await client.call(method, {key: value for key, value in params.items() if key != "x"})
            warnings = [m["params"] for m in client.seen[since:] if m.get("method") == "warning"]
            (damage,) = [one for one in warnings if one["code"] == "invalidJson"]
            assert damage["threadId"] == thread_id and damage["ordinals"] == [8]
            assert "All other lines are used" in damage["effect"] and "rolloutId" in damage


async def test_an_unknown_thread_cannot_be_verified(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        with pytest.raises(Refused) as refused:
            await client.call("thread/verify", {"threadId": "01900000-0000-7000-8000-0000000000ab"})
        assert refused.value.reason == "noRollout"
        thread_id = await client.start()
        assert (await client.refused("thread/verify", {"threadId": thread_id})).reason == "notMaterialized"


@pytest.mark.parametrize("method", ["thread/read", "thread/resume"])
async def test_an_old_log_that_gives_less_than_it_held_says_so(house: House, method: str) -> None:
    thread_id = house.borrow("v120_stripped_both")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call(method, {"threadId": thread_id, "includeTurns": True, "modelProvider": "offline"})
        warnings = [m["params"] for m in client.seen if m.get("method") == "warning"]
        (told,) = [one for one in warnings if one["code"] == "legacyCompaction"]
        assert told["ordinals"] and "stored summary" in told["effect"]


async def test_a_bounded_resume_says_that_only_the_end_was_read(house: House) -> None:
    thread_id, path = _damage(house, "paginated", "untouched")
    path.write_bytes(path.read_bytes() + b"garbage\n")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        params = {"threadId": thread_id, "modelProvider": "offline", "excludeTurns": True}
        await client.call("thread/resume", params)
        warnings = [m["params"] for m in client.seen if m.get("method") == "warning"]
        (told,) = [one for one in warnings if one["code"] == "invalidJson"]
        assert "in the part of the log that was read" in told["message"]
