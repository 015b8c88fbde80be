"""The unlock of locks older than four hours, as it comes around while a worker runs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from graphile_worker.hooks import Events
from graphile_worker.hooks.events import ResetLockedFailure, ResetLockedStarted, ResetLockedSuccess
from graphile_worker.options import NodeOptions, WorkerOptions
from graphile_worker.recovery.sweeper import StaleLocks
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from support.working import PATIENCE, SCHEMA, Jobs, Workers

EVERY_MILLISECOND = {"min_reset_locked_interval": 0.001, "max_reset_locked_interval": 0.001}


async def noop() -> None:
    pass


@pytest.mark.compat("RST-1", "RL1", "RL4")
async def test_a_stop_in_the_middle_lets_one_run_end_and_begins_no_other(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    ids = [await jobs.add("later", run_at=datetime.now(UTC) + timedelta(hours=1)) for _ in range(3)]
    for job_id, age in zip(ids[1:], ("5 minutes", "4 hours 1 minute"), strict=True):
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set locked_by = 'other', locked_at = now() - $2::text::interval "
            "where id = $1",
            job_id,
            age,
        )
    events = recorder.events
    stopping: list[asyncio.Task[None]] = []

    runner = await workers.start([noop], events=events, **EVERY_MILLISECOND)
    events.on(ResetLockedStarted, lambda event: stopping.append(asyncio.ensure_future(runner.stop())))
    recorder.clear()
    async with asyncio.timeout(PATIENCE):
        await runner.wait()
        await asyncio.gather(*stopping[:1])
        await asyncio.gather(*stopping[1:], return_exceptions=True)
    seen = [event.name for event in recorder.of(ResetLockedStarted, ResetLockedSuccess, ResetLockedFailure)]
    assert seen[-2:] == ["resetLocked:started", "resetLocked:success"]
    assert seen.count("resetLocked:started") == 1
    assert recorder.of(ResetLockedSuccess)[-1].delay is None
    assert [row["locked_by"] for row in await jobs.all()] == [None, "other", None]


@pytest.mark.compat("RL2")
async def test_the_first_run_comes_within_a_minute_and_the_next_between_the_bounds(
    database_url: str, recorder: EventRecorder
) -> None:
    import asyncpg

    clock = FakeClock(datetime(2030, 1, 1, tzinfo=UTC))
    async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as pool:
        unlock = StaleLocks(
            pool,
            WorkerOptions(node=NodeOptions(min_reset_locked_interval=480, max_reset_locked_interval=600)),
            recorder.events,
            clock,
            pool_id="pool-1",
            share=lambda: 0.5,
        )
        unlock.start()
        try:
            await clock.until_sleeping()
            await clock.advance(29.9)
            assert recorder.count(ResetLockedStarted) == 0
            await clock.advance(0.2)
            event = await recorder.wait_for(ResetLockedSuccess)
            assert event.delay == pytest.approx(540)
            await clock.until_sleeping()
            await clock.advance(539)
            assert recorder.count(ResetLockedStarted) == 1
            await clock.advance(2)
            await recorder.wait_for(ResetLockedSuccess, count=2)
        finally:
            await unlock.stop()


@pytest.mark.compat("RL4")
async def test_a_run_that_fails_is_told_and_tried_again(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await jobs.connection.execute(f"alter table {SCHEMA}._private_job_queues rename to gone")
    try:
        await workers.start([noop], events=recorder.events, **EVERY_MILLISECOND)
        event = await recorder.wait_for(ResetLockedFailure)
        assert "_private_job_queues" in str(event.error)
        assert event.delay == pytest.approx(0.001)
    finally:
        await jobs.connection.execute(f"alter table {SCHEMA}.gone rename to _private_job_queues")
    await recorder.wait_for(ResetLockedSuccess)


@pytest.mark.compat("RL3")
async def test_a_once_run_does_not_unlock(jobs: Jobs, workers: Workers) -> None:
    events = Events()
    recorder = EventRecorder(events)
    await workers.once([noop], events=events, **EVERY_MILLISECOND)
    assert recorder.of(ResetLockedStarted, ResetLockedSuccess) == []
