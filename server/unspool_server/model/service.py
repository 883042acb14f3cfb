"""One HTTP model service over the `openai` library: opening event streams, retries, error mapping.

Knows nothing about Responses or chat: events are raw JSON objects, request bodies are sent as they are given.
The library is imported with the first request (DESIGN §8).
"""

import asyncio
import importlib
import json
import random
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from unspool_server.config import ProviderConfig
from unspool_server.errors import ProviderRejected, ProviderUnavailable, StreamCut
from unspool_server.model.contract import ModelEvent
from unspool_server.model.failures import connection_failure, http_failure, response_failure, stream_cut
from unspool_server.telemetry import metrics

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

Sleep = Callable[[float], Awaitable[None]]
Json = Mapping[str, Any]

FIRST_DELAY_S = 0.2
LONGEST_DELAY_S = 10.0
CONNECT_TIMEOUT_S = 15.0
NO_KEY = "none"
"""Sent to services that want no key; the library insists on one."""


class ModelService:
    """The connection pool to one service; made on first use.

    Args:
        config: Address, key, headers, retries and the longest silence of a stream.
        environ: Where `env_key` and `env_http_headers` are looked up.
        sleep: How to wait between retries.
    """

    def __init__(self, config: ProviderConfig, environ: Mapping[str, str], *, sleep: Sleep = asyncio.sleep) -> None:
        self.config = config
        self._environ = environ
        self._sleep = sleep
        self._client: AsyncOpenAI | None = None

    async def events(self, path: str, body: Json, headers: Mapping[str, str]) -> AsyncGenerator[Json, None]:
        """Post a request and yield the events of its stream as decoded JSON.

        Ends when the service ends the stream, complete or not. Closing the generator closes the connection.

        Raises:
            ProviderUnavailable, ProviderRejected, ContextLengthExceeded: From the answer's status, after
                `request_max_retries`; from an error inside the stream.
            StreamCut: The connection broke while streaming.
        """
        await _load_library()
        from openai import APIConnectionError, APIError

        stream = await self._open(path, body, headers)
        try:
            while True:
                try:
                    event = await anext(stream)
                except StopAsyncIteration:
                    return
                except APIConnectionError as error:
                    raise stream_cut(_cause(error)) from error
                except APIError as error:
                    # The library raises by itself for events that carry an `error`.
                    raise response_failure(error.code, error.message) from error
                except ValueError as error:
                    raise stream_cut("an event is no JSON") from error
                if isinstance(event, Mapping):
                    yield event
        finally:
            await stream.close()

    async def close(self) -> None:
        """Close idle connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def retried(
        self, attempt: Callable[[], AsyncGenerator[ModelEvent, None]]
    ) -> AsyncGenerator[ModelEvent, None]:
        """Pass on the events of an attempt; start anew when its stream breaks before the first one.

        A stream that has given an event is never repeated here: the caller has shown it already. The caller closes
        what this returns, which closes the attempt.
        """
        for number in range(self.config.stream_max_retries + 1):
            async with aclosing(attempt()) as events:
                try:
                    event = await anext(events)
                except StopAsyncIteration:
                    return
                except StreamCut:
                    if number == self.config.stream_max_retries:
                        raise
                else:
                    yield event
                    async for event in events:
                        yield event
                    return
            await self._back_off(number)

    async def _open(self, path: str, body: Json, headers: Mapping[str, str]) -> "AsyncStream[object]":
        for number in range(self.config.request_max_retries + 1):
            try:
                return await self._post(path, body, headers)
            except ProviderUnavailable:
                if number == self.config.request_max_retries:
                    raise
            await self._back_off(number)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _post(self, path: str, body: Json, headers: Mapping[str, str]) -> "AsyncStream[object]":
        from openai import APIConnectionError, APIStatusError, AsyncStream

        try:
            # The generic call: the typed one would rewrite items and drop fields that it does not know.
            return await self._connected().post(
                path,
                cast_to=object,
                content=json.dumps(body, separators=(",", ":")).encode(),
                options={"headers": {"content-type": "application/json", "accept": "text/event-stream", **headers}},
                stream=True,
                stream_cls=AsyncStream[object],
            )
        except APIStatusError as error:
            raise http_failure(error.status_code, error.response.text, str(error.request.url)) from error
        except APIConnectionError as error:
            raise connection_failure(_cause(error)) from error

    def _connected(self) -> "AsyncOpenAI":
        if self._client is None:
            from openai import AsyncOpenAI, Timeout

            config = self.config
            self._client = AsyncOpenAI(
                api_key=self._key(),
                base_url=config.base_url,
                max_retries=0,
                timeout=Timeout(config.stream_idle_timeout_ms / 1000, connect=CONNECT_TIMEOUT_S),
                default_headers=self._headers(),
                default_query=dict(config.query_params),
            )
        return self._client

    def _key(self) -> str:
        config = self.config
        if config.env_key is None:
            return config.experimental_bearer_token or NO_KEY
        key = self._environ.get(config.env_key, "").strip()
        if not key:
            hint = f" {config.env_key_instructions}" if config.env_key_instructions else ""
            raise ProviderRejected(f"Missing environment variable: `{config.env_key}`.{hint}", info="unauthorized")
        return key

    def _headers(self) -> dict[str, str]:
        named = {name: self._environ.get(variable, "") for name, variable in self.config.env_http_headers.items()}
        return {**self.config.http_headers, **{name: value for name, value in named.items() if value}}

    async def _back_off(self, number: int) -> None:
        metrics.MODEL_RETRIES.add()
        delay = min(FIRST_DELAY_S * 2**number, LONGEST_DELAY_S)
        await self._sleep(delay * random.uniform(0.9, 1.1))


async def _load_library() -> None:
    """Import the library beside the loop: a third of a second during which other threads' events must flow."""
    if "openai" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "openai")


def _cause(error: Exception) -> str:
    """The network's own words where the library hides them behind `Connection error.`."""
    return str(error.__cause__ or error) or type(error.__cause__ or error).__name__
