"""Cut positions of forks, and what a child of an unfinished turn gets."""

from dataclasses import replace

import pytest
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.boundaries import is_contextual_user
from unspool_server.history.fork import (
    cut_before_turn,
    cut_keeping_last,
    interruption_records,
    unfinished_turn,
)
from unspool_server.history.reconstruct import reconstruct

from tests.history.logs import fixture_logs
from tests.history.rows import parse_log, render_history

TWO = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
RUNNING = parse_log("T(t1,u1,a1,m) TS(t2) UE(u2) U(u2)", HistoryMode.LEGACY)


def test_a_cut_lies_before_the_turns_start() -> None:
    assert (cut_before_turn(TWO, "t1"), cut_before_turn(TWO, "t2")) == (1, 7)
    assert cut_before_turn(TWO, "t9") is None


def test_a_suffix_begins_at_the_nth_boundary_from_the_end() -> None:
    records = parse_log("T(t1,u1,a1,m) TS(s) IA-(fyi) IA+(go) A(x) TE(s) U(u3)", HistoryMode.LEGACY)
    cuts = [cut_keeping_last(records, count) for count in (0, 1, 2, 3, 4)]
    assert cuts == [len(records), 12, 9, 4, 0]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("T(t1,u1,a1,m)", None),
        ("T(t1,u1,a1,m) TS(t2) UE(u2) U(u2)", "t2"),
        ("TS(t1) UE(u1) U(u1) TA(t1)", None),
        ("U(u1) UE(u1) A(a1)", ""),
        ("U(u1) A(a1) AB TA(-)", None),
        ("D(pre) E", None),
        ("T(t1,u1,a1,m) TS(t2) UE(u2) U(u2) RB(1)", None),
    ],
)
def test_a_history_that_ends_inside_a_turn_is_told(log: str, expected: str | None) -> None:
    assert unfinished_turn(parse_log(log, HistoryMode.LEGACY)) == expected


def test_the_child_of_an_unfinished_turn_is_told_of_the_interruption_and_has_no_open_turn() -> None:
    marker, end = interruption_records("t2", times={"completed_at": 5})
    assert is_contextual_user(marker.payload)
    assert end.payload == {"type": "turn_aborted", "turn_id": "t2", "reason": "interrupted", "completed_at": 5}
    child = [*RUNNING, *(Record("r", 99, new.type, new.payload) for new in (marker, end))]
    assert unfinished_turn(child) is None
    result = reconstruct(child, HistoryMode.LEGACY)
    assert render_history(result.history[:3]) == "U(u1) A(a1) U(u2)"
    assert (result.history[3], result.open_turn_id) == (marker.payload, None)


def test_the_end_of_a_turn_without_id_has_none() -> None:
    assert "turn_id" not in interruption_records("")[1].payload


def test_recorded_logs_end_inside_a_turn_exactly_where_the_reference_marked_their_forks() -> None:
    found = {log.name for log in fixture_logs() if unfinished_turn(log.records) is not None}
    assert {name for name in found if not name.startswith("v098")} == {"killed_in_tool"}
    assert {"v098_plain_tools", "v098_compact_twice"} <= found


def test_a_header_of_the_source_inside_a_copy_changes_nothing() -> None:
    copied = [replace(TWO[0], payload={"id": "child"}), *TWO]
    assert reconstruct(copied, HistoryMode.LEGACY).history == reconstruct(TWO, HistoryMode.LEGACY).history
