"""How failures of model services become our errors; one table for every provider.

Texts and `codexErrorInfo` values are the reference's, measured on it, since clients show and switch on them.
"""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from unspool_server.errors import (
    ContextLengthExceeded,
    ModelError,
    ProviderRejected,
    ProviderUnavailable,
    StreamCut,
)

HIGH_DEMAND = "We’re currently experiencing high demand, which may cause temporary errors."
CONTEXT_TOO_LONG = (
    "Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying."
)
AT_CAPACITY = "Selected model is at capacity. Please try a different model."
QUOTA_EXCEEDED = "Quota exceeded. Check your plan and billing details."

RATE_LIMITS = frozenset({"rate_limit_exceeded", "slow_down"})
QUOTAS = frozenset({"insufficient_quota", "usage_limit_reached", "usage_not_included"})
TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|available context size"
    r"|(context|prompt|input)( length)? (is too long|exceeds? the)"
    r"|(longer|greater) than the( maximum)? (model|context)",
    re.IGNORECASE,
)
"""How services that have no code for it say that a request does not fit (vLLM, llama.cpp and others)."""
TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?) ?(ms|s|second)", re.IGNORECASE)
WORTH_ANOTHER_TRY = frozenset({408, 425, 429})
"""Statuses below 500 that may be gone at the next try."""


def response_failure(code: str | None, message: str) -> ModelError:
    """Map the `error` of a `response.failed` or `error` event.

    A code that no table knows counts as a broken stream, as in the reference: another try may succeed.
    """
    if code == "context_length_exceeded" or TOO_LONG.search(message):
        return ContextLengthExceeded(CONTEXT_TOO_LONG)
    if code == "server_is_overloaded":
        return ProviderUnavailable(AT_CAPACITY)
    if code in RATE_LIMITS:
        wait_s = _told_wait_s(message)
        return StreamCut(f"rate limit exceeded: {message}", info="rateLimitExceeded", retry_after_s=wait_s)
    if code in QUOTAS:
        return ProviderRejected(QUOTA_EXCEEDED, info="usageLimitExceeded")
    if code in ("invalid_prompt", "cyber_policy"):
        return ProviderRejected(
            message or "Invalid request.", info="other" if code == "invalid_prompt" else "cyberPolicy"
        )
    return stream_cut(message or code or "response failed")


def _told_wait_s(message: str) -> float | None:
    found = TRY_AGAIN.search(message)
    if found is None:
        return None
    return float(found[1]) * (0.001 if found[2].lower() == "ms" else 1.0)


def incomplete(reason: str) -> ProviderRejected:
    """The service ended its answer early on purpose (`max_output_tokens`, `content_filter`); again is no help."""
    return ProviderRejected(
        f"stream disconnected before completion: Incomplete response returned, reason: {reason}", info="other"
    )


def http_failure(status: int, text: str, url: str = "", retry_after_s: float | None = None) -> ModelError:
    """Map an answer that is no stream. What may be gone at the next try is `ProviderUnavailable`.

    Args:
        status: The HTTP status, 400 or above.
        text: The body as it came; shown whole for 400, as the reference does.
        url: Shown; without query and credentials.
    """
    code, message = _error_of(text)
    if code == "context_length_exceeded" or (status in (400, 413, 422, 500) and TOO_LONG.search(text)):
        return ContextLengthExceeded(CONTEXT_TOO_LONG)
    if code in QUOTAS:
        return ProviderRejected(QUOTA_EXCEEDED, info="usageLimitExceeded")
    if status == 500:
        return ProviderUnavailable(
            HIGH_DEMAND, info="internalServerError", detail=message or text, retry_after_s=retry_after_s
        )
    if status == 400:
        return ProviderRejected(text or "Bad Request", info="other")
    if status == 429:
        info: Mapping[str, Any] = {"responseTooManyFailedAttempts": {"httpStatusCode": status}}
        shown = f"exceeded retry limit, last status: {_name(status)}"
        return ProviderUnavailable(shown, info=info, detail=message or text, retry_after_s=retry_after_s)
    shown = f"unexpected status {_name(status)}: {message or text or 'Unknown error'}" + (
        f", url: {url}" if url else ""
    )
    kind = ProviderUnavailable if status > 500 or status in WORTH_ANOTHER_TRY else ProviderRejected
    return kind(shown, info={"httpConnectionFailed": {"httpStatusCode": status}}, retry_after_s=retry_after_s)


def connection_failure(detail: str) -> ProviderUnavailable:
    """The service could not be reached, or hung up before it answered."""
    return ProviderUnavailable(f"Connection failed: {detail}", info={"httpConnectionFailed": {"httpStatusCode": None}})


def stream_cut(detail: str = "stream closed before response.completed") -> StreamCut:
    """The stream ended, or broke, before the response was complete."""
    return StreamCut(f"stream disconnected before completion: {detail}", info="other")


def _name(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _error_of(text: str) -> tuple[str | None, str]:
    """Code and message of an error body: `{error: {...}}`, the inner object alone, or neither."""
    try:
        body: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None, ""
    found = body.get("error", body) if isinstance(body, Mapping) else None
    if not isinstance(found, Mapping):
        return None, found if isinstance(found, str) else ""
    code, message = found.get("code"), found.get("message")
    return (code if isinstance(code, str) else None), (message if isinstance(message, str) else "")
