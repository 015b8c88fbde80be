"""HttpPlugin: serves `/livez`, `/readyz` and `/metrics` from the worker's event loop.

A blocked event loop does not answer, so a probe notices it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...config.process_options import ANY_ADDRESS
from ...errors import ConfigError
from ...hooks import WorkerContext
from ..health import OwnHealth
from .answers import answer, own_metrics
from .server import HttpServer, Request, Response, bind, url_of

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

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

    async def metrics(self) -> bytes | None:
        """The metrics of this process."""
        return await own_metrics(self._registry)
