"""The orderly end: running turns get their time, nothing is lost, every client is told where to go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient
from unspool_server.cli.drain import drain
from unspool_server.transport.gate import Rules
from unspool_server.transport.websocket import application, listen_tcp
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.conformance.faulty_shelf import Faults
from tests.faults.test_disk_full import fill
from tests.interaction.house import House, LocalDaemon, WebSocketWire
from tests.interaction.stories import HANG, hanging, word
from tests.interaction.wire import WAIT_S, Client

BRIEFLY = {"drain_timeout_secs": 0.05}


@asynccontextmanager
async def draining(daemon: LocalDaemon) -> AsyncIterator["asyncio.Task[bool]"]:
    """The end, begun; it is over when the block is."""
    task = asyncio.create_task(drain(daemon.shared, daemon.services))
    yield task
    async with asyncio.timeout(WAIT_S):
        await task


async def test_an_idle_daemon_says_goodbye_with_the_place_to_go_on(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        async with draining(daemon) as ended:
            pass
        assert ended.result() is True
        mark = client.mark
    assert [word(message) for message in client.seen[-2:]] == ["server/draining", "connection/closing"]
    closing = client.seen[-1]["params"]
    assert closing["reason"] == "shutdown"
    last = client.events(thread)[-1]["cursor"]
    assert closing["cursors"] == {thread: last}
    async with house.daemon() as daemon:
        back = await daemon.connect()
        await back.call("thread/resume", {"threadId": thread, "replay": {"after": last, "mode": "events"}})
        await back.turn(thread, "two")
        texts = [
            m["params"]["item"]["content"][0]["text"]
            for m in back.seen
            if m.get("method") == "item/completed" and m["params"]["item"]["type"] == "userMessage"
        ]
    assert texts == ["two"], "nothing is shown twice"
    assert client.mark == mark


async def test_a_running_turn_gets_its_time_and_new_ones_are_refused_meanwhile(house: House) -> None:
    house.offline([{"call": "look", "args": {}}], [{"say": "done"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        tool = {"type": "function", "name": "look", "description": "Looks.", "inputSchema": {"type": "object"}}
        thread = await client.start(cwd=str(house.work), dynamicTools=[tool])
        other = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        asked = await client.event("item/tool/call")
        async with draining(daemon):
            told = await client.event("server/draining")
            assert told["params"] == {"deadlineMs": 10_000}
            before = house.logs()
            for method in ("turn/start", "thread/compact/start"):
                refusal = await client.refused(method, {"threadId": other, "input": [{"type": "text", "text": "no"}]})
                assert (refusal.reason, refusal.data["retryable"]) == ("shuttingDown", True)
            assert house.logs() == before
            assert (await client.read(thread))["id"] == thread, "reading goes on"
            content = [{"type": "inputText", "text": "seen"}]
            await client.send({"id": asked["id"], "result": {"contentItems": content, "success": True}})
            assert (await client.ended(turn))["status"] == "completed"
    assert word(client.seen[-1]) == "connection/closing"


async def test_a_thread_that_was_closed_for_the_end_is_not_said_to_be_unknown(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await daemon.services.sessions.close()
        for method in ("turn/start", "thread/rollback", "thread/resume"):
            params = {"threadId": thread, "input": [{"type": "text", "text": "two"}], "numTurns": 1}
            assert (await client.refused(method, params)).reason == "shuttingDown", method


async def test_a_turn_that_takes_too_long_is_interrupted_with_a_history_that_goes_on(house: House) -> None:
    house.settings |= BRIEFLY
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        async with draining(daemon) as ended:
            assert (await client.ended(turn))["status"] == "interrupted"
        assert ended.result() is True
        assert word(client.seen[-1]) == "connection/closing"
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "on")
        turns = (await client.read(thread))["turns"]
    assert [one["status"] for one in turns] == ["interrupted", "completed"]


async def test_requests_that_came_in_time_are_answered_before_the_last_word(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        numbers = [await client.ask("thread/read", {"threadId": thread, "includeTurns": True}) for _ in range(20)]
        await client.settled()
        async with draining(daemon):
            pass
    answers = [message["id"] for message in client.seen if "result" in message and message["id"] in numbers]
    assert sorted(answers) == numbers
    assert word(client.seen[-1]) == "connection/closing"


async def test_records_that_the_disk_refuses_to_the_end_are_no_orderly_end(house: House) -> None:
    house.faults = Faults()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        fill(house.faults)
        await client.turn(thread, "two")
        async with draining(daemon) as ended:
            pass
        assert ended.result() is False


async def test_a_websocket_is_closed_as_restarting_and_only_health_is_served_meanwhile(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon, listen_tcp(daemon.shared, "127.0.0.1", 0) as listener:
        url = f"ws://127.0.0.1:{listener.address[1]}"
        slow, _, _ = await hanging(house, daemon)
        socket = await connect(url, compression=None)
        client = Client(WebSocketWire(socket))
        await client.call("initialize", {"clientInfo": {"name": "t", "version": "1"}})
        app = TestClient(application(daemon.shared, Rules()), "http://127.0.0.1")
        assert await asyncio.to_thread(lambda: app.get("/readyz").status_code) == 200
        async with draining(daemon):
            await client.event("server/draining")
            states = await asyncio.to_thread(lambda: [app.get(path).status_code for path in ("/readyz", "/healthz")])
            assert states == [503, 200]
            with pytest.raises(InvalidStatus, match="503"):
                await connect(url, compression=None)
            await slow.close()
            daemon.services.env.lifecycle.draining = True
            await stop_all(daemon)
        await client.event("connection/closing")
        async with asyncio.timeout(WAIT_S):
            await socket.wait_closed()
        assert socket.close_code == 1012
        await client.close()


async def stop_all(daemon: LocalDaemon) -> None:
    """End the turns that still run, so that nobody waits for the deadline."""
    for thread_id in daemon.services.sessions.live_ids():
        session = daemon.session(thread_id)

        async def end(session: Any = session) -> None:
            if session.turn is not None:
                await session.turn.abort("interrupted")

        await session.step(end)


async def test_the_server_ends_when_it_is_asked_over_the_wire(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        result = await client.call("server/shutdown")
        lifecycle = daemon.shared.lifecycle
        assert (result["drainTimeoutMs"], result["pid"]) == (10_000, lifecycle.pid)
        async with asyncio.timeout(WAIT_S):
            await lifecycle.stopping.wait()
        assert lifecycle.reason == "server/shutdown"


async def test_diagnostics_tell_who_answers_and_how_it_does(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "secret words")
        found = await client.call("server/diagnostics", {})
    assert found["process"]["id"] == daemon.shared.lifecycle.pid
    assert (found["home"], found["state"], found["threads"]) == (str(house.home), "running", {"idle": 1})
    (writer,) = found["writers"]
    assert (writer["threadId"], writer["pendingRecords"], writer["lastError"]) == (thread, 0, None)
    assert found["figures"]["unspool_turns_total"] == {"kind=regular,outcome=completed": 1}
    assert found["limits"]["requests_in_flight"] > 0
    assert {"unspool", "python"} <= found["versions"].keys()
    assert "secret words" not in orjson.dumps(found).decode()
