"""A FastAPI application with a worker in its process, for servers that are started as child processes."""

import asyncio
import os
from typing import Any

from fastapi import FastAPI

from graphile_worker import task
from graphile_worker.contrib.fastapi import GraphileWorkerApp, Jobs


@task
async def quick(payload: Any) -> None:
    """Does nothing."""


@task
async def endless(payload: Any) -> None:
    print("endless: started", flush=True)
    await asyncio.Event().wait()


worker_app = GraphileWorkerApp(
    worker=True, connection_string=os.environ["DATABASE_URL"], task_list=[quick, endless], grace=0.2
)
app = FastAPI(lifespan=worker_app.lifespan)


@app.post("/add/{identifier}")
async def add(identifier: str, jobs: Jobs) -> int:
    return (await jobs.add_job(identifier, max_attempts=1)).id


@app.post("/kill-worker")
async def kill_worker() -> None:
    assert worker_app.runner is not None
    await worker_app.runner.kill("it is to die")
