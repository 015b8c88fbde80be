"""DaskExecutor on a real cluster of two processes. `make clusters` installs what it needs."""

from __future__ import annotations

import asyncio
import json
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contrib import cluster_tasks as tasks
from graphile_worker import make_worker_utils
from graphile_worker.hooks.events import JobFailed
from graphile_worker.testing.recorder import EventRecorder
from support.working import PATIENCE, Jobs, Workers, headline, until

pytestmark = [
    pytest.mark.clusters,
    pytest.mark.filterwarnings("ignore"),  # what Dask does with sockets and loops is its own affair
]

distributed = pytest.importorskip("distributed", reason="make clusters installs Dask")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import dask

    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )
    try:
        yield made
    finally:
        made.close(timeout=30)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes"
    path.touch()
    return path


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


async def test_results_errors_and_logs_cross(
    cluster: Any, database_url: str, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    await jobs.add("fail_there")
    await jobs.add("each_there", [1, 2, 3])
    async with make_worker_utils(connection_string=database_url) as utils:
        handle = await utils.add_job(tasks.report_there, {"n": 20}, keep=True)
        with caplog.at_level(logging.INFO):
            await workers.once(
                tasks.ALL, concurrency=4, executors={"cluster": DaskExecutor(cluster.scheduler_address)}
            )
        assert await handle.result(timeout=PATIENCE) == {"twice": 40}
    failed, each = await jobs.all()
    assert headline(failed) == "ValueError: not there"
    assert json.loads(each["payload"]) == [1, 3]
    assert any(record.getMessage().endswith("at work over there") for record in caplog.records)


async def test_a_killed_worker_fails_the_attempt_and_the_function_ran_once(
    cluster: Any, jobs: Jobs, workers: Workers, file: Path
) -> None:
    await jobs.add("die_there", {"file": str(file)})
    executors = {"cluster.kind": "dask", "cluster.address": cluster.scheduler_address}
    await workers.once(tasks.ALL, executors=executors)
    assert headline(await jobs.one()).startswith("the Dask worker that ran the task died")
    assert lines(file) == ["die"]


async def test_a_thousand_jobs_run_once_and_a_time_limit_asks_a_task_to_end(
    cluster: Any, jobs: Jobs, workers: Workers, file: Path
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    await jobs.connection.execute(
        "select graphile_worker.add_job('note_there', json_build_object('n', n, 'file', $1::text)) "
        "from generate_series(1, 1000) n",
        str(file),
    )
    await jobs.add("wait_there", {"file": str(file)})
    await jobs.add("sleep_there", {"file": str(file)})
    executor = DaskExecutor(cluster.scheduler_address)
    await workers.once(
        tasks.ALL, concurrency=50, timeout_grace=5.0, executors={"cluster": executor}, timeout=4 * PATIENCE
    )
    rows = await jobs.all()
    assert {headline(row) for row in rows} == {"the task ran longer than its time limit of 0.3 s"}
    assert Counter(lines(file)) == Counter([*map(str, range(1, 1001)), "cancelled", "noticed"])


async def test_a_lost_scheduler_fails_the_running_attempt(
    jobs: Jobs, workers: Workers, file: Path, recorder: EventRecorder
) -> None:
    from graphile_worker.contrib.dask import DaskExecutor

    other = await asyncio.to_thread(
        distributed.LocalCluster,
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=logging.CRITICAL,
    )
    try:
        await jobs.add("hang_there", {"file": str(file)})
        await workers.start(
            tasks.ALL, events=recorder.events, executors={"cluster": DaskExecutor(other.scheduler_address)}
        )
        await until(lambda: lines(file) == ["hangs"])
    finally:
        await asyncio.to_thread(other.close, 30)
    await recorder.wait_for(JobFailed, timeout=PATIENCE)
    assert "Dask" in headline(await jobs.one())
