"""A process that serves gauges about the database, and nothing else: `graphile-worker exporter`."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

from ...metrics.catalogue import INFO
from ...metrics.database_metrics import collector_of, own_reader
from ...metrics.database_reader import DatabaseReader
from ...metrics.families import single
from ...metrics.prometheus import REGISTRY
from ...values import __version__
from ...values.options import WorkerOptions
from .plugin import METRICS_TYPE, nothing_here, own_metrics
from .server import HttpServer, Request, Response, bind, json_response, logger, url_of

STOPPED_BY = (signal.SIGINT, signal.SIGTERM)


async def export(options: WorkerOptions, address: str, port: int, **values: Any) -> signal.Signals:
    """Serve until a signal arrives, and return it. `values` are arguments of the reader."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in STOPPED_BY:
        loop.add_signal_handler(number, stop, number)
    listening = bind(address, port)
    reader = own_reader(options, **values)
    REGISTRY.register(collector_of(reader, [single(INFO, 1, __version__, options.schema)]))

    async def answer(request: Request) -> Response:
        return await _answer(request, reader)

    server = HttpServer(answer)
    logger.info("serving health checks and metrics at %s", url_of(listening))
    await server.open(listening)
    reader.start()
    try:
        return await stopped
    finally:
        await reader.stop()
        await server.close()


async def _answer(request: Request, reader: DatabaseReader) -> Response:
    match request.path:
        case "/metrics":
            return Response(200, await own_metrics() or b"", METRICS_TYPE)
        case "/livez":
            return json_response(200, {"status": "ok", "problems": []})
        case "/readyz":
            problems = [] if reader.is_up else ["the database does not answer"]
            status = "unavailable" if problems else "ok"
            return json_response(503 if problems else 200, {"status": status, "problems": problems})
    return nothing_here()
