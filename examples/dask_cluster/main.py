"""A Dask cluster, a database, a worker and some jobs: `python main.py`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from statistics import mean

import dask
from distributed import LocalCluster
from jobs import estimate_pi

from graphile_worker import make_worker_utils, run
from graphile_worker.contrib.dask import DaskExecutor
from graphile_worker.database.embedded import EmbeddedPostgres


async def main(url: str, scheduler: str) -> None:
    """Add jobs, run them on the cluster, and print the average of their results."""
    executors = {"cluster": DaskExecutor(scheduler)}
    worker = run(connection_string=url, task_list=[estimate_pi], concurrency=8, executors=executors)
    async with worker, make_worker_utils(connection_string=url) as utils:
        payloads = [{"seed": seed, "points": 100_000} for seed in range(8)]
        jobs = [await utils.add_job(estimate_pi, payload, keep=True) for payload in payloads]
        results = [await job.result(timeout=60) for job in jobs]
    print(f"pi is about {mean(results):.2f}")


if __name__ == "__main__":
    dask.config.set({"distributed.scheduler.allowed-failures": 0})  # only Graphile Worker retries
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        tempfile.TemporaryDirectory() as folder,
        EmbeddedPostgres(Path(folder) / "postgres") as server,
    ):
        asyncio.run(main(server.url(), cluster.scheduler_address))
