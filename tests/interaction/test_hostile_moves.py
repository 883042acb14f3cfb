"""Calls that meet each other halfway: each gets its one answer, none is refused for what the daemon itself is doing."""

import asyncio
import random
from typing import Any

import pytest

from tests.interaction.house import House
from tests.interaction.wire import WAIT_S, Client, Message

OWN_FAULTS = {"held", "storeClosed", "internal", "conflict"}
"""Reasons that one client of one daemon must never be told."""


async def answers(client: Client, calls: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Send all calls at once, then wait for every answer."""
    asked = [await client.ask(method, params) for method, params in calls]
    return [await client.answer(request_id) for request_id in asked]


async def test_every_name_is_shown_in_the_order_of_the_log_whatever_runs_beside_it(house: House) -> None:
    async with house.daemon() as daemon:
        client, watcher = await daemon.connect(), await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        await watcher.call("thread/resume", {"threadId": thread})
        mark = watcher.mark
        calls: list[tuple[str, dict[str, Any]]] = []
        for number in range(20):
            calls.append(("thread/name/set", {"threadId": thread, "name": f"n{number}"}))
            calls.append(("turn/start", {"threadId": thread, "input": [{"type": "text", "text": f"t{number}"}]}))
        assert not [answer for answer in await answers(client, calls) if "error" in answer]
        await watcher.event("thread/name/updated", since=mark, threadName="n19")
        told = [m["params"]["threadName"] for m in watcher.seen[mark:] if m.get("method") == "thread/name/updated"]
        assert told == [f"n{number}" for number in range(20)]
        assert (await client.read(thread))["name"] == "n19"
        listed = await client.call("thread/list", {})
        assert [entry["name"] for entry in listed["data"]] == ["n19"]


async def test_naming_and_opening_an_unloaded_thread_at_once_do_not_lock_each_other_out(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        name: tuple[str, dict[str, Any]] = ("thread/name/set", {"threadId": thread, "name": "n"})
        opened: tuple[str, dict[str, Any]] = ("thread/resume", {"threadId": thread})
        assert not [answer for answer in await answers(client, [name, name, opened, name, opened]) if "error" in answer]
        assert client.count("thread/name/updated") == 3
        assert (await client.read(thread))["name"] == "n"


async def test_archiving_right_behind_a_rollback_archives_what_the_rollback_left(house: House) -> None:
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turns(thread, "one", "two")
        calls: list[tuple[str, dict[str, Any]]] = [
            ("thread/rollback", {"threadId": thread, "numTurns": 1}),
            ("thread/archive", {"threadId": thread}),
            ("thread/unarchive", {"threadId": thread}),
        ]
        assert not [answer for answer in await answers(client, calls) if "error" in answer]
        assert len((await client.read(thread))["turns"]) == 1


@pytest.mark.parametrize("seed", range(4))
async def test_flapping_with_no_unload_delay_never_meets_the_daemons_own_lock(house: House, seed: int) -> None:
    house.settings["thread_unload_delay_secs"] = 0
    rng = random.Random(seed)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        moves: list[tuple[str, dict[str, Any]]] = [
            ("thread/resume", {}),
            ("thread/unsubscribe", {}),
            ("thread/unsubscribe", {}),
            ("thread/name/set", {"name": "n"}),
            ("thread/fork", {}),
            ("thread/rollback", {"numTurns": 1}),
            ("thread/read", {"includeTurns": True}),
            ("turn/start", {"input": [{"type": "text", "text": "t"}]}),
            ("thread/archive", {}),
            ("thread/unarchive", {}),
        ]
        for _ in range(8):
            calls = [(method, {"threadId": thread, **params}) for method, params in rng.choices(moves, k=12)]
            for call, answer in zip(calls, await answers(client, calls), strict=True):
                reason = (answer.get("error", {}).get("data") or {}).get("reason")
                assert reason not in OWN_FAULTS, (call, answer)
        await client.ask("thread/unarchive", {"threadId": thread})
        await client.settled()
        async with asyncio.timeout(WAIT_S):
            while "error" in (await answers(client, [("thread/resume", {"threadId": thread})]))[0]:
                await client.settled()  # it is closing; the answer says to ask again
        await client.turn(thread, "last")
        before = await client.read(thread)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["turns"] == before["turns"]


LEAVING: list[tuple[str, dict[str, Any]]] = [
    ("turn/start", {"input": [{"type": "text", "text": "again"}]}),
    ("turn/interrupt", {"turnId": "TURN"}),
    ("thread/rollback", {"numTurns": 1, "interrupt": True}),
    ("thread/rollback/undo", {"interrupt": True}),
    ("thread/compact", {"summary": "s", "interrupt": True}),
    ("thread/compact/start", {}),
    ("thread/fork", {}),
    ("thread/name/set", {"name": "n"}),
    ("thread/resume", {"replay": {"mode": "events"}}),
    ("thread/archive", {}),
    ("thread/delete", {"dependents": "cascade"}),
]
GOING = {("threadNotFound", "thread/archive"), ("threadNotFound", "thread/delete")}


async def resumed_or_refused(client: Client, thread: str) -> Message:
    """The answer to a resume; a thread that is closing says so, and is closed soon."""
    async with asyncio.timeout(WAIT_S):
        while True:
            answer = (await answers(client, [("thread/resume", {"threadId": thread})]))[0]
            if (answer.get("error", {}).get("data") or {}).get("reason") != "closing":
                return answer


@pytest.mark.parametrize(("method", "params"), LEAVING, ids=[method for method, _ in LEAVING])
@pytest.mark.parametrize("pauses", range(0, 12, 3))
async def test_a_client_that_leaves_in_the_middle_of_a_call_leaves_a_whole_thread(
    house: House, method: str, params: dict[str, Any], pauses: int, caplog: pytest.LogCaptureFixture
) -> None:
    house.offline([{"say": "one"}], default=[{"say": "much"}, {"hang": True}])
    async with house.daemon() as daemon:
        staying, leaving = await daemon.connect(), await daemon.connect()
        thread = await staying.start(cwd=str(house.work))
        await staying.turn(thread, "one")
        running = await staying.begin(thread, "two")
        await leaving.call("thread/resume", {"threadId": thread})
        given = {key: running if value == "TURN" else value for key, value in params.items()}
        await leaving.ask(method, {"threadId": thread, **given})
        for _ in range(pauses):
            await asyncio.sleep(0)  # lets the call come a little further each time
        await leaving.close()
        await staying.call("thread/loaded/list", {})
        answer = await resumed_or_refused(staying, thread)
        if "error" in answer:
            assert answer["error"]["data"]["reason"] in ("archived", "noRollout"), answer
            return
        end = {"threadId": thread, "summary": "end", "interrupt": True}
        answer = (await answers(staying, [("thread/compact", end)]))[0]
        if "error" in answer:  # what the other one asked for was carried out just behind the resume
            assert (answer["error"]["data"]["reason"], method) in GOING, answer
            answer = await resumed_or_refused(staying, thread)
            assert answer["error"]["data"]["reason"] in ("archived", "noRollout")
            return
        before = await staying.read(thread)
    assert "never retrieved" not in caplog.text
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await client.call("thread/resume", {"threadId": thread})
        assert resumed["thread"]["turns"] == before["turns"]
