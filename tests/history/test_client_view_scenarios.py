"""The client-turns column of every scenario of `rows.md`, by obeying markers and by leaving out what they removed."""

import pytest
from unspool_protocol.turns import Turn
from unspool_server.history.client_view import ClientView
from unspool_server.history.whole_view import client_turns

from tests.history.rows import Row, our_rows

ROWS = [row for row in our_rows() if row.client_turns is not None]


def notation(turns: list[Turn]) -> str:
    return " ".join(turn.id + ("!" if turn.status == "interrupted" else "") for turn in turns) or "(none)"


def stored(view: ClientView) -> list[Turn]:
    """The turns of a view that has seen its last record."""
    if view.current_draft is not None:
        view.current_draft.settle()
    return view.turns


def named(number: int) -> Row:
    return next(row for row in ROWS if row.number == number)


def test_the_table_tells_the_client_turns_of_all_measured_rows() -> None:
    assert [row.number for row in ROWS] == list(range(1, 65))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_obeying_markers_shows_the_turns_of_the_table(row: Row) -> None:
    view = ClientView("th", row.mode)
    for record in row.records:
        view.apply(record)
    assert notation(stored(view)) == row.client_turns


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_leaving_out_rolled_back_records_shows_the_same_turns(row: Row) -> None:
    assert notation(client_turns(row.records, "th", row.mode)) == row.client_turns


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_forgetting_finished_turns_changes_no_event(row: Row) -> None:
    whole, bounded = ClientView("th", row.mode), ClientView("th", row.mode)
    for record in row.records:
        assert bounded.apply(record) == whole.apply(record)
        bounded.forget_finished()
        assert bounded.current == whole.current
        assert bounded.next_item_id == whole.next_item_id


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"row{row.number}")
def test_any_prefix_of_a_scenario_has_a_client_view(row: Row) -> None:
    for end in range(len(row.records)):
        turns = client_turns(row.records[:end], "th", row.mode)
        assert all(turn.status != "inProgress" for turn in turns)


def test_a_marker_that_cuts_a_steered_turn_keeps_its_first_half() -> None:
    row = named(52)
    turns = client_turns(row.records, "th", row.mode)
    assert [[item.type for item in turn.items] for turn in turns] == [["userMessage"], ["userMessage"]]
    assert turns[1].status == "completed"


def test_a_marker_tells_clients_which_turns_went() -> None:
    row = named(13)
    view = ClientView("th", row.mode)
    events = [event for record in row.records for event in view.apply(record)]
    reverted = [event.params for event in events if event.method == "thread/reverted"]
    assert [(params.reason, params.turn_ids) for params in reverted] == [("rollback", ("t2",)), ("rollback", ("t3",))]  # type: ignore[union-attr]
