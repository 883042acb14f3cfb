"""A chat service with canned answers over a real socket, and what tests of its dialects need to talk to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from unspool_server.config import ProviderConfig
from unspool_server.model.chat import ChatDialect
from unspool_server.model.contract import ItemDone, ModelEvent, ModelRequest
from unspool_server.model.provider import HttpProvider
from unspool_server.model.service import ModelService

CUT = "cut"
"""In place of a chunk: the connection ends inside the stream."""


@dataclass(frozen=True)
class Refusal:
    """An answer that is no stream."""

    status: int
    body: object
    headers: Mapping[str, str] = field(default_factory=dict)


Answer = list[object] | Refusal


class ChatService:
    """Answers each request with the next canned answer; remembers what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.answers: list[Answer] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-len"))
        self.heads.append(head)
        self.bodies.append(json.loads(await reader.readexactly(length)))
        writer.write(_bytes(self.answers.pop(0)))
        await writer.drain()
        writer.close()
        await writer.wait_closed()


def _bytes(answer: Answer) -> bytes:
    if isinstance(answer, Refusal):
        refused = json.dumps(answer.body).encode()
        headers = {"content-type": "application/json", **answer.headers}
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {answer.status} X\r\n{more}connection: close\r\n\r\n"
        return head.encode() + refused
    lines = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in answer if chunk != CUT]
    body = "".join(f"data: {line}\n\n" for line in lines).encode()
    # A stream in pieces that lacks its last piece is a broken connection, not a short answer.
    pieces = f"{len(body):x}\r\n".encode() + body + b"\r\n" + (b"" if CUT in answer else b"0\r\n\r\n")
    told = b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    return b"HTTP/1.1 200 OK\r\n" + told + pieces


@asynccontextmanager
async def serving() -> AsyncIterator[ChatService]:
    """A running service."""
    canned = ChatService()
    server = await asyncio.start_server(canned.serve, "127.0.0.1", 0)
    canned.port = server.sockets[0].getsockname()[1]
    try:
        yield canned
    finally:
        server.close()
        await server.wait_closed()


async def no_wait(_delay_s: float) -> None:
    """Back off without waiting."""


def provider_for(service: ChatService, environ: Mapping[str, str] | None = None, **fields: Any) -> HttpProvider:
    """A provider that talks to the service; it tries once unless told otherwise."""
    settings = {"name": "chat", "request_max_retries": 0, "stream_max_retries": 0, **fields}
    config = ProviderConfig(wire_api="chat", base_url=f"http://127.0.0.1:{service.port}/v1", **settings)
    return HttpProvider(ModelService(config, environ or {}, sleep=no_wait), ChatDialect(), model="m")


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """A chunk with one choice."""
    return {"id": "chat-1", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def call_piece(index: int | None = 0, call_id: str | None = None, **function: Any) -> dict[str, Any]:
    """A piece of a tool call."""
    shape: dict[str, Any] = {"function": function}
    if index is not None:
        shape["index"] = index
    if call_id is not None:
        shape["id"] = call_id
    return shape


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


async def collect(provider: HttpProvider, *items: Mapping[str, Any], **fields: Any) -> list[ModelEvent]:
    """Every event of one answer."""
    request = ModelRequest(model="m", input=items or [user("hi")], cache_key="t", **fields)
    async with asyncio.timeout(10), aclosing(provider.stream(request)) as events:
        return [event async for event in events]


def calls(events: list[ModelEvent]) -> list[tuple[str, str]]:
    """Name and arguments of each finished call."""
    items = [event.item for event in events if isinstance(event, ItemDone)]
    return [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
