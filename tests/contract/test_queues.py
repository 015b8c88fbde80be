"""Named queues and priorities while a worker goes on: one at a time, in order, without waiting for a poll."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.hooks.events import JobStarted, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.working import SCHEMA, Gate, Jobs, Workers, until


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_a_queue_goes_on_as_soon_as_its_last_job_is_written(
    jobs: Jobs, workers: Workers, concurrency: int
) -> None:
    order: list[int] = []
    inside = 0

    async def step(payload: Any) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0.001)  # timing: a second one could begin meanwhile; more is as good
        order.append(payload["n"])
        inside -= 1

    await jobs.add_many("step", 60, queue="serial")
    await workers.start({"step": step}, concurrency=concurrency)
    await jobs.until_gone()  # before it polls
    assert order == list(range(60))


async def test_a_failed_job_frees_its_queue_for_the_next(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    async def step(payload: Any) -> None:
        ran.append(payload["n"])
        if payload["n"] % 2:
            raise RuntimeError("odd")

    await jobs.add_many("step", 10, queue="serial")
    await workers.start({"step": step})
    await until(lambda: len(ran) == 10)
    assert ran == list(range(10))


async def test_a_stuck_queue_does_not_hold_up_others(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    done: list[Any] = []

    async def stuck(payload: Any) -> None:
        await gate(payload)

    async def quick(payload: Any) -> None:
        done.append(payload["n"])

    for n in range(5):
        await jobs.add("stuck", {"n": n}, queue="stuck", priority=-5)
    runner = await workers.start({"stuck": stuck, "quick": quick}, concurrency=2, events=recorder.events)
    await gate.until_inside(1)
    await jobs.add_many("quick", 200, queue="stuck")  # never to be run here
    await jobs.add_many("quick", 30)
    for n in range(10):
        await jobs.add("quick", {"n": 100 + n}, queue=f"other {n}")
    await until(lambda: len(done) == 40)
    assert gate.most_at_once == 1
    assert len(gate.started) == 1
    gate.open()
    await until(lambda: len(gate.started) == 2)
    stopping = asyncio.create_task(workers.stop(runner))
    gate.open()
    await stopping
    assert await jobs.locked() == 0


async def test_a_worker_with_one_slot_prefers_the_better_priority(
    jobs: Jobs, workers: Workers, mode: str
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload["name"])

    await jobs.add("step", {"name": "first"}, queue="serial")
    await workers.start({"step": step}, concurrency=1)
    await gate.until_inside(1)
    if mode == "local queue":
        pytest.skip("a local queue locks jobs ahead of those that come later")
    now = datetime.now(UTC)
    for name, priority, minutes, queue in (
        ("e", 10, 1, None),
        ("b", -5, 1, None),
        ("d", 0, 1, "queue d"),
        ("a", -5, 2, "queue a"),
        ("c", 0, 2, None),
    ):
        await jobs.add(
            "step", {"name": name}, priority=priority, run_at=now - timedelta(minutes=minutes), queue=queue
        )
    for n in range(2, 7):
        gate.open()
        await until(lambda n=n: len(gate.started) == n)  # type: ignore[misc]
    gate.open()
    await jobs.until_gone()
    assert gate.started == ["first", "a", "b", "c", "d", "e"]


async def test_the_next_job_starts_only_after_the_last_was_written(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    rows_left: list[int] = []

    async def step() -> None:
        rows_left.append(await jobs.count())

    await jobs.add_many("step", 5, queue="serial")
    await workers.start({"step": step}, concurrency=3, events=recorder.events)
    await recorder.wait_for(JobSucceeded, count=5)
    assert rows_left == [5, 4, 3, 2, 1]
    assert [event.job.id for event in recorder.of(JobStarted)] == sorted(
        event.job.id for event in recorder.of(JobStarted)
    )


async def test_a_queue_freed_by_another_worker_is_taken_up_when_it_gives_back(
    jobs: Jobs, workers: Workers, database_url: str
) -> None:
    gate = Gate()
    ran: list[int] = []

    async def step(payload: Any) -> None:
        ran.append(payload["n"])
        if payload["n"] == 0:
            await gate(payload)

    await jobs.add_many("step", 3, queue="serial")
    first = await workers.start({"step": step}, grace=0, graceful_shutdown_abort_timeout=0)
    await gate.until_inside(1)
    await workers.start({"step": step})
    await workers.stop(first)  # the running job is interrupted and goes back
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()
    assert ran == [0, 0, 1, 2]
    assert await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_job_queues") == 1
