"""A job that kills its process while it is held leaves no trace on its row, and is given up all the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from recovery.dead import QUICK_ENVIRONMENT
from recovery.holding import HOLD_LONG, is_holding
from support.worker_process import Start, WorkerProcess, recorded
from support.working import PATIENCE, SCHEMA, Jobs

TASKS = Path(__file__).with_name("short_tasks.py")
MAX_RECOVERIES = 2
ENVIRONMENT = QUICK_ENVIRONMENT | HOLD_LONG | {"GRAPHILE_WORKER_MAX_RECOVERIES": str(MAX_RECOVERIES)}
URGENT = 3_000
OTHERS = 1_000
MOST_DEADLY = 5

DROP_ORPHANED = f"""
delete from {SCHEMA}._private_jobs job
where job.id = any ($1::bigint[])
and (
  job.locked_by in (select worker.id from {SCHEMA}._private_py_workers worker where worker.pid = $2)
  or job.id in (select recovery.job_id from {SCHEMA}._private_py_recoveries recovery)
)
returning job.id"""


class Supervisor:
    """Restarts workers that end, and adds urgent jobs before each start, so that they may hold batches."""

    def __init__(self, start: Start, url: str, jobs: Jobs, count: int) -> None:
        self._start = start
        self._url = url
        self._jobs = jobs
        self._count = count
        self._urgency = 2  # hours that jobs are overdue: those of a later start come first
        self._deadline = time.monotonic() + PATIENCE  # for the next death, or the end of a job
        self._left = 0
        self.workers: list[WorkerProcess] = []
        self.deaths = 0
        self.without_trace = 0
        """Deaths after which the pool that died had not locked a deadly job."""
        self.added: list[int] = []
        """Urgent jobs."""
        self.dropped: set[int] = set()
        """Those of them that a worker had when it died."""

    async def step(self) -> None:
        """Replace those that have ended."""
        if time.monotonic() > self._deadline - PATIENCE / 2:
            # After a recovery, thousands of jobs may run one at a time: that takes long on a busy machine.
            before, self._left = self._left, await self._jobs.count()
            if self._left != before:
                self._deadline = time.monotonic() + PATIENCE
        assert time.monotonic() < self._deadline, (
            f"{self.deaths} deaths, {self.without_trace} without a trace"
        )
        for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
            assert worker.ended() == 3, worker.output
            self.workers.remove(worker)
            self.deaths += 1
            self._deadline = time.monotonic() + PATIENCE
            self.without_trace += not await self._has_locked(worker)
            await self._drop_orphaned(worker)
        while len(self.workers) < self._count:
            await self.add_urgent()
            self.workers.append(
                self._start("--log-level", "warning", url=self._url, tasks=TASKS, **ENVIRONMENT)
            )
        await asyncio.sleep(0.02)  # timing: between two looks

    async def until_holding(self) -> None:
        """Add short jobs until a worker holds some of them."""
        while not await is_holding(self._jobs.connection):
            await self.step()
            if await self._jobs.count() < URGENT:
                await self.add_urgent()

    async def until_given_up(self, deadly: list[int]) -> None:
        while not await self._jobs.connection.fetchval(
            f"select count(*) = $2 from {SCHEMA}._private_jobs "
            "where id = any ($1) and last_error like 'Given up%'",
            deadly,
            len(deadly),
        ):
            await self.step()

    async def until_left(self, deadly: list[int]) -> None:
        """Wait until no other jobs are left."""
        while [row["id"] for row in await self._jobs.all()] != deadly:
            await self.step()

    async def add_urgent(self) -> None:
        rows = await self._jobs.connection.fetch(
            f"select job.id from generate_series(1, $1::integer) n, {SCHEMA}.add_job('short', "
            "run_at => now() - $2 * interval '1 hour' + n * interval '1 millisecond') job",
            URGENT,
            self._urgency,
        )
        self._urgency += 1
        self.added += [row["id"] for row in rows]

    async def add_deadly(self) -> int:
        """Among other urgent jobs, so that it is not fetched alone."""
        async with self._jobs.connection.transaction():
            await self.add_urgent()
            job_id: int = await self._jobs.connection.fetchval(
                f"select id from {SCHEMA}.add_job('poison', "
                "run_at => now() - $2 * interval '1 hour' + $1 * interval '1 millisecond')",
                URGENT - 500,
                self._urgency - 1,
            )
        self._deadline = time.monotonic() + PATIENCE
        return job_id

    async def _drop_orphaned(self, worker: WorkerProcess) -> None:
        """Thousands of recovered jobs, each run by itself, take minutes on a busy machine."""
        rows = await self._jobs.connection.fetch(DROP_ORPHANED, self.added, worker.pid)
        self.dropped.update(row["id"] for row in rows)

    async def _has_locked(self, worker: WorkerProcess) -> Any:
        return await self._jobs.connection.fetchval(
            f"select exists (select from {SCHEMA}._private_jobs job "
            f"join {SCHEMA}._private_tasks task on task.id = job.task_id "
            f"join {SCHEMA}._private_py_workers worker on worker.id = job.locked_by "
            "where worker.pid = $1 and task.identifier = 'poison')",
            worker.pid,
        )


async def forget_deaths(jobs: Jobs) -> None:
    await jobs.connection.execute(f"update {SCHEMA}._private_py_last_death set died_at = '-infinity'")


async def test_alone_it_is_given_up(start: Start, database_url: str, jobs: Jobs) -> None:
    deadly = await jobs.add("poison")
    supervisor = Supervisor(start, database_url, jobs, 1)
    await supervisor.until_given_up([deadly])
    await supervisor.until_left([deadly])
    assert f"died {MAX_RECOVERIES + 1} times" in (await jobs.one())["last_error"]


@pytest.mark.parametrize("count", [1, 3])
async def test_among_many_others_it_is_given_up_and_they_all_run(
    start: Start, database_url: str, jobs: Jobs, folder: Path, count: int
) -> None:
    ids = await jobs.add_many("short", OTHERS)
    supervisor = Supervisor(start, database_url, jobs, count)
    deadly: list[int] = []
    while not deadly or (count == 1 and not supervisor.without_trace and len(deadly) < MOST_DEADLY):
        # A busy worker does not hold every batch, and three of them few: then the job is locked, as ever.
        await forget_deaths(jobs)
        await supervisor.until_holding()
        deadly.append(await supervisor.add_deadly())
        await supervisor.until_given_up(deadly)
    assert supervisor.without_trace or count > 1
    await supervisor.until_left(deadly)
    assert set(recorded(folder)) | supervisor.dropped == {*ids, *supervisor.added}
    for row in await jobs.all():
        assert row["attempts"] == row["max_attempts"]
        assert f"died {MAX_RECOVERIES + 1} times" in row["last_error"]
    # Each process that knew of no death may hold a deadly job, once.
    assert supervisor.without_trace <= count * len(deadly)
    assert supervisor.deaths <= len(deadly) * (MAX_RECOVERIES + 1) + supervisor.without_trace
