"""Named queues under several processes in different modes: judged by what was recorded, not by argument."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from support.worker_process import WorkerProcess, program
from support.working import MODES, PATIENCE, SCHEMA, Jobs, until

QUEUES = 50
JOBS = 5000

ADD_JOBS = f"""
select {SCHEMA}.add_jobs(array_agg(
  ('step', json_build_object('n', n), 'queue ' || n % {QUEUES}, now() - interval '1 day' * random(), null,
   null, floor(random() * 5) - 2, null)::{SCHEMA}.job_spec
))
from generate_series(1, {JOBS}) n
"""

OVERLAPS = """
select count(*) from (
  select began, lag(ended) over (partition by queue_id order by began) as last_ended from history
) run where began < last_ended
"""

OUT_OF_ORDER = """
select count(*) from (
  select
    row_number() over (partition by queue_id order by began) as ran,
    row_number() over (partition by queue_id order by priority, run_at) as meant
  from history join planned using (job_id) where attempt = 1
) run where ran <> meant
"""


def start(database_url: str, folder: Path, mode: str, seed: int) -> WorkerProcess:
    return program("worker.queue_process", database_url, mode, seed, folder=folder)


@pytest.mark.compat("GJ5", "GJ6")
async def test_no_two_jobs_of_a_queue_overlap_and_each_queue_keeps_its_order(
    connection: Any, database_url: str, tmp_path: Path
) -> None:
    jobs = Jobs(connection)
    await connection.execute(
        "create table history (pid integer, job_id bigint, queue_id integer, attempt integer, "
        "began double precision, ended double precision, failed boolean)"
    )
    processes = [start(database_url, tmp_path, mode, seed) for seed, mode in enumerate(MODES)]
    try:
        for process in processes:
            await asyncio.to_thread(process.wait_for, "ready")
        async with connection.transaction():  # once all are there, or the first may do everything
            await connection.execute(ADD_JOBS)
            await connection.execute(
                f"create table planned as select id as job_id, priority, run_at from {SCHEMA}._private_jobs"
            )

        async def is_done() -> bool:
            return await jobs.count() == 0

        await until(is_done, timeout=3 * PATIENCE, every=0.1)
        for process in processes:
            process.send(signal.SIGTERM)
        assert [await asyncio.to_thread(process.ended) for process in processes] == [0, 0, 0]
    finally:
        for process in processes:
            process.close()
    runs, succeeded, failed, workers = await connection.fetchrow(
        "select count(*), count(distinct job_id) filter (where not failed), count(*) filter (where failed), "
        "count(distinct pid) from history"
    )
    assert succeeded == JOBS
    assert runs == JOBS + failed
    assert failed > 0
    assert workers > 1
    assert await connection.fetchval(OVERLAPS) == 0
    assert await connection.fetchval(OUT_OF_ORDER) == 0
    assert await jobs.locked() == 0
