"""WorkerCollector: turns the counts of this process into families of metrics, when Prometheus asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from weakref import WeakKeyDictionary

from ..values import __version__
from . import catalogue as names
from .client_library import (
    ClientMetric,
    CollectorRegistry,
    add_histogram,
    counter,
    gauge,
    histogram,
)
from .counts import WorkerCounts

FROM_ZERO = ("success", "error", "failed")
"""Outcomes that every task of the worker shows from the start."""


class WorkerCollector:
    """What `prometheus_client` asks for the metrics of the workers of this process."""

    def __init__(self, counts: WorkerCounts, prefix: str) -> None:
        self.counts = counts
        self._prefix = prefix

    def describe(self) -> Iterable[ClientMetric]:
        """The names, so that a registry refuses a second collector of these."""
        for metric in names.WORKER_METRICS:
            make = {"counter": counter, "gauge": gauge, "histogram": histogram}[metric.kind]
            yield make(metric, self._prefix)

    def collect(self) -> Iterator[ClientMetric]:
        """The values. Called in another thread than the event loop's."""
        yield from self._of_tasks()
        yield from self._of_pools()
        yield from self._totals()

    def _of_tasks(self) -> Iterator[ClientMetric]:
        jobs = counter(names.JOBS, self._prefix)
        durations = histogram(names.DURATION, self._prefix)
        waits = histogram(names.WAIT, self._prefix)
        for task, counts in list(self.counts.tasks.items()):
            found = dict.fromkeys(FROM_ZERO, 0) | dict(counts.outcomes)
            found["success"] = counts.success
            for outcome, value in found.items():
                jobs.add_metric([task, outcome], value)
            for family, values in ((durations, counts.durations), (waits, counts.waits)):
                if any(values.counts):  # a task that never ran needs no thirty lines
                    add_histogram(family, [task], values)
        yield from (jobs, durations, waits)

    def _of_pools(self) -> Iterator[ClientMetric]:
        running = gauge(names.RUNNING, self._prefix)
        slots = gauge(names.SLOTS, self._prefix)
        listening = gauge(names.LISTENING, self._prefix)
        pools = list(self.counts.pools.values())
        if pools:
            now = Counter(dict.fromkeys(self.counts.tasks, 0))
            for job in (job for pool in pools for job in pool.running):
                now[job.task_identifier if job.task_identifier in now else names.OTHER] += 1
            for task, number in now.items():
                running.add_metric([task], number)
            slots.add_metric([], sum(pool.concurrency for pool in pools))
            listening.add_metric([], min(pool.is_listening for pool in pools))
        yield from (running, slots, listening)
        info = gauge(names.INFO, self._prefix)
        for schema in sorted(self.counts.schemas):
            info.add_metric([__version__, schema], 1)
        yield info

    def _totals(self) -> Iterator[ClientMetric]:
        counts = self.counts
        for metric, value in (
            (names.FETCHED, counts.fetched),
            (names.RETURNED, counts.returned),
            (names.EVICTED, counts.evicted),
            (names.BLOCKED, counts.blocked_seconds),
        ):
            family = counter(metric, self._prefix)
            family.add_metric([], value)
            yield family
        for metric, found, known in (
            (names.DATABASE_ERRORS, counts.database_errors, ("fetch", "listen", "reset_locked")),
            (names.RECOVERED, counts.recovered, ("returned", "failed", "left", "cancelled")),
        ):
            family = counter(metric, self._prefix)
            for label, number in (dict.fromkeys(known, 0) | dict(found)).items():
                family.add_metric([label], number)
            yield family
        added = counter(names.ADDED, self._prefix)
        for task, results in list(counts.added.items()):
            for result, number in dict(results).items():
                added.add_metric([task, result], number)
        yield added
        recurring = counter(names.CRON_JOBS, self._prefix)
        for task, results in list(counts.cron_jobs.items()):
            recurring.add_metric([task], results["added"])
        yield recurring


_collectors: WeakKeyDictionary[CollectorRegistry, dict[str, WorkerCollector]] = WeakKeyDictionary()


def shared_collector(
    registry: CollectorRegistry, prefix: str, make_counts: Callable[[], WorkerCounts]
) -> WorkerCollector:
    """The collector of this registry and prefix: several plugins of a process count together."""
    collectors = _collectors.setdefault(registry, {})
    if prefix not in collectors:
        collector = WorkerCollector(make_counts(), prefix)
        registry.register(collector)
        collectors[prefix] = collector
    return collectors[prefix]
