"""`/livez`, `/readyz` and `/metrics` of a worker: what they answer, and serving them from its event loop.

A blocked event loop does not answer, so a probe notices it. The answers are the same for one process as for
several; what differs is where health and metrics come from.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...config.settings import ANY_ADDRESS
from ...errors import ConfigError
from ...hooks import WorkerContext
from ...hooks.faults import call_guarded
from .health import HealthSource, OwnHealth, PoolHealth, ProcessHealth
from .http_server import HttpServer, Request, Response, bind, json_response, problem, url_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ...hooks import Plugin

logger = logging.getLogger("graphile_worker.http")


class HttpPlugin(OwnHealth):
    """Serves health checks and metrics over HTTP: `run(plugins=[HttpPlugin(8080)])`.

    One object can serve several workers of a process: it then answers for all of them. Metrics come from
    `registry`, by default that of `prometheus_client`; `PrometheusPlugin` puts those of the worker there.
    """

    def __init__(
        self, port: int, address: str = ANY_ADDRESS, *, registry: CollectorRegistry | None = None
    ) -> None:
        """Port 0 is any free port, which the log names."""
        if not 0 <= port <= 65535:
            raise ConfigError(f"http_port: expected a number from 0 to 65535, got {port}")
        super().__init__()
        self._port = port
        self._address = address
        self._registry = registry
        self._server: HttpServer | None = None
        self._users = 0
        self.url: str | None = None
        """Where it serves; None while it does not."""

    async def start(self, worker: WorkerContext) -> None:
        """Begin to serve, if no other worker has."""
        await self.open()
        await super().start(worker)

    async def stop(self) -> None:
        """Serve no more if this was the last worker."""
        if self._users == 1:
            self._pools.clear()
            self._has_ended = True
        await self.close()

    async def open(self) -> None:
        """Serve from now on, also before there is a worker; each call needs one of `close`."""
        self._users += 1
        if self._server is not None:
            return
        listening = bind(self._address, self._port)
        self._server = HttpServer(lambda request: answer(request, self))
        self.url = url_of(listening)
        await self._server.open(listening)
        logger.info("serving health checks and metrics at %s", self.url)

    async def close(self) -> None:
        """Undo one `open`."""
        self._users -= 1
        if self._users == 0 and self._server is not None:
            server, self._server, self.url = self._server, None, None
            await server.close()

    # -- what it serves ------------------------------------------------------------------------------------

    async def metrics(self) -> bytes | None:
        return await own_metrics(self._registry)


PATHS = {
    "/livez": "whether the worker must be restarted",
    "/readyz": "whether the worker runs jobs",
    "/metrics": "metrics for Prometheus",
}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_CLIENT = "metrics need the package prometheus-client: pip install 'graphile-worker[metrics]'"


class AnswerSource(HealthSource, Protocol):
    async def metrics(self) -> bytes | None:
        """The metrics as text; None if the client library is not installed."""
        ...


async def answer(request: Request, source: AnswerSource) -> Response:
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
        body["workers"] = [
            {"pid": process.pid, "healthy": not own, "pools": [_pool(pool) for pool in process.pools]}
            for process, own in found
        ]
    return json_response(503 if problems else 200, body)


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
