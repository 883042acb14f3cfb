"""What a resumed or forked turn adds before its user message, for every captured check (`expect.injected`)."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from unspool_protocol.log import HistoryMode, Record
from unspool_server.history.agents_md import AgentsMd, assemble_agents_md
from unspool_server.history.context import ContextFacts, context_update
from unspool_server.history.environment import SandboxPolicy
from unspool_server.history.reconstruct import merge_patch, reconstruct
from unspool_server.history.settings import effective_settings
from unspool_server.history.turn_pages import turn_slices

from tests.history.codex_logs import SCENARIOS, captured, expected

TODAY = "2026-11-30"
FULL_ACCESS, READ_ONLY = SandboxPolicy("danger-full-access"), SandboxPolicy("read-only")
AGENTS_TEXTS = {"/tmp/ws/proj": "Project rule: be brief.\n"}
"""The files of the working folder that the captures were made in."""

PROFILES = {"disabled": FULL_ACCESS, "managed": READ_ONLY}
"""The recorded permission profiles that occur in the captures."""


@dataclass(frozen=True, slots=True)
class Check:
    """One captured check: what was asked of which thread, and what the model got before the new input."""

    name: str
    mode: HistoryMode
    records: tuple[Record, ...]
    params: dict[str, Any]
    injected: list[dict[str, Any]]


def checks() -> list[Check]:
    """All checks of one resume, fork or revert and one turn; those that end with an error have nothing to predict."""
    found = []
    for scenario in SCENARIOS:
        case = expected(scenario)
        for check in case["checks"]:
            calls = [step for step in check["steps"] if step["op"] == "call" and step["method"] in CUTS]
            plain = all(step["op"] != "compact" for step in check["steps"])
            if "injected" not in check["expect"] or not plain:
                continue
            thread_id = case["threads"][calls[0]["params"]["threadId"].strip("${}")]
            thread = captured(scenario, thread_id)
            params: dict[str, Any] = {}
            for call in calls:
                params |= call["params"]
            records = cut(list(thread.records), thread_id, thread.mode, params)
            name = f"{scenario}-{check['name']}"
            found.append(Check(name, thread.mode, tuple(records), params, check["expect"]["injected"]))
    return found


CUTS = ("thread/resume", "thread/fork", "thread/revert")


def cut(records: list[Record], thread_id: str, mode: HistoryMode, params: dict[str, Any]) -> list[Record]:
    """The records that a fork or revert keeps."""
    for key in ("lastTurnId", "beforeTurnId"):
        if key in params:
            part = next(part for part in turn_slices(records, thread_id, mode) if part.turn.id == params[key])
            place = part.end if key == "lastTurnId" else part.start
            return [record for record in records if record.ordinal < place.ordinal]
    return records


def facts_of(check: Check) -> ContextFacts:
    settings = effective_settings(check.records)
    profile = settings.permission_profile
    sandbox = FULL_ACCESS if profile is None else PROFILES[profile["type"]]
    if "sandbox" in check.params:
        sandbox = READ_ONLY
    cwd = check.params.get("cwd") or settings.cwd or "/tmp/ws"
    text = AGENTS_TEXTS.get(cwd)
    agents_md: AgentsMd | None = assemble_agents_md(cwd, [text]) if text else None
    return ContextFacts(
        cwd=cwd,
        shell="bash",
        current_date=TODAY,
        timezone="Etc/UTC",
        model=settings.model or "mock-model",
        sandbox=sandbox,
        developer_instructions=check.params.get("developerInstructions"),
        agents_md=agents_md,
    )


def same_text(want: str, got: str) -> bool:
    date = re.compile(r"<current_date>[^<]*</current_date>")
    want, got = date.sub("<current_date>*</current_date>", want), date.sub("<current_date>*</current_date>", got)
    pattern = ".*".join(re.escape(piece) for piece in want.split("[placeholder]"))
    return re.fullmatch(pattern, got, re.DOTALL) is not None


CHECKS = checks()


def test_most_captured_checks_can_be_predicted() -> None:
    assert len(CHECKS) >= 80


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.name))
def test_the_injected_items_are_those_the_reference_sent(check: Check) -> None:
    update = context_update(reconstruct(check.records, check.mode), facts_of(check))
    got = [(item["role"], [part["text"] for part in item["content"]]) for item in update.items]
    want = [(item["role"], [part["text"] for part in item["content"]]) for item in check.injected]
    assert [(role, len(texts)) for role, texts in got] == [(role, len(texts)) for role, texts in want]
    for (_, want_texts), (_, got_texts) in zip(want, got, strict=True):
        assert all(same_text(*pair) for pair in zip(want_texts, got_texts, strict=True))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.name))
def test_once_recorded_the_context_is_not_shown_again(check: Check) -> None:
    """Except behind a legacy compaction, where a reader never trusts a later reference (03 §5.3)."""
    before = reconstruct(check.records, check.mode)
    facts = facts_of(check)
    update = context_update(before, facts)
    lines = [("response_item", dict(item)) for item in update.items]
    if update.world_state is not None:
        full, state = update.world_state
        lines.append(("world_state", {"full": full, "state": state}))
    lines.append(("turn_context", {"turn_id": "next", "model": facts.model, "cwd": facts.cwd}))
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go on"}]}
    lines.append(("response_item", user))
    start = [Record("r", 10_000, "event_msg", {"type": "task_started", "turn_id": "next"})]
    added = [Record("r", 10_001 + index, kind, payload) for index, (kind, payload) in enumerate(lines)]
    after = reconstruct([*check.records, *start, *added], check.mode)
    again = context_update(after, facts)
    if any(degradation.code == "legacyCompaction" for degradation in after.degradations):
        assert [item["role"] for item in again.items] == ["user"]
    else:
        assert (again.items, again.world_state) == ((), None)


def test_a_fresh_world_state_has_the_keys_and_values_of_the_reference() -> None:
    thread = captured("agents_md", expected("agents_md")["threads"]["main"])
    recorded = next(record for record in thread.records if record.type == "world_state").payload["state"]
    check = next(check for check in CHECKS if check.name == "agents_md-resume-main")
    fresh = context_update(reconstruct([], check.mode), facts_of(check)).world_state
    assert fresh is not None
    full, state = fresh
    assert full
    assert {key: value for key, value in recorded.items() if key != "model_catalog"} == state


@pytest.mark.parametrize("scenario", ["settings_changes", "fork_settings"])
def test_patches_hold_exactly_the_changed_keys(scenario: str) -> None:
    names = expected(scenario)["threads"]
    patches = 0
    for thread_id in names.values():
        records = captured(scenario, thread_id).records
        state: Any = {}
        for index, record in enumerate(records):
            if record.type != "world_state":
                continue
            if not record.payload["full"]:
                patches += 1
                mode = captured(scenario, thread_id).mode
                before = reconstruct(records[:index], mode)
                merged = merge_patch(state, record.payload["state"])
                assert context_update(before, facts_from(merged)).world_state == (False, record.payload["state"])
            state = merge_patch({} if record.payload["full"] else state, record.payload["state"])
    assert patches


def facts_from(state: dict[str, Any]) -> ContextFacts:
    """The facts that a world state describes."""
    environments = state["environments"]
    local = environments["environments"]["local"]
    return ContextFacts(
        cwd=local["cwd"],
        shell=local["shell"],
        current_date=environments["current_date"],
        timezone=environments["timezone"],
        model=state["model"],
        sandbox=READ_ONLY if "managed" in environments["filesystem"] else FULL_ACCESS,
    )
