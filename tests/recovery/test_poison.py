"""A job that kills its process while it is held leaves no trace on its row, and is given up all the same."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from recovery.dead import QUICK_ENVIRONMENT, Graveyard
from support.worker_process import Start, WorkerProcess, recorded
from support.working import PATIENCE, SCHEMA, Jobs

TASKS = Path(__file__).with_name("short_tasks.py")
MAX_RECOVERIES = 2
ENVIRONMENT = QUICK_ENVIRONMENT | {
    "GRAPHILE_WORKER_MAX_RECOVERIES": str(MAX_RECOVERIES),
    "GRAPHILE_WORKER_HOLD": "1",  # so that batches are held on a busy machine too
}
QUIET = ("--log-level", "warning")
MORE = 2_000


class Supervisor:
    """Restarts workers that end, and adds urgent jobs before each start, so that batches are held again."""

    def __init__(self, start: Start, url: str, jobs: Jobs, count: int) -> None:
        self._start = start
        self._url = url
        self._jobs = jobs
        self._count = count
        self.workers: list[WorkerProcess] = []
        self.deaths = 0
        self.without_trace = 0
        """Deaths after which the deadly job was free and had no attempt."""
        self.added: list[int] = []

    async def run_until_given_up(self, deadly: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await self._is_given_up(deadly):
            assert time.monotonic() < deadline, f"{self.deaths} deaths, {self.without_trace} without a trace"
            for worker in [worker for worker in self.workers if worker.process.poll() is not None]:
                assert worker.ended() == 3, worker.output
                self.workers.remove(worker)
                self.deaths += 1
                row = await self._row(deadly)
                self.without_trace += row["attempts"] == 0 and row["locked_at"] is None
            while len(self.workers) < self._count:
                await self._add_urgent()
                self.workers.append(self._start(*QUIET, url=self._url, tasks=TASKS, **ENVIRONMENT))
            await asyncio.sleep(0.02)

    async def _add_urgent(self) -> None:
        rows = await self._jobs.connection.fetch(
            f"select job.id from generate_series(1, $1::integer) n, {SCHEMA}.add_job('short', "
            "run_at => now() - interval '1 day' + n * interval '1 millisecond') job",
            MORE,
        )
        self.added += [row["id"] for row in rows]

    async def _row(self, job_id: int) -> Any:
        return await self._jobs.connection.fetchrow(
            f"select * from {SCHEMA}._private_jobs where id = $1", job_id
        )

    async def _is_given_up(self, job_id: int) -> bool:
        row = await self._row(job_id)
        return row["last_error"] is not None and row["last_error"].startswith("Given up")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("others", [0, 10_000])
async def test_it_is_given_up_and_all_others_run(
    start: Start, database_url: str, jobs: Jobs, graveyard: Graveyard, folder: Path, count: int, others: int
) -> None:
    ids = await jobs.add_many("short", others)
    deadly = await jobs.add("poison")
    if others:
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set run_at = now() - interval '1 hour' + interval '5 seconds' "
            "where id = $1",
            deadly,
        )
    supervisor = Supervisor(start, database_url, jobs, count)
    await supervisor.run_until_given_up(deadly)
    print(supervisor.deaths, supervisor.without_trace)
    await jobs.until_left(deadly)
    assert set(recorded(folder)) == {*ids, *supervisor.added}
    row = await jobs.one()
    assert row["attempts"] == row["max_attempts"]
    assert f"died {MAX_RECOVERIES + 1} times" in row["last_error"]
    # Each process that knew of no death may hold the job, once.
    assert supervisor.deaths <= MAX_RECOVERIES + 1 + count
