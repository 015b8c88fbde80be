"""FastAPI: dependencies with the client of the application, or with one in the transaction of a request.

`GraphileWorkerApp` opens the client, and if wanted a worker:

    jobs = GraphileWorkerApp(worker=True, task_list=[welcome])
    app = FastAPI(lifespan=jobs.lifespan)

    @app.post("/users")
    async def create_user(jobs: Jobs) -> None:
        await jobs.add_job("welcome", {"id": 1})
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

try:
    from fastapi import APIRouter, Depends, Response
    from fastapi.requests import HTTPConnection
except ImportError as error:  # pragma: no cover
    raise ImportError("graphile_worker.contrib.fastapi needs FastAPI: pip install fastapi") from error

from ..client import WorkerUtils
from ..client.sync_worker_utils import SyncWorkerUtils
from .starlette import GraphileWorkerApp as GraphileWorkerApp
from .starlette import worker_app_of

__all__ = [
    "GraphileWorkerApp",
    "Jobs",
    "SyncJobs",
    "get_sync_worker_utils",
    "get_worker_utils",
    "jobs_in",
    "router",
]


def get_worker_utils(connection: HTTPConnection) -> WorkerUtils:
    """The client of the application. Tests can replace it with `app.dependency_overrides`."""
    return worker_app_of(connection.state).utils


def get_sync_worker_utils(connection: HTTPConnection) -> SyncWorkerUtils:
    """The blocking client of the application, for endpoints without `async`."""
    return worker_app_of(connection.state).sync_utils


Jobs = Annotated[WorkerUtils, Depends(get_worker_utils)]
SyncJobs = Annotated[SyncWorkerUtils, Depends(get_sync_worker_utils)]


def jobs_in(get_session: Callable[..., Any], *, scope: Literal["function", "request"] | None = None) -> Any:
    """A client in the transaction of the request: `Annotated[WorkerUtils, jobs_in(get_session)]`.

    `get_session` is the dependency that yields the session or connection. A blocking one gives a
    `SyncWorkerUtils`. Give the same `scope` as elsewhere: FastAPI makes one session for each.
    """

    of_request = Depends(get_session, scope=scope)

    def bound(connection: HTTPConnection, session: Any = of_request) -> Any:
        return worker_app_of(connection.state).bound(session)

    return Depends(bound, scope=scope)


def router(*, prefix: str = "", dependencies: Any = ()) -> APIRouter:
    """`/livez` answers while the process does; `/readyz` needs the database and the worker too."""
    routes = APIRouter(prefix=prefix, dependencies=list(dependencies), include_in_schema=False)

    @routes.get("/livez")
    async def livez() -> Response:
        return Response("ok", media_type="text/plain")

    @routes.get("/readyz")
    async def readyz(connection: HTTPConnection) -> Response:
        problem = await worker_app_of(connection.state).check_ready()
        return Response(problem or "ok", 503 if problem else 200, media_type="text/plain")

    return routes
