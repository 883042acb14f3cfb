"""One HTTP model service over the `openai` library: opening event streams, retries of requests, error mapping, secrets.

Knows nothing about Responses or chat: events are raw JSON objects, request bodies are sent as they are given. A stream
that breaks is not opened again here: what was heard of it has been recorded, so only the turn knows how to go on.
The library is imported with the first request (DESIGN §8).
"""

import asyncio
import importlib
import json
import re
import sys
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from unspool_server.config import ProviderConfig
from unspool_server.errors import ModelError, ProviderRejected, ProviderUnavailable
from unspool_server.model.backoff import Sleep, asked_delay_s, delay_s
from unspool_server.model.failures import connection_failure, http_failure, response_failure, stream_cut
from unspool_server.model.received import shown_error
from unspool_server.nesting import too_deep
from unspool_server.telemetry import metrics

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream

Json = Mapping[str, Any]

CONNECT_TIMEOUT_S = 15.0
NO_KEY = "none"
"""Sent to services that want no key; the library insists on one."""
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name (RFC 9110 §5.6.2)."""
SHORTEST_SECRET = 6
"""Characters; shorter values of headers and queries are switches, and too common to be looked for in texts."""


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

        stream, told = await self._open(path, body, headers), False
        try:
            while True:
                try:
                    event = await anext(stream)
                except StopAsyncIteration:
                    if not told and (other := _other_than_events(stream.response.headers)):
                        raise stream_cut(f"the service answered with {other}, not with events") from None
                    return
                except APIConnectionError as error:
                    raise stream_cut(_cause(error)) from error
                except APIError as error:
                    # The library raises by itself for events that carry an `error`.
                    raise response_failure(error.code, error.message) from error
                except (ValueError, RecursionError) as error:
                    raise stream_cut("an event is no JSON") from error
                told = True
                if too_deep(event):
                    raise stream_cut("an event is nested too deeply")
                if isinstance(event, Mapping):
                    yield event
        finally:
            await stream.close()

    async def close(self) -> None:
        """Close idle connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def without_secrets(self, error: ModelError) -> ModelError:
        """The error, with nothing in its texts that may not be shown; it is changed itself.

        Services repeat a key that they refuse, and some repeat every header.
        """
        for secret in self._secrets():
            error.message = error.message.replace(secret, "[redacted]")
            error.detail = error.detail.replace(secret, "[redacted]")
        error.message = shown_error(error.message)
        error.args = (error.message,)
        return error

    def _secrets(self) -> list[str]:
        """Keys, header values and query values, the longest first."""
        config = self.config
        key = self._environ.get(config.env_key, "").strip() if config.env_key else ""
        found = {key, config.experimental_bearer_token or "", *self._headers().values(), *config.query_params.values()}
        userinfo = (config.base_url or "").partition("//")[2].partition("/")[0].rpartition("@")[0]
        found |= {userinfo, *(value.rpartition(" ")[2] for value in self._headers().values())}
        return sorted((value for value in found if len(value) >= SHORTEST_SECRET), key=len, reverse=True)

    async def _open(self, path: str, body: Json, headers: Mapping[str, str]) -> "AsyncStream[object]":
        for number in range(self.config.request_max_retries + 1):
            try:
                return await self._post(path, body, headers)
            except ProviderUnavailable as error:
                if number == self.config.request_max_retries:
                    raise
                wait_s = delay_s(number, error.retry_after_s)
                metrics.MODEL_RETRIES.add()
            await self._sleep(wait_s)
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
            answer = error.response
            raise http_failure(
                error.status_code, answer.text, _shown(str(error.request.url)), asked_delay_s(answer.headers)
            ) from error
        except APIConnectionError as error:
            raise connection_failure(_cause(error)) from error

    def _connected(self) -> "AsyncOpenAI":
        if self._client is None:
            from openai import AsyncOpenAI, Timeout

            config, key, headers = self.config, self._key(), self._headers()
            _check_address(config.base_url)
            _check_headers({"Authorization": key, **headers})
            self._client = AsyncOpenAI(
                api_key=key,
                base_url=config.base_url,
                max_retries=0,
                timeout=Timeout(config.stream_idle_timeout_ms / 1000, connect=CONNECT_TIMEOUT_S),
                default_headers=headers,
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


def _check_address(url: str | None) -> None:
    """Raise ProviderRejected for what is no address; the library fails on some of it in ways of its own."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or not url.isprintable():
        raise ProviderRejected("`base_url` of the model provider is no http:// or https:// address")


def _check_headers(headers: Mapping[str, str]) -> None:
    """Raise ProviderRejected for keys and headers that cannot be sent, such as one with a line break pasted along."""
    for name, value in headers.items():
        if not _NAME.fullmatch(name) or not (value.isascii() and value.isprintable()):
            shown = name if _NAME.fullmatch(name) else "of an unusable name"
            raise ProviderRejected(f"the header {shown} for the model provider holds characters that cannot be sent")


async def _load_library() -> None:
    """Import the library beside the loop: a third of a second during which other threads' events must flow."""
    if "openai" not in sys.modules:
        await asyncio.to_thread(importlib.import_module, "openai")


def _cause(error: Exception) -> str:
    """The network's own words where the library hides them behind `Connection error.`."""
    return str(error.__cause__ or error) or type(error.__cause__ or error).__name__


def _other_than_events(headers: Mapping[str, str]) -> str:
    """The content type of an answer that is no event stream, such as the page of a proxy; empty for one that is."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    return "" if kind == "text/event-stream" else kind[:100]


def _shown(url: str) -> str:
    """An address as it may be shown: without credentials and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
