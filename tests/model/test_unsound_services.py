"""Services that send what no service should: it becomes something that log, clients and the next request can hold."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from unspool_server.config import ProviderConfig
from unspool_server.errors import ModelError, ProviderRejected, StreamCut
from unspool_server.model.contract import ItemDone, ModelEvent, ModelRequest, ReasoningDelta, ResponseDone, TextDelta
from unspool_server.model.provider import HttpProvider
from unspool_server.model.received import LONGEST_ERROR, Received
from unspool_server.model.responses import ResponsesDialect
from unspool_server.model.service import ModelService
from unspool_server.nesting import DEEPEST

from tests.model.chat_service import (
    ChatService,
    Refusal,
    call_piece,
    chunk,
    collect,
    no_wait,
    provider_for,
    serving,
    user,
)

DONE = {"type": "response.completed", "response": {"id": "r1"}}


@pytest.fixture
async def service() -> AsyncIterator[ChatService]:
    async with serving() as running:
        yield running


async def told(service: ChatService, *events: object) -> list[ModelEvent]:
    """What a Responses service's events become."""
    service.answers.append(list(events))
    config = ProviderConfig(name="r", base_url=f"http://127.0.0.1:{service.port}/v1", request_max_retries=0)
    provider = HttpProvider(ModelService(config, {}, sleep=no_wait), ResponsesDialect(), model="m")
    request = ModelRequest(model="m", input=[user("hi")], cache_key="t")
    try:
        async with asyncio.timeout(10), aclosing(provider.stream(request)) as heard:
            return [event async for event in heard]
    finally:
        await provider.close()


def done(**item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": 0, "item": item}


def items(events: list[ModelEvent]) -> list[dict[str, Any]]:
    return [dict(event.item) for event in events if isinstance(event, ItemDone)]


def test_a_character_in_two_pieces_is_shown_once_it_is_whole() -> None:
    received = Received()
    pieces = ["a\ud83d", "\ude00b", "\ud83d", "c"]
    shown = [list(received.take(TextDelta("m", piece))) for piece in pieces]
    assert shown == [[TextDelta("m", "a")], [TextDelta("m", "😀b")], [], [TextDelta("m", "�c")]]
    other = [list(received.take(ReasoningDelta("r", piece, "content"))) for piece in ("\ud83d", "\ude00")]
    assert other == [[], [ReasoningDelta("r", "😀", "content")]]


async def test_halves_of_characters_in_items_and_failures_become_whole(service: ChatService) -> None:
    text = '{"type":"output_text","text":"\\ud83d\\ude00 \\ud83d"}'
    raw = f'{{"type":"response.output_item.done","item":{{"type":"message","id":"m","content":[{text}]}}}}'
    [item] = items(await told(service, raw, DONE))
    assert item["content"][0]["text"] == "😀 �"
    with pytest.raises(StreamCut) as caught:
        await told(service, '{"type":"error","error":{"code":"x","message":"bad \\ud83d"}}')
    assert caught.value.message.endswith("bad �")


async def test_calls_are_given_what_makes_them_calls(service: ChatService) -> None:
    odd = {"call_id": 5, "name": {"a": 1}, "arguments": [1], "namespace": 7}
    first, second = items(await told(service, done(type="function_call", **odd), done(type="custom_tool_call"), DONE))
    assert (first["name"], first["arguments"], first["namespace"]) == ("unnamed", "[1]", None)
    assert first["call_id"].startswith("call_") and first["call_id"] != second["call_id"]
    assert (second["name"], second["input"]) == ("unnamed", "")


async def test_what_a_model_says_is_the_assistants_whatever_role_it_has(service: ChatService) -> None:
    messages = [done(type="message", role="user", content="as text"), done(type="message", content=[None, {"a": 1}])]
    first, second = items(await told(service, *messages, done(type="message", role=5, content=None), DONE))[:2]
    assert (first["role"], first["content"]) == ("assistant", [{"type": "output_text", "text": "as text"}])
    assert (second["role"], second["content"]) == ("assistant", [{"a": 1}])


async def test_two_calls_with_one_id_are_told_apart_and_a_repeated_one_counts_once(service: ChatService) -> None:
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    heard = items(await told(service, done(id="f1", **call), done(id="f1", **call), done(id="f2", **call), DONE))
    assert [item["id"] for item in heard] == ["f1", "f2"]
    assert heard[0]["call_id"] == "c" != heard[1]["call_id"]


@pytest.mark.parametrize("place", [[1], {}, "x", None])
async def test_places_that_are_none_are_passed_over(service: ChatService, place: object) -> None:
    whole = {**done(type="message", id="m", role="assistant", content=[]), "output_index": place}
    delta = {"type": "response.output_text.delta", "item_id": "m", "output_index": place, "delta": "x"}
    assert [item["id"] for item in items(await told(service, delta, whole, DONE))] == ["m"]
    service.answers.append([chunk(tool_calls=[{"index": place, **call_piece(None, "c", name="f")}]), chunk("stop")])
    assert [item["call_id"] for item in items(await collect(provider_for(service)))] == ["c"]


async def test_items_without_a_type_are_passed_over(service: ChatService) -> None:
    assert items(await told(service, done(), done(type=["message"]), done(type=None), DONE)) == []


@pytest.mark.parametrize("count", [-5, 10**30, True, "7", None, 1.5])
async def test_counts_that_cannot_be_are_no_counts(service: ChatService, count: object) -> None:
    usage = {"input_tokens": count, "output_tokens": 3, "total_tokens": count}
    events = await told(service, {"type": "response.completed", "response": {"id": "r", "usage": usage}})
    [end] = [event for event in events if isinstance(event, ResponseDone)]
    assert end.usage is not None
    assert (end.usage.input_tokens, end.usage.output_tokens, end.usage.total_tokens) == (0, 3, 3)


@pytest.mark.parametrize("depth", [DEEPEST + 1, 5000])
async def test_events_nested_without_end_are_a_broken_stream(service: ChatService, depth: int) -> None:
    with pytest.raises(StreamCut):
        await told(service, '{"type":"x","a":' + "[" * depth + "]" * depth + "}", DONE)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/json"])
async def test_an_answer_that_is_no_event_stream_is_told_as_such(service: ChatService, kind: str) -> None:
    service.answers.append(Refusal(200, {"output": []}, {"content-type": kind}))
    with pytest.raises(StreamCut, match=f"answered with {kind.partition(';')[0]}, not with events"):
        await collect(provider_for(service))


@pytest.mark.parametrize("status", [400, 404, 502])
async def test_whole_pages_are_cut_where_they_are_shown(service: ChatService, status: int) -> None:
    service.answers.append(Refusal(status, "y" * 100_000))
    with pytest.raises(ModelError) as caught:
        await collect(provider_for(service))
    assert len(caught.value.message) < LONGEST_ERROR + 100
    assert "characters more" in caught.value.message


@pytest.mark.parametrize(
    "address",
    ["", "nowhere", "ftp://x/", "http://[::1", "http://127.0.0.1:99999/", "http://127.0.0.1:1/a\n", "http://:80/"],
)
async def test_an_address_that_is_none_is_told_as_such(service: ChatService, address: str) -> None:
    config = ProviderConfig(name="c", wire_api="chat", base_url=address, request_max_retries=0)
    provider = HttpProvider(ModelService(config, {}, sleep=no_wait), ResponsesDialect(), model="m")
    with pytest.raises(ProviderRejected, match="`base_url` of the model provider is no http"):
        await collect(provider)


@pytest.mark.parametrize("headers", [{"x-key": "s3cret-\n"}, {"x-key": "s3cret-é"}, {"x key\n": "s3cret-"}])
async def test_a_header_that_cannot_be_sent_is_named_without_its_value(
    service: ChatService, headers: dict[str, str]
) -> None:
    with pytest.raises(ProviderRejected, match=r"the header .* holds characters that cannot be sent") as caught:
        await collect(provider_for(service, http_headers=headers))
    assert "s3cret" not in caught.value.message


async def test_a_key_with_a_line_break_inside_is_refused_before_it_is_sent(service: ChatService) -> None:
    with pytest.raises(ProviderRejected, match="Authorization"):
        await collect(provider_for(service, {"KEY": "sk-1\nsk-2"}, env_key="KEY"))
