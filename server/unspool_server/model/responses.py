"""The OpenAI-compatible Responses API: items go out and come in exactly as they are (06 §1)."""

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from unspool_server.config import ProviderConfig
from unspool_server.model.contract import (
    ITEM_PREFIXES,
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

WINDOW_HEADER = "x-codex-window-id"
COMPACTING_SERVICE = "OpenAI"
"""The display name that tells a service with a compaction of its own (07 §6.1)."""
ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""Asked for always: nothing is stored at the service, so reasoning can only be sent again if it comes back whole."""


class ResponsesDialect:
    """Requests and answers of the Responses API."""

    path = "/responses"
    dispensable: Mapping[str, tuple[str, ...]] = {
        "include": ("'include'", '"include"', "include[", "encrypted content", "encrypted_content"),
        "prompt_cache_key": ("prompt_cache_key",),
        "parallel_tool_calls": ("parallel_tool_calls",),
        "summary": ("reasoning.summary", "reasoning summary"),
    }

    def compacts(self, config: ProviderConfig) -> bool:
        """True for the service whose display name is `OpenAI`."""
        return config.name == COMPACTING_SERVICE

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """Which context window of the thread the request belongs to."""
        return {WINDOW_HEADER: request.window_id} if request.window_id else {}

    def body(self, request: ModelRequest, without: Collection[str] = ()) -> dict[str, Any]:
        """The JSON body. No `instructions`: the base instructions are the first item of `input`."""
        body: dict[str, Any] = {
            "model": request.model,
            "input": list(request.input),
            "tools": list(request.tools),
            "parallel_tool_calls": request.parallel_tool_calls,
            "stream": True,
            "store": False,
            "prompt_cache_key": request.cache_key,
            "include": [ENCRYPTED_REASONING],
        }
        if request.tools:
            body["tool_choice"] = "auto"
        reasoning = {"effort": request.effort, "summary": None if "summary" in without else request.summary}
        if told := {name: value for name, value in reasoning.items() if value is not None}:
            body["reasoning"] = told
        if request.output_schema is not None:
            schema = {"name": "codex_output_schema", "strict": True, "schema": request.output_schema}
            body["text"] = {"format": {"type": "json_schema", **schema}}
        return {name: value for name, value in body.items() if name not in without}

    def reader(self, request: ModelRequest) -> "ResponseReader":
        """A reader for one answer."""
        del request
        return ResponseReader()


class ResponseReader:
    """Reads the events of one response.

    An item keeps the id of its first event, which clients were told: some services leave ids out, others give an item
    another id with every event.
    """

    def __init__(self) -> None:
        self.complete = False
        self._current = ""
        self._ids: dict[object, str] = {}

    def add(self, raw: Mapping[str, Any]) -> Iterator[ModelEvent]:
        """What one event says; events of unknown types say nothing. Raises ModelError where the service gave up."""
        match raw.get("type"):
            case "response.output_item.added" if _is_item(raw.get("item")):
                yield ItemStarted(self._named(raw, starts=True))
            case "response.output_item.done" if _is_item(raw.get("item")):
                yield ItemDone(self._named(raw))
            case "response.output_text.delta" | "response.refusal.delta":
                yield TextDelta(self._id(raw), str(raw.get("delta", "")))
            case "response.reasoning_summary_part.added":
                yield ReasoningDelta(self._id(raw), "", "summary", _number(raw, "summary_index"))
            case "response.reasoning_summary_text.delta":
                yield ReasoningDelta(self._id(raw), str(raw.get("delta", "")), "summary", _number(raw, "summary_index"))
            case "response.reasoning_text.delta":
                yield ReasoningDelta(self._id(raw), str(raw.get("delta", "")), "content", _number(raw, "content_index"))
            case "response.completed" | "response.done":
                response = _object(raw.get("response"))
                self.complete = True
                yield ResponseDone(str(response.get("id", "")), _usage(response.get("usage")))
            case "response.incomplete":
                details = _object(_object(raw.get("response")).get("incomplete_details"))
                raise incomplete(str(details.get("reason", "unknown")))
            case "response.failed" | "error":
                error = _object(_object(raw.get("response")).get("error")) or _object(raw.get("error")) or raw
                code = error.get("code")
                raise response_failure(code if isinstance(code, str) else None, str(error.get("message") or ""))

    def end(self) -> Iterator[ModelEvent]:
        """A response ends with an event of its own. Raises StreamCut."""
        raise stream_cut()

    def _named(self, raw: Mapping[str, Any], *, starts: bool = False) -> Mapping[str, Any]:
        """The event's item under the id that it began with; an item of an unknown type that has none gets none."""
        item, place = raw["item"], _place(raw)
        given = item.get("id")
        known = None if starts or place is None else self._ids.get(place)
        own = given if isinstance(given, str) and given else None
        named = known or own or (f"{ITEM_PREFIXES[item['type']]}_{uuid.uuid4().hex}" if _is_known(item) else None)
        if named is None:
            return item  # type: ignore[no-any-return]
        self._current = named
        if starts and place is not None:
            self._ids[place] = named
        return item if given == named else {**item, "id": named}

    def _id(self, raw: Mapping[str, Any]) -> str:
        """The item that a delta belongs to."""
        named = raw.get("item_id")
        own = named if isinstance(named, str) and named else self._current
        return self._ids.get(_place(raw), own)


def _is_known(item: Mapping[str, Any]) -> bool:
    return item["type"] in ITEM_PREFIXES


def _is_item(raw: object) -> bool:
    return isinstance(raw, Mapping) and isinstance(raw.get("type"), str)


def _place(raw: Mapping[str, Any]) -> int | None:
    place = raw.get("output_index")
    return place if isinstance(place, int) else None


def _usage(raw: object) -> Usage | None:
    if not isinstance(raw, Mapping):
        return None
    taken, given = tokens(raw, "input_tokens"), tokens(raw, "output_tokens")
    return Usage(
        input_tokens=taken,
        cached_input_tokens=tokens(raw.get("input_tokens_details"), "cached_tokens"),
        output_tokens=given,
        reasoning_output_tokens=tokens(raw.get("output_tokens_details"), "reasoning_tokens"),
        total_tokens=tokens(raw, "total_tokens") or taken + given,
    )


def _object(raw: object) -> Mapping[str, Any]:
    return raw if isinstance(raw, Mapping) else {}


def _number(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) else 0
