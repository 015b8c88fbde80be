"""DaskExecutor on a real cluster of two processes. `make clusters` installs what it needs."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contrib import cluster_checks as checks
from support.working import PATIENCE, Jobs, Workers

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.filterwarnings("ignore"),  # what Dask does with sockets and loops is its own affair
]

distributed = pytest.importorskip("distributed", reason="make clusters installs Dask")


def local_cluster(workers: int, port: int = 0) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            scheduler_port=port,
            silence_logs=logging.CRITICAL,
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import dask

    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    made = local_cluster(2)
    try:
        yield made
    finally:
        made.close(timeout=PATIENCE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


async def test_results_errors_and_logs_cross(
    cluster: Any, database_url: str, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    executor = DaskExecutor(cluster.scheduler_address)
    await checks.everything_crosses(executor, database_url, jobs, workers, caplog)


async def test_a_killed_process_fails_the_attempt_and_the_function_ran_once(
    cluster: Any, jobs: Jobs, workers: Workers, file: Path
) -> None:
    settings = {"cluster.kind": "dask", "cluster.address": cluster.scheduler_address}
    error = await checks.a_killed_process_fails_the_attempt_and_the_function_ran_once(
        settings, jobs, workers, file
    )
    assert error.startswith("the Dask worker that ran the task died")


async def test_two_workers_run_a_thousand_jobs_once(
    cluster: Any, jobs: Jobs, workers: Workers, file: Path
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    await checks.two_workers_run_a_thousand_jobs_once(
        lambda: DaskExecutor(cluster.scheduler_address), jobs, workers, file
    )


async def test_a_running_job_is_shown_and_ends_when_it_is_cancelled(
    cluster: Any, database_url: str, jobs: Jobs, workers: Workers, file: Path
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    executor = DaskExecutor(cluster.scheduler_address)
    place = await checks.a_running_job_is_shown_and_cancelled(
        executor, database_url, jobs, workers, file, "stay_there"
    )
    assert place in cluster.scheduler_info["workers"]


async def test_a_lost_scheduler_fails_the_attempt_and_the_worker_connects_again(
    jobs: Jobs, workers: Workers, file: Path
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    clusters = [local_cluster(1)]
    port = int(clusters[0].scheduler_address.rpartition(":")[2])
    try:
        error = await checks.a_lost_cluster_fails_the_attempt_and_the_next_one_runs_on_the_new_one(
            DaskExecutor(clusters[0].scheduler_address),
            jobs,
            workers,
            file,
            lose=lambda: clusters[0].close(timeout=PATIENCE),
            again=lambda: clusters.append(local_cluster(1, port)),
        )
    finally:
        for each in clusters:
            each.close(timeout=PATIENCE)
    assert "Dask" in error
