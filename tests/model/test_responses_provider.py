"""The Responses provider against the mock service: what is sent, what comes back, how failures arrive."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from unspool_server.config import ProviderConfig
from unspool_server.errors import (
    ContextLengthExceeded,
    ModelError,
    ProviderRejected,
    ProviderUnavailable,
    StreamCut,
)
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
from unspool_server.model.provider import HttpProvider
from unspool_server.model.responses import ResponseReader, ResponsesDialect
from unspool_server.model.service import ModelService

from tests.fixtures.mockmodel import Mock

Connect = Callable[..., HttpProvider]
USER = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def request(*items: Mapping[str, Any], **fields: Any) -> ModelRequest:
    return ModelRequest(model="mock-model", input=items or (USER,), cache_key="thread-1", **fields)


async def no_wait(_delay_s: float) -> None:
    """Back off without waiting."""


@pytest.fixture
async def connect(mock: Mock) -> AsyncIterator[Connect]:
    made: list[HttpProvider] = []

    def make(environ: Mapping[str, str] | None = None, **fields: Any) -> HttpProvider:
        settings = {"name": "mock", "request_max_retries": 0, "stream_max_retries": 0, **fields}
        config = ProviderConfig(base_url=f"http://127.0.0.1:{mock.port}/v1", **settings)
        made.append(
            HttpProvider(ModelService(config, environ or {}, sleep=no_wait), ResponsesDialect(), model="mock-model")
        )
        return made[-1]

    yield make
    for provider in made:
        await provider.close()


async def gather(provider: HttpProvider, asked: ModelRequest, into: list[ModelEvent]) -> None:
    async with asyncio.timeout(10), aclosing(provider.stream(asked)) as events:
        async for event in events:
            into.append(event)


async def collect(provider: HttpProvider, asked: ModelRequest | None = None) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    await gather(provider, asked or request(), events)
    return events


async def test_text_reasoning_and_calls_arrive_as_the_service_sent_them(mock: Mock, connect: Connect) -> None:
    odd = {"type": "web_search_call", "id": "ws_1", "novel": {"deep": [1, None]}}
    mock.push({"reason": "thinking", "enc": "blob"}, {"say": "hello"}, {"call": "do", "args": {"a": 1}}, {"raw": odd})

    events = await collect(connect())

    message = {"type": "message", "id": "msg_0001_1", "role": "assistant"}
    text = [{"type": "output_text", "text": "hello"}]
    summary = [{"type": "summary_text", "text": "thinking"}]
    assert events == [
        ItemDone({"type": "reasoning", "id": "rs_0001_0", "summary": summary, "encrypted_content": "blob"}),
        ItemStarted({**message, "content": []}),
        TextDelta("msg_0001_1", "hello"),
        ItemDone({**message, "content": text}),
        ItemDone(
            {
                "type": "function_call",
                "id": "fc_0001_2",
                "call_id": "call_0001_2",
                "name": "do",
                "arguments": '{"a": 1}',
            }
        ),
        ItemDone(odd),
        ResponseDone("resp_0001", Usage(input_tokens=100, output_tokens=10, total_tokens=110)),
    ]


async def test_input_items_are_sent_exactly_as_given(mock: Mock, connect: Connect) -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "base"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None, "unheard_of": {"x": 1.5}},
        {"type": "no_such_type", "z": 1, "a": [None, True, "é\ud800"]},
        USER,
    ]
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "novel": 1}

    await collect(
        connect(), request(*items, tools=[tool], effort="high", summary="auto", output_schema=schema, window_id="w:0")
    )

    body = mock.last()
    assert body["input"] == items
    assert [list(sent) for sent in body["input"]] == [list(item) for item in items]
    assert {key: value for key, value in body.items() if key != "input"} == {
        "model": "mock-model",
        "tools": [tool],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "stream": True,
        "store": False,
        "prompt_cache_key": "thread-1",
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": schema}},
    }


async def test_a_compaction_request_has_no_tools_and_no_instructions(mock: Mock, connect: Connect) -> None:
    prompt = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "COMPACT-NOW"}]}

    events = await collect(connect(), request(USER, prompt, purpose="compact", parallel_tool_calls=False))

    assert TextDelta("msg_0001_0", "summary 1") in events
    body = mock.last()
    assert (body["tools"], body["parallel_tool_calls"]) == ([], False)
    assert not {"instructions", "reasoning", "text", "tool_choice"} & body.keys()


async def test_items_finished_before_a_cut_are_delivered(mock: Mock, connect: Connect) -> None:
    mock.push({"say": "first"}, {"say": "second", "partial": True}, {"cut": True})
    events: list[ModelEvent] = []

    with pytest.raises(StreamCut) as caught:
        await gather(connect(stream_max_retries=3), request(), events)

    assert caught.value.message == "stream disconnected before completion: stream closed before response.completed"
    assert caught.value.info == "other"
    assert [event.item["id"] for event in events if isinstance(event, ItemDone)] == ["msg_0001_0"]
    assert events[-1] == TextDelta("msg_0001_1", "second")
    assert len(mock.requests) == 1


async def test_a_broken_stream_is_not_opened_again_by_the_provider(mock: Mock, connect: Connect) -> None:
    mock.push({"cut": True})

    with pytest.raises(StreamCut):
        await collect(connect(stream_max_retries=3))

    assert len(mock.requests) == 1


@pytest.mark.parametrize(
    ("code", "error", "message", "info"),
    [
        (
            "context_length_exceeded",
            ContextLengthExceeded,
            "Codex ran out of room in the model's context window. "
            "Start a new thread or clear earlier history before retrying.",
            "contextWindowExceeded",
        ),
        (
            "server_is_overloaded",
            ProviderUnavailable,
            "Selected model is at capacity. Please try a different model.",
            "serverOverloaded",
        ),
        ("rate_limit_exceeded", StreamCut, "rate limit exceeded: mock failure", "rateLimitExceeded"),
        (
            "insufficient_quota",
            ProviderRejected,
            "Quota exceeded. Check your plan and billing details.",
            "usageLimitExceeded",
        ),
        ("invalid_prompt", ProviderRejected, "mock failure", "other"),
        ("what_is_this", StreamCut, "stream disconnected before completion: mock failure", "other"),
    ],
)
async def test_failed_responses_raise_by_their_code(
    mock: Mock, connect: Connect, *, code: str, error: type[ModelError], message: str, info: str
) -> None:
    mock.push({"say": "before"}, {"fail": code})
    events: list[ModelEvent] = []

    with pytest.raises(error) as caught:
        await gather(connect(), request(), events)

    assert (type(caught.value), caught.value.message, caught.value.info) == (error, message, info)
    assert any(isinstance(event, ItemDone) for event in events)


@pytest.mark.parametrize(
    ("status", "error", "message", "info"),
    [
        (400, ProviderRejected, '{"error": {"message": "mock error", "code": "mock"}}', "other"),
        (
            401,
            ProviderRejected,
            "unexpected status 401 Unauthorized: mock error, url: URL",
            {"httpConnectionFailed": {"httpStatusCode": 401}},
        ),
        (
            429,
            ProviderUnavailable,
            "exceeded retry limit, last status: 429 Too Many Requests",
            {"responseTooManyFailedAttempts": {"httpStatusCode": 429}},
        ),
        (
            500,
            ProviderUnavailable,
            "We’re currently experiencing high demand, which may cause temporary errors.",
            "internalServerError",
        ),
        (
            503,
            ProviderUnavailable,
            "unexpected status 503 Service Unavailable: mock error, url: URL",
            {"httpConnectionFailed": {"httpStatusCode": 503}},
        ),
    ],
)
async def test_http_errors_raise_by_their_status(
    mock: Mock, connect: Connect, *, status: int, error: type[ModelError], message: str, info: object
) -> None:
    mock.push({"http": status})

    with pytest.raises(error) as caught:
        await collect(connect())

    assert type(caught.value) is error
    assert caught.value.message == message.replace("URL", f"http://127.0.0.1:{mock.port}/v1/responses")
    assert caught.value.info == info
    assert len(mock.requests) == 1


async def test_server_errors_are_asked_again_as_often_as_configured(mock: Mock, connect: Connect) -> None:
    for _ in range(3):
        mock.push({"http": 500})

    with pytest.raises(ProviderUnavailable):
        await collect(connect(request_max_retries=2))
    assert len(mock.requests) == 3
    mock.push({"http": 502})

    events = await collect(connect(request_max_retries=1))

    assert isinstance(events[-1], ResponseDone)
    assert len(mock.requests) == 5


async def test_refusals_are_never_asked_again(mock: Mock, connect: Connect) -> None:
    mock.push({"http": 400})

    with pytest.raises(ProviderRejected):
        await collect(connect(request_max_retries=5, stream_max_retries=5))

    assert len(mock.requests) == 1


async def test_waits_between_attempts_grow_and_are_spread(mock: Mock) -> None:
    delays: list[float] = []

    async def remember(delay_s: float) -> None:
        delays.append(delay_s)

    for _ in range(4):
        mock.push({"http": 500})
    config = ProviderConfig(base_url=f"http://127.0.0.1:{mock.port}/v1", request_max_retries=3)
    provider = HttpProvider(ModelService(config, {}, sleep=remember), ResponsesDialect(), model="m")
    with pytest.raises(ProviderUnavailable):
        await collect(provider)
    await provider.close()

    assert len(delays) == 3
    assert all(0.9 <= delay / (0.2 * 2**number) <= 1.1 for number, delay in enumerate(delays))


async def test_an_unreachable_service_is_unavailable(unused_tcp_port: int) -> None:
    config = ProviderConfig(base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", request_max_retries=1)
    provider = HttpProvider(ModelService(config, {}, sleep=no_wait), ResponsesDialect(), model="m")

    with pytest.raises(ProviderUnavailable) as caught:
        await collect(provider)
    await provider.close()

    error: ModelError = caught.value
    assert error.info == {"httpConnectionFailed": {"httpStatusCode": None}}


async def test_a_pause_in_the_stream_is_waited_for(mock: Mock, connect: Connect) -> None:
    mock.push({"wait": 0.05}, {"say": "late"})

    assert TextDelta("msg_0001_1", "late") in await collect(connect())


@pytest.fixture
async def hung_up(mock: Mock, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when the service is done with a connection; while a reply hangs, only the client can end it."""
    event, loop, end = asyncio.Event(), asyncio.get_running_loop(), mock.srv.shutdown_request

    def ended(connection: socket.socket) -> None:
        end(connection)
        loop.call_soon_threadsafe(event.set)

    monkeypatch.setattr(mock.srv, "shutdown_request", ended)
    return event


async def test_cancelling_the_reader_hangs_up_at_once(mock: Mock, connect: Connect, hung_up: asyncio.Event) -> None:
    mock.push({"say": "so far"}, {"hang": True})
    provider, events, seen = connect(), list[ModelEvent](), asyncio.Event()

    async def read() -> None:
        async with aclosing(provider.stream(request())) as stream:
            async for event in stream:
                events.append(event)
                if isinstance(event, ItemDone):
                    seen.set()

    reader = asyncio.create_task(read())
    async with asyncio.timeout(10):
        await seen.wait()
        reader.cancel()
        await asyncio.wait([reader])
        await hung_up.wait()

    assert reader.cancelled()
    assert isinstance(events[-1], ItemDone)
    # The same pool serves the next request.
    assert isinstance((await collect(provider))[-1], ResponseDone)


async def test_closing_the_iterator_early_hangs_up(mock: Mock, connect: Connect, hung_up: asyncio.Event) -> None:
    mock.push({"say": "so far"}, {"hang": True})
    async with asyncio.timeout(10):
        stream = connect().stream(request())
        first = await anext(stream)
        await stream.aclose()
        await hung_up.wait()

    assert isinstance(first, ItemStarted)


async def test_a_missing_key_is_named_before_anything_is_sent(mock: Mock, connect: Connect) -> None:
    with pytest.raises(ProviderRejected) as caught:
        await collect(connect(env_key="MOCK_KEY", env_key_instructions="Ask the operator."))

    assert caught.value.message == "Missing environment variable: `MOCK_KEY`. Ask the operator."
    assert mock.requests == []
    assert isinstance((await collect(connect({"MOCK_KEY": "secret"}, env_key="MOCK_KEY")))[-1], ResponseDone)


async def test_only_the_service_named_openai_compacts_by_itself(connect: Connect) -> None:
    assert connect(name="OpenAI").compacts
    assert not connect(name="openai").compacts


async def test_the_configured_model_is_the_only_and_default_one(connect: Connect) -> None:
    models = await connect().models()

    assert [(model.id, model.is_default) for model in models] == [("mock-model", True)]


def read(*raws: Mapping[str, Any]) -> list[ModelEvent]:
    """What a reader makes of the events of one response."""
    reader = ResponseReader()
    return [event for raw in raws for event in reader.add(raw)]


def test_deltas_without_an_item_belong_to_the_current_one() -> None:
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}

    events = read(
        {"type": "response.output_item.added", "item": message},
        {"type": "response.output_text.delta", "delta": "x"},
        {"type": "response.reasoning_summary_part.added", "item_id": "rs_1", "summary_index": 2},
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "y", "summary_index": 2},
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "z", "content_index": 1},
        {"type": "response.in_progress"},
        {"type": "response.never_heard_of", "item": 7},
        {"novel": True},
    )

    assert events == [
        ItemStarted(message),
        TextDelta("msg_1", "x"),
        ReasoningDelta("rs_1", "", "summary", 2),
        ReasoningDelta("rs_1", "y", "summary", 2),
        ReasoningDelta("rs_1", "z", "content", 1),
    ]


@pytest.mark.parametrize("ids", [("a", "b"), (None, None), (None, "b")])
def test_an_item_keeps_one_id_whatever_the_service_calls_it(ids: tuple[str | None, str | None]) -> None:
    first, last = ({"type": "message", "role": "assistant", **({"id": name} if name else {})} for name in ids)

    started, delta, done = read(
        {"type": "response.output_item.added", "output_index": 0, "item": first},
        {"type": "response.output_text.delta", "output_index": 0, "item_id": "c", "delta": "x"},
        {"type": "response.output_item.done", "output_index": 0, "item": last},
    )

    assert isinstance(started, ItemStarted) and isinstance(delta, TextDelta) and isinstance(done, ItemDone)
    assert started.item["id"] == delta.item_id == done.item["id"]
    assert started.item["id"] == (ids[0] or started.item["id"]) and started.item["id"]


def test_items_of_unknown_types_pass_as_they_are() -> None:
    odd = {"type": "hologram", "z": [1], "a": None}
    assert read({"type": "response.output_item.done", "item": odd}) == [ItemDone(odd)]


def test_an_answer_that_the_service_ended_early_is_no_broken_stream() -> None:
    raw = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}

    with pytest.raises(ProviderRejected, match="Incomplete response returned, reason: max_output_tokens"):
        read(raw)


def test_usage_tells_cached_and_reasoning_tokens() -> None:
    usage = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 30,
        "output_tokens_details": {"reasoning_tokens": 20},
        "total_tokens": 130,
    }

    assert read({"type": "response.completed", "response": {"id": "r", "usage": usage}}) == [
        ResponseDone("r", Usage(100, 60, 30, 20, 130))
    ]


def test_building_a_provider_does_not_import_the_library() -> None:
    code = (
        "import sys; from unspool_server.config import ProviderConfig;"
        "from unspool_server.model.registry import build_provider;"
        "[build_provider('x', ProviderConfig(wire_api=w), model='m') for w in ('responses', 'chat', 'offline')];"
        "print('openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout.strip() == "False"
