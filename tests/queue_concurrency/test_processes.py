"""Wide queues under several processes: one is killed, numbers change, tracks are deleted."""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

from graphile_worker import JobSpec, WorkerUtils
from support.worker_process import WorkerProcess, program
from support.working import MODES, SCHEMA, Jobs, until

QUEUE_CONCURRENCY = 3
WIDEST = 5
QUEUES = 4
JOBS = 1200

TABLE = """
create table runs (
  id bigint primary key generated always as identity, pid integer, job_id bigint, queue text,
  started timestamptz default clock_timestamp(), ended timestamptz
)
"""


def start(database_url: str, folder: Path, mode: str) -> WorkerProcess:
    return program("queue_concurrency.wide_process", database_url, mode, QUEUE_CONCURRENCY, folder=folder)


async def peaks(connection: Any, killed_at: Any) -> dict[str, int]:
    """How many jobs of each queue ran at once, at most. What a killed process ran had ended by then."""
    changes: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for run in await connection.fetch("select queue, started, ended from runs"):
        changes[run["queue"]] += [(run["started"], 1), (run["ended"] or killed_at, -1)]
    found = {}
    for queue, moments in changes.items():
        now = most = 0
        for _, change in sorted(moments):
            now += change
            most = max(most, now)
        found[queue] = most
    return found


async def test_no_concurrency_is_ever_exceeded(
    connection: Any, database_url: str, utils: WorkerUtils, tmp_path: Path
) -> None:
    jobs = Jobs(connection)
    await connection.execute(TABLE)
    processes = [start(database_url, tmp_path, mode) for mode in MODES]
    try:
        for process in processes:
            await asyncio.to_thread(process.wait_for, "ready")
        await utils.add_jobs(
            JobSpec("step", {"n": n}, queue_name=f"tenant:{n % QUEUES}", max_attempts=5) for n in range(JOBS)
        )

        async def have_run(count: int) -> None:
            async def are_enough() -> bool:
                return bool(await connection.fetchval("select count(*) >= $1 from runs", count))

            await until(are_enough)

        await have_run(100)
        processes[0].send(signal.SIGKILL)
        await asyncio.to_thread(processes[0].ended)
        killed_at = await connection.fetchval("select clock_timestamp()")
        for count, concurrency in ((200, WIDEST), (300, 2), (400, 1), (500, WIDEST), (600, None)):
            await have_run(count)
            await utils.queues.set_concurrency("tenant:0", concurrency)
            await utils.cleanup(["GC_JOB_QUEUES"])

        async def is_empty() -> bool:
            await connection.execute(
                f"update {SCHEMA}._private_jobs set run_at = now() "
                "where locked_at is null and attempts > 0 and run_at > now()"
            )
            return await jobs.count() == 0

        await until(is_empty, every=0.1)
        for process in processes[1:]:
            process.send(signal.SIGTERM)
        assert [await asyncio.to_thread(process.ended) for process in processes[1:]] == [0, 0]
    finally:
        for process in processes:
            process.close()
    found = await peaks(connection, killed_at)
    assert found.pop("tenant:0") <= WIDEST
    assert set(found.values()) == {QUEUE_CONCURRENCY}
    assert await connection.fetchval("select count(distinct job_id) from runs") == JOBS
