"""A window that is full: requests that do not fit, and compaction before, inside and behind a turn (07 §6.3)."""

import json

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import TOOL, House
from tests.interaction.prompts import inputs, talk
from tests.interaction.wire import Client, Message

TOO_LONG: list[Message] = [{"fail": "context_length_exceeded"}]


def compactions(house: House, thread: str) -> int:
    return sum(record["type"] == "compacted" for record in house.records(thread))


async def warnings(client: Client) -> list[str]:
    await client.settled()
    return [m["params"].get("code") for m in client.seen if m.get("method") == "warning"]


async def test_a_request_that_does_not_fit_is_compacted_and_sent_once_more(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.replies.append(TOO_LONG)
        await client.turn(thread, "two")

        assert await client.shown(thread) == [["one", "ok 1"], ["two", "[compaction]", "ok 4"]]
    assert compactions(house, thread) == 1
    assert talk(inputs(mock)[-1])[:2] == ["user: one", "user: two"]
    assert "summary 1" in json.dumps(inputs(mock)[-1][-1])


async def test_one_that_does_not_fit_after_that_either_fails_and_the_next_turn_compacts_first(
    house: House, mock: Mock
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        mock.replies += [TOO_LONG, TOO_LONG]
        ended = await client.ended(await client.begin(thread, "go"))
        assert (ended["status"], ended["error"]["codexErrorInfo"]) == ("failed", "contextWindowExceeded")
        assert compactions(house, thread) == 1
        counts = [r["payload"]["info"] for r in house.records(thread) if r["payload"].get("type") == "token_count"]
        assert counts[-1]["last_token_usage"]["total_tokens"] == 272_000
        await client.turn(thread, "next")
    assert compactions(house, thread) == 2


async def test_input_that_came_while_room_was_made_goes_with_the_next_request(house: House, mock: Mock) -> None:
    house.service(mock)
    mock.replies.append([{"call": "look", "id": "c1"}])
    mock.replies.append(TOO_LONG)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        request = await client.event("item/tool/call")
        steer = {"threadId": thread, "expectedTurnId": turn, "input": [{"type": "text", "text": "and this"}]}
        await client.call("turn/steer", steer)
        await client.send({"id": request["id"], "result": {"contentItems": [], "success": True}})
        assert (await client.ended(turn))["status"] == "completed"
    assert [word for word in talk(inputs(mock)[-1]) if word in ("user: go", "user: and this")] == [
        "user: go",
        "user: and this",
    ]


async def test_a_summary_that_fails_while_room_is_made_fails_the_turn_and_changes_nothing(
    house: House, mock: Mock
) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.replies.append(TOO_LONG)
        mock.compact_replies.append([{"http": 400}])
        assert (await client.ended(await client.begin(thread, "two")))["status"] == "failed"
        await client.turn(thread, "three")
    assert compactions(house, thread) == 0
    assert talk(inputs(mock)[-1]) == ["user: one", "assistant: ok 1", "user: two", "user: three"]


@pytest.mark.parametrize(("used", "compacted"), [(4_999, 0), (5_000, 1)])
async def test_a_turn_compacts_first_from_the_limit_on(house: House, mock: Mock, used: int, compacted: int) -> None:
    house.service(mock)
    house.settings["model_auto_compact_token_limit"] = 5000
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        mock.usage.update({"in": used - 10, "out": 10})
        await client.turn(thread, "one")
        mock.usage.update({"in": 100, "out": 10})
        await client.turn(thread, "x" * 4000)  # the new text does not count
    assert compactions(house, thread) == compacted


@pytest.mark.parametrize(("percent", "limit", "compacted"), [(50, None, 1), (61, None, 0), (None, None, 0), (50, 0, 0)])
async def test_a_turn_compacts_behind_its_answer_from_the_threshold_on(
    house: House, mock: Mock, percent: int | None, limit: int | None, compacted: int
) -> None:
    house.service(mock)
    given = {"model_post_turn_compact_threshold_percent": percent, "model_auto_compact_token_limit": limit}
    house.settings |= {"model_context_window": 10_000} | {k: v for k, v in given.items() if v is not None}
    mock.usage.update({"in": 5990, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ended = await client.ended(await client.begin(thread, "go"))
        assert ended["status"] == "completed"
        assert [item["text"] for item in ended["items"]] == ["ok 1"]  # the compaction's answer is not the turn's
        assert await client.shown(thread) == [["go", "ok 1", *["[compaction]"] * compacted]]
    assert compactions(house, thread) == compacted


async def test_a_compaction_behind_the_answer_that_fails_leaves_the_turn_as_it_was(house: House, mock: Mock) -> None:
    house.service(mock)
    house.settings |= {"model_context_window": 10_000, "model_post_turn_compact_threshold_percent": 50}
    mock.usage.update({"in": 5990, "out": 10})
    mock.compact_replies.append([{"http": 400}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "go")
        assert await warnings(client) == ["compactionFailed"]
    assert compactions(house, thread) == 0


@pytest.mark.parametrize("reply", [[], [{"say": "no compaction"}], [{"raw": {"type": "compaction", "id": "a"}}] * 2])
async def test_a_service_that_compacts_by_itself_must_answer_with_one_compaction(
    house: House, mock: Mock, reply: list[Message]
) -> None:
    house.service(mock, name="OpenAI")
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.compact_replies.append(reply)
        since = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        ended = (await client.event("turn/completed", since=since))["params"]["turn"]
        assert ended["status"] == "failed"
        assert inputs(mock)[-1][-1] == {"type": "compaction_trigger"}
        await client.turn(thread, "two")
    assert compactions(house, thread) == 0
    assert talk(inputs(mock)[-1]) == ["user: one", "assistant: ok 1", "user: two"]


async def test_between_two_rounds_the_outputs_count(house: House, mock: Mock) -> None:
    house.service(mock)
    house.settings["model_auto_compact_token_limit"] = 2000
    mock.replies += [[{"call": "look", "id": "c1"}], [{"say": "done"}]]
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, "go")
        request = await client.event("item/tool/call")
        large = [{"type": "inputText", "text": "x" * 9000}]
        await client.send({"id": request["id"], "result": {"contentItems": large, "success": True}})
        assert (await client.ended(turn))["status"] == "completed"
        assert (await client.shown(thread))[0][-2:] == ["[compaction]", "done"]
    assert compactions(house, thread) == 1
    assert [item["type"] for item in inputs(mock)[-1]].count("function_call") == 0


async def test_a_compaction_before_the_turn_that_fails_leaves_its_text_and_the_next_turn_tries_again(
    house: House, mock: Mock
) -> None:
    house.service(mock)
    house.settings["model_auto_compact_token_limit"] = 5000
    mock.usage.update({"in": 6000, "out": 10})
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        mock.usage.update({"in": 100, "out": 10})
        mock.compact_replies.append([{"http": 400}])
        assert (await client.ended(await client.begin(thread, "two")))["status"] == "failed"
        assert compactions(house, thread) == 0
        await client.turn(thread, "three")
        assert await client.shown(thread) == [["one", "ok 1"], ["two"], ["[compaction]", "three", "ok 4"]]
    assert talk(inputs(mock)[-1])[:2] == ["user: one", "user: two"]
