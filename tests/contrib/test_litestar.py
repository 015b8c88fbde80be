"""Litestar: the plugin opens client and worker, and provides the client."""

import asyncio
from typing import Any

from litestar import Litestar, post
from litestar.di import NamedDependency

from contrib.serving import serving
from graphile_worker import WorkerUtils, task
from graphile_worker.contrib.litestar import GraphileWorkerPlugin
from support.working import PATIENCE


async def test_a_handler_adds_a_job_that_the_worker_runs(database_url: str) -> None:
    ran = asyncio.Event()

    @task
    async def welcome(payload: Any) -> None:
        ran.set()

    @post("/")
    async def add(jobs: NamedDependency[WorkerUtils]) -> int:
        return (await jobs.add_job("welcome")).id

    plugin = GraphileWorkerPlugin(worker=True, connection_string=database_url, task_list=[welcome])
    async with serving(Litestar(route_handlers=[add], plugins=[plugin])) as http:
        assert (await http.post("/")).status_code == 201
        await asyncio.wait_for(ran.wait(), PATIENCE)
    assert plugin.app.runner is None
