"""The OpenAI-compatible Responses API: items go out and come in exactly as they are (06 §1)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from unspool_server.model.contract import (
    ItemDone,
    ItemStarted,
    ModelEvent,
    ModelInfo,
    ModelRequest,
    ReasoningDelta,
    ResponseDone,
    TextDelta,
    Usage,
)
from unspool_server.model.failures import response_failure, stream_cut
from unspool_server.model.service import ModelService

WINDOW_HEADER = "x-codex-window-id"
COMPACTING_SERVICE = "OpenAI"
"""The display name that tells a service with a compaction of its own (07 §6.1)."""


class ResponsesProvider:
    """A service that speaks the Responses API.

    Args:
        model: The model that `models` shows as default; any other may be asked for.
        context_window: Tokens, for `models`.
    """

    def __init__(self, service: ModelService, *, model: str, context_window: int | None = None) -> None:
        self._service = service
        self._model = model
        self._context_window = context_window

    @property
    def compacts(self) -> bool:
        """True for the service whose display name is `OpenAI`."""
        return self._service.config.name == COMPACTING_SERVICE

    async def models(self) -> Sequence[ModelInfo]:
        """The configured model; nobody is asked, since clients end when this fails."""
        return [ModelInfo(self._model, self._model, is_default=True, context_window=self._context_window)]

    async def close(self) -> None:
        """Close idle connections."""
        await self._service.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one response; see `ModelProvider.stream`."""
        async with aclosing(self._service.retried(lambda: self._once(request))) as events:
            async for event in events:
                yield event

    async def _once(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        headers = {WINDOW_HEADER: request.window_id} if request.window_id else {}
        async with aclosing(self._service.events("/responses", request_body(request), headers)) as events:
            current = ""
            async for raw in events:
                item = raw.get("item")
                if isinstance(item, Mapping):
                    current = item.get("id") or current
                event = model_event(raw, current)
                if event is not None:
                    yield event
                if isinstance(event, ResponseDone):
                    return
        raise stream_cut()


def request_body(request: ModelRequest) -> dict[str, Any]:
    """The JSON body of a request. No `instructions`: the base instructions are the first item of `input`."""
    body: dict[str, Any] = {
        "model": request.model,
        "input": list(request.input),
        "tools": list(request.tools),
        "parallel_tool_calls": request.parallel_tool_calls,
        "stream": True,
        "store": False,
        "prompt_cache_key": request.cache_key,
    }
    if request.tools:
        body["tool_choice"] = "auto"
    if request.effort is not None:
        body["reasoning"] = {"effort": request.effort}
        # Reasoning must come back encrypted to be sent again, since nothing is stored there.
        body["include"] = ["reasoning.encrypted_content"]
    if request.output_schema is not None:
        schema = {"type": "json_schema", "name": "codex_output_schema", "strict": True, "schema": request.output_schema}
        body["text"] = {"format": schema}
    return body


def model_event(raw: Mapping[str, Any], current: str) -> ModelEvent | None:
    """One event of the stream, None for those that say nothing to us.

    Args:
        current: The item that a delta belongs to when it does not say so.

    Raises:
        ProviderUnavailable, ProviderRejected, ContextLengthExceeded, StreamCut: The service gave up.
    """
    kind, item_id = raw.get("type"), raw.get("item_id") or current
    match kind:
        case "response.output_item.added" if isinstance(raw.get("item"), Mapping):
            return ItemStarted(raw["item"])
        case "response.output_item.done" if isinstance(raw.get("item"), Mapping):
            return ItemDone(raw["item"])
        case "response.output_text.delta":
            return TextDelta(item_id, str(raw.get("delta", "")))
        case "response.reasoning_summary_text.delta":
            return ReasoningDelta(item_id, str(raw.get("delta", "")), "summary", _index(raw, "summary_index"))
        case "response.reasoning_text.delta":
            return ReasoningDelta(item_id, str(raw.get("delta", "")), "content", _index(raw, "content_index"))
        case "response.completed" | "response.done":
            response = _object(raw.get("response"))
            return ResponseDone(str(response.get("id", "")), _usage(response.get("usage")))
        case "response.incomplete":
            reason = _object(_object(raw.get("response")).get("incomplete_details")).get("reason", "unknown")
            raise stream_cut(f"Incomplete response returned, reason: {reason}")
        case "response.failed" | "error":
            error = _object(_object(raw.get("response")).get("error")) or _object(raw.get("error")) or raw
            code = error.get("code")
            raise response_failure(code if isinstance(code, str) else None, str(error.get("message") or ""))
    return None


def _usage(raw: object) -> Usage | None:
    if not isinstance(raw, Mapping):
        return None
    taken, given = _index(raw, "input_tokens"), _index(raw, "output_tokens")
    return Usage(
        input_tokens=taken,
        cached_input_tokens=_index(_object(raw.get("input_tokens_details")), "cached_tokens"),
        output_tokens=given,
        reasoning_output_tokens=_index(_object(raw.get("output_tokens_details")), "reasoning_tokens"),
        total_tokens=_index(raw, "total_tokens") or taken + given,
    )


def _object(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _index(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) else 0
