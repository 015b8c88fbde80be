"""`/metrics`: gauges about the database, for Prometheus."""

from __future__ import annotations

from starlette.responses import PlainTextResponse

from ..call import Call
from ..hub import hubs_of
from ..routes import Route
from ..service.metrics import read_metrics


async def metrics(call: Call) -> PlainTextResponse:
    hubs = hubs_of(call.app)
    text = await read_metrics(
        [hubs.of(database) for database in call.app.databases], call.app.settings.metrics_queues
    )
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4; charset=utf-8")


ROUTES = [
    Route(
        method="GET", path="/metrics", handler=metrics, permission="metrics.read",
        summary="Gauges about the database, for Prometheus",
    ),
]  # fmt: skip
