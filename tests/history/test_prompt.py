"""Requests built from raw history: orphan rules, left-out members, stable prefixes, and every captured resume."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unspool_server.history.prompt import base_item, prompt_items
from unspool_server.history.reconstruct import reconstruct
from unspool_server.history.state import Item

from tests.history.codex_logs import SCENARIOS, captured, expected, own_prefix
from tests.history.rows import our_rows, render_history

IGNORED = {"id", "status", "phase", "metadata", "internal_chat_message_metadata_passthrough"}


def call(kind: str, call_id: str) -> Item:
    return {"type": kind, "call_id": call_id, "name": "f", "arguments": "{}"}


def output(kind: str, call_id: str, text: str = "done") -> Item:
    return {"type": kind, "call_id": call_id, "output": text}


def prompt_of(number: int) -> list[Item]:
    row = next(row for row in our_rows() if row.number == number)
    return prompt_items(reconstruct(row.records, row.mode).history)


@pytest.mark.parametrize(
    ("number", "rendered"),
    [
        (34, "U(u1) FC(c1) FO(c1)"),
        (35, "U(u1) A(a1)"),
        (36, "U(u1) FC(c1) FO(c1) A(a1)"),
        (40, "U(u1) A(a1) U(u2) A(a2)"),
        (42, "U(u1) A(a1)"),
        (54, "U(u1) A(a1)"),
    ],
)
def test_the_prompt_of_a_scenario_is_the_measured_one(number: int, rendered: str) -> None:
    assert render_history(prompt_of(number)) == rendered


def test_a_call_without_output_is_answered_aborted_directly_behind_it() -> None:
    assert prompt_of(34)[-1] == {"type": "function_call_output", "call_id": "c1", "output": "aborted"}
    assert prompt_of(37)[-1] == {"type": "custom_tool_call_output", "call_id": "k1", "output": "aborted"}
    shell = prompt_items([{"type": "local_shell_call", "call_id": "s", "action": {}}])
    assert shell[1:] == [{"type": "function_call_output", "call_id": "s", "output": "aborted"}]
    search = prompt_items([{"type": "tool_search_call", "call_id": "t"}])
    assert (search[1]["type"], search[1]["call_id"], search[1]["tools"]) == ("tool_search_output", "t", [])


def test_output_kinds_do_not_serve_each_other() -> None:
    mixed = prompt_items([call("custom_tool_call", "k"), output("function_call_output", "k")])
    assert [item["type"] for item in mixed] == ["custom_tool_call", "custom_tool_call_output"]
    assert mixed[1]["output"] == "aborted"


def test_late_early_and_doubled_outputs_stay_as_they_are() -> None:
    say = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}]}
    early = [output("function_call_output", "a"), say, call("function_call", "a")]
    late = [call("function_call", "b"), say, output("function_call_output", "b"), output("function_call_output", "b")]
    assert prompt_items([*early, *late]) == [*early, *late]


def test_an_output_of_an_external_event_needs_no_call() -> None:
    item = {"type": "function_call_output", "name": "key", "namespace": "agent", "output": "value"}
    assert prompt_items([item]) == [item]


def test_log_only_members_are_left_out_and_everything_else_stays() -> None:
    recorded: dict[str, Any] = {
        "type": "message",
        "id": "m1",
        "role": "user",
        "status": "completed",
        "content": [],
        "x": None,
    }
    kept = dict(recorded)
    recorded["internal_chat_message_metadata_passthrough"] = {"turn_id": "t"}
    assert prompt_items([recorded]) == [kept]
    assert "internal_chat_message_metadata_passthrough" in recorded


def test_the_base_item_depends_on_its_text_alone() -> None:
    first = base_item("be kind")
    assert first == base_item("be kind")
    assert first["id"] != base_item("be brief")["id"]
    assert (first["role"], first["content"]) == ("developer", [{"type": "input_text", "text": "be kind"}])


ITEMS = st.builds(
    lambda maker, kind, call_id: maker(kind + ("_output" if maker is output else ""), call_id),
    st.sampled_from([call, output]),
    st.sampled_from(["function_call", "custom_tool_call"]),
    st.sampled_from(["a", "b", "c"]),
)


@given(st.lists(ITEMS))
def test_every_call_is_served_and_every_output_has_its_call(history: list[Item]) -> None:
    sent = prompt_items(history)
    calls = {(item["type"], item["call_id"]) for item in sent if not item["type"].endswith("_output")}
    outputs = {(item["type"].removesuffix("_output"), item["call_id"]) for item in sent if "output" in item}
    assert calls == outputs
    assert prompt_items(sent) == sent


def plain(value: Any) -> Any:
    """An item as the captures compare it; dates are masked."""
    shown = {key: member for key, member in value.items() if key not in IGNORED and member is not None}
    if isinstance(shown.get("content"), list):
        shown["content"] = [{key: part[key] for key in ("type", "text") if key in part} for part in shown["content"]]
    return re.sub(r"<current_date>[^<]*</current_date>", "<current_date>*</current_date>", repr(shown))


RESUMES = [
    (scenario, check["steps"][0]["params"]["threadId"].strip("${}"), check["expect"]["history"])
    for scenario in SCENARIOS
    for check in expected(scenario)["checks"]
    if [step["op"] for step in check["steps"]] == ["call", "turn"]
    and check["steps"][0]["method"] == "thread/resume"
    and "history" in check["expect"]
]


@pytest.mark.parametrize(("scenario", "name", "history"), RESUMES)
def test_the_prompt_of_a_resumed_log_is_what_the_reference_sent(scenario: str, name: str, history: list[Any]) -> None:
    thread = captured(scenario, expected(scenario)["threads"][name])
    sent = [plain(item) for item in prompt_items(reconstruct(thread.records, thread.mode).history)]
    assert sent == [own_prefix(plain(item)) for item in history]
