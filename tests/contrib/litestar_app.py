"""The routes of `web_app` with Litestar."""

import os

from litestar import Litestar, post
from litestar.di import NamedDependency
from web_app import endless, quick  # type: ignore[import-not-found]

from graphile_worker import WorkerUtils
from graphile_worker.contrib.litestar import GraphileWorkerPlugin


@post("/add/{identifier:str}")
async def add(identifier: str, jobs: NamedDependency[WorkerUtils]) -> int:
    return (await jobs.add_job(identifier, max_attempts=1)).id


plugin = GraphileWorkerPlugin(
    worker=True, connection_string=os.environ["DATABASE_URL"], task_list=[quick, endless], grace=0.2
)
app = Litestar(route_handlers=[add], plugins=[plugin])
