"""Recorded logs rebuild to the history that the model was sent when they were resumed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from unspool_server.history.reconstruct import reconstruct

from tests.history.logs import FixtureLog, expectations, fixture_logs

LOGS = list(fixture_logs())
DROPPED = {"id", "status", "internal_chat_message_metadata_passthrough", "metadata", "phase"}
PART_FIELDS = ("type", "text", "image_url", "refusal")
CALLS = {"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output"}


def compared(item: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that the captures hold."""
    kept = {key: value for key, value in item.items() if key not in DROPPED and value is not None}
    if isinstance(kept.get("content"), list):
        kept["content"] = [{key: part[key] for key in PART_FIELDS if key in part} for part in kept["content"]]
    return kept


def as_sent(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What prompts do with orphans: a call without output gets one, an output without call goes (03 §6)."""
    answered = {item.get("call_id") for item in history if item["type"] in CALLS.values()}
    called = {item.get("call_id") for item in history if item["type"] in CALLS}
    sent: list[dict[str, Any]] = []
    for item in history:
        if item["type"] in CALLS.values() and item.get("call_id") not in called and item.get("call_id"):
            continue
        sent.append(compared(item))
        if item["type"] in CALLS and item["call_id"] not in answered:
            sent.append({"type": CALLS[item["type"]], "call_id": item["call_id"], "output": "aborted"})
    return sent


def newest_log(name: str, thread_id: str) -> FixtureLog:
    """The present rollout of a thread: the greatest path (07 §7)."""
    return max((log for log in LOGS if log.name == name and log.thread_id == thread_id), key=lambda log: log.path.name)


def whole_resumes() -> list[tuple[str, str, str]]:
    """(fixture, check, thread id) of every check that resumes a whole thread and runs one turn."""
    found = []
    for name in sorted({log.name for log in LOGS}):
        expected = expectations(name)
        for check in expected["checks"]:
            calls = [step for step in check["steps"] if step["op"] == "call"]
            plain = [step["op"] for step in check["steps"]] == ["call", "turn"]
            if plain and calls[0]["method"] == "thread/resume" and "history" in check["expect"]:
                thread = calls[0]["params"]["threadId"].strip("${}")
                found.append((name, check["name"], expected["threads"][thread]))
    return found


RESUMES = whole_resumes()


def test_the_captures_hold_many_whole_resumes() -> None:
    assert len(RESUMES) > 40


@pytest.mark.parametrize(("name", "check", "thread_id"), RESUMES, ids=lambda value: value[-20:])
def test_a_resumed_log_rebuilds_what_the_model_was_sent(name: str, check: str, thread_id: str) -> None:
    log = newest_log(name, thread_id)
    expected = next(entry["expect"] for entry in expectations(name)["checks"] if entry["name"] == check)
    assert as_sent(reconstruct(log.records, log.mode).history) == [compared(item) for item in expected["history"]]


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_every_prefix_of_a_recorded_log_rebuilds(log: FixtureLog) -> None:
    for end in range(len(log.records) + 1):
        result = reconstruct(log.records[:end], log.mode)
        assert sum(span.end - span.start for span in result.spans) == end


@pytest.mark.parametrize("log", LOGS, ids=str)
def test_only_old_logs_are_less_than_perfect(log: FixtureLog) -> None:
    codes = {degradation.code for degradation in reconstruct(log.records, log.mode).degradations}
    assert codes <= ({"legacyCompaction"} if log.name.startswith(("v098", "v120_stripped")) else set())
