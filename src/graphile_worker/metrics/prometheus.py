"""Metrics in a registry of prometheus_client: imported here only, with an error that names the extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from weakref import WeakKeyDictionary

try:
    import prometheus_client as prometheus_client
except ImportError as error:
    raise ImportError(
        "metrics need the package prometheus-client: pip install 'graphile-worker[metrics]'"
    ) from error

from prometheus_client import REGISTRY as REGISTRY
from prometheus_client import CollectorRegistry as CollectorRegistry
from prometheus_client.core import Metric as ClientMetric
from prometheus_client.exposition import generate_latest

from ..errors import ConfigError
from ..hooks import Hooks, WorkerContext
from .catalogue import DURATION, MAX_TASKS, PREFIX, WAIT, WORKER_METRICS
from .counts import AddedJobCounts, WorkerCounts
from .families import Family, SampleValue, family


class Collector:
    """What a registry asks for metrics: it gives those that a function returns."""

    def __init__(self, read: Callable[[], Iterable[Family]], described: Sequence[Family] = ()) -> None:
        """`described`: the names of which the registry refuses a second collector."""
        self._read = read
        self._described = described

    def describe(self) -> Iterable[ClientMetric]:
        return map(_for_client, self._described)

    def collect(self) -> Iterator[ClientMetric]:
        """The values. Called in another thread than the event loop's."""
        return map(_for_client, self._read())


def _for_client(found: Family) -> ClientMetric:
    metric = ClientMetric(found.name, found.help, found.kind)
    for sample in found.samples:
        metric.add_sample(sample.name, dict(sample.labels), sample.value)
    return metric


def rendered(registry: CollectorRegistry) -> bytes:
    """The metrics as text.

    Always in the classic format: OpenMetrics does not allow a counter `jobs_total` beside a gauge `jobs`.
    """
    return generate_latest(registry)


def families_of(registry: CollectorRegistry) -> list[Family]:
    """Everything in the registry as plain values, also the metrics of the application."""
    return [
        Family(
            metric.name,
            metric.type,
            metric.documentation,
            [
                SampleValue(sample.name, tuple(sample.labels.items()), float(sample.value))
                for sample in metric.samples
            ],
        )
        for metric in registry.collect()
    ]


def text_of(families: Sequence[Family]) -> bytes:
    """Such values as text, as the registry of a process has them."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector(lambda: families))
    return rendered(registry)


class PrometheusPlugin:
    """Metrics of workers and clients: `run(plugins=[PrometheusPlugin()])`.

    They are in `registry`, by default that of `prometheus_client`, so whatever serves that serves them too.
    `--http-port` adds this plugin by itself. Plugins with the same registry and prefix count together, and
    the first one decides about buckets.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        prefix: str = PREFIX,
        duration_buckets: Sequence[float] = DURATION.buckets,
        wait_buckets: Sequence[float] = WAIT.buckets,
        max_tasks: int = MAX_TASKS,
    ) -> None:
        """`max_tasks`: tasks with a label of their own; the others are counted as `task="other"`."""
        for name, buckets in (("duration_buckets", duration_buckets), ("wait_buckets", wait_buckets)):
            if not buckets or list(buckets) != sorted(set(buckets)):
                raise ConfigError(f"{name}: expected upper bounds in seconds in ascending order")
        if max_tasks < 1:
            raise ConfigError(f"max_tasks: must be at least 1, got {max_tasks}")

        def make_counts() -> WorkerCounts:
            return WorkerCounts(
                duration_buckets=tuple(map(float, duration_buckets)),
                wait_buckets=tuple(map(float, wait_buckets)),
                max_tasks=max_tasks,
            )

        self._counts = _shared_counts(registry or REGISTRY, prefix, make_counts)

    def install(self, hooks: Hooks) -> None:
        """Count the jobs that are added, once, even if several plugins ask for it."""
        watchers = (each for each in hooks.table.add_watchers if isinstance(each, AddedJobCounts))
        if not any(watcher.counts is self._counts for watcher in watchers):
            hooks.watch_adds(AddedJobCounts(self._counts))

    async def start(self, worker: WorkerContext) -> None:
        """Count what this worker does."""
        self._counts.watch(worker)


_counts: WeakKeyDictionary[CollectorRegistry, dict[str, WorkerCounts]] = WeakKeyDictionary()


def _shared_counts(
    registry: CollectorRegistry, prefix: str, make_counts: Callable[[], WorkerCounts]
) -> WorkerCounts:
    """The counts of this registry and prefix: several plugins of a process count together."""
    of_registry = _counts.setdefault(registry, {})
    if prefix not in of_registry:
        counts = make_counts()
        described = [family(metric, (), prefix) for metric in WORKER_METRICS]
        registry.register(Collector(lambda: counts.families(prefix), described))
        of_registry[prefix] = counts
    return of_registry[prefix]
