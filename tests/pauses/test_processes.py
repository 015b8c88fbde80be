"""Queues that are paused and resumed while several processes work, one of which is killed."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from pathlib import Path

from graphile_worker import JobSpec, WorkerUtils
from support.worker_process import program
from support.working import MODES, PATIENCE, SCHEMA, Jobs, until

QUEUES = 8
JOBS = 3000
ROUNDS = 6

OVERLAPS = """
select count(*) from (
  select began, lag(ended) over (partition by queue_id order by began) as last_ended from history
) run where began < last_ended
"""
STARTED = "select count(*) from history where queue_id = $1 and began between $2 and $3"
RUNNING = f"""
with free as (
  select id from {SCHEMA}._private_jobs where job_queue_id = $1 and locked_at is null for update skip locked
)
select (select count(*) from {SCHEMA}._private_jobs where job_queue_id = $1) - (select count(*) from free)
"""
"""How many jobs are locked, in the ordinary way or in a held batch, which ends when its worker hears of the
pause."""


async def test_a_paused_queue_starts_nothing_and_a_resumed_one_stays_serial(
    utils: WorkerUtils, jobs: Jobs, database_url: str, tmp_path: Path
) -> None:
    connection = jobs.connection
    await connection.execute(
        "create table history (pid integer, job_id bigint, queue_id integer, attempt integer, "
        "began double precision, ended double precision, failed boolean)"
    )
    modes = [*MODES, "default"]
    processes = [
        program("worker.queue_process", database_url, mode, seed, folder=tmp_path)
        for seed, mode in enumerate(modes)
    ]
    windows: list[tuple[int, float, float]] = []
    dice = random.Random(7)
    try:
        for process in processes:
            await asyncio.to_thread(process.wait_for, "ready")
        await utils.add_jobs(
            [JobSpec("step", {"n": n}, queue_name=f"queue {n % QUEUES}") for n in range(JOBS)],
            return_jobs=False,
        )
        ids = {row["queue_name"]: row["id"] for row in await jobs.queues()}
        for turn in range(ROUNDS):
            name = f"queue {dice.randrange(QUEUES)}"
            if dice.random() < 0.5:  # in quick succession, while a job of the queue is running
                await utils.queues.pause(name)
                await utils.queues.resume(name)
            await utils.queues.pause(name)
            if turn == ROUNDS // 2:
                processes[-1].send(signal.SIGKILL)

            async def is_still(queue_id: int = ids[name]) -> bool:
                return bool(await connection.fetchval(RUNNING, queue_id) == 0)

            await until(is_still)
            began, left = time.monotonic(), await jobs.count()

            async def have_others_run(left: int = left) -> bool:
                return await jobs.count() <= max(left - 100, JOBS // QUEUES)

            await until(have_others_run)
            windows.append((ids[name], began, time.monotonic()))
            assert await utils.queues.resume(name)
        await jobs.until_gone(timeout=3 * PATIENCE)
        for process in processes[:-1]:
            process.send(signal.SIGTERM)
        assert [await asyncio.to_thread(process.ended) for process in processes[:-1]] == [0] * len(MODES)
    finally:
        for process in processes:
            process.close()
    assert [await connection.fetchval(STARTED, *window) for window in windows] == [0] * ROUNDS
    assert await connection.fetchval("select count(distinct pid) from history") > 1
    assert await connection.fetchval(OVERLAPS) == 0

    async def is_settled() -> bool:
        return await jobs.locked() == 0

    await until(is_settled)
