"""Server requests: one id for everyone, the first valid answer wins (wire §6, 05 §5)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from unspool_server.events.hub import Hub
from unspool_server.events.outbox import Outbox
from unspool_server.events.pacing import ReplayOptions

from tests.events.conftest import THREAD, Client, Thread, connect

METHOD = "item/tool/call"


def ask(hub: Hub, turn: str = "turn-1") -> asyncio.Task[Mapping[str, Any]]:
    return asyncio.create_task(hub.ask(THREAD, turn, METHOD, {"threadId": THREAD, "turnId": turn}))


def heads(client: Client) -> list[tuple[str, Any]]:
    return [(m["method"], m.get("id", m["params"].get("requestId"))) for m in client.read()]


async def subscribed(hub: Hub, *names: str) -> list[Client]:
    clients = [connect(hub, name) for name in names]
    for client in clients:
        hub.subscribe(client, THREAD).release()
    return clients


async def test_the_first_valid_answer_wins_and_everyone_is_told(hub: Hub, thread: Thread) -> None:
    one, two = await subscribed(hub, "a", "b")
    stranger = connect(hub, "c")
    asking = ask(hub)
    await asyncio.sleep(0)
    assert heads(one) == heads(two) == [(METHOD, 0)]
    assert not hub.answer(stranger, 0, {"result": {}})
    assert not hub.answer(one, 0, {})
    assert not hub.answer(one, 0, {"error": "no object"})
    assert not hub.answer(one, "0", {"result": {}})
    assert not hub.answer(one, 7, {"result": {}})
    assert hub.answer(two, 0, {"id": 0, "result": {"success": True}})
    assert not hub.answer(one, 0, {"result": {"success": False}})
    async with asyncio.timeout(5):
        assert await asking == {"result": {"success": True}}
    assert heads(one) == heads(two) == [("serverRequest/resolved", 0)]
    assert heads(stranger) == []


async def test_an_error_is_an_answer(hub: Hub, thread: Thread) -> None:
    (one,) = await subscribed(hub, "a")
    asking = ask(hub)
    await asyncio.sleep(0)
    assert hub.answer(one, 0, {"error": {"code": 1, "message": "no"}})
    async with asyncio.timeout(5):
        assert await asking == {"error": {"code": 1, "message": "no"}}


async def test_a_late_subscriber_gets_it_after_the_response_and_before_newer_events(hub: Hub, thread: Thread) -> None:
    (one,) = await subscribed(hub, "a")
    asking = ask(hub)
    await asyncio.sleep(0)
    late = connect(hub, "b")
    subscription = hub.subscribe(late, THREAD)
    thread.record()
    late.outbox.put(b'{"method":"response","params":{}}')
    subscription.release()
    thread.record()
    assert heads(late) == [("response", None), (METHOD, 0), ("item/completed", None), ("item/completed", None)]
    hub.drop(one)
    assert hub.answer(late, 0, {"result": {}})
    async with asyncio.timeout(5):
        await asking


async def test_a_replay_shows_it_at_its_place_among_the_events(hub: Hub, thread: Thread) -> None:
    thread.record()
    asking = ask(hub)
    await asyncio.sleep(0)
    thread.delta()
    late = connect(hub, "b")
    hub.subscribe(late, THREAD, replay=ReplayOptions()).release()
    messages = await late.read_until_quiet(hub)
    assert [m["method"] for m in messages] == ["item/completed", METHOD, "item/agentMessage/delta"]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_a_slow_subscriber_gets_it_in_order_and_once(hub: Hub, thread: Thread) -> None:
    slow = connect(hub, "a", outbox=Outbox(max_messages=1))
    hub.subscribe(slow, THREAD).release()
    thread.record()
    thread.record()
    asking = ask(hub)
    await asyncio.sleep(0)
    thread.record()
    messages = await slow.read_until_quiet(hub)
    assert [m["method"] for m in messages] == ["item/completed", "item/completed", METHOD, "item/completed"]
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def test_resuming_again_on_the_same_connection_sends_it_again(hub: Hub, thread: Thread) -> None:
    (one,) = await subscribed(hub, "a")
    asking = ask(hub)
    await asyncio.sleep(0)
    hub.subscribe(one, THREAD).release()
    assert heads(one) == [(METHOD, 0), (METHOD, 0)]
    assert hub.answer(one, 0, {"result": {}})
    async with asyncio.timeout(5):
        await asking


@pytest.mark.parametrize("withdraw", ["asker", "turn", "thread"])
async def test_a_withdrawn_request_is_resolved_for_everyone(hub: Hub, thread: Thread, withdraw: str) -> None:
    (one,) = await subscribed(hub, "a")
    asking, other = ask(hub), ask(hub, "turn-2")
    await asyncio.sleep(0)
    if withdraw == "asker":
        asking.cancel()
        await asyncio.sleep(0)
        hub.publish(THREAD, "turn/completed", {"threadId": THREAD, "turn": {}})
        hub.cancel(THREAD, "turn-1")
    else:
        hub.cancel(THREAD, "turn-1" if withdraw == "turn" else None)
    gone = [asking, other] if withdraw == "thread" else [asking]
    outcomes = await asyncio.gather(*gone, return_exceptions=True)
    assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
    resolved = [("serverRequest/resolved", number) for number in range(len(gone))]
    told = [head for head in heads(one) if head != ("turn/completed", None)]
    assert told == [(METHOD, 0), (METHOD, 1), *resolved]
    assert not hub.answer(one, 0, {"result": {}})
    assert hub.answer(one, 1, {"result": {}}) is (withdraw != "thread")
    await asyncio.gather(other, return_exceptions=True)


async def test_unloading_a_thread_cancels_its_requests_and_leaves_no_stream(hub: Hub, thread: Thread) -> None:
    (one,) = await subscribed(hub, "a")
    asking = ask(hub)
    await asyncio.sleep(0)
    hub.forget(THREAD)
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert heads(one) == [(METHOD, 0), ("serverRequest/resolved", 0)]
    assert hub.position(THREAD) is None


async def test_answers_in_any_order_reach_the_right_questions(hub: Hub, thread: Thread) -> None:
    (one,) = await subscribed(hub, "a")
    first, second = ask(hub), ask(hub)
    await asyncio.sleep(0)
    one.read()
    assert hub.answer(one, 1, {"result": {"n": 1}})
    assert hub.answer(one, 0, {"result": {"n": 0}})
    async with asyncio.timeout(5):
        assert [await first, await second] == [{"result": {"n": 0}}, {"result": {"n": 1}}]
