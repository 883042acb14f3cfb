"""Every line of the captured logs fits the model of its record type."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from unspool_protocol import records

LOGS = Path(__file__).parents[1] / "fixtures" / "codex"


def lines() -> Iterator[tuple[Path, int, Mapping[str, Any]]]:
    """Decoded lines of all undamaged logs."""
    for path in sorted(LOGS.glob("*/*sessions/**/*.jsonl")):
        for number, line in enumerate(path.read_bytes().split(b"\n")):
            if line.strip():
                yield path, number, json.loads(line)


def test_every_captured_line_fits_its_model_and_keeps_every_member() -> None:
    seen: Counter[str] = Counter()
    for path, number, line in lines():
        payload = line["payload"]
        parsed = records.parse_record(line["type"], payload)
        assert parsed is not None, (path, number, line["type"])
        assert type(parsed) is not records.OtherEvent, (path, number, payload)
        assert parsed.model_dump(mode="json", exclude_unset=True) == payload
        seen[type(parsed).__name__] += 1
    assert seen["SessionMeta"] >= 56
    assert {"Compacted", "TurnContext", "WorldState", "TokenUsageRecord", "ThreadRolledBack", "TurnAborted"} <= set(
        seen
    )


def test_unknown_record_types_have_no_model_and_unknown_events_keep_everything() -> None:
    assert records.parse_record("realtime_item", {"a": 1}) is None
    event = records.parse_record("event_msg", {"type": "brand_new", "x": [1]})
    assert event is not None
    assert event.model_dump() == {"type": "brand_new", "x": [1]}


@pytest.mark.parametrize(
    ("record_type", "payload"),
    [
        ("session_meta", {"cwd": "/w"}),
        ("session_meta", {"id": 5}),
        ("session_meta", {"id": "t", "history_base": {"thread_id": "r"}}),
        ("compacted", {"message": "s", "replacement_history": "none"}),
        ("event_msg", {"type": "thread_rolled_back", "num_turns": -1}),
        ("response_item", {}),
    ],
)
def test_payloads_that_do_not_fit_are_refused(record_type: str, payload: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError):
        records.parse_record(record_type, payload)


def test_a_summary_alone_is_a_valid_legacy_compaction() -> None:
    parsed = records.parse_record("compacted", {"message": "so far"})
    assert isinstance(parsed, records.Compacted)
    assert (parsed.message, parsed.replacement_history, parsed.window_id) == ("so far", None, None)


def test_an_old_abort_without_turn_id_is_valid() -> None:
    parsed = records.parse_record("event_msg", {"type": "turn_aborted", "reason": "interrupted"})
    assert isinstance(parsed, records.TurnAborted)
    assert (parsed.turn_id, parsed.reason) == (None, "interrupted")
