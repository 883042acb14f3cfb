"""One client over the in-memory transport: dialects, malformed input, answers owed, order, limits."""

import asyncio
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from unspool_server.connection import Connection, Shared
from unspool_server.connection_stage import Move, Stage, next_stage
from unspool_server.envelope import encode
from unspool_server.errors import LocalProtocolError
from unspool_server.rpc import protocol_gate
from unspool_server.transport.memory import MemoryTransport

from tests.transport.fakes import Empty, FakeHub, Table, make_shared

INITIALIZE = {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "rec", "version": "1.0"}}}
WAIT_S = 5.0


async def recv(client: MemoryTransport) -> Any:
    return await asyncio.wait_for(client.recv(), WAIT_S)


async def call(client: MemoryTransport, method: str, params: Any = None, request_id: int | str = 7) -> Any:
    await client.send({"id": request_id, "method": method, "params": params})
    return await recv(client)


async def greet(client: MemoryTransport, **extra: Any) -> Any:
    await client.send({**INITIALIZE, **extra})
    return await recv(client)


def refusal(request_id: int | str | None, message: str, data: Mapping[str, Any], code: int = -32600) -> dict[str, Any]:
    return {"id": request_id, "error": {"code": code, "message": message, "data": data}}


async def test_initialize_tells_a_codex_version_and_the_home(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        answer = await greet(client)
    assert answer["id"] == 1
    assert answer["result"]["codexHome"] == "/home/of/logs"
    assert answer["result"]["userAgent"].startswith("rec/0.171.0 (")
    assert answer["result"]["userAgent"].endswith("(rec; 1.0)")
    assert set(answer["result"]) == {"userAgent", "codexHome", "platformFamily", "platformOs"}


async def test_a_slash_in_the_client_name_leaves_the_version_readable(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        answer = await greet(client, params={"clientInfo": {"name": "@org/app", "version": "1"}})
    assert answer["result"]["userAgent"].split("/", 1)[1].split(" ")[0] == "0.171.0"


async def test_the_handshake_refuses_what_comes_too_early_too_late_or_incomplete(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        assert await call(client, "test/none") == refusal(7, "Not initialized", {"reason": "notInitialized"})
        missing = {"reason": "invalidParams", "field": "clientInfo"}
        text = "Invalid request: missing field `clientInfo`"
        assert await call(client, "initialize", {}) == refusal(7, text, missing)
        text = "Invalid request: missing field `version`"
        missing = {"reason": "invalidParams", "field": "clientInfo.version"}
        assert await call(client, "initialize", {"clientInfo": {"name": "x"}}) == refusal(7, text, missing)
        assert "result" in await greet(client)
        twice = refusal(1, "Already initialized", {"reason": "alreadyInitialized"})
        assert await greet(client) == twice


async def test_only_clients_that_say_jsonrpc_hear_it(shared: Shared) -> None:
    async with MemoryTransport(shared) as plain, MemoryTransport(shared) as other:
        assert "jsonrpc" not in await greet(plain)
        assert (await greet(other, jsonrpc="2.0"))["jsonrpc"] == "2.0"
        await plain.send({"jsonrpc": "1.0", "id": 2, "method": "test/none"})
        assert "jsonrpc" not in await recv(plain)
        assert (await call(other, "test/none"))["jsonrpc"] == "2.0"
        assert (await call(other, "no/such"))["jsonrpc"] == "2.0"


MALFORMED = [
    (b"{oops", None, -32700, "parseError"),
    (b"", None, -32700, "parseError"),
    (b"\xff\xfe", None, -32700, "parseError"),
    (b'{"id":1,"method":"test/none"}{"id":2,"method":"test/none"}', None, -32700, "parseError"),
    (b"[" * 100_000, None, -32700, "parseError"),
    (b'{"id":5,"method":"test/none","params":NaN}', None, -32700, "parseError"),
    (b"[]", None, -32600, "batch"),
    (b'[{"id":90,"method":"test/none"}]', None, -32600, "batch"),
    (b"42", None, -32600, "notAnObject"),
    (b'"str"', None, -32600, "notAnObject"),
    (b"null", None, -32600, "notAnObject"),
    (b"{}", None, -32600, "missingMethod"),
    (b'{"id":91}', 91, -32600, "missingMethod"),
    (b'{"id":96,"method":7}', 96, -32600, "invalidMethod"),
    (b'{"id":1.5,"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":null,"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":true,"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":{},"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":9223372036854775808,"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":99999999999999999999999,"method":"test/none"}', None, -32600, "invalidId"),
    (b'{"id":82,"method":"test/echo","params":{"threadId":"\\ud83d"}}', 82, -32600, "invalidUnicode"),
    (b'{"id":"\\ud83d","method":"test/none"}', None, -32600, "invalidUnicode"),
]


@pytest.mark.parametrize(("raw", "request_id", "code", "reason"), MALFORMED)
async def test_what_is_no_request_gets_one_error_and_the_connection_goes_on(
    shared: Shared, raw: bytes, request_id: int | None, code: int, reason: str
) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        await client.send(raw)
        answer = await recv(client)
        assert (answer["id"], answer["error"]["code"]) == (request_id, code)
        assert answer["error"]["data"] == {"reason": reason}
        assert (await call(client, "test/none"))["id"] == 7


async def test_ids_come_back_with_their_type(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        for request_id in ("str-id", "", -7, 0, 2**63 - 1, -(2**63), "\u2028"):
            assert await call(client, "test/none", None, request_id) == {
                "id": request_id,
                "result": {"requirements": None},
            }


async def test_notifications_and_stray_answers_get_no_answer(shared: Shared, hub: FakeHub) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        await client.send({"method": "initialized"})
        await client.send({"method": "unknown/notification", "params": {}})
        await client.send({"method": "test/none"})
        await client.send({"id": 92, "result": {}})
        await client.send({"id": None, "error": {"code": 1, "message": "x"}})
        await client.send(b'{"id":93,"result":{"text":"a\\ud83db"}}')
        assert (await call(client, "test/none", None, 8))["id"] == 8
        peer = client.connection.id
        assert hub.answers == [
            (peer, 92, {"id": 92, "result": {}}),
            (peer, 93, {"id": 93, "result": {"text": "a\ufffdb"}}),
        ]


PARAMS = [
    (None, "missing field `params`", "params"),
    ([1], "invalid type: sequence, expected struct EchoParams", "params"),
    ("str", 'invalid type: string "str", expected struct EchoParams', "params"),
    ({}, "missing field `threadId`", "threadId"),
    ({"threadId": 5}, "invalid type: integer `5`, expected a string", "threadId"),
    ({"threadId": None}, "invalid type: null, expected a string", "threadId"),
    ({"threadId": "t", "limit": "x"}, 'invalid type: string "x", expected u32', "limit"),
    ({"threadId": "t", "limit": True}, "invalid type: boolean `true`, expected u32", "limit"),
    ({"threadId": "t", "limit": 1.5}, "invalid type: floating point `1.5`, expected u32", "limit"),
    ({"threadId": "t", "colour": "blue"}, "unknown variant `blue`, expected `red` or `green`", "colour"),
    ({"threadId": "t", "inner": {}}, "missing field `name`", "inner.name"),
    ({"threadId": "t", "inner": 3}, "invalid type: integer `3`, expected an object", "inner"),
]


@pytest.mark.parametrize(("params", "text", "field"), PARAMS)
async def test_bad_params_are_refused_in_the_words_of_the_reference(
    shared: Shared, params: Any, text: str, field: str
) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        data = {"reason": "invalidParams", "field": field}
        assert await call(client, "test/echo", params) == refusal(7, f"Invalid request: {text}", data)


INPUTS = [
    ({"input": [{"type": "text", "text": "a"}, {"type": "text"}]}, "missing field `text`", "input.1.text"),
    ({"input": [{"text": "a"}]}, "missing field `type`", "input.0"),
    ({"input": [{"type": "x"}]}, "unknown variant `x`, expected `text` or `image`", "input.0"),
    ({"input": "a"}, 'invalid type: string "a", expected a sequence', "input"),
    ({"input": [], "limit": -1}, "invalid value: integer `-1`, expected u32", "limit"),
    ({"input": [], "limit": 2**40}, "invalid value: integer `1099511627776`, expected u32", "limit"),
    ({"input": [], "deep": json.loads("[" * 300 + "]" * 300)}, "params are nested too deeply", "params"),
    ({"input": [], "policy": {"name": 4}}, "invalid type: integer `4`, expected a string", "policy.name"),
]


@pytest.mark.parametrize(("params", "text", "field"), INPUTS)
async def test_refusals_of_nested_params_name_the_path_that_the_client_wrote(
    shared: Shared, params: Any, text: str, field: str
) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        data = {"reason": "invalidParams", "field": field}
        assert await call(client, "test/input", params) == refusal(7, f"Invalid request: {text}", data)


async def test_unknown_fields_and_nulls_pass(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        answer = await call(
            client, "test/echo", {"threadId": "a\u2028\u0085\x0bb", "limit": None, "call": 1, "self": 2}
        )
        assert answer["result"] == {
            "threadId": "a\u2028\u0085\x0bb",
            "limit": None,
            "flag": None,
            "colour": None,
            "inner": None,
        }
        assert (await call(client, "test/none", None))["result"] == {"requirements": None}
        assert (await call(client, "test/none", {}))["result"] == {"requirements": None}
        assert (await call(client, "test/empty", {"x": 1}))["result"] == {"data": [], "nextCursor": None}


async def test_unknown_methods_are_named_as_unknown_variants(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        error = (await call(client, "no/such/method", {}))["error"]
        assert error["code"] == -32600
        assert error["message"].startswith(
            "Invalid request: unknown variant `no/such/method`, expected one of `initialize`, `test/after`, "
        )
        assert error["data"] == {"reason": "unknownMethod", "method": "no/such/method"}


async def test_experimental_methods_and_fields_need_the_capability(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        text = "test/gated requires experimentalApi capability"
        data = {"reason": "experimentalApi", "field": ""}
        assert await call(client, "test/gated", {}) == refusal(7, text, data)
        text = "test/echo.flag requires experimentalApi capability"
        data = {"reason": "experimentalApi", "field": "flag"}
        assert await call(client, "test/echo", {"threadId": "t", "flag": True}) == refusal(7, text, data)
        assert "result" in await call(client, "test/echo", {"threadId": "t", "flag": None})
    async with MemoryTransport(shared) as client:
        capabilities = {
            "experimentalApi": True,
            "slowClient": "disconnect",
            "optOutNotificationMethods": ["turn/started"],
        }
        await greet(client, params={"clientInfo": {"name": "x", "version": "1"}, "capabilities": capabilities})
        assert client.connection.slow_client == "disconnect"
        assert client.connection.opted_out == {"turn/started"}
        assert "result" in await call(client, "test/gated", {})
        assert "result" in await call(client, "test/echo", {"threadId": "t", "flag": True})


FAILURES = [
    ("missing", -32600, "no rollout found for thread id T", {"reason": "noRollout", "threadId": "T"}),
    (
        "archived",
        -32600,
        "session T is archived. Run `codex unarchive T` to unarchive it first.",
        {"reason": "archived", "threadId": "T"},
    ),
    ("held", -32600, "thread T already has an active writer", {"reason": "held", "holder": "pid 7"}),
    ("disk", -32603, "the log could not be written", {"reason": "writeFailed", "retryable": True}),
    ("cancel", -32600, "request was cancelled", {"reason": "cancelled"}),
]


@pytest.mark.parametrize(("what", "code", "message", "data"), FAILURES)
async def test_failures_reach_the_client_as_typed_errors(
    shared: Shared, what: str, code: int, message: str, data: Mapping[str, Any]
) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        assert await call(client, "test/fail", {"threadId": what}) == refusal(7, message, data, code)
        assert "result" in await call(client, "test/none")


async def test_a_bug_shows_an_error_id_on_the_wire_and_its_text_in_the_log_only(
    shared: Shared, caplog: pytest.LogCaptureFixture
) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        answer = await call(client, "test/fail", {"threadId": "bug"})
    error_id = answer["error"]["data"]["errorId"]
    assert answer == refusal(7, "Internal error", {"reason": "internal", "errorId": error_id}, -32603)
    assert [vars(record)["unspool_facts"] for record in caplog.records] == [{"error_id": error_id}]
    assert "secret text" in caplog.text


@pytest.mark.parametrize("method", ["test/after", "test/afterFailure"])
async def test_what_a_handler_does_after_its_answer_follows_it(shared: Shared, method: str) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        assert (await call(client, method, {}))["id"] == 7
        assert await recv(client) == {"method": "test/happened"}


async def test_a_thread_that_closes_because_the_server_ends_is_refused_as_such(shared: Shared, table: Table) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        closed = refusal(7, "the log is closed", {"reason": "storeClosed"}, -32603)
        assert await call(client, "test/fail", {"threadId": "closed"}) == closed
        table.ending = True
        ending = refusal(7, "the server is shutting down", {"reason": "shuttingDown", "retryable": True}, -32600)
        assert await call(client, "test/fail", {"threadId": "closed"}) == ending


async def test_requests_start_in_the_order_of_their_arrival(shared: Shared, table: Table) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        for number in range(50):
            client.connection.receive(
                json.dumps({"id": number, "method": "test/echo", "params": {"threadId": str(number)}})
            )
        answers = [await recv(client) for _ in range(50)]
    assert table.started == [str(number) for number in range(50)]
    assert sorted(answer["id"] for answer in answers) == list(range(50))


async def test_too_many_requests_are_refused_at_once_and_none_is_forgotten(table: Table, hub: FakeHub) -> None:
    async with MemoryTransport(make_shared(table, hub, max_in_flight=4)) as client:
        await greet(client)
        for number in range(10):
            client.connection.receive(json.dumps({"id": number, "method": "test/wait", "params": {}}))
        overload = {"reason": "overloaded", "codexErrorInfo": "server_overloaded"}
        for number in range(4, 10):
            assert await recv(client) == refusal(number, "Server overloaded; retry later.", overload, -32001)
        table.gate.set()
        answers = [await recv(client) for _ in range(4)]
        assert sorted(answer["id"] for answer in answers) == [0, 1, 2, 3]
        assert all(answer["result"] == {"waited": True} for answer in answers)


async def test_a_client_that_does_not_read_is_no_longer_read_and_others_go_on(table: Table, hub: FakeHub) -> None:
    shared = make_shared(table, hub, max_unsent_bytes=1_000_000)
    async with MemoryTransport(shared) as slow, MemoryTransport(shared) as quick:
        await greet(slow)
        await greet(quick)

        async def flood() -> None:
            for number in range(500):
                await slow.send({"id": number, "method": "test/big", "params": {}})

        flooding = asyncio.create_task(flood())
        while slow.connection.outbox.waiting_bytes <= 1_000_000:
            assert (await call(quick, "test/none"))["id"] == 7
        for _ in range(200):
            assert (await call(quick, "test/none"))["id"] == 7
        assert slow.connection.outbox.waiting_bytes < 20_000_000
        assert not flooding.done()
        seen = [(await recv(slow))["id"] for _ in range(500)]
        await flooding
    assert sorted(seen) == list(range(500))


async def test_closing_cancels_what_runs_and_leaves_the_hub(shared: Shared, table: Table, hub: FakeHub) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        assert list(hub.peers) == [client.connection.id]
        await client.send({"id": 2, "method": "test/wait", "params": {}})
        await asyncio.wait_for(table.running.wait(), WAIT_S)
    assert (table.cancelled, hub.peers, hub.dropped) == (1, {}, [client.connection.id])
    assert client.connection.in_flight == 0
    with pytest.raises(EOFError):
        await recv(client)
        await recv(client)


async def test_requests_that_run_at_the_end_of_input_are_still_answered(shared: Shared, table: Table) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        await client.send({"id": 2, "method": "test/wait", "params": {}})
        await client.end_input()
        await asyncio.wait_for(table.running.wait(), WAIT_S)
        table.gate.set()
        assert await recv(client) == {"id": 2, "result": {"waited": True}}
        with pytest.raises(EOFError):
            await recv(client)


async def test_requests_that_outlast_the_end_of_input_are_answered_as_cancelled(shared: Shared, table: Table) -> None:
    connection = Connection(shared)
    connection.receive(json.dumps(INITIALIZE))
    connection.receive(b'{"id":2,"method":"test/wait","params":{}}')
    await asyncio.wait_for(table.running.wait(), WAIT_S)
    await connection.end_input(0.0)
    _, answer = await connection.take()
    assert json.loads(answer) == refusal(2, "request was cancelled", {"reason": "cancelled"})
    assert await connection.take() == []
    await connection.close()


async def test_a_huge_method_name_is_not_sent_back_whole(shared: Shared) -> None:
    async with MemoryTransport(shared) as client:
        await greet(client)
        answer = await call(client, "m" * 1_000_000, {})
        assert answer["error"]["data"] == {"reason": "unknownMethod", "method": "m" * 200 + "…"}
        assert len(answer["error"]["message"]) < 1_000


def test_results_may_hold_models_lone_surrogates_and_big_numbers() -> None:
    encoded = encode({"a": Empty(note="x\ud800"), "b": 2**70, "c": [MappingProxyType({"d": Empty()})]})
    assert json.loads(encoded) == {"a": {"note": "x\ud800"}, "b": 2**70, "c": [{"d": {"note": None}}]}
    with pytest.raises(TypeError):
        encode({"a": object()})


def test_illegal_moves_raise_and_legal_ones_lead_to_the_end() -> None:
    assert next_stage(Stage.NEW, Move.INITIALIZE) is Stage.READY
    assert next_stage(Stage.READY, Move.END_INPUT) is Stage.ENDING
    assert next_stage(Stage.ENDING, Move.CLOSE) is Stage.CLOSED
    for stage, move in ((Stage.READY, Move.INITIALIZE), (Stage.ENDING, Move.END_INPUT), (Stage.CLOSED, Move.CLOSE)):
        with pytest.raises(LocalProtocolError):
            next_stage(stage, move)


def test_the_protocol_says_what_is_experimental() -> None:
    gate = protocol_gate()
    assert "initialTurnsPage" in gate.fields["thread/resume"]
    assert "thread/start" not in gate.methods
