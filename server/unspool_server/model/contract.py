"""What a turn asks of a model service (DESIGN §5): one streamed response per request."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from unspool_server.model.texts import estimate_tokens


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One sampling request.

    Attributes:
        input: Responses items, exactly as they shall be sent (06 §1): base instructions as the first developer item,
            then the normalised history.
        tools: Responses tool declarations; empty for a compaction (07 §6.1).
        effort: How hard a model that reasons shall think; None leaves it to the service.
        summary: Which summary of its reasoning is wanted (`auto`, `concise`, `detailed`); None wants none.
        cache_key: Constant over a thread's life (`prompt_cache_key`).
        purpose: `compact` asks for a summary; providers with a compaction of their own may use it.
    """

    model: str
    input: Sequence[Mapping[str, Any]]
    cache_key: str
    window_id: str = ""
    tools: Sequence[Mapping[str, Any]] = ()
    parallel_tool_calls: bool = True
    effort: str | None = None
    summary: str | None = None
    output_schema: Mapping[str, Any] | None = None
    purpose: Literal["turn", "compact"] = "turn"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one response."""

    input_tokens: int = 0
    cached_input_tokens: int = 0
    output_tokens: int = 0
    reasoning_output_tokens: int = 0
    total_tokens: int = 0

    @classmethod
    def estimated(cls, taken: Iterable[Mapping[str, Any]], given: Iterable[Mapping[str, Any]]) -> "Usage":
        """The estimate over items sent and received, for services that do not count (DESIGN §5)."""
        sent, received = estimate_tokens(taken), estimate_tokens(given)
        return cls(input_tokens=sent, output_tokens=received, total_tokens=sent + received)


@dataclass(frozen=True, slots=True)
class ItemStarted:
    """An output item begins; `item` is as far as the service told it."""

    item: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of an assistant message's text."""

    item_id: str
    delta: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of a reasoning summary (`summary`) or of its content (`content`); an empty one begins a part."""

    item_id: str
    delta: str
    kind: Literal["summary", "content"] = "summary"
    index: int = 0


@dataclass(frozen=True, slots=True)
class ItemDone:
    """An output item is complete: a Responses item."""

    item: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseDone:
    """The response is complete. Nothing follows."""

    response_id: str
    usage: Usage | None = None


ModelEvent = ItemStarted | TextDelta | ReasoningDelta | ItemDone | ResponseDone


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model as `model/list` shows it (`wire` §5).

    `context_window` is in tokens; None where nobody said.
    """

    id: str
    display_name: str
    description: str = ""
    is_default: bool = False
    hidden: bool = False
    default_effort: str = "medium"
    efforts: Sequence[str] = field(default=("low", "medium", "high"))
    context_window: int | None = None


ITEM_PREFIXES: Mapping[str, str] = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "web_search_call": "ws",
}
"""How ids begin, by the type of item; items of other types keep what the service gave them."""


class ModelProvider(Protocol):
    """A model service. One instance serves all threads of a process."""

    @property
    def compacts(self) -> bool:
        """True when the service compacts by itself on a trailing `compaction_trigger` item (07 §6.1)."""

    @property
    def stream_max_retries(self) -> int:
        """How often a turn may ask again after a `StreamCut`."""

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Stream one response; ends after `ResponseDone`. Closing the iterator cancels the request.

        Raises:
            ProviderUnavailable, ProviderRejected, StreamCut, ContextLengthExceeded.
        """

    async def models(self) -> Sequence[ModelInfo]:
        """The models that can be asked for, exactly one of them default."""

    async def close(self) -> None:
        """Release connections."""
