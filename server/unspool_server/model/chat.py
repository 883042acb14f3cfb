"""OpenAI-compatible chat completions (vLLM, llama.cpp, Ollama and the like): request bodies, and chunks read as items.

How items become messages is in `chat_messages.py`. Ids of items are made here: services repeat theirs.
"""

import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from unspool_server.config import ProviderConfig
from unspool_server.model.chat_messages import (
    LATE_SYSTEM,
    NO_SYSTEM,
    REASONING,
    SAME_ROLE,
    Item,
    chat_messages,
    chat_tools,
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
from unspool_server.model.failures import incomplete, response_failure, stream_cut
from unspool_server.model.received import tokens

CUT_SHORT: Mapping[str, str] = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons of answers that are not whole, in the words of the Responses API."""


class ChatDialect:
    """Requests and answers of chat completions."""

    path = "/chat/completions"
    dispensable: Mapping[str, tuple[str, ...]] = {
        "stream_options": ("stream_options",),
        "parallel_tool_calls": ("parallel_tool_calls", "parallel tool calls"),
        REASONING: ("reasoning_content",),
        LATE_SYSTEM: ("system message must be", "system messages"),
        NO_SYSTEM: ("system role",),
        SAME_ROLE: ("alternate",),
    }

    def compacts(self, config: ProviderConfig) -> bool:
        """Chat services never compact by themselves."""
        del config
        return False

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """Nothing but what is configured."""
        del request
        return {}

    def body(self, request: ModelRequest, without: Collection[str] = ()) -> dict[str, Any]:
        """The JSON body."""
        # Templates that want roles to alternate know no late system messages either.
        refused = {*without, LATE_SYSTEM} if SAME_ROLE in without else without
        body: dict[str, Any] = {
            "model": request.model,
            "messages": chat_messages(request.input, refused),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        tools, _ = chat_tools(request.tools)
        if tools:
            body["tools"], body["parallel_tool_calls"] = tools, request.parallel_tool_calls
        if request.effort is not None:
            body["reasoning_effort"] = request.effort
        if request.output_schema is not None:
            schema = {"name": "output", "strict": True, "schema": request.output_schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        return {name: value for name, value in body.items() if name not in without}

    def reader(self, request: ModelRequest) -> "ChatReader":
        """A reader for one answer."""
        return ChatReader(chat_tools(request.tools)[1])


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    given_id: str = ""
    name: str = ""
    arguments: str = ""

    @property
    def whole(self) -> bool:
        """Whether nothing can follow any more."""
        return bool(self.name) and _decoded(self.arguments) is not None


class ChatReader:
    """Gathers text, reasoning and tool calls out of chunks.

    Args:
        tools: By function name, what a call becomes as an item (`chat_tools`).
    """

    def __init__(self, tools: Mapping[str, Item]) -> None:
        self._tools = tools
        self._stem = uuid.uuid4().hex
        self._response_id = ""
        self._text = ""
        self._reasoning = ""
        self._calls: list[_Call] = []
        self._by_index: dict[int | None, _Call] = {}
        self._usage: Usage | None = None
        self._finish: str | None = None

    @property
    def complete(self) -> bool:
        """Whether the service has told how its answer ended; usage may follow, and some services leave it out."""
        return self._finish is not None

    def add(self, raw: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """Take one chunk. Raises ModelError where it holds an error."""
        if raw.get("error"):
            raise _failure(raw["error"])
        self._response_id = self._response_id or str(raw.get("id") or "")
        if isinstance(raw.get("usage"), Mapping):
            self._usage = _usage(raw["usage"])
        for choice in _objects(raw.get("choices"))[:1]:
            delta = choice.get("delta") or choice.get("message")
            if isinstance(delta, Mapping):
                yield from self._take(delta)
            if isinstance(choice.get("finish_reason"), str) and choice["finish_reason"]:
                self._finish = choice["finish_reason"]

    def _take(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        thought = delta.get("reasoning_content") or delta.get("reasoning")
        if isinstance(thought, str) and thought:
            if not self._reasoning:
                yield ItemStarted(self._reasoning_item())
            self._reasoning += thought
            yield ReasoningDelta(f"rs_{self._stem}", thought, "content")
        said = delta.get("content") or delta.get("refusal")
        if isinstance(said, str) and said:
            if not self._text:
                yield ItemStarted(self._message())
            self._text += said
            yield TextDelta(f"msg_{self._stem}", said)
        for part in _objects(delta.get("tool_calls")):
            self._add_call(part)

    def end(self) -> Iterator[ModelEvent]:
        """The finished items: reasoning, message, calls. Raises StreamCut if there was no end.

        The text of an answer that was cut short is kept, its calls are not, since arguments may lack their end; then it
        raises ProviderRejected.
        """
        if self._finish is None:
            raise stream_cut("stream closed before a finish reason")
        if self._reasoning:
            yield ItemDone(self._reasoning_item())
        if self._text:
            yield ItemDone(self._message())
        if self._finish in CUT_SHORT:
            raise incomplete(CUT_SHORT[self._finish])
        for number, call in enumerate(self._calls):
            yield ItemDone(self._call_item(call, number))
        yield ResponseDone(self._response_id or f"chatcmpl-{self._stem}", self._usage)

    def _message(self) -> dict[str, Any]:
        content = [{"type": "output_text", "text": self._text}] if self._text else []
        return {"type": "message", "id": f"msg_{self._stem}", "role": "assistant", "content": content}

    def _reasoning_item(self) -> dict[str, Any]:
        content = [{"type": "reasoning_text", "text": self._reasoning}] if self._reasoning else []
        return {"type": "reasoning", "id": f"rs_{self._stem}", "summary": [], "content": content}

    def _call_item(self, call: _Call, number: int) -> dict[str, Any]:
        shape = self._tools.get(call.name, {"type": "function_call", "name": call.name})
        call_id = call.given_id or f"call_{self._stem}_{number}"
        if shape["type"] == "custom_tool_call":
            decoded = _decoded(call.arguments)
            given = (decoded or {}).get("input")
            text = given if isinstance(given, str) else call.arguments
            return {**shape, "id": f"ctc_{self._stem}_{number}", "call_id": call_id, "input": text}
        return {**shape, "id": f"fc_{self._stem}_{number}", "call_id": call_id, "arguments": call.arguments or "{}"}

    def _add_call(self, part: Mapping[str, Any]) -> None:
        function = part.get("function")
        function = function if isinstance(function, Mapping) else {}
        given_id, name = _text(part.get("id")), _text(function.get("name"))
        raw = function.get("arguments")
        arguments = raw if isinstance(raw, str) else json.dumps(raw) if raw else ""
        call = self._call_for(_index(part), given_id, begins=bool(name and arguments))
        call.given_id = call.given_id or given_id
        if name != call.name:  # some services say the name with every piece
            call.name += name
        call.arguments += arguments

    def _call_for(self, index: int | None, given_id: str, *, begins: bool) -> _Call:
        """The call that a piece belongs to: the one of its index, unless id or name show that another one begins."""
        if index is None and given_id:
            known = next((call for call in self._calls if call.given_id == given_id), None)
        elif index is None:
            known = self._calls[-1] if self._calls else None
        else:
            known = self._by_index.get(index)
        other_id = known is not None and given_id and known.given_id and given_id != known.given_id
        if known is None or other_id or (begins and known.whole):
            known = _Call()
            self._calls.append(known)
            self._by_index[index] = known
        return known


def _failure(error: object) -> Exception:
    if not isinstance(error, Mapping):
        return response_failure(None, str(error))
    code = error.get("code")
    return response_failure(code if isinstance(code, str) else None, str(error.get("message") or ""))


def _decoded(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _objects(raw: object) -> list[Mapping[str, Any]]:
    return [one for one in raw if isinstance(one, Mapping)] if isinstance(raw, list) else []


def _index(part: Mapping[str, Any]) -> int | None:
    index = part.get("index")
    return index if isinstance(index, int) else None


def _text(raw: object) -> str:
    return raw if isinstance(raw, str) else ""


def _usage(raw: Mapping[str, Any]) -> Usage:
    taken, given = tokens(raw, "prompt_tokens"), tokens(raw, "completion_tokens")
    return Usage(
        input_tokens=taken,
        cached_input_tokens=tokens(raw.get("prompt_tokens_details"), "cached_tokens"),
        output_tokens=given,
        reasoning_output_tokens=tokens(raw.get("completion_tokens_details"), "reasoning_tokens"),
        total_tokens=tokens(raw, "total_tokens") or taken + given,
    )
