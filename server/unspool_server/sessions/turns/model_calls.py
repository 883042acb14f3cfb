"""Asking a model, watched: every request is counted, timed and traced, whoever makes it."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from unspool_server.errors import ModelError
from unspool_server.model.contract import ModelEvent, ModelProvider, ModelRequest, ResponseDone, Usage
from unspool_server.telemetry import metrics, traces


async def asked(provider: ModelProvider, request: ModelRequest, name: str) -> AsyncGenerator[ModelEvent, None]:
    """Stream one response; see `ModelProvider.stream`. Closing it cancels the request.

    Args:
        name: The provider's name in the configuration.
    """
    began, outcome = time.monotonic(), "cancelled"
    try:
        with traces.span("model request", provider=name, model=request.model, purpose=request.purpose):
            async with aclosing(provider.stream(request)) as events:  # type: ignore[type-var]
                async for event in events:
                    if isinstance(event, ResponseDone):
                        outcome = "ok"
                        _count(name, event.usage)
                    yield event
        outcome = "ok"
    except ModelError:
        outcome = "failed"
        raise
    finally:
        metrics.MODEL_REQUESTS.add(name, outcome)
        metrics.MODEL_SECONDS.observe(time.monotonic() - began, name)


def _count(name: str, usage: Usage | None) -> None:
    if usage is None:
        return
    metrics.MODEL_TOKENS.add(name, "input", amount=usage.input_tokens)
    metrics.MODEL_TOKENS.add(name, "cached_input", amount=usage.cached_input_tokens)
    metrics.MODEL_TOKENS.add(name, "output", amount=usage.output_tokens)
    metrics.MODEL_TOKENS.add(name, "reasoning_output", amount=usage.reasoning_output_tokens)
