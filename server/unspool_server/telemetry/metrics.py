"""Every figure that the daemon tells, in one place: the table in `docs/operations.md` is made from it.

Counters and histograms belong to the process, like its log. Gauges and the store's own totals are looked up when
somebody asks; the rooms that know them give `Sample`s. No label ever holds an id or anything that a client made up.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from unspool_server.telemetry.instruments import LONG_SECONDS, SECONDS, Counter, Histogram, Labels, Metric, Sample

_METRICS: dict[str, Metric] = {}
_COUNTERS: list[Counter] = []
_HISTOGRAMS: list[Histogram] = []


def _metric(kind: Literal["counter", "gauge", "histogram"], name: str, text: str, labels: Labels) -> Metric:
    metric = Metric(f"unspool_{name}", text, labels, kind)
    _METRICS[metric.name] = metric
    return metric


def _counter(name: str, text: str, *labels: str) -> Counter:
    counter = Counter(_metric("counter", name, text, labels))
    _COUNTERS.append(counter)
    return counter


def _histogram(name: str, text: str, *labels: str, bounds: tuple[float, ...] = SECONDS) -> Histogram:
    histogram = Histogram(_metric("histogram", name, text, labels), bounds)
    _HISTOGRAMS.append(histogram)
    return histogram


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return _metric("gauge", name, text, labels)


def _total(name: str, text: str, *labels: str) -> Metric:
    """A total that another room keeps and hands over as a sample."""
    return _metric("counter", name, text, labels)


BUILD = _gauge("build_info", "Always 1; the label tells the version.", "version")
STARTED_AT = _gauge("start_time_seconds", "When the daemon started, in seconds since the epoch.")
DRAINING = _gauge("draining", "1 while the daemon is about to end and refuses new turns.")

CONNECTIONS = _gauge("connections", "Connections that are open.")
IN_FLIGHT = _gauge("requests_in_flight", "Requests that are being served.")
CONNECTIONS_OPENED = _counter("connections_opened_total", "Connections that have completed their handshake.")
REQUESTS = _counter(
    "requests_total",
    "Requests answered, by method (`unknown` for names that are none) and outcome: `ok`, `refused` (the client's "
    "fault or the thread's state), `failed` (a fault of disk, model service or server), `cancelled`.",
    *("method", "outcome"),
)
REQUEST_SECONDS = _histogram("request_duration_seconds", "From reading a request to its answer.", "method")
REFUSALS = _counter(
    "refusals_total", "Error answers by `data.reason`; `overloaded` are requests over the limit in flight.", "reason"
)

THREADS = _gauge("threads", "Loaded threads by state: `idle`, `active`, `systemError`.", "state")
THREADS_LOADED = _counter("threads_loaded_total", "Threads that came into memory: started, forked or opened.")
THREADS_UNLOADED = _counter("threads_unloaded_total", "Threads that left memory.")
TURNS = _counter(
    "turns_total",
    "Turns that ended, by kind (`regular`, `compact`) and outcome (`completed`, `failed`, `interrupted`).",
    *("kind", "outcome"),
)
TURN_SECONDS = _histogram("turn_duration_seconds", "From a turn's begin to its end.", "kind", bounds=LONG_SECONDS)
FIRST_DELTA_SECONDS = _histogram(
    "turn_first_delta_seconds", "From a turn's begin to the first text that clients see.", bounds=LONG_SECONDS
)
UNWRITTEN_TURNS = _counter("turns_unwritten_total", "Turns that ended while the disk refused their records.")

MODEL_REQUESTS = _counter(
    "model_requests_total",
    "Requests to model services by provider and outcome: `ok`, `failed`, `cancelled`.",
    *("provider", "outcome"),
)
MODEL_SECONDS = _histogram(
    "model_request_duration_seconds", "From a model request to the end of its stream.", "provider", bounds=LONG_SECONDS
)
MODEL_RETRIES = _counter("model_retries_total", "Model requests and streams that were tried again.")
MODEL_TOKENS = _counter(
    "model_tokens_total",
    "Tokens as the services count them: `input` (with `cached_input`), `output` (with `reasoning_output`).",
    *("provider", "kind"),
)
TOOL_CALLS = _counter("tool_calls_total", "Calls of tools that a model asked for and that got an output.")

PENDING_RECORDS = _gauge("writer_pending_records", "Accepted records that are not in their files yet.")
PENDING_BYTES = _gauge("writer_pending_bytes", "Bytes of those records.")
QUEUED_COMMANDS = _gauge("writer_queue_length", "Commands that wait for log writers.")
REFUSED_LOGS = _gauge("writer_failing_logs", "Open logs whose newest write the disk refused.")
OPEN_LOGS = _gauge("open_logs", "Logs that are open for appending.")
WRITE_FAILURES = _counter("write_failures_total", "Writes that the disk refused twice in a row; they are retried.")
WRITTEN_BYTES = _total("log_written_bytes_total", "Bytes appended to logs.")
READ_BYTES = _total("log_read_bytes_total", "Bytes read from logs.")
FSYNCS = _total("log_fsyncs_total", "Logs made to survive power loss.")
FINDINGS = _counter(
    "log_findings_total",
    "Old or damaged records that made a result less than perfect, by code and by what met them: `load`, `read` or "
    "`verify`. Clients were told the same.",
    *("code", "source"),
)

PUBLISHED = _total("events_published_total", "Events put into the lists of threads.")
REPLAYED = _counter(
    "events_replayed_total", "Events served late: from the `ring` in memory or from the `log`.", "source"
)
SUBSCRIPTIONS = _gauge("subscriptions", "Threads that connections follow, summed over connections.")
BEHIND = _gauge("subscriptions_behind", "Subscriptions that have not caught up with their thread.")
RING_BYTES = _gauge("ring_bytes", "Encoded events of loaded threads that are kept in memory.")

METRICS: Mapping[str, Metric] = _METRICS
"""By name, in the order of the documentation."""


def counters() -> Iterable[Counter]:
    """All counters of the process."""
    return tuple(_COUNTERS)


def histograms() -> Iterable[Histogram]:
    """All histograms of the process."""
    return tuple(_HISTOGRAMS)


def snapshot(samples: Iterable[Sample]) -> dict[str, Any]:
    """All figures as JSON: a number, or one for each set of labels, written `label=value,…`; of durations, how many.

    Figures that nothing has moved yet are left out.
    """
    found: dict[str, Any] = {}
    values = [(sample.metric, sample.labels, sample.value) for sample in samples]
    values += [(one.metric, labels, value) for one in _COUNTERS for labels, value in one.values.items()]
    values += [
        (one.metric, labels, float(series.count)) for one in _HISTOGRAMS for labels, series in one.series.items()
    ]
    for metric, labels, value in values:
        if not metric.labels:
            found[metric.name] = found.get(metric.name, 0) + value
            continue
        key = ",".join(f"{name}={label}" for name, label in zip(metric.labels, labels, strict=True))
        table = found.setdefault(metric.name, {})
        table[key] = table.get(key, 0) + value
    return found
