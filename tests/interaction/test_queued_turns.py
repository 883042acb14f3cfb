"""Inputs that wait for a turn of their own: order, changes, pauses, restarts, rollbacks, forks, replays."""

from typing import Any

import pytest

from tests.interaction.house import House
from tests.interaction.stories import HANG, hanging
from tests.interaction.wire import Client, Message

HUNG: list[dict[str, Any]] = [{"say": "partial", "partial": True}, {"hang": True}]
MODES = pytest.mark.parametrize("mode", ["paginated", "legacy"])


async def queue(client: Client, thread: str, text: str, **more: Any) -> Any:
    """Queue one input; gives the answer."""
    said = [{"type": "text", "text": text}]
    return await client.call("turn/start", {"threadId": thread, "input": said, "ifBusy": "queue", **more})


async def waiting(client: Client, thread: str) -> list[str]:
    """The texts that wait."""
    listed = await client.call("thread/queue/list", {"threadId": thread})
    return [entry["input"][0]["text"] for entry in listed["data"]]


async def firsts(client: Client, thread: str) -> list[str]:
    """The first text of every turn."""
    return [turn[0] for turn in await client.shown(thread)]


@MODES
async def test_queued_inputs_run_in_order_as_turns_with_the_ids_they_were_promised(house: House, mode: str) -> None:
    house.offline([{"hang": True}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        running = await client.begin(thread, "go")
        await client.event("turn/started", threadId=thread)
        promised = [await queue(client, thread, text) for text in ("a", "b")]
        assert [one["queued"]["position"] for one in promised] == [0, 1]
        assert [one["turn"]["status"] for one in promised] == ["inProgress"] * 2
        added = await client.event("thread/queue/changed", change="added")
        assert added["cursor"] and added["params"]["entry"]["turnId"] == promised[0]["turn"]["id"]
        assert await waiting(client, thread) == ["a", "b"]
        await client.call("turn/steer", {"threadId": thread, "expectedTurnId": running, "input": said("on")})
        for one in promised:
            assert (await client.ended(one["turn"]["id"]))["status"] == "completed"
        assert await firsts(client, thread) == ["go", "a", "b"]
        assert await waiting(client, thread) == []
        kinds = [m["params"]["change"] for m in client.seen if m.get("method") == "thread/queue/changed"]
        assert kinds == ["added", "added", "started", "started"]
        assert daemon.session(thread).queue.entries == ()


def said(text: str) -> list[dict[str, Any]]:
    """One text as input."""
    return [{"type": "text", "text": text}]


@MODES
async def test_an_interrupt_pauses_the_queue_until_it_is_resumed_or_a_turn_is_started(house: House, mode: str) -> None:
    house.offline(HUNG, default=None)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon, mode=mode)
        waits = [await queue(client, thread, text) for text in ("a", "b")]
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        assert await client.event("thread/queue/changed", change="paused")
        listed = await client.call("thread/queue/list", {"threadId": thread})
        assert (listed["paused"], len(listed["data"])) == (True, 2)
        assert daemon.session(thread).turn is None
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        assert (await client.call("thread/queue/list", {"threadId": thread}))["paused"] is True
        resumed = await client.call("thread/queue/resume", {"threadId": thread})
        assert "paused" not in resumed
        for one in waits:
            await client.ended(one["turn"]["id"])
        assert await firsts(client, thread) == ["go", "a", "b"]


async def test_a_turn_that_a_client_starts_lets_a_paused_queue_follow(house: House) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        waits = await queue(client, thread, "a")
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.turn(thread, "mine")
        await client.ended(waits["turn"]["id"])
        assert await firsts(client, thread) == ["go", "mine", "a"]


async def test_a_turn_that_makes_way_does_not_pause_the_queue(house: House) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, _ = await hanging(house, daemon)
        waits = await queue(client, thread, "a")
        await client.turn(thread, "now", ifBusy="interrupt")
        await client.ended(waits["turn"]["id"])
        assert await firsts(client, thread) == ["go", "now", "a"]


@MODES
async def test_what_waits_is_edited_moved_and_removed(house: House, mode: str) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon, mode=mode)
        ids = [(await queue(client, thread, text))["queued"]["queueId"] for text in ("a", "b", "c", "d")]
        move = {"threadId": thread, "queueId": ids[3], "position": 0, "idempotencyKey": "m"}
        for _ in range(2):
            moved = await client.call("thread/queue/update", move)
            assert [one["queueId"] for one in moved["data"]] == [ids[3], *ids[:3]]
        await client.call("thread/queue/update", {"threadId": thread, "queueId": ids[0], "input": said("A")})
        await client.call("thread/queue/remove", {"threadId": thread, "queueId": ids[1]})
        assert await waiting(client, thread) == ["d", "A", "c"]
        for method in ("thread/queue/update", "thread/queue/remove"):
            gone = await client.refused(method, {"threadId": thread, "queueId": ids[1]})
            assert gone.reason == "queuedInputNotFound"
        empty = {"threadId": thread, "queueId": ids[0], "input": []}
        assert (await client.refused("thread/queue/update", empty)).data["field"] == "input"
        assert await client.call("turn/interrupt", {"threadId": thread, "turnId": turn}) == {}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert await waiting(client, thread) == ["d", "A", "c"], "also of a thread that is not loaded"


@MODES
async def test_what_waits_runs_when_the_thread_is_loaded_after_a_crash(house: House, mode: str) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, _ = await hanging(house, daemon, mode=mode)
        keyed = await queue(client, thread, "a", idempotencyKey="k", clientUserMessageId="m")
        assert await queue(client, thread, "a", idempotencyKey="k", clientUserMessageId="m") == keyed
        assert await queue(client, thread, "a", clientUserMessageId="m") == keyed
        other = await queue(client, thread, "b")
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        for one in (keyed, other):
            assert (await client.ended(one["turn"]["id"]))["status"] == "completed"
        again = await queue(client, thread, "a", idempotencyKey="k", clientUserMessageId="m")
        assert (again["turn"]["id"], again["turn"]["status"]) == (keyed["turn"]["id"], "completed")
        assert await firsts(client, thread) == ["go", "a", "b"]
        assert daemon.session(thread).queue.entries == ()


@MODES
async def test_rollbacks_and_compactions_take_the_queue_along_and_forks_do_not(house: House, mode: str) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon, mode=mode)
        ids = [(await queue(client, thread, text))["turn"]["id"] for text in ("ran", "left")]
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        steps: list[tuple[str, dict[str, Any]]] = [
            ("thread/compact", {"summary": "s"}),
            ("thread/rollback", {"numTurns": 1}),
            ("thread/rollback/undo", {}),
        ]
        for method, params in steps:
            await client.call(method, {"threadId": thread, **params})
            assert await waiting(client, thread) == ["ran", "left"]
        fork = (await client.call("thread/fork", {"threadId": thread}))["thread"]["id"]
        assert await waiting(client, fork) == []
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await waiting(client, thread), await waiting(client, fork)) == (["ran", "left"], [])
        await client.call("thread/resume", {"threadId": thread})
        await client.call("thread/queue/resume", {"threadId": thread})
        for one in ids:
            await client.ended(one)
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert await waiting(client, thread) == [], "what ran does not come back with a rollback"


async def test_a_failed_turn_holds_up_what_waits(house: House) -> None:
    house.offline([{"hang": True}], [{"fail": "no luck"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go")
        await client.event("turn/started", threadId=thread)
        await queue(client, thread, "a")
        await client.call("turn/steer", {"threadId": thread, "expectedTurnId": turn, "input": said("on")})
        assert (await client.ended(turn))["status"] == "failed"
        await client.event("thread/queue/changed", change="paused")
        assert await waiting(client, thread) == ["a"]


async def test_a_key_of_an_input_that_was_taken_out_does_not_bring_it_back(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, _ = await hanging(house, daemon)
        asked = await queue(client, thread, "a", idempotencyKey="k")
        removed = {"threadId": thread, "queueId": asked["queued"]["queueId"]}
        await client.call("thread/queue/remove", removed)
        again = await queue(client, thread, "a", idempotencyKey="k")
        assert (again["turn"]["id"], again["turn"]["status"]) == (asked["turn"]["id"], "interrupted")
        assert "queued" not in again and await waiting(client, thread) == []
        empty = await client.refused("turn/start", {"threadId": thread, "input": [], "ifBusy": "queue"})
        assert empty.data["field"] == "input"


async def test_a_replay_tells_what_became_of_the_queue(house: House) -> None:
    house.offline(HUNG)
    async with house.daemon() as daemon:
        client, thread, _ = await hanging(house, daemon)
        waits = await queue(client, thread, "a")
        await client.turn(thread, "now", ifBusy="interrupt")
        await client.ended(waits["turn"]["id"])
        live = [m["params"] for m in client.seen if m.get("method") == "thread/queue/changed"]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread, "replay": {"after": None}})
        await client.event("thread/queue/changed", change="started")
        replayed = [m for m in client.seen if m.get("method") == "thread/queue/changed"]
        assert [m["params"] for m in replayed] == live
        assert all(m["replayed"] for m in replayed)


async def test_limits_of_inputs_hold_for_those_that_wait_and_none_that_was_accepted_is_lost(house: House) -> None:
    house.offline([{"hang": True}])
    house.tables["limits"] = {"queued_inputs": 2, "input_characters": 2_000_000}
    long = "x" * 1_500_000
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        running = await client.begin(thread, "busy")
        first = await client.call("turn/start", _waits(thread, long))
        await client.call("turn/start", _waits(thread, "short"))
        full = await client.refused("turn/start", _waits(thread, "too many"))
        assert (full.reason, full.data["most"]) == ("queueFull", 2)
        change = {"threadId": thread, "queueId": first["queued"]["queueId"]}
        parts = [{"type": "text", "text": long * 2}]
        refused = await client.refused("thread/queue/update", {**change, "input": parts})
        assert (refused.reason, refused.data["limit"]) == ("invalidParams", 2_000_000)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": running})
        await client.call("thread/queue/resume", {"threadId": thread})
        assert (await client.ended(first["turn"]["id"]))["status"] == "completed"
        assert (await client.shown(thread))[1][0] == long


async def test_a_new_input_takes_the_place_of_a_report_that_waits(house: House) -> None:
    house.offline([{"hang": True}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        running = await client.begin(thread, "busy")
        report = {"threadId": thread, "input": [], "toolOutput": {"name": "ci", "output": "red"}, "ifBusy": "queue"}
        waits = await client.call("turn/start", report)
        parts = [{"type": "text", "text": "rather this"}]
        queue_id = waits["queued"]["queueId"]
        await client.call("thread/queue/update", {"threadId": thread, "queueId": queue_id, "input": parts})
        await client.call("turn/interrupt", {"threadId": thread, "turnId": running})
        await client.call("thread/queue/resume", {"threadId": thread})
        assert (await client.ended(waits["turn"]["id"]))["status"] == "completed"
        assert (await client.shown(thread))[1][0] == "rather this"


def _waits(thread: str, text: str) -> Message:
    return {"threadId": thread, "input": [{"type": "text", "text": text}], "ifBusy": "queue"}
