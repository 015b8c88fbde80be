"""The package prometheus_client: imported here only, with an error that names the extra."""

from __future__ import annotations

try:
    import prometheus_client as prometheus_client
except ImportError as error:
    raise ImportError(
        "metrics need the package prometheus-client: pip install 'graphile-worker[metrics]'"
    ) from error

from prometheus_client import REGISTRY as REGISTRY
from prometheus_client import CollectorRegistry as CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as ClientMetric,
)
from prometheus_client.exposition import generate_latest

from .catalogue import Metric
from .counts import Histogram


def counter(metric: Metric, prefix: str) -> CounterMetricFamily:
    """A family of counters without values."""
    return CounterMetricFamily(f"{prefix}_{metric.name}", metric.help, labels=metric.labels)


def gauge(metric: Metric, prefix: str) -> GaugeMetricFamily:
    """A family of gauges without values."""
    return GaugeMetricFamily(f"{prefix}_{metric.name}", metric.help, labels=metric.labels)


def histogram(metric: Metric, prefix: str) -> HistogramMetricFamily:
    """A family of histograms without values."""
    return HistogramMetricFamily(f"{prefix}_{metric.name}", metric.help, labels=metric.labels)


def add_histogram(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    """Add one; the buckets of Prometheus include all smaller ones."""
    buckets, below = [], 0
    for bound, count in zip((*histogram.bounds, float("inf")), tuple(histogram.counts), strict=True):
        below += count
        buckets.append((_bound(bound), float(below)))
    family.add_metric(labels, buckets, sum_value=histogram.total)


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else repr(seconds)


def rendered(registry: CollectorRegistry) -> bytes:
    """The metrics as text.

    Always in the classic format: OpenMetrics does not allow a counter `jobs_total` beside a gauge `jobs`.
    """
    return generate_latest(registry)


__all__ = [
    "REGISTRY",
    "ClientMetric",
    "CollectorRegistry",
    "CounterMetricFamily",
    "GaugeMetricFamily",
    "HistogramMetricFamily",
    "add_histogram",
    "counter",
    "gauge",
    "histogram",
    "prometheus_client",
    "rendered",
]
