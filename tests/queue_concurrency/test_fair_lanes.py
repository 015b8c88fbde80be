"""Lanes that serve named queues in turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from graphile_worker import JobSpec, Lane, WorkerUtils, task
from graphile_worker.errors import ConfigError
from support.working import SCHEMA, Gate, Jobs, Workers, until

QUEUES = 300
FILL = f"""
    select count({SCHEMA}.add_job('sync', json_build_object('queue', n), queue_name => 'tenant:' || n,
        run_at => now() - interval '1 day'))
    from generate_series(1, $1::integer) n, generate_series(1, $2::integer)
"""


async def test_each_queue_is_served_in_turn(jobs: Jobs, workers: Workers) -> None:
    """One tenant has 20,000 jobs, which are also the oldest."""
    served: list[int] = []
    enough = asyncio.Event()

    @task("sync")
    async def sync(payload: dict[str, int]) -> None:
        served.append(payload["queue"])
        if len(served) >= 4 * QUEUES:
            enough.set()
            await asyncio.sleep(0.05)  # timing: few run while the worker stops; more is as good

    await jobs.connection.execute(FILL.replace("$1::integer", "1").replace("$2::integer", "20000"))
    await jobs.connection.fetch(FILL, QUEUES, 6)
    runner = await workers.start(
        [sync], lanes=[Lane("tenants", tasks=["sync"], concurrency=10, order="fair")]
    )
    async with asyncio.timeout(60):
        await enough.wait()
    await workers.stop(runner)
    times = Counter(served[: 4 * QUEUES])
    assert len(times) == QUEUES
    assert max(times.values()) <= 5
    assert min(times.values()) >= 3


async def test_jobs_without_a_queue_take_turns_too(jobs: Jobs, workers: Workers, utils: WorkerUtils) -> None:
    served: list[str] = []

    @task("sync")
    async def sync(payload: dict[str, str]) -> None:
        served.append(payload["queue"])

    await utils.add_jobs(
        JobSpec("sync", {"queue": name}, queue_name=name or None)
        for name in ("a", "b", "")
        for _ in range(50)
    )
    await workers.start([sync], lanes=[Lane("tenants", tasks=["sync"], concurrency=3, order="fair")])
    await jobs.until_gone()
    assert Counter(served) == {"a": 50, "b": 50, "": 50}
    assert set(served[:15]) == {"a", "b", ""}


@pytest.mark.parametrize("queues", [1, 3])
async def test_wide_queues_use_all_their_concurrency(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, queues: int
) -> None:
    gate = Gate()

    @task("sync", queue_concurrency=3)
    async def sync(payload: dict[str, Any]) -> None:
        await gate(payload["queue"])

    for number in range(queues):
        await utils.add_jobs(
            JobSpec("sync", {"queue": number}, queue_name=f"tenant:{number}") for _ in range(9)
        )
    await workers.start([sync], lanes=[Lane("tenants", tasks=[sync], concurrency=20, order="fair")])
    for _ in range(3):
        await gate.until_inside(3 * queues)
        assert gate.inside == 3 * queues
        for _ in range(3 * queues):
            gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 3 * queues

    async def is_unlocked() -> bool:
        return await jobs.locked() == 0

    await until(is_unlocked)


async def test_queues_beyond_many_busy_ones_are_found(jobs: Jobs, workers: Workers) -> None:
    served: list[int] = []

    @task("sync")
    async def sync(payload: dict[str, int]) -> None:
        served.append(payload["queue"])

    await jobs.connection.fetch(FILL, 900, 1)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_by = 'other', locked_at = now() "
        f"where queue_name <> 'tenant:900'"
    )
    await workers.start([sync], lanes=[Lane("tenants", tasks=["sync"], concurrency=2, order="fair")])
    await until(lambda: served == [900])


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(ConfigError, match="lane 'x': order: expected one of priority, fair; got 'random'"):
        Lane("x", order="random")  # type: ignore[arg-type]
