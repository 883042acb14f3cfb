"""Bounded reading stops early and loses nothing."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.bounded import BoundedScan
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.settings import effective_settings
from unspool_server.history.state import Reconstruction

from tests.history.logs import FixtureLog, fixture_logs
from tests.history.rows import Row, parse_log, reference_rows

LOGS = list(fixture_logs())
SETTINGS_AND_TOKENS = (
    Record("r", 0, "event_msg", {"type": "thread_settings_applied", "thread_settings": {"model": "m", "cwd": "/x"}}),
    Record("r", 0, "event_msg", {"type": "token_count", "info": {"total_token_usage": {}}}),
)


def bounded(records: list[Record], mode: HistoryMode) -> list[Record]:
    scan = BoundedScan(mode)
    for record in reversed(records[1:]):
        if scan.feed(record):
            break
    return [records[0], *scan.records()]


def without_spans(result: Reconstruction) -> Reconstruction:
    return replace(result, spans=())


def assert_nothing_lost(records: list[Record], mode: HistoryMode) -> list[Record]:
    part = bounded(records, mode)
    assert without_spans(reconstruct(part, mode)) == without_spans(reconstruct(records, mode))
    assert effective_settings(part) == effective_settings(records)
    return part


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_a_bounded_part_of_a_recorded_log_yields_what_the_whole_log_yields(log: FixtureLog) -> None:
    assert_nothing_lost(list(log.records), log.mode)


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_a_bounded_part_of_every_prefix_yields_what_the_prefix_yields(log: FixtureLog) -> None:
    for end in range(1, len(log.records) + 1):
        assert_nothing_lost(list(log.records[:end]), log.mode)


@pytest.mark.parametrize("row", reference_rows(), ids=lambda row: f"row{row.number}")
def test_a_bounded_part_of_a_scenario_yields_what_the_scenario_yields(row: Row) -> None:
    assert_nothing_lost(row.records, row.mode)
    header, *rest = row.records
    assert_nothing_lost([header, *rest, *SETTINGS_AND_TOKENS], row.mode)


def test_reading_stops_at_a_checkpoint_with_resume_metadata() -> None:
    log = "T(t1,u1,a1,m) TS(c) CP[U(S)]w1r WS TC(c,m) TE(c) T(t2,u2,a2,m)"
    records = [*parse_log(log, HistoryMode.LEGACY), *SETTINGS_AND_TOKENS]
    part = assert_nothing_lost(records, HistoryMode.LEGACY)
    assert [record.type for record in part[:2]] == ["session_meta", "compacted"]


def test_without_resume_metadata_reading_goes_on_to_a_closed_turn_that_tells_settings() -> None:
    log = "T(t0,u0,a0,m) T(t1,u1,a1,m) CP[U(S)]w1 TS(t2)"
    records = [*parse_log(log, HistoryMode.LEGACY), *SETTINGS_AND_TOKENS]
    part = assert_nothing_lost(records, HistoryMode.LEGACY)
    assert [record.payload.get("turn_id") for record in part if record.event == "task_started"] == ["t1", "t2"]


@pytest.mark.parametrize(
    ("tail", "reason"),
    [("RB(1)", "a marker"), ("CP[U(S2)]", "a newest checkpoint without window"), ("CPL(x)", "a legacy compaction")],
)
def test_reading_goes_to_the_start_when_the_newest_part_cannot_be_trusted(tail: str, reason: str) -> None:
    log = f"T(t1,u1,a1,m) TS(c) CP[U(S)]w1r WS TC(c,m) TE(c) T(t2,u2,a2,m) {tail}"
    records = [*parse_log(log, HistoryMode.PAGINATED), *SETTINGS_AND_TOKENS]
    assert assert_nothing_lost(records, HistoryMode.PAGINATED) == records, reason


def test_a_contextual_user_item_proves_no_boundary() -> None:
    log = "T(t0,u0,a0,m) TS(t1) E TC(t1,m9) TE(t1) CP[U(S)]w1 TS(t2)"
    records = [*parse_log(log, HistoryMode.LEGACY), *SETTINGS_AND_TOKENS]
    part = assert_nothing_lost(records, HistoryMode.LEGACY)
    assert [record.payload.get("turn_id") for record in part if record.event == "task_started"] == ["t0", "t1", "t2"]


WORDS = """
T(t1,u1,a1,m) T(t2,u2,a2,m2) Tp(t3,u3,a3,m3) TS(t4) TE(t4) TA(-) U(x) UE(x) E A(y) TC(t4,m4) WS WSp CP[U(S)]
CP[U(S)]w1 CP[U(S)]w2r CP[]w3r CPL(L) RB(1) RB(2) IA-(z)
"""
TOKENS = st.sampled_from(WORDS.split())


@settings(max_examples=300, deadline=None)
@given(st.lists(TOKENS, max_size=14), st.sampled_from(HistoryMode), st.integers(0, 14))
def test_any_log_of_known_records_survives_bounded_reading(tokens: list[str], mode: HistoryMode, at: int) -> None:
    head, tail = " ".join(tokens[:at]), " ".join(tokens[at:])
    records = [*parse_log(head, mode), *SETTINGS_AND_TOKENS, *parse_log(tail, mode)[1:]]
    assert_nothing_lost(records, mode)
