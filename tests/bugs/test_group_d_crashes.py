"""Turns that a crash or an interrupt left behind."""

from typing import Any

import pytest

from tests.bugs.cases import THREAD, lines_of, place, resume, said, write_lines
from tests.interaction.house import House
from tests.interaction.later import Later
from tests.interaction.stories import HANG, hanging


async def test_b23_a_turn_left_open_by_a_crash_is_shown_as_interrupted_and_the_thread_goes_on(house: House) -> None:
    path = place(house, "B23_open_turn_then_more")
    before = path.read_bytes()
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        resumed = await resume(client)
        assert resumed["thread"]["status"] == {"type": "idle"}
        assert [turn["status"] for turn in resumed["thread"]["turns"]] == ["completed", "interrupted", "completed"]
        assert path.read_bytes() == before, "resume writes nothing"
        assert said(daemon) == ["alpha", "A1", "beta", "gamma", "A3"]
        await client.turn(THREAD, "on")


@pytest.mark.parametrize("name", ["B23_open_turn_then_more", "B11_ordinal_missing_last"])
async def test_b23_wherever_the_crash_came_no_turn_is_in_progress_and_the_next_one_runs(
    house: House, name: str
) -> None:
    lines = lines_of(name)
    house.offline()
    for end in range(1, len(lines)):
        path = write_lines(house, lines[:end])
        async with house.daemon() as daemon:
            client = await daemon.connect()
            shown = await client.read(THREAD)
            assert shown["status"] == {"type": "notLoaded"}
            assert {turn["status"] for turn in shown["turns"]} <= {"completed", "interrupted"}
            resumed = await resume(client)
            assert resumed["thread"]["status"] == {"type": "idle"}
            await client.turn(THREAD, "on")
        path.unlink()


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b25_text_shown_before_an_interrupt_is_still_there_afterwards_and_no_model_input(
    house: House, mode: str
) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon, mode=mode)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        ended = await client.ended(turn)
        assert (ended["status"], ended["items"]) == ("interrupted", []), "what was cut off is no answer"
        told = await client.event("item/completed", turnId=turn, since=client.mark - 3)
        assert (told["params"]["item"]["partial"], told["params"]["item"]["text"]) == (True, "partial")
        shown = await client.read(thread)
        assert partials(shown) == ["partial"]
        assert "partial" not in said(daemon, thread)
        page = await client.call("thread/turns/list", {"threadId": thread, "itemsView": "full"})
        assert [dict(turn) for turn in page["data"]] == shown["turns"]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert (await client.read(thread))["turns"] == shown["turns"]
        replayed = await client.call("thread/resume", {"threadId": thread, "replay": {"after": None}})
        assert replayed["thread"]["turns"] == shown["turns"]
        again = await client.event("item/completed", turnId=turn, item=told["params"]["item"])
        assert (again["cursor"], again["replayed"]) == (told["cursor"], True)
        assert "partial" not in said(daemon, thread)


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b25_text_that_waited_half_a_second_outlives_a_kill(house: House, mode: str) -> None:
    house.offline([{"reason": "so"}, {"say": "first words", "partial": True}, {"hang": True}])
    async with house.daemon() as daemon:
        clock = Later(daemon)
        client, thread, turn = await hanging(house, daemon, mode=mode)
        await clock.ring(thread)
        size = len(house.log(thread))
        await clock.ring(thread)
        assert len(house.log(thread)) == size, "text that did not grow is not recorded again"
        left = house.log(thread)
        running = await client.call("thread/resume", {"threadId": thread, "replay": {"mode": "snapshot"}})
        [message] = [item for item in running["thread"]["turns"][0]["items"] if item["type"] == "agentMessage"]
        assert "partial" not in message and message["text"], "while it grows it is a running item like any other"
        assert partials(await client.read(thread)) == []
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
    house.log_file(thread).write_bytes(left)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        shown = await client.read(thread)
        assert [one["status"] for one in shown["turns"]] == ["interrupted"]
        assert partials(shown) == [message["text"]]
        await client.call("thread/resume", {"threadId": thread, "replay": {"after": None}})
        assert (await client.ended(turn))["status"] == "interrupted"
        told = [m["method"] for m in client.events(thread)]
        assert told[-2:] == ["item/completed", "turn/completed"]
        assert message["text"] not in said(daemon, thread)


async def test_b25_text_shown_before_the_daemon_was_ended_or_the_stream_broke_is_kept(house: House) -> None:
    house.offline(HANG[0], [HANG[0][0], {"fail": "invalid_prompt"}])
    async with house.daemon() as daemon:
        _, thread, _ = await hanging(house, daemon)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        assert await client.shown(thread) == [["go", "partial"]]
        assert partials(await client.read(thread)) == ["partial"]
    house.offline([HANG[0][0], {"fail": "invalid_prompt"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        assert (await client.ended(await client.begin(thread, "go")))["status"] == "failed"
        assert partials(await client.read(thread)) == ["partial"]


async def test_b25_a_message_that_comes_whole_takes_the_place_of_its_partial_text(house: House) -> None:
    text = "word " * 400
    house.offline([{"say": text}])
    async with house.daemon() as daemon:
        clock = Later(daemon, at_once=True)
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "go")
        assert clock.asked, "text was waiting to be recorded"
        kept = [record for record in house.records(thread) if record["type"] == "unspool_partial_message"]
        assert kept
        assert text.startswith("".join(piece["text"] for one in kept for piece in one["payload"]["added"]))
        assert await client.shown(thread) == [["go", text]]
        assert partials(await client.read(thread)) == []


async def test_b25_partial_text_goes_and_comes_back_with_its_turn(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client, thread, turn = await hanging(house, daemon)
        await client.call("turn/interrupt", {"threadId": thread, "turnId": turn})
        await client.ended(turn)
        fork = (await client.call("thread/fork", {"threadId": thread}))["thread"]
        assert partials(fork) == ["partial"]
        rolled = await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
        assert rolled["thread"]["turns"] == []
        back = await client.call("thread/rollback/undo", {"threadId": thread})
        assert partials(back["thread"]) == ["partial"]


def partials(thread: dict[str, Any]) -> list[str]:
    """Texts that are marked as cut off."""
    return [item["text"] for turn in thread["turns"] for item in turn["items"] if item.get("partial")]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b27_the_same_message_sent_twice_runs_once_also_after_a_restart(house: House, mode: str) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        first = await client.turn(thread, "once", clientUserMessageId="m-1")
        again = await client.call("turn/start", asked(thread, "once", "m-1"))
        assert (again["turn"]["id"], again["turn"]["status"]) == (first, "completed")
        other = await client.turn(thread, "once", clientUserMessageId="m-2")
        assert other != first
        before = house.logs()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        for message, turn in (("m-1", first), ("m-2", other)):
            again = await client.call("turn/start", asked(thread, "once", message))
            assert (again["turn"]["id"], again["turn"]["status"]) == (turn, "completed")
        assert house.logs() == before, "nothing was recorded for a message that was there"
        assert said(daemon, thread).count("once") == 4, "two messages and their echoes"


async def test_b27_a_message_sent_again_while_its_turn_runs_joins_it_once(house: House) -> None:
    house.offline(*HANG)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        turn = await client.begin(thread, "go", clientUserMessageId="m-1")
        await client.event("item/agentMessage/delta", turnId=turn)
        assert (await client.call("turn/start", asked(thread, "go", "m-1")))["turn"]["id"] == turn
        for _ in range(2):
            joined = await client.call("turn/start", asked(thread, "more", "m-2"))
            assert joined["turn"]["id"] == turn
        steered = {**asked(thread, "more", "m-2"), "expectedTurnId": turn}
        assert await client.call("turn/steer", steered) == {"turnId": turn}
        ended = await client.ended(turn)
        assert ended["status"] == "completed"
        assert [text for text in said(daemon, thread) if text in ("go", "more")].count("go") == 1
        users = [item for item in (await client.read(thread))["turns"][0]["items"] if item["type"] == "userMessage"]
        assert [item["clientId"] for item in users] == ["m-1", "m-2"]


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b27_a_message_that_was_rolled_back_runs_again_under_a_new_id_only(house: House, mode: str) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        await client.turn(thread, "kept", clientUserMessageId="m-1")
        gone = await client.turn(thread, "gone", clientUserMessageId="m-2")
        await client.call("thread/rollback", {"threadId": thread, "numTurns": 1})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        again = await client.call("turn/start", asked(thread, "gone", "m-2"))
        assert (again["turn"]["id"], again["turn"]["status"]) == (gone, "completed")
        assert [turn["id"] for turn in (await client.read(thread))["turns"]].count(gone) == 0
        assert await client.turn(thread, "gone", clientUserMessageId="m-3") != gone


@pytest.mark.parametrize("mode", ["paginated", "legacy"])
async def test_b27_a_message_from_before_a_compaction_is_known_after_a_restart(house: House, mode: str) -> None:
    house.offline()
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), historyMode=mode)
        first = await client.turn(thread, "early", clientUserMessageId="m-1")
        await client.call("thread/compact", {"threadId": thread, "summary": "early things"})
        await client.turn(thread, "late", clientUserMessageId="m-2")
    for index in house.home.rglob("*.calls"):
        index.unlink()
    for _ in range(2):
        async with house.daemon() as daemon:
            client = await daemon.connect()
            await client.call("thread/resume", {"threadId": thread})
            again = await client.call("turn/start", asked(thread, "early", "m-1"))
            assert (again["turn"]["id"], again["turn"]["status"]) == (first, "completed")


def asked(thread_id: str, text: str, message_id: str) -> dict[str, Any]:
    """Parameters of a `turn/start` that names its message."""
    return {"threadId": thread_id, "input": [{"type": "text", "text": text}], "clientUserMessageId": message_id}
