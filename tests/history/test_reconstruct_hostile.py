"""Reconstruction never raises, whatever a log holds, and says what it passed over."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool_protocol.log import HistoryMode, Record, RecordType
from unspool_server.history import replay
from unspool_server.history.bounded import BoundedScan
from unspool_server.history.fork import unfinished_turn
from unspool_server.history.reconstruct import merge_patch, reconstruct
from unspool_server.history.rollback import legacy_restore, legacy_undo_place
from unspool_server.history.settings import effective_settings
from unspool_server.history.state import Out
from unspool_server.history.summary import summarise
from unspool_server.history.survival import client_survival

from tests.examples import examples
from tests.history.logs import Info
from tests.history.rows import message, parse_log, render_history

FIELDS = """
type role content text message replacement_history replacement_history_metadata window_number window_id turns
resume_metadata previous_turn_settings model turn_id num_turns full state output call_id item info thread_settings
unspool restores back rolloutId timestamp context_window
"""
NAMES = st.sampled_from(FIELDS.split())
TEXTS = """
message user assistant developer system input_text function_call_output ghost_snapshot t1 { UserMessage
task_started task_complete turn_aborted thread_rolled_back user_message thread_settings_applied item_completed
token_count agent_message thread_name_updated <environment_context></environment_context>
"""
WORDS = st.sampled_from([*TEXTS.split(), "\ud800", "x" * 13_000])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(NAMES, VALUES, max_size=6)
KINDS = st.sampled_from([kind.value for kind in RecordType] + ["forked", "from_the_future", ""])
RECORDS = st.builds(Record, st.just("r"), st.integers(0, 50), KINDS, PAYLOADS, WORDS, st.none() | PAYLOADS, PAYLOADS)


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(RECORDS, max_size=8), st.sampled_from(HistoryMode))
def test_garbage_never_raises(records: list[Record], mode: HistoryMode) -> None:
    result = reconstruct(records, mode)
    assert sum(span.end - span.start for span in result.spans) == len(records)
    assert sum(span.end - span.start for span in client_survival(records, mode)) == len(records)
    effective_settings(records)
    unfinished_turn(records)
    legacy_undo_place(records)
    if records:
        legacy_restore(records, len(records) // 2)
    summarise(None, Info("t", "r", mode, False, records[0] if records else None), records)
    scan = BoundedScan(mode)
    for record in reversed(records):
        scan.feed(record)
    assert scan.records() == records


def appended(log: str, kind: str, payload: dict[str, Any], metadata: dict[str, Any] | None = None) -> list[Record]:
    records = parse_log(log, HistoryMode.LEGACY)
    return [*records, Record("r", len(records), kind, payload, metadata=metadata)]


def test_a_checkpoint_with_side_data_of_another_length_is_passed_over_and_reported() -> None:
    payload = {"message": "", "replacement_history": [message("user", "S")], "replacement_history_metadata": []}
    result = reconstruct(appended("T(t1,u1,a1,m)", "compacted", payload), HistoryMode.LEGACY)
    assert (render_history(result.history), result.window.number) == ("U(u1) A(a1)", 0)
    assert [(one.code, one.ordinals) for one in result.degradations] == [("invalidCheckpoint", (7,))]
    assert [(span.start, span.end) for span in result.spans if span.out is Out.DAMAGE] == [(7, 8)]


def test_a_legacy_compaction_is_reported_with_its_record() -> None:
    result = reconstruct(parse_log("T(t1,u1,a1,m) CPL(L)", HistoryMode.LEGACY), HistoryMode.LEGACY)
    assert [(one.code, one.ordinals) for one in result.degradations] == [("legacyCompaction", (7,))]
    assert [(span.start, span.end, span.by) for span in result.spans if span.out is Out.LEGACY_RULE] == [(5, 6, 7)]


def test_a_patch_without_a_base_is_reported_unless_a_later_snapshot_mends_it() -> None:
    log = "TS(t1) WSp U(u) TE(t1)"
    assert [one.code for one in reconstruct(parse_log(log, HistoryMode.LEGACY), HistoryMode.LEGACY).degradations] == [
        "patchWithoutBase"
    ]
    assert reconstruct(parse_log(f"{log} WS", HistoryMode.LEGACY), HistoryMode.LEGACY).degradations == ()


@pytest.mark.parametrize(
    ("metadata", "size", "kept", "marker"),
    [
        (None, 12_000, 12_000, None),
        (None, 12_001, 6_000, "…1 chars truncated…"),
        ({"fallback_token_limit_override": 3_000}, 12_000, 12_000, None),
        ({"fallback_token_limit_override": 100}, 1_000, 200, "…150 tokens truncated…"),
        ({"fallback_token_limit_override": 100_000}, 400_000, 400_000, None),
    ],
)
def test_outputs_larger_than_they_can_have_been_are_cut(
    metadata: dict[str, Any] | None, size: int, kept: int, marker: str | None
) -> None:
    payload = {"type": "function_call_output", "call_id": "c", "output": "x" * size}
    records = appended("U(u) FC(c)", "response_item", payload, metadata)
    output = reconstruct(records, HistoryMode.LEGACY).history[-1]["output"]
    expected = "x" * kept if marker is None else "x" * kept + marker + "x" * kept
    assert output == expected


def test_a_snapshot_record_without_history_means_nothing() -> None:
    records = appended("T(t1,u1,a1,m)", "rolled_back", {"num_turns": 1})
    assert render_history(reconstruct(records, HistoryMode.LEGACY).history) == "U(u1) A(a1)"


def test_the_open_turn_is_the_newest_explicit_one_without_end() -> None:
    opened = [
        reconstruct(parse_log(log, HistoryMode.LEGACY), HistoryMode.LEGACY).open_turn_id
        for log in ("T(t1,u1,a1,m)", "T(t1,u1,a1,m) TS(t2) U(u)", "TS(t1) U(u) TA(t1)", "TS(t1) U(u) RB(1)", "U(u)")
    ]
    assert opened == [None, "t2", None, None, None]


def test_ghost_snapshots_and_system_messages_inside_a_replacement_are_dropped() -> None:
    ghost, system = {"type": "ghost_snapshot"}, message("system", "s")
    payload = {"message": "", "replacement_history": [ghost, message("user", "S"), system]}
    assert render_history(reconstruct(appended("", "compacted", payload), HistoryMode.LEGACY).history) == "U(S)"


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_patches_merge_as_rfc_7396_says(target: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(target, patch) == expected


def test_asking_whether_items_are_boundaries_is_left_to_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(item: Any) -> bool:
        asked.append(item)
        return True

    monkeypatch.setattr(replay, "is_instruction_boundary", ask)
    log = " ".join(f"T(t{number},u,a,m)" for number in range(50))
    reconstruct(parse_log(log, HistoryMode.LEGACY), HistoryMode.LEGACY)
    assert asked == []
    reconstruct(parse_log(f"{log} RB(1) RB(1) RB(1)", HistoryMode.LEGACY), HistoryMode.LEGACY)
    assert len(asked) <= 2 * 100
