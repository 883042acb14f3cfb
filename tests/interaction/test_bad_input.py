"""Bad input of every kind gets one typed answer and changes nothing."""

from typing import Any

import pytest

from tests.interaction.house import House, LocalDaemon
from tests.interaction.wire import Client

ANY_OBJECT = [5, 1.5, True, "text", ["list"], {"odd": 1}]
TEXT = [{"type": "text", "text": "t"}]
WRONG: dict[str, dict[str, list[Any]]] = {
    "turn/start": {
        "threadId": [5, None, True, [], {}, "", "nope"],
        "input": [
            *(5, "text", {}, None, [5], [{}], [None], [[]]),
            [{"type": "text"}],
            [{"type": "text", "text": 5}],
            [{"type": "text", "text": None}],
            [{"type": "bogus", "text": "t"}],
            [{"type": 7, "text": "t"}],
            [{"type": "image", "url": "https://example.org/x.png"}],
            [{"type": "localImage"}],
        ],
        "model": [5, [], {}, True],
        "effort": [5, [], {}],
        "summary": [5, [], {}],
        "cwd": [5, [], {}],
        "runtimeWorkspaceRoots": [5, "x", [5], {}],
        "approvalPolicy": ["bogus", 5, []],
        "approvalsReviewer": ["bogus", 5],
        "sandboxPolicy": ["bogus", 5, {}, {"type": "bogus"}, {"type": "readOnly", "networkAccess": "x"}],
        "outputSchema": [5, "x", []],
        "personality": [5, []],
        "serviceTier": [5, []],
        "clientUserMessageId": [5, []],
        "collaborationMode": [5, "x", {}, {"mode": "plan"}, {"mode": "plan", "settings": {}}],
    },
    "thread/rollback": {
        "threadId": [5, None, [], "nope"],
        "numTurns": [0, -1, True, False, 1.5, 1.0, 99, "1", None, [], {}, 2**63],
        "interrupt": [1, "true", [], {}],
    },
    "thread/compact": {
        "threadId": [5, None, [], "nope"],
        "summary": [5, None, [], {}],
        "keepLast": [-1, True, 1.5, "1", None, []],
        "interrupt": [1, "true", []],
    },
    "thread/rollback/undo": {"threadId": [5, None, "nope"], "interrupt": [1, "no"]},
    "thread/revert": {"threadId": [5, None, "nope"], "beforeTurnId": [5, None, [], ""]},
    "thread/fork": {
        "threadId": [5, None, "nope"],
        "lastTurnId": [5, [], "nope"],
        "beforeTurnId": [5, {}, "nope"],
        "ephemeral": [1, "x"],
        "excludeTurns": ["x", 0],
        "sandbox": ["bogus", 5],
    },
    "thread/name/set": {"threadId": [5, None, "nope"], "name": [5, None, [], "", "  "]},
    "thread/inject_items": {"threadId": [5, None, "nope"], "items": [5, None, "x", {}, [], [5], [{}], [{"type": 5}]]},
    "thread/turns/list": {
        "threadId": [5, "nope"],
        "cursor": [5, "x", "\u2603"],
        "limit": [-1, 1.5, True, "2", 2**32],
        "sortDirection": ["up", 5],
        "itemsView": ["all", 5],
    },
    "thread/items/list": {"threadId": [5, "nope"], "turnId": [5, []], "cursor": [5, "x"], "limit": [-1, True]},
    "thread/read": {"threadId": [5, None, "nope"], "includeTurns": [1, "yes"]},
    "thread/resume": {"threadId": [5, None, "nope"], "excludeTurns": [1, "yes"], "replay": [5, [], {"mode": "x"}]},
    "turn/steer": {"threadId": [5, "nope"], "expectedTurnId": [5, None], "input": [5, None, [5]]},
    "turn/interrupt": {"threadId": [5, "nope"], "turnId": [5, None, []]},
    "thread/list": {"limit": [-1, "5", 1.5], "cursor": [5, "x"], "sortKey": ["bogus"], "archived": [1, "yes"]},
}
GOOD: dict[str, dict[str, Any]] = {
    "turn/start": {"input": TEXT},
    "thread/rollback": {"numTurns": 1},
    "thread/compact": {"summary": "S"},
    "thread/revert": {"beforeTurnId": "TURN"},
    "thread/name/set": {"name": "n"},
    "thread/inject_items": {"items": [{"type": "message", "role": "user", "content": []}]},
    "turn/steer": {"expectedTurnId": "TURN", "input": TEXT},
    "turn/interrupt": {"turnId": "TURN"},
}
RANGES = {"turnsOutOfRange", "turnNotFound", "cursorInvalid"}


async def thread_with_turns(house: House, daemon: LocalDaemon, **params: Any) -> tuple[Client, str, str]:
    """A client, a thread of two turns, and the first of them."""
    client = await daemon.connect()
    thread = await client.start(cwd=str(house.work), **params)
    turns = await client.turns(thread, "one", "two")
    return client, thread, turns[0]


@pytest.mark.parametrize("method", sorted(WRONG))
async def test_every_wrong_value_of_every_parameter_is_refused_and_changes_nothing(house: House, method: str) -> None:
    async with house.daemon() as daemon:
        client, thread, turn = await thread_with_turns(house, daemon)
        good = {"threadId": thread, **GOOD.get(method, {})}
        good = {key: turn if value == "TURN" else value for key, value in good.items()}
        before, logs, live = await client.read(thread), house.logs(), daemon.session(thread).history.state
        settings, mark = daemon.session(thread).settings, client.mark
        for field, values in WRONG[method].items():
            for value in values:
                refused = await client.refused(method, {**good, field: value})
                where = f"{method} {field}={value!r}: {refused}"
                assert refused.code == -32600, where
                assert refused.reason in RANGES | {"invalidParams"}, where
                if refused.reason == "invalidParams":
                    assert str(refused.data["field"]).startswith(field), where
                assert "Traceback" not in refused.message and "pydantic" not in refused.message, where
        for field in {"threadId", *good} - ({"threadId"} if method == "thread/list" else set()):
            refused = await client.refused(method, {key: value for key, value in good.items() if key != field})
            assert refused.message == f"Invalid request: missing field `{field}`"
        for params in (None, [], [thread], "x", 5, True):
            refused = await client.refused(method, params)
            assert (refused.code, refused.reason) == (-32600, "invalidParams"), params
        # As the reference, a revert shows the thread unloaded and idle again also when it is refused.
        assert set(client.outline(mark)) <= {"error", "thread/status/changed" if method == "thread/revert" else "error"}
        assert await client.read(thread) == before
        assert house.logs() == logs
        assert daemon.session(thread).history.state == live
        assert daemon.session(thread).settings == settings
        assert (await client.call("thread/loaded/list", {}))["data"] == [thread]
        assert client.count("turn/started") == 2


async def test_too_long_input_is_refused_with_its_own_code(house: House) -> None:
    async with house.daemon() as daemon:
        client, thread, _ = await thread_with_turns(house, daemon)
        logs = house.logs()
        params = {"threadId": thread, "input": [{"type": "text", "text": "x" * ((1 << 20) + 1)}]}
        refused = await client.refused("turn/start", params)
        assert (refused.code, refused.reason, refused.data["field"]) == (-32602, "invalidParams", "input")
        assert house.logs() == logs


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_rolling_back_exactly_all_turns_is_fine_and_one_more_is_not(house: House, mode: str) -> None:
    async with house.daemon() as daemon:
        client, thread, _ = await thread_with_turns(house, daemon, historyMode=mode)
        refused = await client.refused("thread/rollback", {"threadId": thread, "numTurns": 3})
        assert refused.data == {"reason": "turnsOutOfRange", "field": "numTurns", "numTurns": 3, "available": 2}
        result = await client.call("thread/rollback", {"threadId": thread, "numTurns": 2})
        assert result["thread"]["turns"] == []
        refused = await client.refused("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert (refused.reason, refused.data["available"]) == ("turnsOutOfRange", 0)


async def test_unknown_fields_and_nulls_for_optional_ones_are_accepted(house: House) -> None:
    async with house.daemon() as daemon:
        client, thread, _ = await thread_with_turns(house, daemon)
        nulls = dict.fromkeys(field for field in WRONG["turn/start"] if field not in ("threadId", "input"))
        params = {"threadId": thread, "input": TEXT, **nulls, "someday": {"deep": [1]}}
        result = await client.call("turn/start", params)
        assert (await client.ended(result["turn"]["id"]))["status"] == "completed"
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1, "interrupt": None})
        await client.call("thread/fork", {"threadId": thread, "lastTurnId": None, "ephemeral": None, "sandbox": None})


MALFORMED: list[tuple[bytes, int, Any]] = [
    (b"{no json", -32700, None),
    (b'{"id":1', -32700, None),
    (b"[]", -32600, None),
    (b'[{"id":1,"method":"thread/list","params":{}}]', -32600, None),
    (b"5", -32600, None),
    (b"{}", -32600, None),
    (b'{"id":7}', -32600, 7),
    (b'{"id":1.5,"method":"thread/list","params":{}}', -32600, None),
    (b'{"id":true,"method":"thread/list","params":{}}', -32600, None),
    (b'{"id":null,"method":"thread/list","params":{}}', -32600, None),
    (b'{"id":"a","method":5,"params":{}}', -32600, "a"),
    (b'{"id":9223372036854775808,"method":"thread/list","params":{}}', -32600, None),
    (b'{"id":3,"method":"thread/read","params":{"threadId":"\xff"}}', -32700, None),
]


async def test_a_malformed_message_gets_exactly_one_answer_and_the_connection_stays(any_house: House) -> None:
    async with any_house.running() as daemon:
        client = await daemon.connect()
        for message, code, request_id in MALFORMED:
            if any_house.kind == "websocket" and not message.isascii():
                continue  # a text frame cannot hold it
            mark = client.mark
            await client.send_bytes(message)
            answer = await client.until(lambda m: "error" in m, since=mark)
            assert (answer["error"]["code"], answer["id"]) == (code, request_id), message
            assert answer["error"]["data"]["reason"]
            await client.settled()
            assert client.outline(mark) == ["error", "answer"], message
