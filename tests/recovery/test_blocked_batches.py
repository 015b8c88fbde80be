"""A task that blocks the event loop while its batch is held: who waits for a job of it waits for seconds.

The jobs stay with their worker. No other one takes them, whether they run, wait for a slot or have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.dead import QUICK_ENVIRONMENT
from support.worker_process import Start, WorkerProcess, let_go, recorded
from support.working import PATIENCE, SCHEMA, Jobs, until

TABLE = f"{SCHEMA}._private_jobs"
LONG = {"GRAPHILE_WORKER_HOLD": "60", "GRAPHILE_WORKER_POLL_INTERVAL": "0.5"}
"""The worker that blocks ends no batch by itself before a test is over."""
TASKS = f"""
import os
import time
from pathlib import Path

import psycopg

from graphile_worker import task

folder = Path(os.environ["FOLDER"])
done = os.open(folder / "done", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def is_held(connection, job):
    found = connection.execute("select locked_at is null from {TABLE} where id = %s", (job.id,))
    return found.fetchone()[0]

@task
async def short(payload, helpers):
    os.write(done, f"{{helpers.job.id}}\\n".encode())

@task
async def change_itself(payload, helpers):
    "Waits for the batch that it is in."
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        if is_held(connection, helpers.job):
            connection.execute("update {TABLE} set priority = priority where id = %s", (helpers.job.id,))
            (folder / "changed").touch()
    os.write(done, f"{{helpers.job.id}}\\n".encode())

@task
async def block(payload, helpers):
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        if is_held(connection, helpers.job):
            (folder / "blocked").write_text(str(helpers.job.id))
            while not (folder / "go_on").exists():
                time.sleep(0.01)
    os.write(done, f"{{helpers.job.id}}\\n".encode())
"""

Begin = Callable[[], WorkerProcess]


@pytest.fixture
def begin(start: Start, folder: Path, database_url: str) -> Begin:
    tasks = folder / "blocking.py"
    tasks.write_text(TASKS)
    return lambda: start(url=database_url, tasks=tasks, **QUICK_ENVIRONMENT, **LONG)


async def hold_one(jobs: Jobs, task: str, sign: Path, added: set[int]) -> None:
    """Add jobs of this task among short ones until one of them is held, and says so."""

    async def is_there() -> bool:
        if sign.exists():
            return True
        if await jobs.count() < 500:
            async with jobs.connection.transaction():
                added.update(await jobs.add_many("short", 1_000))
                added.add(await jobs.add(task))
                added.update(await jobs.add_many("short", 1_000))
        return False

    await until(is_there)


def assert_once(folder: Path, added: set[int]) -> None:
    """Each job has run, and none of them twice."""
    done = recorded(folder)
    assert set(done) == added
    assert len(done) == len(added)


async def test_a_task_that_waits_for_its_own_batch_goes_on(begin: Begin, jobs: Jobs, folder: Path) -> None:
    workers = begin(), begin()  # each may take what is free
    added: set[int] = set()
    await hold_one(jobs, "change_itself", folder / "changed", added)
    await jobs.until_gone()
    assert any("ended a held batch: others waited for it" in worker.output for worker in workers)
    assert_once(folder, added)


CHANGE = f"update {TABLE} set priority = 0 where id = $1 returning id"
CALLS = {
    "complete_jobs": f"select count(*) from {SCHEMA}.complete_jobs(array[$1::bigint])",
    "reschedule_jobs": f"select count(*) from {SCHEMA}.reschedule_jobs(array[$1::bigint], priority => 1)",
    "an update": f"with it as ({CHANGE}) select count(*) from it",
}
CHANGED = {
    "complete_jobs": {0},  # the row is never free to be deleted
    "reschedule_jobs": {0, 1},  # it leaves locked jobs alone, and either may come first
    "an update": {1},
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_that_names_a_job_of_a_blocked_worker_gets_an_answer(
    call: str, begin: Begin, jobs: Jobs, folder: Path
) -> None:
    begin()
    added: set[int] = set()
    await hold_one(jobs, "block", folder / "blocked", added)
    blocking = int((folder / "blocked").read_text())
    begin()
    async with asyncio.timeout(PATIENCE):
        changed = await jobs.connection.fetchval(CALLS[call], blocking)
    assert changed in CHANGED[call]
    await until(lambda: is_locked(jobs, blocking))
    let_go(folder)
    await jobs.until_gone()
    assert_once(folder, added)


async def is_locked(jobs: Jobs, job_id: int) -> bool:
    return await jobs.connection.fetchval(f"select locked_at is not null from {TABLE} where id = $1", job_id)
