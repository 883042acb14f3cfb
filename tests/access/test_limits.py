"""Every row of the table of limits refuses what is beyond it, and nothing is done."""

from typing import Any

import pytest
from unspool_server.access.gatekeeper import Gatekeeper
from unspool_server.access.principal import OWNER
from unspool_server.access.rates import Bucket
from unspool_server.config_daemon import Limits
from unspool_server.errors import RateLimited
from unspool_server.transport.websocket import listen_tcp
from websockets.asyncio.client import connect

from tests.access.callers import principal
from tests.interaction.house import TOOL, House
from tests.interaction.wire import Client
from tests.transport.fakes import FakeHub, Table, make_shared

ELSEWHERE = {
    "unsent_bytes": "tests/transport/test_connection.py",
    "requests_in_flight": "tests/transport/test_connection.py",
    "connections": "tests/access/test_gate.py",
    "connections_per_token": "tests/access/test_gate.py",
}
"""Limits whose refusals are tested with the part that enforces them."""


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_every_limit_has_a_test_of_its_refusal() -> None:
    here = {"message_bytes", "input_characters", "image_bytes", "threads_loaded", "subscriptions_per_connection"}
    rates = {name for name in Limits.model_fields if "request" in name} - ELSEWHERE.keys()
    assert here | rates | {"queued_inputs", "turns_open"} | ELSEWHERE.keys() == set(Limits.model_fields)


def test_a_bucket_lets_a_burst_through_and_then_as_much_as_flows_in() -> None:
    clock = Clock()
    bucket = Bucket(8, 3, clock)
    for _ in range(3):
        assert bucket.wait_ms() == 0
        bucket.take()
    assert bucket.wait_ms() == 125 and not bucket.full
    clock.now += 0.0625
    assert bucket.wait_ms() == 63
    clock.now += 0.0625
    assert bucket.wait_ms() == 0
    bucket.take()
    clock.now += 3600
    assert bucket.full and bucket.wait_ms() == 0
    clock.now -= 7200
    assert bucket.wait_ms() == 0


def test_without_a_rate_there_is_no_limit() -> None:
    bucket = Bucket(0, 1, Clock())
    for _ in range(100):
        assert bucket.wait_ms() == 0
        bucket.take()


def test_connections_of_one_token_share_its_bucket_and_a_new_one_is_no_new_allowance() -> None:
    clock = Clock()
    limits = Limits(requests_per_second=1, request_burst=2, token_requests_per_second=1, token_request_burst=3)
    gatekeeper = Gatekeeper(limits, clock)
    who, other = principal("ci"), principal("ci", "b")
    first, second = gatekeeper.meter(who), gatekeeper.meter(who)
    for meter in (first, first, second):
        meter.admit()
    for meter in (first, second, gatekeeper.meter(who)):
        with pytest.raises(RateLimited) as refused:
            meter.admit()
        assert refused.value.data["retryAfterMs"] == 1000
    gatekeeper.meter(other).admit()
    for meter in (gatekeeper.meter(OWNER), gatekeeper.meter(OWNER)):
        for _ in range(2):
            meter.admit()
        with pytest.raises(RateLimited):
            meter.admit()
    clock.now += 1
    second.admit()
    with pytest.raises(RateLimited):
        first.admit()


def test_a_token_that_bears_the_name_of_whoever_needs_none_is_counted_like_any_other() -> None:
    gatekeeper = Gatekeeper(Limits(requests_per_second=9, token_requests_per_second=1, token_request_burst=1), Clock())
    namesake = principal(OWNER.name)
    assert namesake == OWNER
    gatekeeper.meter(namesake).admit()
    with pytest.raises(RateLimited):
        gatekeeper.meter(namesake).admit()


async def test_a_connection_that_sends_too_many_requests_is_told_when_to_come_again(house: House) -> None:
    house.offline()
    house.tables["limits"] = {"requests_per_second": 0.001, "request_burst": 2}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        for _ in range(2):
            await client.call("thread/loaded/list", {})
        refused = await client.refused("thread/start", {"cwd": str(house.work)})
        assert (refused.code, refused.message) == (-32001, "Rate limit exceeded; retry later.")
        assert refused.reason == "rateLimited" and 0 < refused.data["retryAfterMs"] <= 1_000_000
        assert refused.data["codexErrorInfo"] == "server_overloaded"
        assert daemon.services.sessions.live_ids() == []


async def _limited(house: House, **limits: Any) -> None:
    house.offline([{"hang": True}], default=[{"hang": True}])
    house.tables["limits"] = limits


async def _reached(client: Client, limit: str, most: int, method: str, params: dict[str, Any]) -> None:
    refused = await client.refused(method, params)
    assert (refused.code, refused.message) == (-32001, f"Limit reached: {limit} = {most}")
    assert refused.data == {"reason": "limitReached", "limit": limit, "max": most}


async def test_threads_beyond_the_limit_are_not_loaded_until_others_leave(house: House) -> None:
    await _limited(house, threads_loaded=2)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        threads = [await client.start(cwd=str(house.work)) for _ in range(2)]
        await client.call("thread/inject_items", {"threadId": threads[0], "items": [_item("x")]})
        await _reached(client, "threads_loaded", 2, "thread/start", {})
        await _reached(client, "threads_loaded", 2, "thread/fork", {"threadId": threads[0]})
        await daemon.services.sessions.unload(threads[0])
        await client.start(cwd=str(house.work))
        await _reached(client, "threads_loaded", 2, "thread/resume", {"threadId": threads[0]})
        assert len(daemon.services.sessions.live_ids()) == 2


def _item(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def test_subscriptions_beyond_the_limit_are_refused_and_a_followed_thread_needs_no_room(house: House) -> None:
    await _limited(house, subscriptions_per_connection=1)
    async with house.daemon() as daemon:
        one, two = await daemon.connect(), await daemon.connect()
        first, second = await one.start(cwd=str(house.work)), await two.start(cwd=str(house.work))
        await one.call("thread/resume", {"threadId": first, "excludeTurns": True})
        for method, params in (
            ("thread/start", {}),
            ("thread/resume", {"threadId": second}),
            ("thread/fork", {"threadId": first}),
        ):
            await _reached(one, "subscriptions_per_connection", 1, method, params)
        await one.call("thread/unsubscribe", {"threadId": first})
        await one.call("thread/resume", {"threadId": second, "excludeTurns": True})


async def test_turns_and_waiting_inputs_beyond_the_limits_are_refused(house: House) -> None:
    house.offline([{"call": "look", "args": {}, "id": "c1"}])
    house.tables["limits"] = {"turns_open": 1, "queued_inputs": 1, "input_characters": 5}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        busy = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        idle = await client.start(cwd=str(house.work))
        text = [{"type": "text", "text": "hi"}]
        turn = await client.begin(busy, "hi")
        await client.event("item/tool/call")
        await _reached(client, "turns_open", 1, "turn/start", {"threadId": idle, "input": text})
        await _reached(client, "turns_open", 1, "thread/compact/start", {"threadId": idle})
        steer = {"threadId": busy, "expectedTurnId": turn, "input": text}
        await client.call("turn/steer", steer)
        await _reached(client, "queued_inputs", 1, "turn/steer", steer)
        await _reached(client, "queued_inputs", 1, "turn/start", {"threadId": busy, "input": text})
        long = {"threadId": busy, "expectedTurnId": turn, "input": [{"type": "text", "text": "six..."}]}
        refused = await client.refused("turn/steer", long)
        assert (refused.code, refused.data["limit"]) == (-32602, 5)


async def test_a_message_beyond_the_limit_ends_its_websocket_and_no_other() -> None:
    shared = make_shared(Table(), FakeHub())
    async with (
        listen_tcp(shared, "127.0.0.1", 0, max_message_bytes=2000) as listener,
        connect(f"ws://127.0.0.1:{listener.address[1]}") as client,
        connect(f"ws://127.0.0.1:{listener.address[1]}") as other,
    ):
        await client.send("x" * 3000)
        await client.wait_closed()
        assert client.close_code == 1009
        await (await other.ping())


async def test_an_image_that_is_too_large_is_neither_taken_nor_read_later(house: House) -> None:
    house.offline([{"hang": True}], [{"say": "done"}])
    house.tables["limits"] = {"image_bytes": 5}
    image = house.work / "picture.png"
    image.write_bytes(b"12345")
    given = [{"type": "localImage", "path": str(image)}]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "never ends")
        waits = {"threadId": thread, "input": given, "ifBusy": "queue"}
        queued = (await client.call("turn/start", waits))["turn"]["id"]
        image.write_bytes(b"123456")
        refused = await client.refused("turn/start", {"threadId": thread, "input": given})
        assert (refused.code, refused.data["field"], refused.data["limit"]) == (-32602, "input[0].path", 5)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        await client.call("thread/queue/resume", {"threadId": thread})
        assert (await client.ended(queued))["status"] == "completed"
        context = await client.call("thread/context", {"threadId": thread})
        assert "picture.png could not be read" in str(context)


async def test_no_client_can_change_what_the_server_allows(house: House) -> None:
    house.offline()
    house.tables["limits"] = {"input_characters": 5}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        asked = {"limits.input_characters": 1000, "limits": {"input_characters": 9}, "access.allowed_paths": ["/"]}
        thread = await client.start(cwd=str(house.work), config=asked)
        session = daemon.session(thread)
        assert session.env.config.limits.input_characters == 5
        assert session.env.config.access.allowed_paths == ()
        told = await client.call("config/read", {})
        assert not {"limits", "access"} & told["config"].keys()
