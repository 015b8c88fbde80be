"""HttpPlugin: serves `/livez`, `/readyz` and `/metrics` from the worker's event loop.

A blocked event loop does not answer, so a probe notices it.

The paths of the server, for one process as for several: what differs is where the answers come from.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from ...config.settings import ANY_ADDRESS
from ...errors import ConfigError
from ...hooks import Hooks, WorkerContext
from .health import ProcessHealth, livez, readyz
from .process_state import ProcessState, own_text
from .server import HttpServer, Request, Response, bind, json_response, problem, url_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


PATHS = {
    "/livez": "whether the worker must be restarted",
    "/readyz": "whether the worker runs jobs",
    "/metrics": "metrics for Prometheus",
}
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_CLIENT = "metrics need the package prometheus-client: pip install 'graphile-worker[metrics]'"


class Sources(Protocol):
    """Where the answers come from."""

    @property
    def expected(self) -> int:
        """How many worker processes there should be."""
        ...

    async def health(self) -> Sequence[ProcessHealth]:
        """The health of every worker process."""
        ...

    async def metrics(self) -> bytes | None:
        """The metrics as text; None if the client library is not installed."""
        ...


async def answer(request: Request, sources: Sources) -> Response:
    """The response to a request."""
    is_verbose = "verbose" in request.query
    match request.path:
        case "/livez":
            return livez(await sources.health(), is_verbose=is_verbose)
        case "/readyz":
            return readyz(await sources.health(), expected=sources.expected, is_verbose=is_verbose)
        case "/metrics":
            text = await sources.metrics()
            return problem(404, NO_CLIENT) if text is None else Response(200, text, METRICS_TYPE)
        case "/":
            return json_response(200, PATHS)
    return problem(404, f"there is nothing here; try {', '.join(PATHS)}")


logger = logging.getLogger("graphile_worker.http")


class HttpPlugin:
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
        self._port = port
        self._address = address
        self._registry = registry
        self._state = ProcessState()
        self._server: HttpServer | None = None
        self._users = 0
        self.url: str | None = None
        """Where it serves; None while it does not."""

    expected = 1

    def install(self, hooks: Hooks) -> None:
        """Nothing to observe before the start."""

    async def start(self, worker: WorkerContext) -> None:
        """Begin to serve, if no other worker has."""
        await self.open()
        self._state.add(worker)

    async def stop(self) -> None:
        """Serve no more if this was the last worker."""
        if self._users == 1:
            self._state.clear()
        await self.close()

    async def open(self) -> None:
        """Serve from now on, also before there is a worker; each call needs one of `close`."""
        self._users += 1
        if self._server is not None:
            return
        listening = bind(self._address, self._port)
        self._server = HttpServer(self._answer)
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

    async def _answer(self, request: Request) -> Response:
        return await answer(request, self)

    async def health(self) -> Sequence[ProcessHealth]:
        """The health of this process."""
        return [self._state.health()]

    async def metrics(self) -> bytes | None:
        """The metrics of this process."""
        return await own_text(self._registry)
