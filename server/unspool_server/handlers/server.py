"""`server/*`: what the process is and does, and its end. For operators: callers need the highest scope."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from unspool_protocol.server_methods import (
    FaultDiagnostics,
    Gauge,
    ProcessDiagnostics,
    ServerDiagnosticsParams,
    ServerDiagnosticsResult,
    ServerShutdownResult,
    WriterDiagnostics,
)

from unspool_server import __version__
from unspool_server.handlers.context import NoParams, RequestContext
from unspool_server.handlers.services import services
from unspool_server.store.contract import Log
from unspool_server.telemetry.instruments import Metric, Sample
from unspool_server.telemetry.logs import FAULTS
from unspool_server.telemetry.metrics import IN_FLIGHT, THREADS, snapshot

_LIBRARIES = {"uvicorn": "uvicorn", "starlette": "starlette", "pydantic": "pydantic", "openai": "openai"}
"""Module -> distribution: libraries whose versions a report of a fault should name."""


async def server_diagnostics(ctx: RequestContext, _params: ServerDiagnosticsParams) -> ServerDiagnosticsResult:
    """A picture of this moment."""
    shared = services(ctx)
    lifecycle, samples = shared.env.lifecycle, list(shared.figures())
    return ServerDiagnosticsResult(
        process=ProcessDiagnostics(id=lifecycle.pid, resident_memory_bytes=_resident_bytes()),
        gauges=(
            Gauge(name="app.requests.in_flight", value=_value(samples, IN_FLIGHT)),
            Gauge(name="app.requests.queued", value=0),
        ),
        versions=_versions(),
        started_at=lifecycle.started_at,
        uptime_ms=int(lifecycle.uptime_s * 1000),
        home=str(shared.env.home),
        state="draining" if lifecycle.draining else "running",
        listeners=tuple(lifecycle.listeners),
        limits=shared.env.config.limits.model_dump(mode="json"),
        threads={sample.labels[0]: int(sample.value) for sample in samples if sample.metric is THREADS},
        writers=tuple(_writer(log) for log in shared.sessions.open_logs()),
        figures=snapshot(samples),
        faults=tuple(
            FaultDiagnostics(at=one.at, level=one.level, logger=one.logger, text=one.text, error_id=one.error_id)
            for one in FAULTS.newest
        ),
    )


def _writer(log: Log) -> WriterDiagnostics:
    load = log.load
    return WriterDiagnostics(
        thread_id=log.info.thread_id,
        rollout_id=log.info.rollout_id,
        mode=log.info.mode.value,
        next_ordinal=log.next_ordinal,
        pending_records=load.pending_records,
        pending_bytes=load.pending_bytes,
        queue_length=load.queue_length,
        last_error=log.last_error,
    )


def _value(samples: list[Sample], metric: Metric) -> int:
    return int(sum(sample.value for sample in samples if sample.metric is metric))


def _resident_bytes() -> int | None:
    """Memory of this process, where the system tells it as Linux does."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def _versions() -> dict[str, str]:
    found = {"unspool": __version__, "python": platform.python_version()}
    for module, distribution in _LIBRARIES.items():
        if module in sys.modules:
            try:
                found[distribution] = version(distribution)
            except PackageNotFoundError:
                continue  # not installed as a distribution, so that it has no version to tell
    return found


async def server_shutdown(ctx: RequestContext, _params: NoParams) -> ServerShutdownResult:
    """End the server once the answer has left."""
    env = services(ctx).env
    ctx.after(lambda: env.lifecycle.stop("server/shutdown"))
    return ServerShutdownResult(pid=env.lifecycle.pid, drain_timeout_ms=int(env.config.drain_timeout_secs * 1000))
