"""`server/*`: asking a running server who it is and how it does, and asking it to end. For operators."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from unspool_protocol.base import ExtendedWireModel, WireModel


class ServerDiagnosticsParams(WireModel):
    """`server/diagnostics` takes nothing."""


class WriterDiagnostics(WireModel):
    """One log that is open for appending.

    Attributes:
        mode: How the thread is logged.
        pending_records: Accepted, and not in the file yet.
        queue_length: Commands that wait for the writer.
        last_error: Why the newest write was refused; null when it was not.
    """

    thread_id: str
    rollout_id: str
    mode: str
    next_ordinal: int
    pending_records: int
    pending_bytes: int
    queue_length: int
    last_error: str | None = None


class FaultDiagnostics(WireModel):
    """A warning or an error of the server's log; its traceback is there only.

    Attributes:
        at: Seconds since the epoch.
        error_id: The `data.errorId` that a client got.
    """

    at: float
    level: str
    logger: str
    text: str
    error_id: str | None = None


class ProcessDiagnostics(WireModel):
    """The process that answers, whatever some file says.

    Attributes:
        resident_memory_bytes: Memory in use; null where the system does not tell.
    """

    id: int
    resident_memory_bytes: int | None = None
    physical_footprint_bytes: int | None = None


class Gauge(WireModel):
    """One figure by the name that the reference gives it."""

    name: str
    value: int


class ServerDiagnosticsResult(ExtendedWireModel):
    """How the server does at this moment. It holds no secret, but names threads and files.

    Attributes:
        gauges: Requests that are being served; none are queued here.
        versions: Addition: of the server, of Python and of the libraries that were loaded.
        started_at: Addition: seconds since the epoch.
        uptime_ms: Addition.
        home: Addition: where its threads are.
        state: Addition: `running`, or `draining` before its end.
        listeners: Addition: where clients reach it.
        limits: Addition: the table `limits` of the configuration.
        threads: Addition: loaded threads by state.
        writers: Addition: the logs of loaded threads.
        figures: Addition: everything that `/metrics` tells, by name; a table by labels where there are some.
        faults: Addition: the newest warnings and errors, oldest first.
    """

    additions: ClassVar[frozenset[str]] = frozenset(
        {"versions", "startedAt", "uptimeMs", "home", "state", "listeners"}
        | {"limits", "threads", "writers", "figures", "faults"}
    )

    process: ProcessDiagnostics
    gauges: tuple[Gauge, ...] = ()
    versions: Mapping[str, str] | None = None
    started_at: float | None = None
    uptime_ms: int | None = None
    home: str | None = None
    state: Literal["running", "draining"] | None = None
    listeners: tuple[str, ...] | None = None
    limits: Mapping[str, Any] | None = None
    threads: Mapping[str, int] | None = None
    writers: tuple[WriterDiagnostics, ...] | None = None
    figures: Mapping[str, Any] | None = None
    faults: tuple[FaultDiagnostics, ...] | None = None


class ServerShutdownResult(WireModel):
    """The server will end: it drains as on SIGTERM, and says goodbye with `connection/closing`.

    Attributes:
        pid: The process that will be gone.
        drain_timeout_ms: The longest that running turns may still take.
    """

    pid: int
    drain_timeout_ms: int
