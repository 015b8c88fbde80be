"""A task that blocks the event loop is named, and cannot keep the process from ending."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from graphile_worker.client import make_worker_utils
from recovery.dead import QUICK_ENVIRONMENT
from support.worker_process import Start, WorkerProcess
from support.working import Jobs, until

TASKS = """
import time

from graphile_worker import task

@task
async def spin():
    while True:
        pass

@task
async def sleep():
    time.sleep(3)

@task
async def sleep_for_long():
    time.sleep(600)
"""

Begin = Callable[..., WorkerProcess]


@pytest.fixture
def begin(start: Start, folder: Path, database_url: str) -> Begin:
    """Start a worker with these tasks."""
    tasks = folder / "blocking.py"
    tasks.write_text(TASKS)

    def begin(*arguments: object) -> WorkerProcess:
        return start(*arguments, url=database_url, tasks=tasks, **QUICK_ENVIRONMENT)

    return begin


async def test_a_blocked_loop_is_reported_with_the_task_and_its_stack(begin: Begin, jobs: Jobs) -> None:
    await jobs.add("sleep")
    worker = begin().wait_for("has blocked the event loop for 1 s")
    worker.wait_for("the event loop runs again; task sleep (job 1) had blocked it for")
    worker.wait_for("completed in")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    assert "task sleep (job 1) has blocked the event loop" in worker.output
    assert "time.sleep(3)" in worker.output


@pytest.mark.parametrize("task", ["spin", "sleep_for_long"])
@pytest.mark.parametrize("processes", [1, 2])
async def test_the_process_ends_after_the_grace_and_the_job_is_recovered(
    begin: Begin, jobs: Jobs, database_url: str, task: str, processes: int
) -> None:
    (job_id,) = [await jobs.add(task)]
    worker = begin("--grace", 1, "--processes", processes).wait_for("has blocked the event loop")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
    assert f"task {task} (job {job_id}) still blocks the event loop after SIGTERM" in worker.output
    async with make_worker_utils(connection_string=database_url) as utils:

        async def is_recovered() -> bool:
            await utils.sweep_stale_workers()
            return await jobs.locked() == 0

        await until(is_recovered, every=0.1)
    assert (await jobs.one())["attempts"] == 0
