"""Writing outcomes: in batches, after the configured delay, and retried until the database has them."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.hooks.events import JobCompleted, JobErrored, JobInterrupted, JobSucceeded
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from support.working import (
    MODES,
    PATIENCE,
    SCHEMA,
    SELDOM,
    Gate,
    Jobs,
    Workers,
    headline,
    terminate_workers,
    until,
)


async def test_a_batch_delay_collects_completed_jobs(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    clock = FakeClock(datetime(2026, 1, 1, tzinfo=UTC))
    ended: list[int] = []

    async def quick(payload: Any) -> None:
        ended.append(payload["n"])

    await jobs.add_many("quick", 3)
    await workers.start(
        {"quick": quick}, complete_job_batch_delay=0.2, concurrency=3, events=recorder.events, clock=clock
    )
    await until(lambda: len(ended) == 3)
    await clock.advance(0.19)
    assert await jobs.count() == 3
    assert recorder.count(JobSucceeded) == 0
    advancing = asyncio.ensure_future(clock.advance(1))
    await recorder.wait_for(JobSucceeded, count=3)
    assert await jobs.count() == 0
    await advancing


async def test_each_kind_has_its_own_delay(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    async def step(payload: Any) -> None:
        if payload["n"]:
            raise RuntimeError("no")

    await jobs.add_many("step", 2)
    runner = await workers.start({"step": step}, complete_job_batch_delay=SELDOM, events=recorder.events)
    await recorder.wait_for(JobErrored)  # without the delay of completed jobs
    await workers.stop(runner)  # cuts the delay short
    assert recorder.count(JobSucceeded) == 1
    assert await jobs.count() == 1


async def test_a_once_run_does_not_wait_for_delays(jobs: Jobs, workers: Workers) -> None:
    async def step(payload: Any) -> None:
        if payload["n"] == 2:
            raise RuntimeError("no")

    await jobs.add_many("step", 4, queue="serial")
    await workers.once({"step": step}, complete_job_batch_delay=SELDOM, fail_job_batch_delay=SELDOM)
    assert headline(await jobs.one()) == "RuntimeError: no"


@pytest.mark.parametrize("mode", list(MODES))
async def test_outcomes_are_kept_while_the_database_is_away_and_written_once(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    gate = Gate()
    ran: Counter[int] = Counter()

    async def step(payload: Any) -> None:
        ran[payload["n"]] += 1
        await gate(payload)
        if payload["n"] % 2:
            raise RuntimeError("odd")

    await jobs.add_many("step", 6)
    await workers.start({"step": step}, concurrency=6, events=recorder.events, **MODES[mode])
    await until(lambda: len(gate.started) >= 4)
    # No write succeeds while this lock is held; the connections that try are cut.
    async with jobs.connection.transaction():
        await jobs.connection.execute("lock table graphile_worker._private_jobs in share row exclusive mode")
        while gate.inside:
            gate.open()
        for _ in range(3):
            await terminate_workers(jobs.connection)
            await asyncio.sleep(0.1)  # timing: writes are tried again meanwhile; more is as good
        assert recorder.count(JobCompleted) == 0
    await recorder.wait_for(JobCompleted, count=4)
    async with asyncio.timeout(PATIENCE):
        while len(gate.ended) < 6:
            await asyncio.sleep(0.01)
            if gate.inside:
                gate.open()
    await recorder.wait_for(JobCompleted, count=6)
    assert ran == Counter(dict.fromkeys(range(6), 1))
    assert recorder.count(JobSucceeded) == 3
    assert recorder.count(JobErrored) == 3
    assert [headline(row) for row in await jobs.all()] == ["RuntimeError: odd"] * 3
    assert await jobs.locked() == 0


@pytest.mark.parametrize("mode", list(MODES))
async def test_nothing_is_lost_when_connections_are_cut_at_random(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: str
) -> None:
    ran: Counter[tuple[int, int]] = Counter()

    async def step(payload: Any, helpers: Any) -> None:
        await asyncio.sleep(0.002)  # timing: the load lasts for some cuts; fewer do no harm
        ran[(helpers.job.job_queue_id or 0, payload["n"])] += 1

    await jobs.add_many("step", 400)
    for queue in range(5):
        await jobs.add_many("step", 20, queue=f"queue {queue}")
    runner = await workers.start({"step": step}, concurrency=5, events=recorder.events, **MODES[mode])
    cuts = 0
    while await jobs.count() and cuts < 8:
        await asyncio.sleep(0.1)
        cuts += bool(await terminate_workers(jobs.connection))
    await jobs.until_gone()
    await workers.stop(runner)
    assert len(ran) == 500
    assert set(ran.values()) == {1}  # the process is alive, so no job ran twice
    assert recorder.count(JobSucceeded) == 500
    assert await jobs.locked() == 0


async def test_a_job_that_is_lost_while_its_write_waits_is_not_written(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Another worker took the pool for dead, recovered the job and runs it again."""
    gate = Gate()
    await jobs.add("step")
    runner = await workers.start({"step": gate}, events=recorder.events)
    await gate.until_inside(1)
    pool = runner._running_pool
    async with pool._sessions.write.lock:
        gate.open()
        await until(lambda: bool(pool._sessions.write.lock._waiters))
        await jobs.connection.execute(f"update {SCHEMA}._private_jobs set locked_by = 'pool-other'")
        pool.lease.doubt()
    await recorder.wait_for(JobInterrupted)
    assert recorder.count(JobSucceeded) == 0
    assert (await jobs.one())["locked_by"] == "pool-other"


async def test_many_outcomes_go_into_one_statement(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload)

    await jobs.add_many("step", 40)
    await workers.start({"step": step}, concurrency=40, events=recorder.events)
    await gate.until_inside(40)
    before = await transactions(jobs)
    while gate.inside:
        gate.open()
    await recorder.wait_for(JobSucceeded, count=40)
    assert await jobs.count() == 0
    # One write for the first, one for the batch behind it, and a few fetches.
    assert await transactions(jobs) - before < 20


async def transactions(jobs: Jobs) -> int:
    """The number of transaction ids used so far: one for each transaction that wrote."""
    return await jobs.connection.fetchval("select txid_current()")
