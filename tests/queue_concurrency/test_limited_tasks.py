"""Tasks with a limit in wide queues: the concurrency of each queue holds, and so does the limit of all."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker import Limit, task
from support.working import SCHEMA, Gate, Jobs, Workers, until

WIDE_LIMIT = Limit("wide", concurrency=20)
TIGHT_LIMIT = Limit("tight", concurrency=4)
FAST_LIMIT = Limit("fast", rate=(10_000, 1))


@pytest.mark.parametrize("limit", [WIDE_LIMIT, FAST_LIMIT], ids=lambda limit: limit.name)
async def test_as_many_limited_jobs_run_as_the_queue_is_wide(
    limit: Limit, jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()

    @task("sync", limit=limit, queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await jobs.add_many("sync", 9, queue="tenant:7")
    await jobs.add_many("sync", 2, queue="tenant:8")
    await workers.start([sync], concurrency=10)
    await gate.until_inside(5)
    for _ in range(11):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert len(gate.ended) == 11
    assert gate.most_at_once == 5  # three and two


async def test_the_limit_holds_over_all_wide_queues(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()

    @task("sync", limit=TIGHT_LIMIT, queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await jobs.add_many("sync", 6, queue="a")
    await jobs.add_many("sync", 6, queue="b")
    await jobs.add_many("sync", 3)
    await workers.start([sync], concurrency=10)
    await gate.until_inside(4)
    for _ in range(15):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 4


async def test_each_running_job_has_a_row_of_its_queue(jobs: Jobs, workers: Workers) -> None:
    """A job is moved to the row whose lock it takes, as in the fetch without limits."""
    gate = Gate()

    @task("sync", limit=WIDE_LIMIT, queue_concurrency=2)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload)

    await jobs.add_many("sync", 4, queue="q")
    await workers.start([sync], concurrency=10)
    await gate.until_inside(2)

    async def are_spread() -> bool:
        rows = await jobs.connection.fetch(
            f"select queue.queue_name from {SCHEMA}._private_jobs job "
            f"join {SCHEMA}._private_job_queues queue on queue.id = job.job_queue_id "
            "and queue.locked_by = job.locked_by order by 1"
        )
        return [row["queue_name"] for row in rows] == ["q", "q [2]"]

    await until(are_spread)
    for _ in range(4):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
