"""Spans of requests, turns, model requests, tool calls and appends, for OpenTelemetry where it is configured.

Without it a span is nothing: one call and one `with`. The library is imported only when `[tracing]` asks for it.
Attributes are names, ids and numbers; texts of users and models are none.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from unspool_server import __version__
from unspool_server.config_base import ConfigError
from unspool_server.config_daemon import TracingOptions
from unspool_server.telemetry.scope import Scope, current, within

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Tracer

_MISSING = "tracing needs the extra `otel`: pip install 'unspool[otel]'"


class _Tracing:
    """The tracer of this process; None while nobody traces."""

    tracer: "Tracer | None" = None
    provider: "TracerProvider | None" = None


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[None]:
    """A span around a block, inside the span of the scope; an exception that leaves the block marks it as failed, being
    cancelled does not."""
    tracer = _Tracing.tracer
    if tracer is None:
        yield
        return
    from opentelemetry.trace import Status, StatusCode, set_span_in_context

    scope = current()
    parent = set_span_in_context(scope.span) if scope.span is not None else None
    known = {f"unspool.{key}": value for key, value in {**scope.facts, **attributes}.items() if value is not None}
    begun = tracer.start_span(name, context=parent, attributes=known, record_exception=False)
    try:
        with within(Scope(scope.facts, begun)):
            yield
    except Exception as error:
        # The class alone: messages of exceptions may quote what a user wrote.
        begun.set_status(Status(StatusCode.ERROR, type(error).__name__))
        raise
    finally:
        begun.end()


def note(**attributes: Any) -> None:
    """Add to the span of the scope, if there is one."""
    begun = current().span
    if begun is not None:
        begun.set_attributes({f"unspool.{key}": value for key, value in attributes.items() if value is not None})


def install(provider: "TracerProvider") -> None:
    """Trace with this provider from now on; `shutdown` ends it."""
    _Tracing.provider, _Tracing.tracer = provider, provider.get_tracer("unspool", __version__)


def configure(options: TracingOptions) -> None:
    """Do what the configuration says: nothing, or export over OTLP/HTTP.

    Raises:
        ConfigError: The library is not installed.
    """
    if options.exporter == "none":
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(_MISSING, key="tracing.exporter") from error
    resource = Resource.create({"service.name": "unspool", "service.version": __version__})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=options.endpoint)))
    install(provider)


def shutdown() -> None:
    """Send what is left and trace no more. Blocks while it sends."""
    provider, _Tracing.provider, _Tracing.tracer = _Tracing.provider, None, None
    if provider is not None:
        provider.shutdown()
