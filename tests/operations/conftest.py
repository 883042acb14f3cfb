"""Homes with daemons of this process, and figures as differences: they belong to the process, like its log."""

from collections.abc import Iterator

import pytest
from unspool_server.telemetry.metrics import counters, histograms


@pytest.fixture(autouse=True)
def _figures_from_zero() -> Iterator[None]:
    """No test sees what another one counted."""
    for counter in counters():
        counter.values.clear()
    for histogram in histograms():
        histogram.series.clear()
    yield
