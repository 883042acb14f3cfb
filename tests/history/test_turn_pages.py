"""Turns with their places in the log: backwards grouping, whole logs, and page cursors."""

from dataclasses import replace

import pytest
from unspool_protocol.items import AgentMessageItem, UserMessageItem
from unspool_protocol.log import HistoryMode, Position, Record
from unspool_protocol.turns import ItemsView
from unspool_server.history.turn_pages import (
    PageCursor,
    PageScope,
    TurnGrouper,
    TurnSlice,
    summary_view,
    turn_slices,
    without_items,
)
from unspool_server.history.whole_view import client_turns

from tests.history.codex_logs import SCENARIOS, CapturedThread, captured, expected
from tests.history.rows import our_rows

THREADS = [(scenario, name) for scenario in SCENARIOS for name in expected(scenario)["client_turns"]]


def thread_of(scenario: str, name: str) -> CapturedThread:
    return captured(scenario, expected(scenario)["threads"][name])


PAGINATED = [pair for pair in THREADS if thread_of(*pair).mode is HistoryMode.PAGINATED]


def grouped(records: tuple[Record, ...]) -> list[TurnSlice]:
    """All turns of a paginated log, oldest first, read backwards."""
    grouper = TurnGrouper("th", HistoryMode.PAGINATED)
    newest_first = [part for record in reversed(records) for part in grouper.feed(record)]
    return [*newest_first, *grouper.finish()][::-1]


@pytest.mark.parametrize(("scenario", "name"), PAGINATED)
def test_reading_backwards_yields_the_turns_of_the_whole_log(scenario: str, name: str) -> None:
    thread = thread_of(scenario, name)
    assert grouped(thread.records) == turn_slices(thread.records, "th", thread.mode)


@pytest.mark.parametrize(("scenario", "name"), THREADS)
def test_slices_hold_the_turns_of_the_client_view_and_do_not_overlap(scenario: str, name: str) -> None:
    thread = thread_of(scenario, name)
    slices = turn_slices(thread.records, thread.thread_id, thread.mode)
    assert [part.turn for part in slices] == client_turns(thread.records, thread.thread_id, thread.mode)
    places = [place.ordinal for part in slices for place in (part.start, part.end)]
    assert places == sorted(places)


@pytest.mark.parametrize(("scenario", "name"), THREADS)
def test_cutting_before_a_turn_leaves_exactly_the_turns_before_it(scenario: str, name: str) -> None:
    thread = thread_of(scenario, name)
    slices = turn_slices(thread.records, thread.thread_id, thread.mode)
    for number, part in enumerate(slices):
        for place, kept in ((part.start, number), (part.end, number + 1)):
            head = [record for record in thread.records if record.ordinal < place.ordinal]
            left = client_turns(head, thread.thread_id, thread.mode)
            assert [turn.id for turn in left] == [kept_part.turn.id for kept_part in slices[:kept]]


def test_the_input_of_a_turn_without_start_record_belongs_to_it() -> None:
    thread = thread_of("v098_rollback_one", "main")
    second = turn_slices(thread.records, thread.thread_id, thread.mode)[1]
    first_record = next(record for record in thread.records if record.position == second.start)
    assert (first_record.type, first_record.payload["role"]) == ("response_item", "user")


def test_a_compaction_turn_has_no_boundary() -> None:
    thread = thread_of("compact", "main")
    slices = turn_slices(thread.records, thread.thread_id, thread.mode)
    kinds = [(part.has_boundary, any(item.type == "contextCompaction" for item in part.turn.items)) for part in slices]
    assert (False, True) in kinds
    assert all(has_boundary is not compaction for has_boundary, compaction in kinds)


def test_a_turn_that_an_envelope_triggered_has_a_boundary() -> None:
    row = next(row for row in our_rows() if row.number == 31)
    assert [part.has_boundary for part in turn_slices(row.records, "th", row.mode)] == [True, True]


def test_a_message_between_turns_gives_the_turn_before_it_no_boundary() -> None:
    row = next(row for row in our_rows() if row.number == 44)
    records = [*row.records, replace(row.records[-1], ordinal=99, type="response_item", payload=USER)]
    assert [part.has_boundary for part in turn_slices(records, "th", row.mode)] == [True, False]


USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "injected"}]}


def late_command(turn_id: str, ordinal: int) -> Record:
    item = {"type": "CommandExecution", "id": "late", "command": ["sleep", "1"], "cwd": "/w", "exit_code": 0}
    payload = {"type": "item_completed", "thread_id": "th", "turn_id": turn_id, "item": item}
    return Record("th", ordinal, "event_msg", payload, timestamp="2026-11-30T08:00:00Z")


def test_a_late_command_end_reaches_its_turn_when_reading_backwards() -> None:
    row = next(row for row in our_rows() if row.number == 56)
    records = row.records
    second = next(index for index, record in enumerate(records) if record.payload.get("turn_id") == "t2")
    mixed = [*records[: second + 1], late_command("t1", 0), *records[second + 1 :]]
    mixed = [replace(record, ordinal=index) for index, record in enumerate(mixed)]
    slices = grouped(tuple(mixed))
    assert [item.id for item in slices[0].turn.items] == ["i-u1", "late"]
    assert slices == turn_slices(mixed, "th", HistoryMode.PAGINATED)


def test_an_unfinished_turn_is_shown_interrupted() -> None:
    thread = thread_of("killed_in_tool", "main")
    assert [part.turn.status for part in grouped(thread.records)] == ["completed", "interrupted"]


def test_the_summary_view_shows_the_first_input_and_the_final_answer() -> None:
    thread = thread_of("tool_loop", "main")
    turn = client_turns(thread.records, thread.thread_id, thread.mode)[0]
    summary = summary_view(turn)
    assert (summary.items_view, [type(item) for item in summary.items]) == (
        ItemsView.SUMMARY,
        [UserMessageItem, AgentMessageItem],
    )
    assert summary.items[-1] == [item for item in turn.items if isinstance(item, AgentMessageItem)][-1]
    assert (without_items(turn).items, without_items(turn).items_view) == ((), ItemsView.NOT_LOADED)


CURSOR = PageCursor("thread", Position("rollout", 14), include_anchor=True, scope=PageScope.ITEMS, item=2)


def test_a_cursor_survives_encoding() -> None:
    assert PageCursor.decode(CURSOR.encode(), "thread", PageScope.ITEMS) == CURSOR


@pytest.mark.parametrize("text", ["", "x", "é", CURSOR.encode()[:-3], "W10", "bnVsbA", "eyJhIjoxfQ"])
def test_text_that_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a page cursor"):
        PageCursor.decode(text, "thread", PageScope.ITEMS)


@pytest.mark.parametrize(("thread_id", "scope"), [("other", PageScope.ITEMS), ("thread", PageScope.TURNS)])
def test_a_cursor_of_another_thread_or_list_is_refused(thread_id: str, scope: PageScope) -> None:
    with pytest.raises(ValueError, match="another thread or list"):
        PageCursor.decode(CURSOR.encode(), thread_id, scope)
