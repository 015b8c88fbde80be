"""Slots: faults outside of tasks, concurrency, and fairness to the event loop."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from graphile_worker.hooks import Events
from graphile_worker.hooks.events import PoolFatalError, WorkerFatalError, WorkerStopped
from graphile_worker.testing.results import EventRecorder
from support.working import PATIENCE, Gate, Jobs, Workers, headline


class FaultError(BaseException):
    """Not an Exception."""


@pytest.mark.parametrize("once", [False, True])
async def test_a_fault_outside_the_task_fails_the_job_and_ends_the_worker(
    request: pytest.FixtureRequest, jobs: Jobs, workers: Workers, once: bool
) -> None:
    """No hook can cause one; a filter of log records can."""
    events = Events()
    recorder = EventRecorder(events)
    fault = FaultError("out of order")

    class Breaks(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            if "no valid number of seconds" in record.getMessage():
                raise fault
            return True

    async def step(payload: Any) -> None:
        await asyncio.sleep(0.01)  # timing: it runs while the other one breaks; either order is right

    await jobs.add("step")
    await jobs.add("step", flags=["py:timeout=never"])
    breaks, logger = Breaks(), logging.getLogger("graphile_worker.worker")
    logger.addFilter(breaks)
    request.addfinalizer(lambda: logger.removeFilter(breaks))
    with pytest.raises(FaultError, match="out of order"):
        await run_to_its_end(workers, {"step": step}, once=once, concurrency=3, events=events)
    assert [event.error for event in recorder.of(WorkerFatalError)] == [fault]
    assert [event.error for event in recorder.of(PoolFatalError)] == [fault]
    assert recorder.count(WorkerStopped) == 3
    row = await jobs.one()
    assert (headline(row), row["attempts"]) == (f"{__name__}.FaultError: out of order", 1)
    assert await jobs.locked() == 0


async def run_to_its_end(workers: Workers, tasks: Any, *, once: bool, **options: Any) -> None:
    if once:
        await workers.once(tasks, **options)
        return
    runner = await workers.start(tasks, **options)
    async with asyncio.timeout(PATIENCE):
        await runner.wait()


async def test_every_slot_works_at_the_same_time(jobs: Jobs, workers: Workers) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload)

    await jobs.add_many("step", 25)
    await workers.start({"step": step}, concurrency=10)
    await gate.until_inside(10)
    for n in range(25):
        await gate.until_inside(min(10, 25 - n))
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 10


async def test_jobs_that_never_wait_let_the_event_loop_have_its_turn(jobs: Jobs, workers: Workers) -> None:
    turns = 0

    async def quick() -> None:
        sum(range(2000))

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    await jobs.add_many("quick", 2000)
    busy = asyncio.create_task(others())
    await workers.start({"quick": quick}, local_queue={"size": 2000})
    await jobs.until_gone()
    busy.cancel()
    assert turns > 20
