"""`/healthz` and `/readyz`: for load balancers and orchestrators. No sign-in, and nothing to learn."""

from __future__ import annotations

import logging

from starlette.responses import PlainTextResponse, Response

from ...errors.text import message_of
from ..call import Call
from ..routes import Route

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


ROUTES = [
    Route(
        method="GET", path="/healthz", handler=healthz, permission="open", summary="The process is running"
    ),
    Route(
        method="GET", path="/readyz", handler=readyz, permission="open",
        summary="The databases answer, and have the schema",
    ),
]  # fmt: skip
