"""The metrics of this process, if the package prometheus_client is installed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...errors import ConfigError
from ...faults import call_guarded

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...hooks import Plugin
    from ...metrics.families import Family


def metrics_plugins(*, of_database: bool) -> list[Plugin]:
    """What measures; nothing without the package, unless the database is to be measured."""
    try:
        from ...metrics.plugin import PrometheusPlugin
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
        from ...metrics.client_library import REGISTRY, rendered
    except ImportError:
        return None
    # In a thread, because collectors of the application may take their time.
    return await asyncio.to_thread(call_guarded, rendered, registry or REGISTRY)


async def own_families() -> list[Family] | None:
    """As values, for the process that serves all of them; None without the package."""
    try:
        from ...metrics.client_library import REGISTRY
        from ...metrics.exposition import families_of
    except ImportError:
        return None
    return await asyncio.to_thread(call_guarded, families_of, REGISTRY)
