"""Text that never became whole, as the client view folds it."""

from typing import Any

import pytest
from unspool_protocol.log import HistoryMode, NewRecord, Record, RecordType
from unspool_server.history.client_view import ClientView
from unspool_server.history.event_shapes import ClientEvent
from unspool_server.history.partial_items import growth, partial_record

STARTED = {"type": "task_started", "turn_id": "t"}
REASONING = {"id": "r", "type": "reasoning", "summary": ["one", "tw"], "content": []}


def view_of(*records: NewRecord) -> tuple[ClientView, list[ClientEvent]]:
    """A fold over records with consecutive ordinals, and the events of the last."""
    view, events = ClientView("thread", HistoryMode.PAGINATED), list[ClientEvent]()
    for ordinal, record in enumerate(records):
        events = view.apply(Record("thread", ordinal, record.type, record.payload))
    return view, events


def event(**payload: Any) -> NewRecord:
    return NewRecord(RecordType.EVENT_MSG, payload)


def texts(view: ClientView) -> list[Any]:
    assert view.current is not None
    return [item.model_dump(by_alias=True) for item in view.current.items]


def said(text: str, offset: int = 0, **more: Any) -> NewRecord:
    added = [{"part": "text", "index": 0, "offset": offset, "text": text}]
    payload = {"turn_id": "t", "item_id": "m", "item_type": "agentMessage", "added": added, **more}
    return NewRecord(RecordType.PARTIAL_MESSAGE, payload)


def test_a_record_holds_only_what_is_new_and_the_pieces_make_the_text_again() -> None:
    first = growth(REASONING, {})
    known = {("summary", 0): 3, ("summary", 1): 2}
    more = REASONING | {"summary": ["one", "two"], "content": ["raw"]}
    assert growth(REASONING, known) == []
    records = (partial_record("t", REASONING, first), partial_record("t", more, growth(more, known)))
    assert [piece["text"] for piece in records[1].payload["added"]] == ["o", "raw"]
    view, _ = view_of(event(**STARTED), *records, records[1])
    [shown] = texts(view)
    assert (shown["summary"], shown["content"], shown["partial"]) == (("one", "two"), ("raw",), True)


def test_a_turn_without_an_end_tells_of_its_partial_text_before_it_tells_that_it_was_cut_off() -> None:
    _, events = view_of(event(**STARTED), said("he"), said("llo", 2), event(type="task_started", turn_id="next"))
    assert [told.method for told in events] == ["item/completed", "turn/completed", "turn/started"]
    assert sorted(told.cursor.key for told in events) == [told.cursor.key for told in events]


def test_a_turn_that_ends_well_leaves_partial_text_behind() -> None:
    view, events = view_of(event(**STARTED), said("he"), event(type="task_complete", turn_id="t"))
    assert [told.method for told in events] == ["turn/completed"]
    assert [turn.items for turn in view.turns] == [()]


@pytest.mark.parametrize(
    "record",
    [
        said("x", turn_id="other"),
        said("x", item_id=3),
        said("x", item_type="userMessage"),
        said("x", added="x"),
        said("x", added=[3, {"part": "text"}, {"part": "summary", "text": "x"}]),
        said("x", added=[{"part": "text", "index": 10**9, "text": "x"}]),
        said(""),
    ],
    ids=str,
)
def test_an_ill_shaped_record_shows_nothing_and_breaks_nothing(record: NewRecord) -> None:
    view, events = view_of(event(**STARTED), record)
    assert (texts(view), events) == ([], [])
