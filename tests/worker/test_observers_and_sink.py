"""Outcomes are written whatever observers do, and even if the writing task is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from graphile_worker.hooks import Events
from graphile_worker.hooks.events import (
    JobErrored,
    JobOutcomeDiscarded,
    JobStarted,
    JobSucceeded,
    PoolFatalError,
    PoolReleased,
)
from graphile_worker.testing.results import EventRecorder
from support.working import SCHEMA, Jobs, Workers, headline, until


class FaultError(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("fault", [FaultError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
async def test_an_observer_cannot_keep_outcomes_from_being_written(
    jobs: Jobs, workers: Workers, is_async: bool, fault: type[BaseException]
) -> None:
    events = Events()
    recorder = EventRecorder(events)

    async def break_later(event: Any) -> None:
        await asyncio.sleep(0)
        raise fault("as asked")

    def break_now(event: Any) -> None:
        raise fault("as asked")

    for kind in (JobSucceeded, JobErrored, JobOutcomeDiscarded):
        events.on(kind, break_later if is_async else break_now)

    async def step(payload: Any) -> None:
        if payload["n"] == 3:
            raise ValueError("no")
        if payload["n"] == 5:
            await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs where payload->>'n' = '5'")

    await jobs.add_many("step", 20)
    runner = await workers.start({"step": step}, events=events)
    await recorder.wait_for(JobSucceeded, count=18)
    await recorder.wait_for(JobErrored)
    await recorder.wait_for(JobOutcomeDiscarded)
    await workers.stop(runner)
    assert headline(await jobs.one()) == "ValueError: no"
    assert recorder.count(PoolFatalError) == 0


async def test_outcomes_are_written_although_the_writing_task_is_cancelled(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    def find() -> asyncio.Task[Any]:
        (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "graphile-worker sink"]
        return task

    async def step(payload: Any) -> None:
        find().cancel()

    for _ in range(2):
        await jobs.add("step")
    runner = await workers.start({"step": step}, events=recorder.events)
    await recorder.wait_for(JobSucceeded, count=2)
    assert "the task that writes outcomes ended: 'a cancellation'; restarting it" in caplog.text
    await workers.stop(runner)
    assert await jobs.count() == 0


async def test_a_worker_that_cannot_write_at_all_dies(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Instead of running jobs without an end."""

    def kill() -> None:
        for task in asyncio.all_tasks():
            if task.get_name() == "graphile-worker sink":
                task.cancel()

    runner = await workers.start({"step": lambda payload: None}, events=recorder.events, grace=0)

    async def is_dying() -> bool:
        kill()
        return recorder.count(PoolFatalError) > 0

    await until(is_dying)
    with pytest.raises(Exception, match="cancelled again and again"):
        await runner.wait()


@pytest.mark.parametrize("forced", [False, True])
async def test_an_observer_that_never_ends_does_not_hold_up_the_end(
    jobs: Jobs, workers: Workers, forced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events()
    recorder = EventRecorder(events)
    never = asyncio.Event()

    async def wait_forever(event: Any) -> None:
        await never.wait()

    events.on(JobStarted, wait_forever)
    await jobs.add("step")
    runner = await workers.start({"step": lambda payload: None}, events=events, grace=600 if forced else 0.1)
    await recorder.wait_for(JobSucceeded)
    stopping = asyncio.ensure_future(runner.stop())
    await recorder.wait_for(PoolReleased)
    if forced:
        await asyncio.sleep(0)
        assert not stopping.done()
        await runner.kill()
    async with asyncio.timeout(60):
        await asyncio.wait((stopping,))
    assert stopping.done()
    assert "an observer did not finish in time and is abandoned" in caplog.text
    assert "wait_forever" in caplog.text
    never.set()
