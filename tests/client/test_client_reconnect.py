"""A cut connection costs no event, repeats none, and runs no input twice."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from unspool_client import Backoff, Client, ConnectFailed, ConnectionLost, Event, RpcError, ThreadHandle

from tests.client.fake_daemon import DELTAS, THREAD_ID, TURN_ID, FakeDaemon

QUICK = Backoff(first_s=0.001, max_s=0.01)
TURN_EVENTS = DELTAS + 9

Seen = list[tuple[str, Any, str | None]]


async def until_end(events: Any) -> list[Event]:
    seen = []
    async with asyncio.timeout(5):
        async for event in events:
            seen.append(event)
            if event.method == "turn/completed":
                break
    return seen


def plain(events: list[Event]) -> Seen:
    """What must be equal; the client's own id of the input differs from run to run."""
    shapes: Seen = []
    for event in events:
        params = dict(event.params)
        if "item" in params:
            params["item"] = {key: value for key, value in params["item"].items() if key != "clientId"}
        shapes.append((event.method, params, event.cursor))
    return shapes


async def one_run(client: Client, daemon: FakeDaemon, arrange: Callable[[], None]) -> Seen:
    async with client:
        thread = await client.start_thread()
        events = thread.events("now")
        arrange()
        await thread.start_turn("go")
        seen = await until_end(events)
    await daemon.close()
    return plain(seen)


async def uncut() -> Seen:
    daemon = FakeDaemon()
    seen = await one_run(Client.over(daemon.open_memory), daemon, lambda: None)
    assert len(seen) == TURN_EVENTS
    return seen


async def test_a_cut_at_every_message_boundary_leaves_the_event_list_as_it_was() -> None:
    wanted = await uncut()
    for boundary in range(TURN_EVENTS + 1):
        daemon = FakeDaemon()

        def cut(daemon: FakeDaemon = daemon, boundary: int = boundary) -> None:
            daemon.cut_at = daemon.sent + boundary

        client = Client.over(daemon.open_memory, reconnect=QUICK)
        assert await one_run(client, daemon, cut) == wanted, f"cut before message {boundary}"
        assert daemon.cuts == 1
        assert len(daemon.client_ids) == 1, "the input ran once"


async def test_a_cut_at_every_message_boundary_of_a_websocket_leaves_the_event_list_as_it_was() -> None:
    wanted = await uncut()
    for boundary in range(TURN_EVENTS + 1):
        daemon = FakeDaemon()

        def cut(daemon: FakeDaemon = daemon, boundary: int = boundary) -> None:
            daemon.cut_at = daemon.sent + boundary

        async with daemon.listen() as url:
            assert await one_run(Client.connect(url, reconnect=QUICK), daemon, cut) == wanted, f"before {boundary}"
        assert daemon.cuts == 1


@pytest.mark.parametrize("messages", [3, 4, 7, 15])
async def test_connections_that_die_after_a_few_messages_bring_everything_in_the_end(messages: int) -> None:
    daemon = FakeDaemon()

    def cut() -> None:
        daemon.cut_every = messages

    seen = await one_run(Client.over(daemon.open_memory, reconnect=QUICK), daemon, cut)
    assert seen == await uncut()
    assert daemon.cuts > 1


async def test_run_gives_its_result_across_a_cut(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        thread = await client.start_thread()
        daemon.cut_at = daemon.sent + 12
        result = await thread.run("go")
    assert (result.turn_id, result.status, result.ok) == (TURN_ID, "completed", True)
    assert result.text == "".join(f"word{n} " for n in range(DELTAS))
    assert [item.type for item in result.items] == ["userMessage", "agentMessage"]
    assert result.usage is not None and result.usage.total.total_tokens == 3
    assert result.cursor == daemon.events[-1]["cursor"]


async def test_a_turn_that_died_with_the_daemon_ends_as_interrupted(daemon: FakeDaemon) -> None:
    async def cut_then_die() -> None:
        await daemon.publish("turn/started", {"turn": {"id": TURN_ID, "items": [], "status": "inProgress"}}, 2)
        daemon.turn_status = "interrupted"
        await daemon.peers[0].channel.close()

    daemon.run_turn = cut_then_die  # type: ignore[method-assign]
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        result = await (await client.start_thread()).run("go")
    assert (result.turn_id, result.status) == (TURN_ID, "interrupted")


async def test_reads_are_sent_again_and_changes_are_not(daemon: FakeDaemon) -> None:
    tries: list[str] = []

    async def die_once(peer: Any, message: dict[str, Any]) -> dict[str, Any] | None:
        tries.append(message["method"])
        if tries.count(message["method"]) == 1:
            await peer.channel.close()
            return None
        return {"result": {"data": [], "nextCursor": None}}

    daemon.handlers.update({"model/list": die_once, "thread/name/set": die_once})
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        assert await client.models() == []
        with pytest.raises(ConnectionLost) as caught:
            await client.call("thread/name/set", {"threadId": THREAD_ID, "name": "x"})
        assert caught.value.maybe_executed
    assert tries == ["model/list", "model/list", "thread/name/set"]


async def test_without_reconnect_readers_and_calls_hear_of_the_loss(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=None) as client:
        thread = await client.start_thread()
        events = thread.events("now")
        await daemon.peers[0].channel.close()
        with pytest.raises(ConnectionLost):
            await anext(events)
        with pytest.raises(ConnectionLost) as caught:
            await client.call("thread/name/set", {})
        assert not caught.value.maybe_executed


async def test_attempts_to_reconnect_are_bounded(daemon: FakeDaemon) -> None:
    opened = 0

    async def open_once() -> Any:
        nonlocal opened
        opened += 1
        if opened > 1:
            raise ConnectionRefusedError("nobody listens")
        return await daemon.open_memory()

    backoff = Backoff(first_s=0.001, max_s=0.002, attempts=4)
    async with asyncio.timeout(5), Client.over(open_once, reconnect=backoff) as client:
        thread = await client.start_thread()
        events = thread.events("now")
        await daemon.peers[0].channel.close()
        with pytest.raises(ConnectionLost, match="nobody listens"):
            await anext(events)
    assert opened == 5


async def test_a_refused_reconnect_is_not_tried_again(daemon: FakeDaemon) -> None:
    opened = 0

    async def open_once() -> Any:
        nonlocal opened
        opened += 1
        if opened > 1:
            raise ConnectFailed("401", retryable=False)
        return await daemon.open_memory()

    async with asyncio.timeout(5), Client.over(open_once, reconnect=QUICK) as client:
        events = (await client.start_thread()).events("now")
        await daemon.peers[0].channel.close()
        with pytest.raises(ConnectFailed):
            await anext(events)
    assert opened == 2


async def test_a_thread_that_cannot_be_resumed_ends_its_readers_only(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        events = (await client.start_thread()).events("now")
        gone = {"error": {"code": -32600, "message": "no rollout found", "data": {"reason": "threadNotFound"}}}
        daemon.handlers["thread/resume"] = lambda peer, message: gone
        await daemon.peers[0].channel.close()
        with pytest.raises(RpcError, match="no rollout found"):
            await anext(events)
        daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": []}}
        assert await client.models() == []


async def test_an_overloaded_daemon_is_asked_again_for_the_threads(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        events = (await client.start_thread()).events("now")
        usual = daemon._thread_resume
        answers = [{"error": {"code": -32001, "message": "Server overloaded; retry later."}}]
        daemon.handlers["thread/resume"] = lambda peer, message: answers.pop() if answers else usual(peer, message)
        await daemon.peers[0].channel.close()
        daemon.handlers["model/list"] = lambda peer, message: {"result": {"data": []}}
        assert await client.models() == []
        await daemon.publish("warning", {"message": "one"}, 1)
        assert (await anext(events)).params["message"] == "one"
    assert answers == []


async def test_a_broadcast_before_the_resume_answer_is_taken_in_its_place(daemon: FakeDaemon) -> None:
    async with asyncio.timeout(5), Client.over(daemon.open_memory, reconnect=QUICK) as client:
        thread: ThreadHandle = await client.start_thread()
        events = thread.events("now")
        await daemon.publish("warning", {"message": "one"}, 1)
        await daemon.peers[0].channel.close()
        daemon.peers[0].subscribed = False

        async def broadcast_first(peer: Any, message: dict[str, Any]) -> dict[str, Any]:
            await daemon.publish("warning", {"message": "two"}, 2)
            peer.subscribed = True
            await daemon.publish("warning", {"message": "three"}, 3)
            return {"result": daemon._setup()}

        daemon.handlers["thread/resume"] = broadcast_first
        seen = [(await anext(events)).params["message"] for _ in range(3)]
    assert seen == ["one", "two", "three"]
