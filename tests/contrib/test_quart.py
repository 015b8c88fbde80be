"""Quart: client and worker while serving, and our commands."""

from __future__ import annotations

import asyncio
from typing import Any

from quart import Quart

from contrib.serving import serving
from graphile_worker import task
from graphile_worker.contrib.quart import GraphileWorker, current_jobs
from support.working import PATIENCE


async def test_a_view_adds_a_job_that_the_worker_runs(database_url: str) -> None:
    ran = asyncio.Event()

    @task
    async def welcome(payload: Any) -> None:
        ran.set()

    app = Quart("quart_shop")
    app.config["GRAPHILE_WORKER_CONNECTION_STRING"] = database_url
    GraphileWorker(app, worker=True, task_list=[welcome])

    @app.post("/")
    async def add() -> str:
        return str((await current_jobs().add_job("welcome")).id)

    async with serving(app) as http:
        assert (await http.post("/")).status_code == 200
        await asyncio.wait_for(ran.wait(), PATIENCE)
    assert "graphile-worker" in app.cli.commands
