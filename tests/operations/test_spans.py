"""Spans: a request's own, and below a turn its model requests, tool calls and appends. Without a tracer nothing."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from unspool_server.config_base import ConfigError
from unspool_server.config_daemon import TracingOptions
from unspool_server.telemetry import traces

from tests.interaction.house import TOOL, House

SECRET = "correct horse battery staple"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces.install(provider)
    yield exporter
    traces.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_a_turn_with_a_tool_is_one_trace_from_the_request_down(
    house: House, exporter: InMemorySpanExporter
) -> None:
    house.offline([{"call": "look", "args": {}}], [{"say": "done"}])
    async with house.daemon() as daemon:
        client = await daemon.connect()
        thread = await client.start(cwd=str(house.work), dynamicTools=[TOOL])
        turn = await client.begin(thread, SECRET)
        asked = await client.event("item/tool/call")
        told = {"contentItems": [{"type": "inputText", "text": SECRET}], "success": True}
        await client.send({"id": asked["id"], "result": told})
        await client.ended(turn)
    (request,) = named(exporter, "request turn/start")
    (whole,) = named(exporter, "turn")
    (tool,) = named(exporter, "tool call")
    models, appends = named(exporter, "model request"), named(exporter, "append")
    assert facts(whole) == {
        **{key: value for key, value in facts(request).items() if key != "unspool.turn"},
        "unspool.turn": turn,
        "unspool.thread": thread,
        "unspool.kind": "regular",
        "unspool.outcome": "completed",
    }
    assert facts(tool)["unspool.tool"] == "look"
    assert [facts(span)["unspool.purpose"] for span in models] == ["turn", "turn"]
    below = {span.parent.span_id for span in (*models, tool) if span.parent is not None}
    assert whole.context is not None and below == {whole.context.span_id}
    traced = {span.context.trace_id for span in (request, whole, tool, *models, *appends) if span.context is not None}
    assert len(traced) == 1 and appends
    assert SECRET not in "".join(span.to_json() for span in exporter.get_finished_spans())


def test_what_fails_is_marked_with_the_class_alone(exporter: InMemorySpanExporter) -> None:
    with pytest.raises(ValueError, match=SECRET), traces.span("outer"), traces.span("inner"):
        raise ValueError(SECRET)
    spans = exporter.get_finished_spans()
    assert [(span.name, span.status.status_code, span.status.description) for span in spans] == [
        ("inner", StatusCode.ERROR, "ValueError"),
        ("outer", StatusCode.ERROR, "ValueError"),
    ]
    assert all(not span.events for span in spans)


def test_tracing_that_is_asked_for_and_not_installed_is_a_clear_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'unspool\[otel\]'"):
        traces.configure(TracingOptions(exporter="otlp"))


def test_nobody_traces_unless_told_to() -> None:
    traces.configure(TracingOptions())
    with traces.span("nothing"):
        traces.note(ignored=1)
    assert traces._Tracing.tracer is None
