"""The routes of `web_app` with Quart."""

import os

from quart import Quart
from web_app import endless, quick  # type: ignore[import-not-found]

from graphile_worker.contrib.quart import GraphileWorker, current_jobs

app = Quart("quart_app")
app.config["GRAPHILE_WORKER_CONNECTION_STRING"] = os.environ["DATABASE_URL"]
GraphileWorker(app, worker=True, task_list=[quick, endless], grace=0.2)


@app.post("/add/<identifier>")
async def add(identifier: str) -> str:
    return str((await current_jobs().add_job(identifier, max_attempts=1)).id)
