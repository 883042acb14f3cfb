"""A model provider behind HTTP: one service, and the dialect that it speaks.

Owns what all dialects share: the way of a request, members that a service refuses, usage that a service does not tell.
What goes over the wire is the dialect's (`responses.py`, `chat.py`), connections and retries are the service's.
"""

from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol

from unspool_server.config import ProviderConfig
from unspool_server.errors import ModelError, StreamCut
from unspool_server.model.contract import ItemDone, ModelEvent, ModelInfo, ModelRequest, ResponseDone, Usage
from unspool_server.model.received import Received
from unspool_server.model.service import Json, ModelService


class Reader(Protocol):
    """One response in the making."""

    @property
    def complete(self) -> bool:
        """Whether everything that makes the answer has come; whatever is missing then is no loss."""

    def add(self, raw: Json) -> Iterator[ModelEvent]:
        """Take one event of the stream. Raises ModelError where the service gives up."""

    def end(self) -> Iterator[ModelEvent]:
        """What is left to be told when the stream has ended. Raises StreamCut where it ended too early."""


class Dialect(Protocol):
    """How requests are written and answers read. Stateless; one serves all requests."""

    @property
    def path(self) -> str:
        """Where requests go, below the base URL."""

    @property
    def dispensable(self) -> Mapping[str, Sequence[str]]:
        """What a request can do without, and words of a refusal (lower case) that are about it."""

    def compacts(self, config: ProviderConfig) -> bool:
        """Whether this service compacts by itself (07 §6.1)."""

    def headers(self, request: ModelRequest) -> dict[str, str]:
        """Headers of one request."""

    def body(self, request: ModelRequest, without: Collection[str]) -> dict[str, Any]:
        """The JSON body, without the dispensable things named."""

    def reader(self, request: ModelRequest) -> Reader:
        """Reads the answer to a request."""


class HttpProvider:
    """A service that speaks a dialect; see `ModelProvider`.

    Services differ in what they refuse. A refusal that names something dispensable is answered by asking again without
    it, and that is remembered for the model as long as the process lives.

    Args:
        model: The model that `models` shows as default; any other may be asked for.
        context_window: Tokens, for `models`.
    """

    def __init__(
        self, service: ModelService, dialect: Dialect, *, model: str, context_window: int | None = None
    ) -> None:
        self._service = service
        self._dialect = dialect
        self._model = model
        self._context_window = context_window
        self._refused: dict[str, frozenset[str]] = {}

    @property
    def compacts(self) -> bool:
        """True where the service compacts by itself."""
        return self._dialect.compacts(self._service.config)

    @property
    def stream_max_retries(self) -> int:
        """As configured."""
        return self._service.config.stream_max_retries

    async def models(self) -> Sequence[ModelInfo]:
        """The configured model; nobody is asked, since clients end when this fails."""
        return [ModelInfo(self._model, self._model, is_default=True, context_window=self._context_window)]

    async def close(self) -> None:
        """Close idle connections."""
        await self._service.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream one response; see `ModelProvider.stream`."""
        while True:
            answered = False
            try:
                async with aclosing(self._once(request)) as events:
                    async for event in events:
                        answered = True
                        yield event
                return
            except ModelError as error:
                if answered or not self._learns(request, error):
                    self._service.without_secrets(error)
                    raise

    def _learns(self, request: ModelRequest, error: ModelError) -> bool:
        """Whether a refusal is about something dispensable that the request had."""
        known, words = self._without(request), error.detail.lower()
        for name, signs in self._dialect.dispensable.items():
            if name not in known and any(sign in words for sign in signs):
                self._refused[request.model] = known | {name}
                return True
        return False

    def _without(self, request: ModelRequest) -> frozenset[str]:
        return self._refused.get(request.model, frozenset())

    async def _once(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        dialect, items = self._dialect, list[Mapping[str, Any]]()
        reader, body = dialect.reader(request), dialect.body(request, self._without(request))
        received = Received()
        try:
            async with aclosing(self._service.events(dialect.path, body, dialect.headers(request))) as raws:
                async for raw in raws:
                    for event in (whole for told in reader.add(raw) for whole in received.take(told)):
                        yield _counted(event, request, items)
                        if isinstance(event, ResponseDone):
                            return
        except StreamCut:
            if not reader.complete:
                raise
        for event in (whole for told in reader.end() for whole in received.take(told)):
            yield _counted(event, request, items)


def _counted(event: ModelEvent, request: ModelRequest, items: list[Mapping[str, Any]]) -> ModelEvent:
    """The event; a response that tells no usage gets the estimate, since compaction goes by it (07 §6.3)."""
    if isinstance(event, ItemDone):
        items.append(event.item)
    if isinstance(event, ResponseDone) and event.usage is None:
        return replace(event, usage=Usage.estimated(request.input, items))
    return event
