"""Figures in Prometheus' words, for whoever scrapes. The library is imported with the first scrape."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from unspool_server.telemetry.instruments import Counter, Histogram, Labels, Metric, Sample, summed
from unspool_server.telemetry.metrics import METRICS, counters, histograms

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family


def exposition(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """The figures of this moment, with what the library tells of the process (memory, descriptors, time).

    Args:
        samples: Values that are looked up rather than counted.
        accept: The scraper's `Accept` header; it chooses the format.

    Returns:
        The body and its content type.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry(auto_describe=False)
    ProcessCollector(registry=registry)
    registry.register(_Collector(list(samples)))
    encoder, content_type = choose_encoder(accept)
    return encoder(registry), content_type


class _Collector:
    """One scrape's view of the figures; every figure of the table is told, with or without values."""

    def __init__(self, samples: list[Sample]) -> None:
        self._looked_up: dict[Metric, dict[Labels, float]] = {}
        for (metric, labels), value in summed(samples).items():
            self._looked_up.setdefault(metric, {})[labels] = value

    def collect(self) -> Iterator["Family"]:
        """All families in the order of the table."""
        counted: dict[Metric, Counter] = {one.metric: one for one in counters()}
        observed: dict[Metric, Histogram] = {one.metric: one for one in histograms()}
        for metric in METRICS.values():
            if metric in observed:
                yield _histogram_family(observed[metric])
            else:
                values = counted[metric].values if metric in counted else self._looked_up.get(metric, {})
                yield _family(metric, values)


def _family(metric: Metric, values: dict[Labels, float]) -> "Family":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    if not values and not metric.labels:
        values = {(): 0}
    for labels, value in list(values.items()):
        family.add_metric(labels, value)
    return family


def _histogram_family(histogram: Histogram) -> "Family":
    from prometheus_client.core import HistogramMetricFamily

    metric = histogram.metric
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, series in list(histogram.series.items()):
        so_far, buckets = 0, []
        for bound, count in zip([*map(str, histogram.bounds), "+Inf"], series.counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        family.add_metric(labels, buckets, series.total)
    return family
