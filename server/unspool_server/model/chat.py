"""OpenAI-compatible chat completions: Responses items are turned into chat messages, and the answer back into items.

What chat cannot say (reasoning, compaction items, tools that are no functions) is left out of a request.
"""

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.failures import stream_cut
from unspool_server.model.service import ModelService
from unspool_server.model.texts import item_text, part_text

CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
OUTPUTS = ("function_call_output", "custom_tool_call_output")


class ChatProvider:
    """A service that speaks chat completions.

    Args:
        model: The model that `models` shows as default.
        context_window: Tokens, for `models`.
    """

    def __init__(self, service: ModelService, *, model: str, context_window: int | None = None) -> None:
        self._service = service
        self._model = model
        self._context_window = context_window

    @property
    def compacts(self) -> bool:
        """Chat services never compact by themselves."""
        return False

    async def models(self) -> Sequence[ModelInfo]:
        """The configured model."""
        return [ModelInfo(self._model, self._model, is_default=True, context_window=self._context_window)]

    async def close(self) -> None:
        """Close idle connections."""
        await self._service.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one completion; see `ModelProvider.stream`."""
        async with aclosing(self._service.retried(lambda: self._once(request))) as events:
            async for event in events:
                yield event

    async def _once(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        answer = Answer()
        async with aclosing(self._service.events("/chat/completions", request_body(request), {})) as chunks:
            async for chunk in chunks:
                for event in answer.add(chunk):
                    yield event
        if not answer.finished:
            raise stream_cut("stream closed before a finish reason")
        for item in answer.items():
            yield ItemDone(item)
        yield ResponseDone(answer.id, answer.usage)


@dataclass(slots=True)
class Answer:
    """A completion in the making: text and tool calls gathered from its chunks."""

    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    text: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict)
    usage: Usage | None = None
    finished: bool = False
    named: bool = False

    def add(self, chunk: Mapping[str, Any]) -> list[ModelEvent]:
        """Take one chunk; returns what clients can see of it."""
        events: list[ModelEvent] = []
        if not self.named and isinstance(chunk.get("id"), str) and chunk["id"]:
            # The first chunk's id names the answer; services that repeat an id are not ours to mend.
            self.id, self.named = chunk["id"], True
        if isinstance(chunk.get("usage"), Mapping):
            self.usage = _usage(chunk["usage"])
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if delta.get("content"):
                if not self.text:
                    events.append(ItemStarted(self._message("")))
                self.text += delta["content"]
                events.append(TextDelta(self._message_id, delta["content"]))
            for part in delta.get("tool_calls") or []:
                self._add_call(part)
            self.finished = self.finished or choice.get("finish_reason") is not None
        return events

    def items(self) -> list[dict[str, Any]]:
        """The finished output items, the message first."""
        message = [self._message(self.text)] if self.text else []
        return message + [
            {"type": "function_call", "id": f"fc_{self.id}_{index}", **call}
            for index, call in sorted(self.calls.items())
        ]

    @property
    def _message_id(self) -> str:
        return f"msg_{self.id}"

    def _message(self, text: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": text}] if text else []
        return {"type": "message", "id": self._message_id, "role": "assistant", "content": content}

    def _add_call(self, part: Mapping[str, Any]) -> None:
        index = part.get("index", 0)
        call = self.calls.setdefault(index, {"call_id": f"call_{self.id}_{index}", "name": "", "arguments": ""})
        function = part.get("function") or {}
        call["call_id"] = part.get("id") or call["call_id"]
        call["name"] += function.get("name") or ""
        call["arguments"] += function.get("arguments") or ""


def request_body(request: ModelRequest) -> dict[str, Any]:
    """The JSON body of a chat completion."""
    body: dict[str, Any] = {
        "model": request.model,
        "messages": chat_messages(request.input),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    tools = [_tool(tool) for tool in request.tools if tool.get("type") == "function"]
    if tools:
        body["tools"], body["parallel_tool_calls"] = tools, request.parallel_tool_calls
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.output_schema is not None:
        schema = {"name": "output", "strict": True, "schema": request.output_schema}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body


def chat_messages(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turn Responses items into chat messages; calls that follow each other share one assistant message."""
    messages: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type", "message")
        if kind == "message":
            role = {"developer": "system"}.get(str(item.get("role")), item.get("role"))
            messages.append({"role": role, "content": _content(item)})
        elif kind in CALLS:
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            function = {"name": item.get("name", ""), "arguments": item.get(CALLS[kind], "")}
            call = {"id": item.get("call_id", ""), "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind in OUTPUTS:
            text = item_text({"output": item.get("output")})
            messages.append({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": text})
    return messages


def _content(item: Mapping[str, Any]) -> str | list[dict[str, Any]]:
    """Plain text where it is only text, else the parts that chat knows."""
    parts = item.get("content")
    if not isinstance(parts, list) or not any(_is_image(part) for part in parts):
        return item_text({"content": parts})
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]}}
        if _is_image(part)
        else {"type": "text", "text": part_text(part)}
        for part in parts
    ]


def _is_image(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str)


def _tool(tool: Mapping[str, Any]) -> dict[str, Any]:
    known = ("name", "description", "parameters", "strict")
    return {"type": "function", "function": {key: tool[key] for key in known if tool.get(key) is not None}}


def _usage(raw: Mapping[str, Any]) -> Usage:
    taken, given = int(raw.get("prompt_tokens") or 0), int(raw.get("completion_tokens") or 0)
    cached = (raw.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoning = (raw.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    return Usage(taken, int(cached), given, int(reasoning), int(raw.get("total_tokens") or taken + given))
