"""Events as the lines of `exec --json`, compared with what the reference printed for the same story."""

from typing import Any

import pytest
from unspool_client import Event
from unspool_server.cli.exec_json import JsonLines
from unspool_server.cli.exec_text import TextLines

SETUP = {
    "thread": {"id": "T"},
    "cwd": "/w",
    "model": "m",
    "modelProvider": "p",
    "approvalPolicy": "never",
    "sandbox": {"type": "readOnly", "networkAccess": False},
}
TOTAL = {"inputTokens": 1400, "cachedInputTokens": 100, "outputTokens": 40, "reasoningOutputTokens": 5}
COMMAND = {
    "type": "commandExecution",
    "id": "exec-1",
    "command": "/bin/bash -lc 'echo one; exit 3'",
    "cwd": "/w",
    "status": "inProgress",
    "aggregatedOutput": None,
    "exitCode": None,
}


def event(method: str, **params: Any) -> Event:
    return Event(method, {"threadId": "T", "turnId": "U", **params}, thread_id="T")


def item(kind: str, **fields: Any) -> Event:
    return event(f"item/{kind}", item=fields)


def ended(status: str, error: dict[str, Any] | None = None) -> Event:
    return event("turn/completed", turn={"id": "U", "status": status, "error": error})


def lines(*events: Event) -> list[dict[str, Any]]:
    out = JsonLines()
    return [line for given in events for line in out.take(given)]


def test_a_turn_with_a_command_gives_the_references_lines() -> None:
    out = JsonLines()
    story = [
        event("warning", message="careful"),
        event("turn/started", turn={"id": "U"}),
        item("started", type="userMessage", id="u1", content=[]),
        item("completed", type="userMessage", id="u1", content=[]),
        item("completed", type="reasoning", id="r1", summary=["**Thinking** about it"], content=[]),
        item("started", type="agentMessage", id="m1", text=""),
        event("item/agentMessage/delta", itemId="m1", delta="working"),
        item("completed", type="agentMessage", id="m1", text="working", phase="commentary"),
        item("started", **COMMAND),
        item("completed", **{**COMMAND, "status": "failed", "aggregatedOutput": "one\n", "exitCode": 3}),
        item("completed", type="agentMessage", id="m2", text="done"),
        event("thread/tokenUsage/updated", tokenUsage={"total": TOTAL, "last": {}}),
        ended("completed"),
    ]

    printed = out.start(SETUP) + [line for given in story for line in out.take(given)]

    command = {"id": "item_3", "type": "command_execution", "command": "/bin/bash -lc 'echo one; exit 3'"}
    assert printed == [
        {"type": "thread.started", "thread_id": "T"},
        {"type": "item.completed", "item": {"id": "item_0", "type": "error", "message": "careful"}},
        {"type": "turn.started"},
        {"type": "item.completed", "item": {"id": "item_1", "type": "reasoning", "text": "**Thinking** about it"}},
        {"type": "item.completed", "item": {"id": "item_2", "type": "agent_message", "text": "working"}},
        {
            "type": "item.started",
            "item": {**command, "aggregated_output": "", "exit_code": None, "status": "in_progress"},
        },
        {
            "type": "item.completed",
            "item": {**command, "aggregated_output": "one\n", "exit_code": 3, "status": "failed"},
        },
        {"type": "item.completed", "item": {"id": "item_4", "type": "agent_message", "text": "done"}},
        {
            "type": "turn.completed",
            "usage": {
                "input_tokens": 1400,
                "cached_input_tokens": 100,
                "cache_write_input_tokens": 0,
                "output_tokens": 40,
                "reasoning_output_tokens": 5,
            },
        },
    ]
    assert (out.last_message, out.failed) == ("done", False)


def test_a_failed_turn_prints_the_error_and_the_end() -> None:
    out = JsonLines()
    error = {"message": "no service", "codexErrorInfo": "other", "additionalDetails": None}

    printed = out.take(event("error", error=error, willRetry=False)) + out.take(ended("failed", error))

    assert printed == [
        {"type": "error", "message": "no service"},
        {"type": "turn.failed", "error": {"message": "no service"}},
    ]
    assert out.failed


def test_an_error_that_was_retried_does_not_fail_the_run() -> None:
    out = JsonLines()
    out.take(event("error", error={"message": "Reconnecting", "additionalDetails": "cut"}, willRetry=True))
    out.take(ended("completed"))

    assert not out.failed


def test_an_interrupted_turn_prints_nothing_and_fails_the_run() -> None:
    out = JsonLines()

    assert out.take(ended("interrupted")) == []
    assert out.failed


def test_a_plan_is_one_item_that_is_updated_until_the_turn_ends() -> None:
    steps = [{"step": "a", "status": "inProgress"}, {"step": "b", "status": "pending"}]
    later = [{"step": "a", "status": "completed"}, {"step": "b", "status": "pending"}]

    printed = lines(event("turn/plan/updated", plan=steps), event("turn/plan/updated", plan=later), ended("completed"))

    assert [line["type"] for line in printed] == ["item.started", "item.updated", "item.completed", "turn.completed"]
    items = [{"text": "a", "completed": True}, {"text": "b", "completed": False}]
    assert printed[1]["item"] == printed[2]["item"] == {"id": "item_0", "type": "todo_list", "items": items}


def test_other_items_have_their_own_shapes_and_unknown_ones_have_none() -> None:
    change = {"path": "/w/a", "kind": {"type": "update", "move_path": None}, "diff": "…"}
    printed = lines(
        item("completed", type="fileChange", id="f", changes=[change], status="completed"),
        item("completed", type="webSearch", id="w", query="q", action=None),
        item("completed", type="mcpToolCall", id="c", server="s", tool="t", arguments={}, status="failed"),
        item("completed", type="contextCompaction", id="x"),
        item("completed", type="ofTheFuture", id="y"),
        item("completed", type="reasoning", id="z", summary=[], content=["raw"]),
    )

    assert [line["item"] for line in printed] == [
        {
            "id": "item_0",
            "type": "file_change",
            "changes": [{"path": "/w/a", "kind": "update"}],
            "status": "completed",
        },
        {"id": "item_1", "type": "web_search", "query": "q", "action": None},
        {
            "id": "item_2",
            "type": "mcp_tool_call",
            "server": "s",
            "tool": "t",
            "arguments": {},
            "result": None,
            "error": None,
            "status": "failed",
        },
    ]


def test_the_transcript_tells_the_same_story_to_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspool_server.cli.exec_text.click.style", lambda text, **_: str(text))
    out = TextLines()
    story = [
        event("warning", message="careful", details="very"),
        item("completed", type="userMessage", id="u1", content=[{"type": "text", "text": "hi"}]),
        item("completed", **{**COMMAND, "status": "failed", "aggregatedOutput": "one\n", "exitCode": 3}),
        item("completed", type="agentMessage", id="m2", text="done"),
        event("thread/tokenUsage/updated", tokenUsage={"total": TOTAL, "last": {}}),
        ended("completed"),
    ]

    printed = out.start(SETUP, "hi") + [line for given in story for line in out.take(given)]

    assert printed[1:] == [
        "--------",
        "workdir: /w",
        "model: m",
        "provider: p",
        "approval: never",
        "sandbox: read-only",
        "reasoning effort: none",
        "session id: T",
        "--------",
        "user",
        "hi",
        "warning: careful (very)",
        "exec",
        "/bin/bash -lc 'echo one; exit 3' in /w",
        " exited 3:",
        "one",
        "agent",
        "done",
        "tokens used",
        "1,340",
    ]


def test_an_error_is_shown_to_people_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unspool_server.cli.exec_text.click.style", lambda text, **_: str(text))
    out = TextLines()

    shown = out.take(event("error", error={"message": "no"})) + out.take(ended("failed", {"message": "no"}))

    assert shown == ["ERROR: no"]
