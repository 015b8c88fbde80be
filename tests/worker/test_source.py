"""How the default source fetches: as many jobs as needed, with a small prefetch, never at others' cost."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from graphile_worker.database.statements.fetch import list_priorities
from graphile_worker.hooks.events import (
    JobStarted,
    JobSucceeded,
    LocalQueueReturnJobs,
    PoolJobsReturned,
    PoolListenNotification,
)
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.fetch import fetcher
from graphile_worker.worker.fetch import plan as watermarks
from support.working import SCHEMA, Gate, Jobs, Workers, until, until_listening

LOCKED = f"select count(*) from {SCHEMA}._private_jobs where locked_at is not null"


async def prefetched_jobs(jobs: Jobs, recorder: EventRecorder) -> int:
    """How many locked jobs have not started; a job that ended is locked until its outcome is written."""
    rows = await jobs.all()
    started = {event.job.id for event in recorder.of(JobStarted)}
    return len({row["id"] for row in rows if row["locked_by"] is not None} - started)


async def test_direct_mode_locks_a_job_only_when_a_slot_is_free(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    prefetched: list[int] = []

    async def quick() -> None:
        prefetched.append(await prefetched_jobs(jobs, recorder))

    async def slow(payload: Any) -> None:
        await gate(payload)

    await jobs.add_many("quick", 30)
    await jobs.add("slow", priority=1)
    await jobs.add("quick", priority=2)
    await workers.start({"quick": quick, "slow": slow}, prefetch=0, events=recorder.events)
    await gate.until_inside(1)
    assert prefetched == [0] * 30
    assert await prefetched_jobs(jobs, recorder) == 0


async def test_slow_jobs_are_not_prefetched(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    gate = Gate()

    async def slow(payload: Any) -> None:
        await gate(payload)

    await jobs.add_many("slow", 20)
    await workers.start({"slow": slow}, concurrency=2, events=recorder.events)
    await gate.until_inside(2)
    for n in range(5):
        await asyncio.sleep(0.06)  # timing: longer than the prefetch; more is as good
        assert await prefetched_jobs(jobs, recorder) == 0
        gate.open()
        await until(lambda n=n: len(gate.started) == n + 3)  # type: ignore[misc]


async def test_jobs_stuck_behind_a_slow_one_are_returned_and_another_worker_runs_them(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    others = EventRecorder()

    async def step(payload: Any) -> None:
        if payload["n"] == 300:
            await gate(payload)

    await jobs.add_many("step", 600)
    await workers.start({"step": step}, events=recorder.events)
    await gate.until_inside(1)
    started = recorder.count(JobStarted)
    event = await recorder.wait_for(PoolJobsReturned)
    assert len(event.jobs) > 0
    assert recorder.count(LocalQueueReturnJobs) == 0  # there is no local queue
    await workers.start({"step": step}, events=others.events)
    await others.wait_for(JobSucceeded, count=600 - started)
    assert await jobs.count() == 1
    assert recorder.count(JobStarted) == started
    gate.open()
    await jobs.until_gone()


async def test_in_direct_mode_a_queue_job_locked_by_a_write_is_returned_too(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        if payload.get("slow"):
            await gate(payload)

    for n in range(200):  # queues that go on, next to jobs that come in and block the only slot
        await jobs.add("step", {"n": n}, queue="serial")
    runner = await workers.start({"step": step}, prefetch=0, events=recorder.events)
    await recorder.wait_for(JobSucceeded, count=3)
    await jobs.add("step", {"slow": True}, priority=-1)
    await gate.until_inside(1)
    others = EventRecorder()
    await workers.start({"step": step}, events=others.events)

    async def is_alone() -> bool:
        return await jobs.count() == 1

    await until(is_alone)
    gate.open()
    await jobs.until_gone()
    await workers.stop(runner)


async def test_a_busy_worker_does_not_fetch_once_per_notification(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def slow(payload: Any) -> None:
        await gate(payload)

    await workers.start({"slow": slow}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await jobs.add("slow")
    await gate.until_inside(1)
    received = recorder.count(PoolListenNotification)
    since = await jobs.connection.fetchval("select clock_timestamp()")
    for _ in range(50):
        await jobs.connection.execute("select pg_notify('jobs:insert', '{\"count\": 1}')")
    await until(lambda: recorder.count(PoolListenNotification) >= received + 50)
    assert await fetches(jobs, since) == []
    gate.open()
    await jobs.until_gone()

    async def has_fetched() -> bool:
        return len(await fetches(jobs, since)) == 1

    await until(has_fetched)  # so this check can fail


async def fetches(jobs: Jobs, since: datetime) -> list[Any]:
    """Connections whose last statement belongs to a fetch that began after `since`."""
    return await jobs.connection.fetch(
        "select pid from pg_stat_activity where datname = current_database() and query_start > $1 "
        "and query like $2",
        since,
        "%is_available%",
    )


async def test_jobs_added_one_by_one_are_all_found_without_polling(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def quick() -> None:
        await asyncio.sleep(0)

    await workers.start({"quick": quick}, concurrency=3, events=recorder.events)
    for n in range(150):
        await jobs.add("quick", {"n": n}, queue=f"queue {n % 4}" if n % 3 else None)
        if n % 7 == 0:
            await asyncio.sleep(0.002)  # timing: some are added while the worker is idle, in whatever rhythm
    await recorder.wait_for(JobSucceeded, count=150)


async def test_jobs_of_a_fetch_that_is_cancelled_while_it_is_examined_run(
    jobs: Jobs, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are locked, and no slot knows of them."""
    locked: list[int] = []

    async def be_cancelled(connection: Any, *arguments: Any, **options: Any) -> Any:
        if not locked:
            locked.append(await connection.fetchval(LOCKED))
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
        return await list_priorities(connection, *arguments, **options)

    async def step() -> None: ...

    monkeypatch.setattr(watermarks, "SLOW", -1.0)  # every fetch is examined
    monkeypatch.setattr(fetcher, "list_priorities", be_cancelled)
    await jobs.add_many("step", 10)
    await workers.start({"step": step}, concurrency=5)
    await jobs.until_gone()
    assert locked == [5]
