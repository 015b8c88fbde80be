"""The state of one worker process: its pools and its metrics.

ProcessState: the pools of one worker process, and its metrics, for whatever serves them.

The metrics of this process, if the package prometheus_client is installed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...hooks import WorkerContext
from ...hooks.faults import call_guarded
from .health import PoolHealth, PoolProbe, ProcessHealth

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...hooks import Plugin
    from ...metrics.families import Family


class ProcessState:
    """The pools that run in this process; usually one."""

    def __init__(self) -> None:
        self._pools: list[PoolProbe] = []
        self._has_ended = False

    def add(self, worker: WorkerContext) -> None:
        """Follow this pool until it ends."""
        self._has_ended = False
        self._pools.append(PoolProbe(worker, self._remove))

    def clear(self) -> None:
        """No pool runs any more."""
        self._pools.clear()
        self._has_ended = True

    def _remove(self, pool: PoolProbe) -> None:
        if pool in self._pools:
            self._pools.remove(pool)
        self._has_ended = not self._pools

    def health(self) -> ProcessHealth:
        """How they are now."""
        pools: Sequence[PoolHealth] = [pool.health() for pool in self._pools]
        return ProcessHealth(pid=os.getpid(), pools=list(pools), has_ended=self._has_ended)


def metrics_plugins(*, of_database: bool) -> list[Plugin]:
    """What measures; nothing without the package, unless the database is to be measured."""
    try:
        from ...metrics.prometheus import PrometheusPlugin
    except ImportError as error:
        if of_database:
            raise ConfigError(f"database_metrics: {error}") from error
        return []
    if not of_database:
        return [PrometheusPlugin()]
    from ...metrics.database_metrics import DatabaseMetricsPlugin

    return [PrometheusPlugin(), DatabaseMetricsPlugin()]


async def own_text(registry: CollectorRegistry | None) -> bytes | None:
    """As text; None without the package."""
    try:
        from ...metrics.prometheus import REGISTRY, rendered
    except ImportError:
        return None
    # In a thread, because collectors of the application may take their time.
    return await asyncio.to_thread(call_guarded, rendered, registry or REGISTRY)


async def own_families() -> list[Family] | None:
    """As values, for the process that serves all of them; None without the package."""
    try:
        from ...metrics.prometheus import REGISTRY, families_of
    except ImportError:
        return None
    return await asyncio.to_thread(call_guarded, families_of, REGISTRY)
