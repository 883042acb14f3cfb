"""Parameters refuse wrong types and ranges, and accept what real clients send beyond the needful."""

import json
from typing import Any

import pytest
from pydantic import ValidationError
from unspool_protocol import requests, settings, startup, threads, turn_methods
from unspool_protocol.base import WireModel

THREAD = "01a22ba2-51a5-78a3-b96a-49d53c171f6f"


def check(model: type[WireModel], value: Any) -> WireModel:
    """Parse leniently from decoded JSON and strictly from text; both must agree."""
    lenient = model.model_validate(value)
    assert model.model_validate_json(json.dumps(value), strict=True) == lenient
    return lenient


@pytest.mark.parametrize(
    ("model", "value", "field"),
    [
        (threads.ThreadReadParams, {}, "threadId"),
        (threads.ThreadReadParams, {"threadId": 5}, "threadId"),
        (threads.ThreadReadParams, {"threadId": None}, "threadId"),
        (threads.ThreadReadParams, {"threadId": THREAD, "includeTurns": "true"}, "includeTurns"),
        (threads.ThreadReadParams, {"threadId": THREAD, "includeTurns": 1}, "includeTurns"),
        (threads.ThreadListParams, {"limit": "5"}, "limit"),
        (threads.ThreadListParams, {"limit": True}, "limit"),
        (threads.ThreadListParams, {"limit": 5.0}, "limit"),
        (threads.ThreadListParams, {"limit": -1}, "limit"),
        (threads.ThreadListParams, {"limit": 2**32}, "limit"),
        (threads.ThreadListParams, {"sortKey": "name"}, "sortKey"),
        (threads.ThreadListParams, {"modelProviders": "mock"}, "modelProviders"),
        (threads.ThreadRollbackParams, {"threadId": THREAD}, "numTurns"),
        (threads.ThreadRollbackParams, {"threadId": THREAD, "numTurns": True}, "numTurns"),
        (threads.ThreadRollbackParams, {"threadId": THREAD, "numTurns": 1.0}, "numTurns"),
        (threads.ThreadRollbackParams, {"threadId": THREAD, "numTurns": "1"}, "numTurns"),
        (threads.ThreadRollbackParams, {"threadId": THREAD, "numTurns": 0}, "numTurns"),
        (threads.ThreadCompactParams, {"threadId": THREAD, "summary": "s", "keepLast": -1}, "keepLast"),
        (threads.ThreadCompactParams, {"threadId": THREAD, "summary": "s", "keepLast": False}, "keepLast"),
        (threads.ThreadCompactParams, {"threadId": THREAD, "summary": 5}, "summary"),
        (threads.ThreadStartParams, {"sandbox": "bogus"}, "sandbox"),
        (threads.ThreadStartParams, {"historyMode": "other"}, "historyMode"),
        (threads.ThreadResumeParams, {"threadId": THREAD, "replay": {"mode": "all"}}, "replay"),
        (threads.ThreadResumeParams, {"threadId": THREAD, "replay": {"after": 5}}, "replay"),
        (threads.ThreadInjectItemsParams, {"threadId": THREAD, "items": "x"}, "items"),
        (turn_methods.TurnStartParams, {"threadId": THREAD}, "input"),
        (turn_methods.TurnStartParams, {"threadId": THREAD, "input": "hi"}, "input"),
        (turn_methods.TurnStartParams, {"threadId": THREAD, "input": [{"type": "text"}]}, "input"),
        (turn_methods.TurnStartParams, {"threadId": THREAD, "input": [{"type": "bogus"}]}, "input"),
        (turn_methods.TurnStartParams, {"threadId": THREAD, "input": [{"text": "hi"}]}, "input"),
        (
            turn_methods.TurnStartParams,
            {"threadId": THREAD, "input": [], "sandboxPolicy": {"type": "x"}},
            "sandboxPolicy",
        ),
        (turn_methods.TurnSteerParams, {"threadId": THREAD, "input": []}, "expectedTurnId"),
        (startup.InitializeParams, {"clientInfo": {"name": "x"}}, "clientInfo"),
        (startup.InitializeParams, {"clientInfo": {"name": "x", "version": 1}}, "clientInfo"),
    ],
)
def test_bad_parameters_are_refused_at_the_field(model: type[WireModel], value: Any, field: str) -> None:
    with pytest.raises(ValidationError) as strict:
        model.model_validate_json(json.dumps(value), strict=True)
    with pytest.raises(ValidationError) as lenient:
        model.model_validate(value)
    assert {error["loc"][0] for error in strict.value.errors()} == {field}
    assert {error["loc"][0] for error in lenient.value.errors()} == {field}


def test_an_unknown_kind_of_input_names_the_known_ones() -> None:
    with pytest.raises(ValidationError) as refused:
        turn_methods.TurnStartParams.model_validate({"threadId": THREAD, "input": [{"type": "bogus"}]})
    (error,) = refused.value.errors()
    assert error["type"] == "union_tag_invalid"
    assert error["ctx"] == {
        "discriminator": "'type'",
        "tag": "bogus",
        "expected_tags": "'text', 'image', 'localImage', 'skill', 'mention'",
    }


@pytest.mark.parametrize(
    "model",
    [
        threads.ThreadStartParams,
        threads.ThreadListParams,
        threads.ThreadLoadedListParams,
        startup.ModelListParams,
        startup.AccountReadParams,
        startup.ConfigReadParams,
    ],
)
def test_explicit_nulls_mean_the_same_as_absence(model: type[WireModel]) -> None:
    nulls = {field.alias: None for field in model.model_fields.values()}
    assert check(model, nulls) == check(model, {})


@pytest.mark.parametrize(
    "model", [threads.ThreadResumeParams, threads.ThreadForkParams, threads.ThreadRollbackUndoParams]
)
def test_explicit_nulls_beside_the_thread_mean_absence(model: type[WireModel]) -> None:
    nulls = {field.alias: None for field in model.model_fields.values()} | {"threadId": THREAD}
    assert check(model, nulls) == check(model, {"threadId": THREAD})


def test_unknown_members_are_ignored() -> None:
    assert check(threads.ThreadReadParams, {"threadId": THREAD, "later": {"x": 1}}) == threads.ThreadReadParams(
        thread_id=THREAD
    )


def test_a_page_of_nothing_may_be_asked_for() -> None:
    parsed = check(threads.ThreadListParams, {"limit": 0})
    assert isinstance(parsed, threads.ThreadListParams)
    assert parsed.limit == 0


def test_input_of_all_known_kinds_is_accepted_and_dumped_as_it_came() -> None:
    value = {
        "threadId": THREAD,
        "input": [
            {"type": "text", "text": "hi", "text_elements": []},
            {"type": "image", "url": "data:image/png;base64,AA=="},
            {"type": "localImage", "path": "/w/a.png"},
        ],
    }
    parsed = check(turn_methods.TurnStartParams, value)
    assert parsed.model_dump(mode="json", by_alias=True, exclude_none=True) == value


def test_dynamic_tools_are_functions_unless_they_say_otherwise() -> None:
    function = {"name": "lookup", "description": "look up", "inputSchema": {"type": "object"}}
    parsed = check(
        threads.ThreadStartParams,
        {"dynamicTools": [function, {"type": "namespace", "name": "n", "description": "", "tools": [function]}]},
    )
    assert isinstance(parsed, threads.ThreadStartParams)
    assert parsed.dynamic_tools is not None
    first, second = parsed.dynamic_tools
    assert isinstance(first, threads.FunctionTool)
    assert isinstance(second, threads.ToolNamespace)
    assert second.tools == (first,)


def test_approval_policies_are_words_or_granular_objects() -> None:
    for policy in ("untrusted", "on-request", "never"):
        check(threads.ThreadStartParams, {"approvalPolicy": policy})
    check(threads.ThreadStartParams, {"approvalPolicy": {"granular": {"sandbox_approval": True}}})
    with pytest.raises(ValidationError):
        threads.ThreadStartParams.model_validate({"approvalPolicy": "bogus"})


@pytest.mark.parametrize(
    ("mode", "policy"),
    [
        ("danger-full-access", {"type": "dangerFullAccess"}),
        ("read-only", {"type": "readOnly", "networkAccess": False}),
        (
            "workspace-write",
            {
                "type": "workspaceWrite",
                "writableRoots": [],
                "networkAccess": False,
                "excludeTmpdirEnvVar": False,
                "excludeSlashTmp": False,
            },
        ),
    ],
)
def test_a_sandbox_mode_stands_for_a_policy(mode: settings.SandboxMode, policy: dict[str, Any]) -> None:
    assert settings.sandbox_policy(mode).model_dump(mode="json", by_alias=True) == policy


@pytest.mark.parametrize("decision", ["accept", "acceptForSession", "decline", "cancel"])
def test_a_decision_is_one_of_four_words_or_an_amendment(decision: str) -> None:
    assert (
        requests.ItemCommandExecutionRequestApprovalResponse.model_validate({"decision": decision}).decision == decision
    )
    amended = {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "x"]}}}
    parsed = requests.ItemCommandExecutionRequestApprovalResponse.model_validate(amended)
    assert parsed.model_dump(mode="json", by_alias=True) == amended
    for bad in ({}, {"decision": "yes"}, {"decision": None}):
        with pytest.raises(ValidationError):
            requests.ItemCommandExecutionRequestApprovalResponse.model_validate(bad)
