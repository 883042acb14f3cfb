"""Which records clients still see after rollbacks: clients follow the model's view."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from unspool_protocol.log import HistoryMode, NewRecord, Record
from unspool_server.errors import TurnsOutOfRange
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.rollback import (
    boundary_count,
    check_num_turns,
    legacy_restore,
    legacy_undo_place,
    rollback_marker,
)
from unspool_server.history.state import Out
from unspool_server.history.survival import client_survival

from tests.history.rows import ROLLOUT_ID, Row, our_rows, parse_log, render_history

ROWS = [row for row in our_rows() if row.client_turns is not None]


def surviving(records: Sequence[Record], mode: HistoryMode) -> list[tuple[int, Record]]:
    spans = client_survival(records, mode)
    kept = [index for span in spans if span.out is None for index in range(span.start, span.end)]
    return [(index, records[index]) for index in kept]


def turn_ids(records: Sequence[Record], mode: HistoryMode) -> str:
    """Turns of the surviving records: started ones, and compactions outside of any turn."""
    turns: list[str] = []
    running = False
    for index, record in surviving(records, mode):
        match record.event:
            case "task_started":
                turns.append(record.payload["turn_id"])
                running = True
            case "task_complete":
                running = False
            case "turn_aborted":
                turns[-1] += "!"
                running = False
        if record.type == "compacted" and not running:
            turns.append(f"rollout-{index}")
    return " ".join(turns) or "(none)"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_the_turns_of_surviving_records_are_those_of_the_table(row: Row) -> None:
    assert turn_ids(row.records, row.mode) == row.client_turns


def test_removed_steered_input_takes_its_event_along_and_leaves_the_turn() -> None:
    row = next(row for row in ROWS if row.number == 51)
    kept = [
        record.payload.get("message")
        for _, record in surviving(row.records, row.mode)
        if record.event == "user_message"
    ]
    assert kept == ["u1"]


def test_a_removed_first_turn_loses_its_start_though_its_context_stays() -> None:
    records = parse_log("TS(t1) E WS TC(t1,m) U(u1) A(a1) TE(t1) RB(1)", HistoryMode.LEGACY)
    assert [record.type for _, record in surviving(records, HistoryMode.LEGACY)] == [
        "session_meta",
        "response_item",
        "event_msg",
    ]


def test_rolled_back_records_name_the_marker_that_removed_them() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m) RB(1) T(t3,u3,a3,m) RB(1)", HistoryMode.LEGACY)
    out = [
        (span.start, span.end, span.out, span.by) for span in client_survival(records, HistoryMode.LEGACY) if span.out
    ]
    assert out == [(7, 13, Out.ROLLBACK, 13), (14, 20, Out.ROLLBACK, 20)]


def test_a_recorded_rollback_with_a_whole_history_is_a_checkpoint() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    snapshot = {
        "num_turns": 1,
        "replacement_history": [record.payload for record in records if record.type == "response_item"][:2],
    }
    records.append(Record(ROLLOUT_ID, len(records), "rolled_back", snapshot))
    result = reconstruct(records, HistoryMode.LEGACY)
    assert (render_history(result.history), result.reference_context) == ("U(u1) A(a1)", None)
    assert turn_ids(records, HistoryMode.LEGACY) == "t1"


def appended(records: list[Record], *new: NewRecord) -> list[Record]:
    start = len(records)
    more = [
        Record(ROLLOUT_ID, start + index, one.type, one.payload, extra=one.extra or {}) for index, one in enumerate(new)
    ]
    return [*records, *more]


def rolled_back(records: list[Record], first_turn: str, *turn_ids: str) -> list[Record]:
    start = next(record for record in records if record.payload.get("turn_id") == first_turn)
    return appended(records, rollback_marker(records, start.position, [first_turn, *turn_ids]))


def undone(records: list[Record]) -> list[Record]:
    place = legacy_undo_place(records)
    assert place is not None
    return appended(records, *legacy_restore(records, place, reason="undo"))


def model_view(records: list[Record]) -> str:
    return render_history(reconstruct(records, HistoryMode.LEGACY).history)


def client_view(records: list[Record]) -> str:
    """Turns, without the compaction that an undo looks like."""
    return " ".join(turn for turn in turn_ids(records, HistoryMode.LEGACY).split() if not turn.startswith("rollout"))


def continued(records: list[Record], log: str) -> list[Record]:
    more = parse_log(log, HistoryMode.LEGACY)[1:]
    return [*records, *(replace(record, ordinal=len(records) + index) for index, record in enumerate(more))]


def test_an_undone_rollback_brings_back_history_and_turns_and_can_be_repeated() -> None:
    before = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    once = rolled_back(before, "t2")
    assert (model_view(once), client_view(once)) == ("U(u1) A(a1)", "t1")
    back = undone(once)
    assert (model_view(back), client_view(back)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")
    twice = rolled_back(back, "t2")
    assert (model_view(twice), client_view(twice)) == ("U(u1) A(a1)", "t1")
    again = undone(twice)
    assert (model_view(again), client_view(again)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")


def test_undoing_two_rollbacks_brings_both_back_in_turn() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m) T(t3,u3,a3,m)", HistoryMode.LEGACY)
    records = undone(rolled_back(rolled_back(records, "t3"), "t2"))
    assert (model_view(records), client_view(records)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")
    records = undone(records)
    assert (model_view(records), client_view(records)) == ("U(u1) A(a1) U(u2) A(a2) U(u3) A(a3)", "t1 t2 t3")
    assert legacy_undo_place(records) is None


def test_turns_after_a_rollback_give_way_to_its_undo_and_can_be_restored() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    records = continued(rolled_back(records, "t2"), "T(t3,u3,a3,m)")
    records = undone(records)
    assert (model_view(records), client_view(records)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")
    assert legacy_undo_place(records) is None
    place = len(records) - 1
    records = appended(records, *legacy_restore(records, place))
    assert (model_view(records), client_view(records)) == ("U(u1) A(a1) U(u3) A(a3)", "t1 t3")
    records = undone(records)
    assert (model_view(records), client_view(records)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")


def test_a_rollback_after_an_undo_reaches_behind_it() -> None:
    records = parse_log("T(t1,u1,a1,m1) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    records = continued(undone(rolled_back(records, "t2")), "T(t3,u3,a3,m)")
    deep = rolled_back(records, "t2", "t3")
    assert (model_view(deep), client_view(deep)) == ("U(u1) A(a1)", "t1")
    settings = reconstruct(deep, HistoryMode.LEGACY).previous_settings
    assert settings is not None and settings.model == "m1"


def test_an_undo_survives_the_copying_of_a_fork() -> None:
    records = undone(rolled_back(parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY), "t2"))
    copied = [records[0], *records]
    assert (model_view(copied), client_view(copied)) == ("U(u1) A(a1) U(u2) A(a2)", "t1 t2")


STEERED = "TS(t2) UE(u2) TC(t2,m2) U(u2) A(a2) UE(u2b) U(u2b) A(a2b) TE(t2)"


def test_a_marker_of_ours_removes_steered_input_with_its_turn_and_keeps_the_compaction_before_it() -> None:
    records = parse_log(f"T(t1,u1,a1,m) TS(c) CP[U(S)] TE(c) {STEERED}", HistoryMode.LEGACY)
    records = rolled_back(records, "t2")
    assert records[-1].payload["num_turns"] == 2
    result = reconstruct(records, HistoryMode.LEGACY)
    assert render_history(result.history) == "U(S)"
    assert result.previous_settings is not None and result.previous_settings.model == "m"
    assert client_view(records) == "t1 c"


def test_boundaries_that_an_earlier_marker_removed_do_not_count_again() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m) RB(1) T(t3,u3,a3,m)", HistoryMode.LEGACY)
    assert [boundary_count(records, first) for first in (1, 7, 14)] == [2, 1, 1]


@pytest.mark.parametrize("number", [0, -1, True, 1.0, "1", None, [1]])
def test_a_number_of_turns_that_is_no_positive_integer_is_refused(number: object) -> None:
    with pytest.raises(TurnsOutOfRange) as refused:
        check_num_turns(number, 3)
    assert refused.value.data == {"reason": "turnsOutOfRange", "field": "numTurns", "numTurns": number, "available": 3}


def test_more_turns_than_there_are_is_refused_and_all_of_them_is_not() -> None:
    with pytest.raises(TurnsOutOfRange):
        check_num_turns(4, 3)
    assert check_num_turns(3, 3) == 3


def test_a_marker_cannot_be_made_from_a_part_of_the_log_that_lacks_the_turn() -> None:
    records = parse_log("T(t1,u1,a1,m) T(t2,u2,a2,m)", HistoryMode.LEGACY)
    with pytest.raises(ValueError, match="not among the records"):
        rollback_marker([records[0], *records[8:]], records[7].position, ["t2"])


def test_there_is_nothing_to_undo_without_a_marker() -> None:
    assert legacy_undo_place(parse_log("T(t1,u1,a1,m)", HistoryMode.LEGACY)) is None
