"""Chat completions: items to messages, chunks to items, over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from unspool_server.config import ProviderConfig
from unspool_server.errors import ContextLengthExceeded, ProviderUnavailable, StreamCut
from unspool_server.model.chat import ChatProvider, chat_messages
from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelRequest,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.service import ModelService


class ChatService:
    """Answers each request with the next canned answer: chunks for a stream, or a status and an error body."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.answers: list[list[object] | tuple[int, object]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-len"))
        self.paths.append(head.split(" ")[1])
        self.bodies.append(json.loads(await reader.readexactly(length)))
        answer = self.answers.pop(0)
        if isinstance(answer, tuple):
            body, status, kind = json.dumps(answer[1]).encode(), answer[0], "application/json"
        else:
            lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in answer]
            body, status, kind = "".join(f"data: {line}\n\n" for line in lines).encode(), 200, "text/event-stream"
        writer.write(f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.fixture
async def chat() -> AsyncIterator[tuple[ChatProvider, ChatService]]:
    canned = ChatService()
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    config = ProviderConfig(
        name="chat",
        wire_api="chat",
        base_url=f"http://127.0.0.1:{port}/v1",
        request_max_retries=0,
        stream_max_retries=0,
    )
    provider = ChatProvider(ModelService(config, {}), model="m")
    yield provider, canned
    await provider.close()
    server.close()
    await server.wait_closed()


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"id": "chat-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def collect(provider: ChatProvider, **fields: Any) -> list[ModelEvent]:
    request = ModelRequest(model="m", input=[user("hi")], cache_key="t", **fields)
    async with asyncio.timeout(10), aclosing(provider.stream(request)) as events:
        return [event async for event in events]


async def test_text_and_tool_calls_become_items(chat: tuple[ChatProvider, ChatService]) -> None:
    provider, service = chat
    service.answers.append(
        [
            chunk(role="assistant", content=""),
            chunk(content="Hel"),
            chunk(content="lo"),
            chunk(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "run", "arguments": '{"a"'}}]),
            chunk(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "stop", "arguments": "{}"}}]),
            chunk("tool_calls", tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
            {"id": "chat-1", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}},
            "[DONE]",
        ]
    )

    events = await collect(provider)

    message = {"type": "message", "id": "msg_chat-1", "role": "assistant"}
    assert events == [
        ItemStarted({**message, "content": []}),
        TextDelta("msg_chat-1", "Hel"),
        TextDelta("msg_chat-1", "lo"),
        ItemDone({**message, "content": [{"type": "output_text", "text": "Hello"}]}),
        ItemDone(
            {"type": "function_call", "id": "fc_chat-1_0", "call_id": "c1", "name": "run", "arguments": '{"a":1}'}
        ),
        ItemDone({"type": "function_call", "id": "fc_chat-1_1", "call_id": "c2", "name": "stop", "arguments": "{}"}),
        ResponseDone("chat-1", Usage(input_tokens=7, output_tokens=3, total_tokens=10)),
    ]
    assert service.paths == ["/v1/chat/completions"]


async def test_the_request_carries_tools_effort_and_schema(chat: tuple[ChatProvider, ChatService]) -> None:
    provider, service = chat
    service.answers.append([chunk("stop", content="x"), "[DONE]"])
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}

    await collect(
        provider, tools=[{"type": "function", **function}, {"type": "web_search"}], effort="low", output_schema={"a": 1}
    )

    assert service.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": function}],
            "parallel_tool_calls": True,
            "reasoning_effort": "low",
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "strict": True, "schema": {"a": 1}},
            },
        }
    ]


async def test_a_stream_without_a_finish_reason_is_cut(chat: tuple[ChatProvider, ChatService]) -> None:
    provider, service = chat
    service.answers.append([chunk(content="Hel")])

    with pytest.raises(StreamCut):
        await collect(provider)


async def test_errors_raise_like_those_of_the_responses_api(chat: tuple[ChatProvider, ChatService]) -> None:
    provider, service = chat
    service.answers += [
        (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
        (503, {}),
        [{"error": {"code": "server_is_overloaded", "message": "busy"}}],
    ]

    with pytest.raises(ContextLengthExceeded):
        await collect(provider)
    with pytest.raises(ProviderUnavailable):
        await collect(provider)
    with pytest.raises(ProviderUnavailable, match="at capacity"):
        await collect(provider)


def test_items_become_messages_and_what_chat_cannot_say_is_left_out() -> None:
    image = "data:image/png;base64,AA=="
    items: list[dict[str, Any]] = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "base"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "E"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me"}]},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "g", "input": "text"},
        {"type": "function_call_output", "call_id": "c1", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
        {"type": "compaction", "encrypted_content": "E"},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": image}]},
    ]

    def call(name: str, call_id: str, arguments: str) -> dict[str, Any]:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}

    assert chat_messages(items) == [
        {"role": "system", "content": "base"},
        {"role": "user", "content": "ab"},
        {"role": "assistant", "content": "let me", "tool_calls": [call("f", "c1", "{}"), call("g", "c2", "text")]},
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
        {"role": "assistant", "content": None, "tool_calls": [call("f", "c3", "{}")]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": image}}]},
    ]
