"""Wide queues beside a Node worker: together they never run more jobs than a queue is wide."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from graphile_worker import JobSpec, make_worker_utils, run, task
from interop.conftest import SharedDatabase
from interop.python_tasks import record
from interop.runs import Run

pytestmark = pytest.mark.interop

QUEUE_CONCURRENCY = 3
QUEUES = 4
JOBS = 400
ENDED = "count(*) >= $1 FROM public.interop_runs WHERE ended IS NOT NULL"
NODE_OPTIONS: dict[str, Any] = {"concurrency": 6, "pollInterval": 50}


def peaks(runs: Iterable[Run]) -> dict[str, int]:
    """How many jobs of each queue ran at once, at most; for a track Node records its own name."""
    moments: dict[str, list[tuple[Any, int]]] = defaultdict(list)
    for each in runs:
        assert each.queue is not None
        assert each.ended is not None
        home = re.sub(r" \[\d+\]$", "", each.queue)
        moments[home] += [(each.started, 1), (each.ended, -1)]
    found = {}
    for home, changes in moments.items():
        now = most = 0
        for _, change in sorted(changes):
            now += change
            most = max(most, now)
        found[home] = most
    return found


async def test_they_never_run_more_than_the_concurrency_together(our_database: SharedDatabase) -> None:
    wide = task("echo", queue_concurrency=QUEUE_CONCURRENCY)(record)
    specs = [
        JobSpec("echo", {"n": n, "pause": 1 + n % 4}, queue_name=f"tenant:{n % QUEUES}") for n in range(JOBS)
    ]
    options: dict[str, Any] = {"concurrency": 6, "poll_interval": 0.05, "handle_signals": False}
    async with (
        make_worker_utils(connection_string=our_database.url) as utils,
        our_database.node.worker("echo", **NODE_OPTIONS),
        run(connection_string=our_database.url, task_list=[wide], **options),
        run(connection_string=our_database.url, task_list=[wide], **options),
    ):
        for place in range(0, JOBS, 100):
            await utils.add_jobs(specs[place : place + 100])
            await our_database.node.call(["cleanup", {"tasks": ["GC_JOB_QUEUES"]}])  # deletes idle tracks
        await our_database.runs.wait_until(ENDED, JOBS)
        await our_database.runs.wait_until_idle()
    runs = await our_database.runs.all()
    assert len({each.job_id for each in runs}) == len(runs) == JOBS
    assert {each.worker for each in runs} == {"node", "python"}
    assert max(peaks(runs).values()) == QUEUE_CONCURRENCY
    locked = await our_database.connection.fetchval(
        "select count(*) from graphile_worker._private_job_queues where locked_at is not null"
    )
    assert locked == 0


async def test_a_paused_wide_queue_starts_nothing_in_node(our_database: SharedDatabase) -> None:
    wide = task("echo", queue_concurrency=QUEUE_CONCURRENCY)(record)
    options: dict[str, Any] = {"concurrency": 6, "poll_interval": 0.05, "handle_signals": False}
    connection = our_database.connection
    async with make_worker_utils(connection_string=our_database.url) as utils:
        await utils.queues.set_concurrency("tenant", QUEUE_CONCURRENCY)
        await utils.queues.pause("tenant")
        await utils.add_jobs(JobSpec("echo", {"n": n}, queue_name="tenant") for n in range(20))
        # As if they had failed in a track before.
        await connection.execute(
            "update graphile_worker._private_jobs set job_queue_id = "
            "(select id from graphile_worker._private_job_queues where queue_name = 'tenant [2]') "
            "where id % 2 = 0"
        )
        async with (
            our_database.node.worker("echo", "other", **NODE_OPTIONS),
            run(connection_string=our_database.url, task_list={"echo": wide, "also": record}, **options),
        ):
            # A fetch takes the oldest job that it may, so each of these is fetched past those of the queue.
            for rounds in range(1, 4):
                await utils.add_jobs([JobSpec("other"), JobSpec("also")])
                await our_database.runs.wait_until(ENDED, 2 * rounds)
            assert {each.task for each in await our_database.runs.all()} == {"other", "also"}
            await utils.queues.resume("tenant")
            await our_database.runs.wait_until(ENDED, 6 + 20)
            await our_database.runs.wait_until_idle()
