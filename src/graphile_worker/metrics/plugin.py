"""PrometheusPlugin: counts what workers do, for Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..hooks import Hooks, WorkerContext
from .catalogue import DURATION_BUCKETS, MAX_TASKS, PREFIX, WAIT_BUCKETS
from .client_library import REGISTRY
from .counts import AddedJobCounts, WorkerCounts
from .worker_collector import shared_collector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


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
        duration_buckets: Sequence[float] = DURATION_BUCKETS,
        wait_buckets: Sequence[float] = WAIT_BUCKETS,
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

        self._counts = shared_collector(registry or REGISTRY, prefix, make_counts).counts

    def install(self, hooks: Hooks) -> None:
        """Count the jobs that are added, once, even if several plugins ask for it."""
        watchers = (each for each in hooks.table.add_watchers if isinstance(each, AddedJobCounts))
        if not any(watcher.counts is self._counts for watcher in watchers):
            hooks.watch_adds(AddedJobCounts(self._counts))

    async def start(self, worker: WorkerContext) -> None:
        """Count what this worker does."""
        self._counts.watch(worker)
