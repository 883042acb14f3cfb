"""Which messages are context, summaries, real input or boundaries."""

import json

import pytest
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history import boundaries
from unspool_server.history.boundaries import (
    SUMMARY_PREFIX,
    is_contextual_text,
    is_fork_boundary,
    is_instruction_boundary,
    is_real_user_message,
    is_summary,
    starts_with_summary_prefix,
)

from tests.history.rows import message, parse_log

CONTEXTUAL = [
    "<environment_context>\n  <cwd>/w</cwd>\n</environment_context>",
    "  <Turn_Aborted>x</turn_aborted>\n",
    "<user_shell_command>\nx\n</user_shell_command>",
    "<subagent_notification>{}</subagent_notification>",
    "<skill>x</skill>",
    "<recommended_plugins>x</recommended_plugins>",
    "<goal_context>x</goal_context>",
    "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>",
    "# AGENTS.md instructions\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>",
    '<codex_internal_context source="x">y</codex_internal_context>',
    "<external_notes>y</external_notes>",
    '<hook_prompt hook_run_id="x">y</hook_prompt>',
    "Warning: The maximum number of unified exec processes you can keep open is 60",
    "Warning: apply_patch was requested via shell. Use the apply_patch tool instead of exec_command.",
    "Warning: Your account was flagged for something",
]
REAL = [
    "<user_instructions>x</user_instructions>",
    "<permissions instructions>x</permissions instructions>",
    "<model_switch>x</model_switch>",
    "<collaboration_mode>x</collaboration_mode>",
    "<skills_instructions>x</skills_instructions>",
    "<environment_context>x</environment_context> and more",
    "see <environment_context>x</environment_context>",
    "<environment_context>x",
    "<codex_internal_context>y</codex_internal_context>",
    '<external_notes a="1">y</external_notes>',
    "<external_notes>y</external_other>",
    "<hook_prompt>y</hook_prompt>",
    "Warning: apply_patch was requested via shell",
    "",
    "   ",
    "plain",
]


@pytest.mark.parametrize("text", CONTEXTUAL)
def test_a_text_between_harness_tags_is_context(text: str) -> None:
    assert is_contextual_text(text)
    assert not is_real_user_message(message("user", text))
    assert not is_instruction_boundary(message("user", text))


@pytest.mark.parametrize("text", REAL)
def test_any_other_text_is_input(text: str) -> None:
    assert not is_contextual_text(text)
    assert is_real_user_message(message("user", text))
    assert is_instruction_boundary(message("user", text))


def test_one_contextual_part_makes_the_whole_message_context() -> None:
    item = message("user", "hello")
    item["content"].append({"type": "input_text", "text": CONTEXTUAL[0]})
    assert not is_real_user_message(item)


def test_a_summary_is_told_by_its_joined_text_and_any_part_with_the_prefix_stops_counting() -> None:
    whole = message("user", f"{SUMMARY_PREFIX}\nx")
    later = message("user", "a")
    later["content"].append(whole["content"][0])
    assert (is_summary(whole), is_instruction_boundary(whole)) == (True, False)
    assert (is_summary(later), is_real_user_message(later), is_instruction_boundary(later)) == (False, True, False)
    assert is_instruction_boundary(message("user", SUMMARY_PREFIX))
    assert is_instruction_boundary(message("user", f" {SUMMARY_PREFIX}\nx"))


def test_a_foreign_prefix_is_told_by_the_digest_of_its_first_400_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = "é" * 199 + "!\n"
    digest = __import__("hashlib").sha256(prefix.encode()).hexdigest()
    monkeypatch.setattr(boundaries, "_REFERENCE_PREFIX_SHA256", digest)
    assert starts_with_summary_prefix(prefix + "summary")
    assert not starts_with_summary_prefix(prefix[:-1] + " summary")
    assert not starts_with_summary_prefix("x" + prefix)


ENVELOPE = {"author": "/root", "recipient": "/root/a", "other_recipients": [], "content": "go", "trigger_turn": True}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(ENVELOPE), True),
        (json.dumps({**ENVELOPE, "trigger_turn": "yes"}), False),
        (json.dumps({"content": "go"}), False),
        ("{broken", False),
        ("[" * 100_000, False),
        ("{" + '"a":[' * 100_000, False),
        ("hello", False),
    ],
)
def test_an_assistant_message_is_a_boundary_only_as_an_envelope(text: str, expected: bool) -> None:
    assert is_instruction_boundary(message("assistant", text)) is expected


def test_fork_boundaries_are_real_input_and_messages_that_trigger_a_turn() -> None:
    log = "UE(u) U(u) E A(a) IA+(go) IA-(fyi) R TS(t)"
    records = parse_log(log, HistoryMode.LEGACY)
    quiet = json.dumps({**ENVELOPE, "trigger_turn": False})
    for text in (json.dumps(ENVELOPE), quiet, f"{SUMMARY_PREFIX}\nx"):
        role = "user" if text.startswith(SUMMARY_PREFIX) else "assistant"
        records.append(Record("r", len(records), "response_item", message(role, text)))
    assert [record.ordinal for record in records if is_fork_boundary(record)] == [2, 5, 9]


@pytest.mark.parametrize("kind", ["reasoning", "function_call", "compaction", "message"])
def test_items_of_the_model_are_no_boundaries(kind: str) -> None:
    assert not is_instruction_boundary({"type": kind, "role": "assistant"})


def test_an_agent_message_is_a_boundary() -> None:
    assert is_instruction_boundary({"type": "agent_message", "content": []})
