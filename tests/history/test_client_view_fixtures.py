"""Client turns of the captured logs, against what a client of the reference saw (`client_turns` in `expected.json`)."""

from typing import Any

import pytest
from unspool_protocol.log import Record
from unspool_protocol.turns import Turn
from unspool_server.history.client_view import ClientView
from unspool_server.history.item_shapes import recorded_item, wire_item
from unspool_server.history.whole_view import client_turns

from tests.history.codex_logs import SCENARIOS, CapturedThread, captured, expected

THREADS = [(scenario, name) for scenario in SCENARIOS for name in expected(scenario)["client_turns"]]

DIFFERENT_ON_PURPOSE = {
    ("v120_rollback_across_compact", "main"): ["question 1", "question 2", "new"],
}
"""The reference counts the compaction turn as a removed one; ours shows what the model still sees (03 §9.1)."""


def thread_of(scenario: str, name: str) -> CapturedThread:
    return captured(scenario, expected(scenario)["threads"][name])


def stored(view: ClientView) -> list[Turn]:
    """The turns of a view that has seen its last record."""
    if view.current_draft is not None:
        view.current_draft.settle()
    return view.turns


def seen(scenario: str, name: str) -> list[dict[str, Any]]:
    view = expected(scenario)["client_turns"][name]
    listed = view.get("thread/turns/list")
    found: list[dict[str, Any]] = (
        listed if isinstance(listed, list) and listed else view["thread/read"].get("turns", [])
    )
    return found


def ours(thread: CapturedThread) -> list[dict[str, Any]]:
    return [
        turn.model_dump(by_alias=True, mode="json")
        for turn in client_turns(thread.records, thread.thread_id, thread.mode)
    ]


def item_shape(item: dict[str, Any]) -> tuple[Any, ...]:
    match item["type"]:
        case "userMessage":
            content = [part.get("text", part) if isinstance(part, dict) else part for part in item["content"]]
            return ("userMessage", content)
        case "agentMessage":
            return ("agentMessage", item["text"])
        case "commandExecution":
            return tuple(item.get(key) for key in ("type", "command", "aggregatedOutput", "exitCode", "status"))
        case "reasoning":
            return ("reasoning", item["summary"])
        case kind:
            return (kind,)


def turn_shape(turn: dict[str, Any]) -> tuple[Any, ...]:
    error = turn["error"]
    message = error["message"] if isinstance(error, dict) else error
    return (turn["id"], turn["status"], message, [item_shape(item) for item in turn["items"]])


@pytest.mark.parametrize(("scenario", "name"), THREADS)
def test_the_turns_of_a_captured_log_are_those_the_client_saw(scenario: str, name: str) -> None:
    turns = ours(thread_of(scenario, name))
    if (scenario, name) in DIFFERENT_ON_PURPOSE:
        texts = [turn["items"][0]["content"][0]["text"] for turn in turns]
        assert texts == DIFFERENT_ON_PURPOSE[scenario, name]
    else:
        assert [turn_shape(turn) for turn in turns] == [turn_shape(turn) for turn in seen(scenario, name)]


@pytest.mark.parametrize(("scenario", "name"), THREADS)
def test_obeying_markers_one_by_one_ends_at_the_same_turns(scenario: str, name: str) -> None:
    thread = thread_of(scenario, name)
    view = ClientView(thread.thread_id, thread.mode)
    for record in thread.records:
        view.apply(record)
    assert stored(view) == client_turns(thread.records, thread.thread_id, thread.mode)


@pytest.mark.parametrize(("scenario", "name"), THREADS)
def test_events_of_a_log_are_ordered_and_each_turn_opens_before_it_closes(scenario: str, name: str) -> None:
    thread = thread_of(scenario, name)
    view = ClientView(thread.thread_id, thread.mode)
    keys: list[tuple[int, int]] = []
    begun: list[str] = []
    ended: list[str] = []
    for record in thread.records:
        for event in view.apply(record):
            keys.append(event.cursor.key)
            shape = event.params.model_dump(by_alias=True, mode="json")  # type: ignore[union-attr]
            if event.method == "turn/started":
                begun.append(shape["turn"]["id"])
            elif event.method == "turn/completed":
                ended.append(shape["turn"]["id"])
                assert shape["turn"]["id"] in begun
            elif event.method.startswith("item/"):
                assert shape["turnId"] in begun
    assert keys == sorted(set(keys))
    assert len(begun) == len(set(begun))
    assert len(ended) == len(set(ended))


def recorded_items() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for scenario, name in THREADS:
        for record in thread_of(scenario, name).records:
            if record.event == "item_completed":
                item = record.payload["item"]
                found.setdefault(f"{item['type']} {sorted(item)}", item)
    return list(found.values())


@pytest.mark.parametrize("recorded", recorded_items(), ids=lambda recorded: str(recorded["type"]))
def test_a_recorded_item_survives_the_way_to_the_wire_and_back(recorded: dict[str, Any]) -> None:
    item = wire_item(recorded)
    assert item is not None
    back = recorded_item(item)
    if "duration" in recorded:
        whole_ms = recorded["duration"]["nanos"] // 1_000_000 * 1_000_000
        recorded = {**recorded, "duration": {**recorded["duration"], "nanos": whole_ms}}
    assert back == recorded


def test_a_damaged_payload_is_passed_over_wherever_it_stands() -> None:
    thread = thread_of("tool_loop", "main")
    for broken in ({}, {"type": "item_completed", "item": 5}, {"type": "task_started", "turn_id": 7}):
        for index, record in enumerate(thread.records[1:], start=1):
            damaged = Record(record.rollout_id, record.ordinal, record.type, broken)
            records = [*thread.records[:index], damaged, *thread.records[index + 1 :]]
            assert isinstance(client_turns(records, thread.thread_id, thread.mode), list)
