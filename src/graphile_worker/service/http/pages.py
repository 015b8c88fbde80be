"""The paths of the server, for one process as for several: what differs is where the answers come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .health import ProcessHealth, livez, readyz
from .server import Request, Response, json_response, problem

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
