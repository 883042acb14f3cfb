"""Counters, gauges and histograms kept in plain dictionaries, cheap enough for every event and every start.

Knows no exporter: `exposition` shows them to Prometheus when somebody asks. Not for threads: everything is counted on
the event loop.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Labels = tuple[str, ...]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Buckets of a request: from a cached answer to something that waits for a disk or a model."""

LONG_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Buckets of a turn or of a model's answer."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What a figure is: its name by Prometheus' conventions, its meaning, and the names of its labels."""

    name: str
    help: str
    labels: Labels = ()
    kind: Literal["counter", "gauge", "histogram"] = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a figure that is looked up when somebody asks, instead of being counted."""

    metric: Metric
    value: float
    labels: Labels = ()


@dataclass(slots=True)
class Counter:
    """Something that only ever grows while the process lives."""

    metric: Metric
    values: dict[Labels, float] = field(default_factory=dict)

    def add(self, *labels: str, amount: float = 1) -> None:
        """Count; the labels stand in the metric's order."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def value(self, *labels: str) -> float:
        """What was counted under these labels."""
        return self.values.get(labels, 0)


@dataclass(slots=True)
class Series:
    """What was observed under one set of labels: how often by bucket (the last has no limit), and the sum."""

    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        """All observations."""
        return sum(self.counts)


@dataclass(slots=True)
class Histogram:
    """Durations in seconds, by bucket."""

    metric: Metric
    bounds: tuple[float, ...] = SECONDS
    series: dict[Labels, Series] = field(default_factory=dict)

    def observe(self, seconds: float, *labels: str) -> None:
        """Note one duration; the labels stand in the metric's order."""
        found = self.series.get(labels)
        if found is None:
            found = self.series[labels] = Series([0] * (len(self.bounds) + 1))
        found.counts[bisect_left(self.bounds, seconds)] += 1
        found.total += seconds

    def count(self, *labels: str) -> int:
        """How often something was observed under these labels."""
        found = self.series.get(labels)
        return found.count if found is not None else 0


def summed(samples: Iterable[Sample]) -> Mapping[tuple[Metric, Labels], float]:
    """Samples by figure and labels; what several places tell of the same thing is added up."""
    totals: dict[tuple[Metric, Labels], float] = {}
    for sample in samples:
        key = (sample.metric, sample.labels)
        totals[key] = totals.get(key, 0) + sample.value
    return totals
