"""What models put out besides text: reasoning and items of unknown types go into the log and back to the service."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fixtures.mockmodel import Mock
from tests.interaction.house import House
from tests.interaction.prompts import inputs, talk
from tests.interaction.stories import story
from tests.interaction.wire import Client, Message

Event = dict[str, Any]
MESSAGE: Event = {"type": "message", "id": "msg_1", "role": "assistant"}
REASONING: Event = {"type": "reasoning", "id": "rs_1", "summary": []}


class Replies:
    """Puts events of the service's stream in place of what the mock would say, answer by answer."""

    def __init__(self) -> None:
        self.answers: list[list[Event]] = []


@pytest.fixture
def raw(mock: Mock) -> Iterator[Replies]:
    """While answers are left they are sent as they stand; then the mock speaks for itself again."""
    handler: Any = mock.srv.RequestHandlerClass
    before, replies = handler.stream, Replies()

    def stream(self: Any, steps: list[Event], number: int) -> None:
        if not replies.answers:
            before(self, steps, number)
            return
        for event in replies.answers.pop(0):
            self.ev(event)

    handler.stream = stream
    yield replies
    handler.stream = before


def done(*items: Event) -> list[Event]:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 130,
    }
    finished = [
        {"type": "response.output_item.done", "output_index": place, "item": item} for place, item in enumerate(items)
    ]
    return [*finished, {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}]


def whole(item: Event) -> Event:
    """An item without what the log adds for itself."""
    return {name: value for name, value in item.items() if name not in ("metadata", "internal_chat_message_metadata")}


async def turned(client: Client, house: House, **params: Any) -> tuple[str, list[Message]]:
    """A thread after one turn, and what came of the turn."""
    thread = await client.start(cwd=str(house.work), **params)
    since = client.mark
    await client.turn(thread, "go")
    return thread, client.seen[since:]


async def test_reasoning_is_shown_part_by_part_and_sent_again_with_what_is_encrypted(
    house: House, mock: Mock, raw: Replies
) -> None:
    house.service(mock)
    text = {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1"}
    reasoning = {
        **REASONING,
        "summary": [{"type": "summary_text", "text": "one"}, {"type": "summary_text", "text": "two"}],
        "content": [{"type": "reasoning_text", "text": "deep"}],
        "encrypted_content": "BLOB",
    }
    raw.answers.append(
        [
            {"type": "response.output_item.added", "output_index": 0, "item": REASONING},
            {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "summary_index": 0},
            {**text, "summary_index": 0, "delta": "one"},
            {**text, "summary_index": 1, "delta": "two"},
            {"type": "response.reasoning_text.delta", "item_id": "rs_1", "content_index": 0, "delta": "deep"},
            *done(reasoning, {**MESSAGE, "content": [{"type": "output_text", "text": "yes"}]}),
        ]
    )
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, seen = await turned(client, house)
        told = story(seen)
        first = told.index("item/started reasoning")
        assert told[first : first + 7] == [
            "item/started reasoning",
            "item/reasoning/summaryPartAdded",
            "item/reasoning/summaryTextDelta",
            "item/reasoning/summaryPartAdded",
            "item/reasoning/summaryTextDelta",
            "item/reasoning/textDelta",
            "item/completed reasoning",
        ]
        parts = [m["params"] for m in seen if m.get("method") == "item/reasoning/summaryPartAdded"]
        assert [part["summaryIndex"] for part in parts] == [0, 1]
        [usage] = [m["params"]["tokenUsage"] for m in seen if m.get("method") == "thread/tokenUsage/updated"]
        assert (usage["last"]["cachedInputTokens"], usage["last"]["reasoningOutputTokens"]) == (60, 20)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await client.call("thread/resume", {"threadId": thread})
        await client.turn(thread, "more")
    [sent] = [item for item in inputs(mock)[-1] if item.get("type") == "reasoning"]
    assert whole(dict(sent)) == reasoning
    assert b"BLOB" in house.log(thread)


async def test_items_and_events_that_nobody_knows_break_no_turn_and_items_are_passed_back(
    house: House, mock: Mock, raw: Replies
) -> None:
    house.service(mock)
    odd = {"type": "hologram_call", "rays": [1, {"deep": None}]}
    raw.answers.append(
        [
            {"type": "response.hologram.started", "item_id": 7, "delta": {"x": 1}},
            {"type": "response.output_item.added", "item": {"type": "hologram_call"}},
            {"type": "response.output_text.delta", "item_id": None, "delta": "of no item"},
            {"type": "response.reasoning_summary_text.delta", "item_id": "rs_9", "summary_index": 10**9, "delta": "x"},
            {"type": "response.output_item.done", "item": "no item"},
            *done(odd, {**MESSAGE, "content": [None, 7, {"type": "output_text", "text": "yes"}], "phase": 3}),
        ]
    )
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, _ = await turned(client, house)
        assert await client.shown(thread) == [["go", "yes"]]
        await client.turn(thread, "more")
    [sent] = [item for item in inputs(mock)[-1] if item.get("type") == "hologram_call"]
    assert whole(dict(sent)) == odd


async def test_a_service_without_encrypted_reasoning_is_asked_without_it(
    house: House, mock: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.service(mock)
    handler: Any = mock.srv.RequestHandlerClass
    answer = handler._json

    def refuse(self: Any, obj: object, code: int = 200) -> None:
        del obj
        answer(self, {"error": {"message": "Encrypted content is not supported with this model."}}, code)

    monkeypatch.setattr(handler, "_json", refuse)
    mock.replies.append([{"http": 400}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread, _ = await turned(client, house)
        await client.turn(thread, "more")
    assert ["include" in request["body"] for request in mock.requests] == [True, False, False]


async def test_what_is_asked_of_a_model_that_reasons(house: House, mock: Mock) -> None:
    house.service(mock)
    house.settings |= {"model_reasoning_effort": "low", "model_reasoning_summary": "auto"}
    async with house.daemon() as daemon:
        client = await daemon.connect()
        await turned(client, house)
    assert mock.last()["reasoning"] == {"effort": "low", "summary": "auto"}
    assert "reasoning" in json.dumps(mock.last()["include"])


async def test_an_empty_summary_is_made_up_for_from_a_history_with_odd_parts(house: House, mock: Mock) -> None:
    house.service(mock)
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        await client.turn(thread, "one")
        odd = {"type": "message", "role": "assistant", "content": [None, 5]}
        await client.call("thread/inject_items", {"threadId": thread, "items": [odd]})
        mock.compact_replies.append([])
        mark = client.mark
        await client.call("thread/compact/start", {"threadId": thread})
        compacted = await client.event("turn/completed", since=mark)
        assert compacted["params"]["turn"]["status"] == "completed"
        await client.turn(thread, "two")
    assert any("ok 1" in text for text in talk(inputs(mock)[-1]))


async def test_a_model_service_that_is_configured_wrong_fails_the_turn_in_words(house: House) -> None:
    house.offline([{"sing": "a song"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work))
        ended = await client.ended(await client.begin(thread, "go"))
        assert ended["status"] == "failed"
        assert ended["error"]["message"] == "offline script, replies[0][0]: no such step"
