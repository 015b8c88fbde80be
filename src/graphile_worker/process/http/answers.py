"""What the server answers on each path, for one process as for several.

What differs is where health and metrics come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...errors import ConfigError
from ...hooks.faults import call_guarded
from ..health import HealthSource, PoolHealth, ProcessHealth
from .server import Request, Response, json_response, problem

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...hooks import Plugin

PATHS = {
    "/livez": "whether the worker must be restarted",
    "/readyz": "whether the worker runs jobs",
    "/metrics": "metrics for Prometheus",
}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_CLIENT = "metrics need the package prometheus-client: pip install 'graphile-worker[metrics]'"


class Source(HealthSource, Protocol):
    """Where the answers come from."""

    async def metrics(self) -> bytes | None:
        """The metrics as text; None if the client library is not installed."""
        ...


async def answer(request: Request, source: Source) -> Response:
    """The response to a request."""
    is_verbose = "verbose" in request.query
    match request.path:
        case "/livez":
            return livez(await source.health(), is_verbose=is_verbose)
        case "/readyz":
            return readyz(await source.health(), expected=source.expected, is_verbose=is_verbose)
        case "/metrics":
            text = await source.metrics()
            return problem(404, NO_CLIENT) if text is None else Response(200, text, METRICS_TYPE)
        case "/":
            return json_response(200, PATHS)
    return nothing_here()


def nothing_here() -> Response:
    """The response to a request for an unknown path."""
    return problem(404, f"there is nothing here; try {', '.join(PATHS)}")


def livez(processes: Sequence[ProcessHealth], *, is_verbose: bool) -> Response:
    """200 unless a process must be restarted. One that has not started yet is alive."""
    return _response([(process, process.live_problems) for process in processes], [], is_verbose=is_verbose)


def readyz(processes: Sequence[ProcessHealth], *, expected: int, is_verbose: bool) -> Response:
    """200 if every expected process runs jobs."""
    missing = expected - len(processes)
    problems = [f"{len(processes)} of {expected} worker processes are running"] if missing > 0 else []
    found = [(process, process.ready_problems) for process in processes]
    return _response(found, problems, is_verbose=is_verbose)


def _response(
    found: Sequence[tuple[ProcessHealth, list[str]]], problems: list[str], *, is_verbose: bool
) -> Response:
    for process, own in found:
        problems += [f"worker process {process.pid}: {text}" for text in own] if len(found) > 1 else own
    body: dict[str, object] = {"status": "unavailable" if problems else "ok", "problems": problems}
    if is_verbose:
        body["workers"] = [_details(process, own) for process, own in found]
    return json_response(503 if problems else 200, body)


def _details(process: ProcessHealth, problems: list[str]) -> dict[str, object]:
    return {"pid": process.pid, "healthy": not problems, "pools": [_pool(pool) for pool in process.pools]}


def _pool(pool: PoolHealth) -> dict[str, object]:
    stopping = pool.seconds_stopping
    return {
        "pool_id": pool.pool_id,
        "state": pool.state,
        "running": pool.running,
        "slots": pool.slots,
        "listening": pool.is_listening,
        "seconds_since_answer": round(pool.seconds_since_answer, 1),
        "seconds_stopping": None if stopping is None else round(stopping, 1),
    }


async def own_metrics(registry: CollectorRegistry | None = None) -> bytes | None:
    """The metrics of this process as text; None without the package."""
    try:
        from ...metrics.prometheus import REGISTRY, rendered
    except ImportError:
        return None
    # In a thread, because collectors of the application may take their time.
    return await asyncio.to_thread(call_guarded, rendered, registry or REGISTRY)


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
