"""Quart: a client, and if wanted a worker, for the lifetime of the application; and our commands.

Views reach the client by `current_jobs`:

    jobs = GraphileWorker(app, worker=True, task_list=[welcome])

    @app.post("/users")
    async def create_user():
        await current_jobs().add_job("welcome", {"id": 1})
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

try:
    from quart import current_app
except ImportError as error:  # pragma: no cover
    raise ImportError("graphile_worker.contrib.quart needs Quart: pip install quart") from error

from ..client import WorkerUtils
from .starlette import GraphileWorkerApp
from .web_settings import options_in, worker_command

if TYPE_CHECKING:
    from quart import Quart

__all__ = ["GraphileWorker", "current_jobs"]
EXTENSION = "graphile_worker"


class GraphileWorker:
    """The extension. Takes the arguments of `GraphileWorkerApp`; `init_app` may be called later.

    Settings of `app.config` with the prefix `GRAPHILE_WORKER_` are options. Arguments take precedence.
    """

    def __init__(self, app: Quart | None = None, **arguments: Any) -> None:
        self._arguments = arguments
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Quart) -> None:
        """Register with an application: its lifespan, and the command group."""
        options = options_in(app.config)
        jobs = GraphileWorkerApp(**{**options, **self._arguments})
        app.extensions[EXTENSION] = jobs

        @app.while_serving
        async def serve() -> AsyncGenerator[None, None]:
            async with jobs.lifespan():
                yield

        app.cli.add_command(worker_command(options))


def current_jobs(session: Any = None) -> WorkerUtils:
    """The client of the current application; with an asynchronous session, one in its transaction."""
    jobs = current_app.extensions.get(EXTENSION)
    if not isinstance(jobs, GraphileWorkerApp):
        raise RuntimeError("GraphileWorker is not registered with this application; call init_app(app)")
    return jobs.utils if session is None else WorkerUtils.bound(session, schema=jobs.utils.schema.name)
