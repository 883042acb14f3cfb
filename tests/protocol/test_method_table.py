"""The tables hold every method clients need, additions are marked, and schemas describe all of it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from unspool_protocol import envelope, notifications, threads
from unspool_protocol.methods import EXPERIMENTAL_FIELDS, METHODS, experimental_field
from unspool_protocol.notifications import NOTIFICATIONS
from unspool_protocol.requests import SERVER_REQUESTS
from unspool_protocol.schema import write_schemas

NEEDED = [
    "initialize",
    "thread/start",
    "turn/start",
    "turn/steer",
    "turn/interrupt",
    "thread/resume",
    "thread/fork",
    "thread/read",
    "thread/turns/list",
    "thread/items/list",
    "thread/list",
    "thread/loaded/list",
    "thread/name/set",
    "thread/archive",
    "thread/unarchive",
    "thread/delete",
    "thread/compact/start",
    "thread/revert",
    "thread/rollback",
    "thread/inject_items",
    "thread/unsubscribe",
    "model/list",
    "account/read",
    "config/read",
    "configRequirements/read",
]
"""Every method marked P0 or P1 in `wire` §6."""

BROADCAST = [
    "thread/started",
    "thread/status/changed",
    "thread/readState/changed",
    "thread/archived",
    "thread/unarchived",
    "thread/deleted",
    "thread/name/updated",
    "thread/closed",
    "remoteControl/status/changed",
]
"""`wire` §4."""


@pytest.mark.parametrize("name", NEEDED)
def test_every_needed_method_is_in_the_table(name: str) -> None:
    assert METHODS[name].name == name


def test_models_are_named_after_their_methods() -> None:
    for name in NEEDED:
        stem = "".join(part[0].upper() + part[1:] for part in name.replace("_", "/").split("/"))
        method = METHODS[name]
        assert method.result.__name__ == f"{stem}Result"
        assert method.params is None or method.params.__name__ == f"{stem}Params"


def test_only_our_own_methods_are_marked_as_additions() -> None:
    ours = {m.name for m in METHODS.values() if m.ours}
    assert ours >= {"thread/compact", "thread/rollback", "thread/rollback/undo", "thread/verify"}
    assert ours == {m.name for m in METHODS.values() if m.doc.startswith("Addition: ")}
    assert all(m.doc for m in METHODS.values())


def test_exactly_the_broadcasts_of_the_reference_go_to_everyone() -> None:
    ours = {"server/draining", "connection/closing"}
    assert {kind.name for kind in NOTIFICATIONS.values() if kind.broadcast} == set(BROADCAST) | ours


def test_deltas_and_status_are_ephemeral_and_items_are_recorded() -> None:
    assert NOTIFICATIONS["item/agentMessage/delta"].ephemeral
    assert NOTIFICATIONS["thread/status/changed"].ephemeral
    assert NOTIFICATIONS["item/completed"].recorded
    assert NOTIFICATIONS["turn/completed"].recorded


def test_experimental_fields_exist_in_the_models_they_belong_to() -> None:
    for name, fields in EXPERIMENTAL_FIELDS.items():
        params = METHODS[name].params
        assert params is not None
        assert fields <= {field.alias for field in params.model_fields.values()}


def test_an_experimental_field_counts_unless_it_is_null() -> None:
    assert experimental_field("thread/start", {"cwd": "/w", "dynamicTools": []}) == "dynamicTools"
    assert experimental_field("thread/start", {"cwd": "/w", "dynamicTools": None}) is None
    assert experimental_field("thread/read", {"dynamicTools": []}) is None


@pytest.mark.parametrize("bad", [1.5, True, None, 2**63, -(2**63) - 1, [], {}])
def test_ids_are_strings_or_signed_64_bit_integers_only(bad: Any) -> None:
    with pytest.raises(ValidationError):
        envelope.Request.model_validate({"id": bad, "method": "x"})


@pytest.mark.parametrize("good", ["", "1", 0, 1, -(2**63), 2**63 - 1])
def test_ids_keep_their_type(good: Any) -> None:
    parsed = envelope.Request.model_validate({"id": good, "method": "x", "trace": {}})
    assert parsed.id == good
    assert type(parsed.id) is type(good)


def test_a_plain_notification_carries_none_of_our_members() -> None:
    plain = notifications.ThreadRevertedNotification(thread_id="t")
    assert plain.model_dump(mode="json", by_alias=True) == {"threadId": "t"}
    warning = notifications.WarningNotification(thread_id="t", message="m")
    assert warning.model_dump(mode="json", by_alias=True) == {"threadId": "t", "message": "m"}
    message = envelope.Notification(method="turn/started", params={})
    assert message.model_dump(mode="json", by_alias=True) == {"method": "turn/started", "params": {}}


def test_our_members_appear_where_they_are_set() -> None:
    reverted = notifications.ThreadRevertedNotification(thread_id="t", reason="rollback", turn_ids=("a", "b"))
    assert reverted.model_dump(mode="json", by_alias=True) == {
        "threadId": "t",
        "reason": "rollback",
        "turnIds": ["a", "b"],
    }
    message = envelope.Notification(method="m", params={}, cursor="c", replayed=True)
    assert message.model_dump(by_alias=True) == {"method": "m", "params": {}, "cursor": "c", "replayed": True}


def test_a_result_without_cursor_is_the_references_own() -> None:
    thread = threads.Thread(
        id="t", session_id="t", model_provider="mock", created_at=1, updated_at=2, cwd="/w", cli_version="0.171.0"
    )
    result = threads.ThreadStartResult(thread=thread, model="m", model_provider="mock", cwd="/w")
    assert "cursor" not in result.model_dump(by_alias=True)
    assert result.model_copy(update={"cursor": "c"}).model_dump(by_alias=True)["cursor"] == "c"
    assert threads.ThreadStartResult.model_validate(result.model_dump(mode="json", by_alias=True)) == result


def _defs(written: dict[str, Any], reference: str) -> Any:
    file, pointer = reference.split("#/$defs/")
    return written[file]["$defs"][pointer]


def test_schemas_are_written_for_every_row_and_equal_each_time(tmp_path: Path) -> None:
    first = write_schemas(tmp_path / "a" / "b", "0")
    second = write_schemas(tmp_path / "c", "0")
    assert [path.name for path in first] == [
        "asyncapi.json",
        "envelope.json",
        "method-models.json",
        "methods.json",
        "notifications.json",
        "openrpc.json",
        "records.json",
        "server-requests.json",
    ]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    written = {path.name: json.loads(path.read_text("utf-8")) for path in first}
    index = written["methods.json"]
    assert set(index["methods"]) == set(METHODS)
    assert set(index["notifications"]) == set(NOTIFICATIONS)
    assert set(index["serverRequests"]) == set(SERVER_REQUESTS)
    rows = [*index["methods"].values(), *index["notifications"].values(), *index["serverRequests"].values()]
    references = [row[key] for row in rows for key in ("params", "result", "response") if row.get(key)]
    assert all(_defs(written, reference)["type"] == "object" for reference in references)
    assert _defs(written, index["methods"]["thread/read"]["params"])["required"] == ["threadId"]
