"""`/healthz`, `/readyz` and `/metrics`: for load balancers, orchestrators and Prometheus."""

from __future__ import annotations

import logging

from starlette.responses import PlainTextResponse, Response

from ...errors.text import message_of
from ..live.hub import hubs_of
from ..web.call import Call
from ..web.routes import Route
from .queries import read_metrics

logger = logging.getLogger("graphile_worker.admin")


async def healthz(call: Call) -> Response:
    return PlainTextResponse("ok\n")


async def readyz(call: Call) -> Response:
    for database in call.app.databases:
        try:
            await database.check()
        except Exception as error:
            logger.warning("not ready: database %s: %s", database.name or "(only one)", message_of(error))
            return PlainTextResponse("not ready\n", 503)
    return PlainTextResponse("ready\n")


async def metrics(call: Call) -> PlainTextResponse:
    hubs = hubs_of(call.app)
    text = await read_metrics(
        [hubs.of(database) for database in call.app.databases], call.app.settings.metrics_queues
    )
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [
    Route(
        method="GET", path="/healthz", handler=healthz, permission="open", summary="The process is running"
    ),
    Route(
        method="GET", path="/readyz", handler=readyz, permission="open",
        summary="The databases answer, and have the schema",
    ),
    Route(
        method="GET", path="/metrics", handler=metrics, permission="metrics.read",
        summary="Gauges about the database, for Prometheus",
    ),
]  # fmt: skip
