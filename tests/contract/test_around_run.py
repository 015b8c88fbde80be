"""Interceptors around a run: what they make of it is written. More cases: `tests/worker/test_around.py`."""

from __future__ import annotations

import asyncio
from typing import Any

from graphile_worker import Job
from graphile_worker.hooks import CallNext, Completed, Failed, Hooks, Interrupted, Outcome
from graphile_worker.hooks.events import JobCompleted, JobInterrupted
from graphile_worker.testing.results import EventRecorder
from support.working import PATIENCE, Gate, Jobs, Workers, headline, until


async def test_interceptors_decide_what_becomes_of_the_job(jobs: Jobs, workers: Workers) -> None:
    """The second is installed while the worker runs."""
    hooks, steps = Hooks(), list[str]()

    @hooks.around_run
    async def outer(job: Job, call_next: CallNext) -> Outcome:
        steps.append(f"{job.payload['name']} in")
        outcome = await call_next()
        steps.append(f"{job.payload['name']} out")
        if job.payload["name"] == "broken":
            raise RuntimeError("broken")
        return outcome

    async def job1(payload: Any) -> None:
        steps.append(payload["name"])
        if payload["name"] in ("fails", "forgiven"):
            raise ValueError(payload["name"])

    runner = await workers.start({"job1": job1}, hooks=hooks)
    await jobs.add("job1", {"name": "first"})
    await jobs.until_gone()

    @hooks.around_run
    async def inner(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        steps.append(type(outcome).__name__)
        if isinstance(outcome, Failed) and job.payload["name"] == "forgiven":
            return Completed()
        return outcome

    for name in ("works", "fails", "forgiven", "broken"):
        await jobs.add("job1", {"name": name}, queue="serial", max_attempts=1)
    await jobs.add("job1", {"name": "last"}, queue="serial")

    async def has_ended() -> bool:
        return len(await jobs.all()) == 2 and await jobs.locked() == 0

    await until(has_ended)
    await workers.stop(runner)
    assert steps == [
        *("first in", "first", "first out"),
        *("works in", "works", "Completed", "works out"),
        *("fails in", "fails", "Failed", "fails out"),
        *("forgiven in", "forgiven", "Failed", "forgiven out"),
        *("broken in", "broken", "Completed", "broken out"),
        *("last in", "last", "Completed", "last out"),
    ]
    rows = await jobs.all()
    assert [(headline(row), row["attempts"], row["locked_by"]) for row in rows] == [
        ("ValueError: fails", 1, None),
        ("RuntimeError: broken", 1, None),
    ]


async def test_an_interruption_cannot_be_suppressed(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """And a job that has completed before it was cancelled stays completed."""
    hooks, gate, ended = Hooks(events=recorder.events), Gate(), list[str]()

    @hooks.around_run
    async def around(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        if isinstance(outcome, Interrupted):
            return Completed("never mind")
        try:
            await gate()
        except asyncio.CancelledError:
            return outcome
        raise AssertionError("not cancelled")

    async def waits() -> None:
        await gate()
        ended.append("task")

    async def completes() -> None:
        pass

    await jobs.add("waits", queue="serial", max_attempts=1)
    await jobs.add("completes")
    runner = await workers.start(
        [waits, completes],
        hooks=hooks,
        concurrency=2,
        graceful_shutdown_abort_timeout=0.01,
        grace=0.05,
    )
    await gate.until_inside(2)
    async with asyncio.timeout(PATIENCE):
        await runner.stop(reason="time to go")
    row = await jobs.one()
    assert (row["attempts"], row["is_available"], row["last_error"]) == (0, True, "Interrupted: time to go")
    assert (recorder.count(JobInterrupted), recorder.count(JobCompleted)) == (1, 1)
    assert await jobs.locked() == 0
    assert ended == []
