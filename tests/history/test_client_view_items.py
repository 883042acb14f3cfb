"""Items between wire and log: there and back in both log modes, events of old versions, damage."""

from random import Random
from typing import Any

import pytest
from unspool_protocol.items import (
    THREAD_ITEM,
    AgentMessageItem,
    CommandExecutionItem,
    ContextCompactionItem,
    DynamicToolCallItem,
    ImageInput,
    ItemStatus,
    LocalImageInput,
    PlanItem,
    ReasoningItem,
    TextInput,
    ThreadItem,
    UserMessageItem,
    WebSearchItem,
)
from unspool_protocol.log import HistoryMode, Record
from unspool_protocol.turns import Turn, TurnStatus
from unspool_server.history.client_view import ClientView
from unspool_server.history.item_shapes import recorded_item, wire_item
from unspool_server.history.legacy_events import LEGACY_ITEM_EVENTS, legacy_event_payload, legacy_item

ANSWER = AgentMessageItem(id="a", text="hi", phase="final_answer")


COMMAND = CommandExecutionItem(
    id="cmd",
    command="/bin/bash -lc 'echo a b'",
    cwd="/w x",
    source="userShell",
    status=ItemStatus.FAILED,
    command_actions=({"type": "listFiles", "command": "ls", "path": "p"},),
    aggregated_output="out\n",
    exit_code=3,
    duration_ms=1234,
)
CALL = DynamicToolCallItem(
    id="call",
    namespace="ns",
    tool="lookup",
    arguments={"some_key": {"x_y": 1}},
    status=ItemStatus.COMPLETED,
    content_items=({"type": "inputText", "text": "42"},),
    success=True,
    duration_ms=5,
)
RICH = UserMessageItem(
    id="u",
    client_id="c",
    content=(TextInput(text="see"), ImageInput(url="data:x"), LocalImageInput(path="/p.png")),
)
SEARCH = WebSearchItem(id="ws", query="q", action={"type": "openPage", "url": "http://x"})
ITEMS: list[ThreadItem] = [
    RICH,
    ANSWER,
    ReasoningItem(id="r", summary=("a",), content=("raw",)),
    COMMAND,
    CALL,
    SEARCH,
    ContextCompactionItem(id="cc"),
    PlanItem(id="p", text="plan"),
    THREAD_ITEM.validate_python({"type": "sparkle", "id": "o", "someMember": {"keepThis": 1, "and_this": 2}}),
    THREAD_ITEM.validate_python(
        {
            "type": "fileChange",
            "id": "f",
            "status": "completed",
            "changes": [
                {"path": "a", "kind": {"type": "add"}, "diff": "+x"},
                {"path": "b", "kind": {"type": "update", "move_path": "c"}, "diff": "@@"},
            ],
        }
    ),
    THREAD_ITEM.validate_python(
        {"type": "mcpToolCall", "id": "m", "server": "s", "tool": "t", "status": "failed", "error": {"message": "no"}}
    ),
]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: str(item.type))
def test_an_item_survives_the_way_into_the_log_and_back(item: ThreadItem) -> None:
    back = wire_item(recorded_item(item))
    assert back is not None
    assert back == item


@pytest.mark.parametrize("item", [RICH, ANSWER, COMMAND, CALL, SEARCH, ContextCompactionItem(id="cc")])
def test_an_item_survives_the_way_through_a_legacy_event(item: ThreadItem) -> None:
    payload = legacy_event_payload(item, "t1")
    assert payload is not None
    assert legacy_item(payload, "item-1", None) == item


def test_reasoning_keeps_its_text_in_a_legacy_event() -> None:
    payload = legacy_event_payload(ReasoningItem(id="r", summary=("a", "b")))
    assert payload == {"type": "agent_reasoning", "text": "a\n\nb", "item_id": "r"}
    assert legacy_event_payload(PlanItem(id="p")) is None


OLD_EVENTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "exec_command_end", "call_id": "c", "command": ["ls"], "cwd": "/w", "exit_code": 1, "parsed_cmd": []},
        {"type": "commandExecution", "id": "c", "command": "ls", "cwd": "/w", "status": "failed", "exitCode": 1},
    ),
    (
        {"type": "patch_apply_end", "call_id": "p", "success": True, "changes": {"a": {"type": "add", "content": "x"}}},
        {
            "type": "fileChange",
            "id": "p",
            "status": "completed",
            "changes": [{"path": "a", "kind": {"type": "add"}, "diff": "x"}],
        },
    ),
    (
        {
            "type": "mcp_tool_call_end",
            "call_id": "m",
            "invocation": {"server": "s", "tool": "t", "arguments": {"a": 1}},
            "result": {"Err": "no"},
            "duration": {"secs": 1, "nanos": 0},
        },
        {
            "type": "mcpToolCall",
            "id": "m",
            "server": "s",
            "tool": "t",
            "status": "failed",
            "arguments": {"a": 1},
            "error": {"message": "no"},
            "durationMs": 1000,
        },
    ),
    ({"type": "view_image_tool_call", "call_id": "v", "path": "/p"}, {"type": "imageView", "id": "v", "path": "/p"}),
    (
        {"type": "entered_review_mode", "user_facing_hint": "changes"},
        {"type": "enteredReviewMode", "id": "item-1", "review": "changes"},
    ),
    (
        {"type": "exited_review_mode", "review_output": {"overall_explanation": "fine"}},
        {"type": "exitedReviewMode", "id": "item-1", "review": "fine"},
    ),
]


@pytest.mark.parametrize(("payload", "expected"), OLD_EVENTS, ids=[found["type"] for found, _ in OLD_EVENTS])
def test_events_of_old_versions_become_items(payload: dict[str, Any], expected: dict[str, Any]) -> None:
    item = legacy_item(payload, "item-1", None)
    assert item is not None
    shape = item.model_dump(by_alias=True, mode="json")
    assert {key: shape[key] for key in expected} == expected


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "user_message"},
        {"type": "user_message", "message": 5},
        {"type": "exec_command_end", "command": 7},
        {"type": "mcp_tool_call_end", "call_id": "m"},
        {"type": "patch_apply_end", "changes": {"a": 1}},
        {"type": "token_count"},
    ],
)
def test_an_ill_shaped_event_adds_no_item(payload: dict[str, Any]) -> None:
    assert legacy_item(payload, "item-1", None) is None


def test_durability_is_sent_only_where_it_says_something() -> None:
    plain = Turn(id="t", status=TurnStatus.COMPLETED)
    assert "durability" not in plain.model_dump(by_alias=True)
    assert plain.model_copy(update={"durability": "accepted"}).model_dump(by_alias=True)["durability"] == "accepted"
    assert Turn.model_validate(plain.model_dump(by_alias=True)) == plain


EVENTS = [
    *sorted(LEGACY_ITEM_EVENTS),
    "task_started",
    "task_complete",
    "turn_aborted",
    "item_completed",
    "error",
    "token_count",
    "thread_name_updated",
    "thread_rolled_back",
]
KINDS = ["session_meta", "compacted", "response_item", *EVENTS]
MEMBERS = [
    "turn_id",
    "item",
    "item_id",
    "call_id",
    "message",
    "text",
    "content",
    "command",
    "cwd",
    "changes",
    "error",
    "info",
    "invocation",
    "result",
    "num_turns",
    "started_at",
    "completed_at_ms",
    "codex_error_info",
    "unspool",
    "path",
    "replacement_history",
    "duration",
    "parsed_cmd",
    "images",
    "action",
    "status",
    "thread_name",
    "type",
    "id",
    "branch",
    "turnIds",
]
WORDS = ["t1", "UserMessage", "AgentMessage", "Plan", "CommandExecution", "rollback", "failed"]


def arbitrary(source: Random, depth: int) -> Any:
    """A JSON value whose objects have the members that matter."""
    kind = source.randrange(8 if depth else 5)
    match kind:
        case 0:
            return source.choice([None, True, False])
        case 1:
            return source.choice([-1, 0, 1, 7, 2.5, 10**30])
        case 2 | 3 | 4:
            return source.choice(WORDS)
        case 5:
            return [arbitrary(source, depth - 1) for _ in range(source.randrange(3))]
        case _:
            return members(source, depth - 1)


def members(source: Random, depth: int) -> dict[str, Any]:
    return {source.choice(MEMBERS): arbitrary(source, depth) for _ in range(source.randrange(7))}


@pytest.mark.parametrize("mode", list(HistoryMode))
def test_no_payload_makes_the_view_raise(mode: HistoryMode) -> None:
    source = Random(5)
    for _ in range(400):
        view = ClientView("th", mode)
        newest = (-1, 0)
        for index in range(12):
            kind = source.choice(KINDS)
            payload = members(source, 3)
            if kind in EVENTS:
                payload["type"], kind = kind, "event_msg"
            for event in view.apply(Record("r", index, kind, payload, extra={"unspool": members(source, 2)})):
                assert newest < event.cursor.key and event.cursor.ordinal in (index - 1, index)
                newest = event.cursor.key
        assert all(isinstance(turn, Turn) for turn in view.turns)
