"""What single records tell clients: whole notifications, ids, late items, branches, and the way back into the log."""

from typing import Any

import pytest
from unspool_protocol.base import WireModel
from unspool_protocol.items import (
    AgentMessageItem,
    CommandExecutionItem,
    ReasoningItem,
    TextInput,
    ThreadItem,
    UserMessageItem,
)
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.client_view import ClientView
from unspool_server.history.item_shapes import item_record_payload
from unspool_server.history.rollback import legacy_restore, legacy_undo_place, rollback_marker
from unspool_server.history.whole_view import client_turns

STAMP = "2026-11-30T08:00:01.500Z"
STAMP_MS = 1796025601500
STAMP_S = STAMP_MS // 1000


def record(ordinal: int, kind: str, payload: dict[str, Any], **members: Any) -> Record:
    return Record("roll", ordinal, kind, payload, timestamp=STAMP, **members)


def event(ordinal: int, name: str, **members: Any) -> Record:
    return record(ordinal, "event_msg", {"type": name, **members})


def item_record(ordinal: int, turn_id: str, item: ThreadItem) -> Record:
    return record(ordinal, "event_msg", item_record_payload("th", turn_id, item, 1000, 2000))


def told(view: ClientView, *records: Record) -> list[tuple[str, dict[str, Any]]]:
    events = [event for one in records for event in view.apply(one)]
    shapes = []
    for found in events:
        assert isinstance(found.params, WireModel)
        shapes.append((found.method, found.params.model_dump(by_alias=True, mode="json")))
    return shapes


def paginated() -> ClientView:
    return ClientView("th", HistoryMode.PAGINATED)


def legacy() -> ClientView:
    return ClientView("th", HistoryMode.LEGACY)


SAID = UserMessageItem(id="u", content=(TextInput(text="hello"),), client_id="c")
ANSWER = AgentMessageItem(id="a", text="hi", phase="final_answer")


def turn(**members: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": "t1",
        "rootTurnId": "t1",
        "items": [],
        "itemsView": "notLoaded",
        "status": "inProgress",
        "error": None,
        "startedAt": 50,
        "completedAt": None,
        "durationMs": None,
    }
    return base | members


def test_a_turn_tells_its_start_its_items_and_its_end() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    info = {"total_token_usage": usage, "last_token_usage": usage, "model_context_window": 9}
    end = {"turn_id": "t1", "completed_at": 51, "duration_ms": 70}
    shapes = told(
        paginated(),
        event(1, "task_started", turn_id="t1", started_at=50),
        item_record(2, "t1", SAID),
        item_record(3, "t1", ANSWER),
        event(4, "token_count", info=info),
        event(5, "token_count", info=None),
        event(6, "task_complete", **end),
    )
    user = {
        "type": "userMessage",
        "id": "u",
        "clientId": "c",
        "content": [{"type": "text", "text": "hello", "text_elements": []}],
        "startedAtMs": 1000,
        "completedAtMs": 2000,
    }
    answer = {
        "type": "agentMessage",
        "id": "a",
        "text": "hi",
        "phase": "final_answer",
        "moderation": None,
        "memoryCitation": None,
        "delivery": None,
        "questions": None,
        "startedAtMs": 1000,
        "completedAtMs": 2000,
    }
    ids = {"threadId": "th", "turnId": "t1"}
    tokens = {
        "totalTokens": 3,
        "inputTokens": 1,
        "cachedInputTokens": 0,
        "cacheWriteInputTokens": 0,
        "outputTokens": 2,
        "reasoningOutputTokens": 0,
    }
    assert shapes == [
        ("turn/started", {"threadId": "th", "turn": turn()}),
        ("item/started", {"item": user | {"completedAtMs": None}, **ids, "startedAtMs": 1000}),
        ("item/completed", {"item": user, **ids, "contentTokenCount": None, "completedAtMs": 2000}),
        ("item/completed", {"item": answer, **ids, "contentTokenCount": None, "completedAtMs": 2000}),
        (
            "thread/tokenUsage/updated",
            {**ids, "tokenUsage": {"total": tokens, "last": tokens, "modelContextWindow": 9}},
        ),
        (
            "turn/completed",
            {
                "threadId": "th",
                "turn": turn(items=[answer], itemsView="summary", status="completed", completedAt=51, durationMs=70),
            },
        ),
    ]


def test_cursors_count_the_events_of_one_record() -> None:
    view = paginated()
    view.apply(event(1, "task_started", turn_id="t1"))
    cursors = [found.cursor for found in view.apply(item_record(2, "t1", SAID))]
    assert [(cursor.rollout_id, cursor.ordinal, cursor.counter) for cursor in cursors] == [
        ("roll", 2, 0),
        ("roll", 2, 1),
    ]


def test_a_failed_turn_carries_its_error_in_the_spelling_of_clients() -> None:
    error = {"message": "cut", "codex_error_info": {"response_stream_disconnected": {"http_status_code": 502}}}
    view = paginated()
    view.apply(event(1, "task_started", turn_id="t1"))
    shape = told(view, event(2, "task_complete", turn_id="t1", error=error))[0][1]["turn"]
    assert shape["status"] == "failed"
    assert shape["error"] == {
        "message": "cut",
        "codexErrorInfo": {"responseStreamDisconnected": {"httpStatusCode": 502}},
        "additionalDetails": None,
        "misalignment": None,
    }


def test_an_error_event_is_told_and_the_end_does_not_overwrite_it() -> None:
    view = paginated()
    view.apply(event(1, "task_started", turn_id="t1"))
    shapes = told(
        view,
        event(2, "error", message="no", codex_error_info="thread_rollback_failed"),
        event(3, "error", message="busy", codex_error_info="server_overloaded"),
        event(4, "task_complete", turn_id="t1"),
    )
    assert [method for method, _ in shapes] == ["error", "turn/completed"]
    assert (shapes[0][1]["willRetry"], shapes[0][1]["error"]["codexErrorInfo"]) == (False, "serverOverloaded")
    assert shapes[1][1]["turn"]["status"] == "failed"


def test_a_late_item_reaches_its_finished_turn_and_names_it() -> None:
    view = paginated()
    for one in (event(1, "task_started", turn_id="t1"), event(2, "task_complete", turn_id="t1")):
        view.apply(one)
    view.apply(event(3, "task_started", turn_id="t2"))
    shapes = told(view, item_record(4, "t1", CommandExecutionItem(id="late", command="sleep 1")))
    assert [(method, shape["turnId"]) for method, shape in shapes] == [("item/completed", "t1")]
    assert [[item.id for item in found.items] for found in view.turns] == [["late"], []]


def test_a_late_item_of_a_forgotten_turn_is_told_and_opens_nothing() -> None:
    view = paginated()
    for one in (event(1, "task_started", turn_id="t1"), event(2, "task_complete", turn_id="t1")):
        view.apply(one)
    view.forget_finished()
    shapes = told(view, item_record(3, "t1", ANSWER), event(4, "turn_aborted", turn_id="t1"))
    assert [method for method, _ in shapes] == ["item/completed"]
    assert view.turns == []


def test_a_turn_whose_start_is_lost_is_shown_but_not_announced() -> None:
    records = [item_record(1, "t1", SAID), event(2, "task_complete", turn_id="t1")]
    view = paginated()
    assert [method for method, _ in told(view, *records)] == ["item/started", "item/completed"]
    assert [(found.id, found.status) for found in client_turns(records, "th", view.mode)] == [("t1", "completed")]


def test_an_open_turn_is_closed_as_interrupted_when_another_starts() -> None:
    view = paginated()
    view.apply(event(1, "task_started", turn_id="t1"))
    shapes = told(view, event(2, "task_started", turn_id="t2"))
    assert [(method, shape["turn"]["id"], shape["turn"]["status"]) for method, shape in shapes] == [
        ("turn/completed", "t1", "interrupted"),
        ("turn/started", "t2", "inProgress"),
    ]


def test_a_name_is_told_with_and_without_text() -> None:
    shapes = told(paginated(), event(1, "thread_name_updated", thread_name="n"), event(2, "thread_name_updated"))
    assert shapes == [
        ("thread/name/updated", {"threadId": "th", "threadName": "n"}),
        ("thread/name/updated", {"threadId": "th", "threadName": None}),
    ]


@pytest.mark.parametrize("reason", ["rollback", "undo", "revert", "restore"])
def test_the_header_of_a_branch_tells_why_and_which_turns_went(reason: str) -> None:
    view = paginated()
    for number in (1, 2):
        view.apply(event(number * 2, "task_started", turn_id=f"t{number}"))
        view.apply(event(number * 2 + 1, "task_complete", turn_id=f"t{number}"))
    header = record(6, "session_meta", {"id": "th"}, extra={"unspool": {"branch": reason, "turnIds": ["t2"]}})
    assert told(view, header) == [("thread/reverted", {"threadId": "th", "reason": reason, "turnIds": ["t2"]})]
    assert [found.id for found in view.turns] == ["t1"]


def test_the_header_of_a_fork_tells_nothing() -> None:
    header = record(0, "session_meta", {"id": "th"}, extra={"unspool": {"branch": "fork", "turnIds": ["t2"]}})
    assert told(paginated(), header, record(0, "session_meta", {"id": "th"})) == []


# -- legacy logs -------------------------------------------------------------------------------------------------------


def said(ordinal: int, text: str) -> list[Record]:
    content = [{"type": "input_text", "text": text}]
    return [
        record(ordinal, "response_item", {"type": "message", "role": "user", "content": content}),
        event(ordinal + 1, "user_message", message=text),
    ]


def test_items_without_an_id_are_numbered_over_the_whole_thread() -> None:
    view = legacy()
    told(view, *said(1, "one"), event(3, "agent_message", message="ok"), event(4, "agent_message", message=""))
    assert view.next_item_id == "item-3"
    told(view, *said(5, "two"))
    assert [(found.id, [item.id for item in found.items]) for found in view.turns] == [
        ("rollout-2", ["item-1", "item-2"]),
        ("rollout-6", ["item-3"]),
    ]


def test_an_implicit_turn_is_announced_and_closed_when_the_next_begins() -> None:
    shapes = told(legacy(), *said(1, "one"), *said(3, "two"))
    assert [method for method, _ in shapes] == [
        "turn/started",
        "item/started",
        "item/completed",
        "turn/completed",
        "turn/started",
        "item/started",
        "item/completed",
    ]
    assert shapes[3][1]["turn"]["status"] == "completed"


def test_reasoning_events_in_a_row_are_one_item() -> None:
    view = legacy()
    shapes = told(
        view,
        event(1, "task_started", turn_id="t1"),
        event(2, "agent_reasoning", text="a"),
        event(3, "agent_reasoning", text="b"),
        event(4, "agent_reasoning_raw_content", text="raw"),
        event(5, "agent_message", message="ok"),
        event(6, "agent_reasoning", text="c"),
    )
    found = [item for item in view.turns[0].items if isinstance(item, ReasoningItem)]
    assert [(item.summary, item.content) for item in found] == [(("a", "b"), ("raw",)), (("c",), ())]
    assert {shape["item"]["id"] for method, shape in shapes if method == "item/completed"} == {
        "item-1",
        "item-2",
        "item-3",
    }


def test_a_rollback_on_a_legacy_thread_and_its_undo_are_told_and_change_the_turns() -> None:
    records = [record(0, "session_meta", {"id": "th"})]
    for number in (1, 2):
        start = len(records)
        records.append(event(start, "task_started", turn_id=f"t{number}"))
        records += said(start + 1, f"u{number}")
        records.append(event(start + 3, "task_complete", turn_id=f"t{number}"))
    second = next(one for one in records if one.payload.get("turn_id") == "t2")
    marker = rollback_marker(records, second.position, ["t2"])
    records.append(record(len(records), marker.type, dict(marker.payload), extra=marker.extra or {}))
    assert [found.id for found in client_turns(records, "th", HistoryMode.LEGACY)] == ["t1"]
    place = legacy_undo_place(records)
    assert place is not None
    undo = legacy_restore(records, place, reason="undo", restored_turn_ids=["t2"])
    records += [record(len(records), new.type, dict(new.payload), extra=new.extra or {}) for new in undo]
    assert [found.id for found in client_turns(records, "th", HistoryMode.LEGACY)] == ["t1", "t2"]
    reverted = [shape for method, shape in told(legacy(), *records) if method == "thread/reverted"]
    assert [(shape["reason"], shape["turnIds"], shape.get("restoredTurnIds")) for shape in reverted] == [
        ("rollback", ["t2"], None),
        ("undo", [], ["t2"]),
    ]


def test_a_turn_that_was_cut_off_ends_at_one_cursor_whether_the_log_goes_on_or_not() -> None:
    begun = Record("r", 1, "event_msg", {"type": "task_started", "turn_id": "t1"})
    started = [Record("r", 0, "session_meta", {}), begun]
    going_on = Record("r", 2, "event_msg", {"type": "task_started", "turn_id": "t2"})
    stopped, continued = ClientView("th", HistoryMode.PAGINATED), ClientView("th", HistoryMode.PAGINATED)
    for record in started:
        stopped.apply(record)
        continued.apply(record)

    at_the_end, on_the_way = stopped.settle(), continued.apply(going_on)

    assert [event.method for event in on_the_way] == ["turn/completed", "turn/started"]
    assert at_the_end == on_the_way[:1]
    assert at_the_end[0].params.turn.status == "interrupted"  # type: ignore[union-attr]
    assert (1, 1 << 30) < at_the_end[0].cursor.key < on_the_way[1].cursor.key == (2, 0)
    assert stopped.settle() == []
