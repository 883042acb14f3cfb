"""The provider without a network: echo, summary, scripted replies."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from unspool_server.config_base import ConfigError
from unspool_server.errors import ContextLengthExceeded, ModelError, ProviderRejected, ProviderUnavailable, StreamCut
from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.offline import OfflineProvider
from unspool_server.model.script import parse_script, read_script


def message(text: str, role: str = "user") -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def request(*items: Mapping[str, Any], **fields: Any) -> ModelRequest:
    return ModelRequest(model="offline-echo", input=items, cache_key="thread-1", **fields)


async def gather(provider: OfflineProvider, asked: ModelRequest, into: list[ModelEvent]) -> None:
    async with asyncio.timeout(10), aclosing(provider.stream(asked)) as events:
        async for event in events:
            into.append(event)


async def collect(provider: OfflineProvider, *items: Mapping[str, Any], **fields: Any) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    await gather(provider, request(*items, **fields), events)
    return events


def texts(events: list[ModelEvent]) -> list[str]:
    return [event.item["content"][0]["text"] for event in events if isinstance(event, ItemDone)]


def done(events: list[ModelEvent]) -> ResponseDone:
    last = events[-1]
    assert isinstance(last, ResponseDone)
    return last


async def test_the_last_user_text_comes_back_in_several_pieces() -> None:
    events = await collect(
        OfflineProvider(),
        message("be brief", "developer"),
        message("first"),
        message("answer", "assistant"),
        message("one  two\nthree "),
        {"type": "function_call_output", "call_id": "c", "output": "ignored"},
    )

    started, *deltas, finished, last = events
    assert isinstance(started, ItemStarted)
    assert isinstance(finished, ItemDone)
    assert isinstance(last, ResponseDone)
    pieces = [delta.delta for delta in deltas if isinstance(delta, TextDelta) and delta.item_id == started.item["id"]]
    assert pieces == ["one  ", "two\n", "three "]
    assert texts(events) == ["one  two\nthree "]
    assert finished.item == {**started.item, "content": [{"type": "output_text", "text": "one  two\nthree "}]}


async def test_context_that_clients_add_is_not_echoed() -> None:
    events = await collect(OfflineProvider(), message("hello"), message("<environment_context>x</environment_context>"))

    assert texts(events) == ["hello"]


async def test_a_request_without_user_text_gets_an_empty_answer() -> None:
    assert texts(await collect(OfflineProvider())) == [""]


@pytest.mark.parametrize("fields", [{"purpose": "compact"}, {}])
async def test_a_summary_is_the_first_line_of_each_user_message(fields: dict[str, Any]) -> None:
    provider = OfflineProvider(compact_prompt="SUM UP")
    items = [
        message("base", "developer"),
        message("# AGENTS.md instructions for /p\n\n<INSTRUCTIONS>\nx\n</INSTRUCTIONS>"),
        message("first line\nsecond line"),
        message("answer", "assistant"),
        message("another"),
        message("SUM UP"),
    ]

    assert texts(await collect(provider, *items, **fields)) == ["first line\nanother"]


async def test_usage_is_a_quarter_of_the_bytes_rounded_up() -> None:
    usage = done(await collect(OfflineProvider(), message("é" * 4), message("abc"))).usage

    assert usage == Usage(input_tokens=3, output_tokens=1, total_tokens=4)


async def test_ids_are_unique_even_for_the_same_request_and_across_providers() -> None:
    answers = [await collect(OfflineProvider(), message("same")) for _ in range(3)]

    ids = {event.item["id"] for events in answers for event in events if isinstance(event, ItemDone)}
    assert len(ids) == len({done(events).response_id for events in answers}) == 3


async def test_different_requests_get_different_ids_whatever_the_count_says(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = []
    for text in ("before the restart", "after it"):
        monkeypatch.setattr("unspool_server.model.offline._replies", iter([1]))
        ids.append(done(await collect(OfflineProvider(), message(text))).response_id)

    assert ids[0] != ids[1]
    assert all(name.endswith("_0001") for name in ids)


async def test_scripted_steps_become_items_and_the_queue_ends_in_the_default() -> None:
    raw = {"type": "odd", "keep": [1]}
    script = parse_script(
        {
            "replies": [
                [{"reason": "why", "enc": "E"}, {"say": "hi", "phase": "final_answer"}, {"wait": 0}, {"raw": raw}],
                [{"call": "run", "args": {"a": 1}, "id": "call_9"}],
            ],
            "default": [{"say": "default"}],
            "usage": {"in": 100, "out": 10},
        }
    )
    provider = OfflineProvider(script=script)

    first, second, third = [await collect(provider, message("x")) for _ in range(3)]

    items = [{k: v for k, v in event.item.items() if k != "id"} for event in first if isinstance(event, ItemDone)]
    assert items == [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "why"}], "encrypted_content": "E"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "hi"}],
            "phase": "final_answer",
        },
        raw,
    ]
    assert not any(isinstance(event, ReasoningDelta) for event in first)
    call = second[0]
    assert isinstance(call, ItemDone)
    assert (call.item["call_id"], call.item["name"], json.loads(call.item["arguments"])) == ("call_9", "run", {"a": 1})
    assert texts(third) == ["default"]
    assert done(third).usage == Usage(input_tokens=100, output_tokens=10, total_tokens=110)


async def test_summaries_have_a_queue_of_their_own() -> None:
    provider = OfflineProvider(script=parse_script({"replies": [[{"say": "turn"}]], "compact": [[{"say": "sum"}]]}))

    assert texts(await collect(provider, message("a"), message("prompt"), purpose="compact")) == ["sum"]
    assert texts(await collect(provider, message("a"), message("prompt"), purpose="compact")) == ["a"]
    assert texts(await collect(provider, message("a"))) == ["turn"]
    assert texts(await collect(provider, message("a"))) == ["a"]


async def test_a_compacting_service_can_be_played() -> None:
    provider = OfflineProvider(compacts=True)

    events = await collect(provider, message("a"), {"type": "compaction_trigger"}, purpose="compact")

    assert provider.compacts
    assert [event.item["type"] for event in events if isinstance(event, ItemDone)] == ["compaction"]


async def test_a_cut_comes_after_the_items_before_it() -> None:
    steps = [{"say": "whole"}, {"say": "half", "partial": True}, {"cut": True}, {"say": "never"}]
    events: list[ModelEvent] = []

    with pytest.raises(StreamCut):
        await gather(OfflineProvider(script=parse_script([steps])), request(message("x")), events)

    assert texts(events) == ["whole"]
    assert isinstance(events[-1], TextDelta)
    assert events[-1].delta == "half"


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ({"fail": "context_length_exceeded"}, ContextLengthExceeded),
        ({"fail": "server_is_overloaded"}, ProviderUnavailable),
        ({"fail": "invalid_prompt"}, ProviderRejected),
        ({"fail": "nonsense"}, StreamCut),
        ({"http": 500}, ProviderUnavailable),
        ({"http": 400}, ProviderRejected),
    ],
)
async def test_scripted_failures_raise_like_a_services(step: dict[str, Any], error: type[ModelError]) -> None:
    with pytest.raises(error):
        await collect(OfflineProvider(script=parse_script([[step]])), message("x"))


async def test_a_reply_that_hangs_ends_when_its_reader_goes_or_the_provider_closes() -> None:
    provider = OfflineProvider(script=parse_script([[{"say": "x"}, {"hang": True}]] * 2))
    for end in ("reader", "provider"):
        seen, events = asyncio.Event(), list[ModelEvent]()

        async def read(seen: asyncio.Event = seen, events: list[ModelEvent] = events) -> None:
            async with aclosing(provider.stream(request(message("y")))) as stream:
                async for event in stream:
                    events.append(event)
                    if isinstance(event, ItemDone):
                        seen.set()

        reader = asyncio.create_task(read())
        async with asyncio.timeout(10):
            await seen.wait()
            await asyncio.sleep(0)
            if end == "reader":
                reader.cancel()
            else:
                await provider.close()
            await asyncio.wait([reader])
        assert reader.cancelled()
        assert texts(events) == ["x"]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("text", "a list of replies or an object"),
        ([{"say": "x"}], r"replies\[0\]"),
        ([[{"say": "x"}, {"sing": "y"}]], r"replies\[0\]\[1\]"),
        ({"compact": [[{"wait": "long"}]]}, r"compact\[0\]\[0\]"),
        ({"replies": {}}, "replies"),
        ({"usage": [1]}, "usage"),
    ],
)
def test_a_broken_script_is_refused_by_its_place(raw: object, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_script(raw)


def test_a_script_file_that_is_missing_or_no_json_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "script.json"
    broken.write_text("[[")

    with pytest.raises(ConfigError, match="no JSON"):
        read_script(broken)
    with pytest.raises(ConfigError, match="cannot read"):
        read_script(tmp_path / "none.json")


async def test_the_offline_model_is_the_default_one() -> None:
    models = await OfflineProvider(context_window=1000).models()

    assert [(m.id, m.is_default, m.context_window) for m in models] == [("offline-echo", True, 1000)]
