"""A worker whose fetches are slow, so that it begins at marks: it still finds what turns up behind them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.testing.recorder import EventRecorder
from graphile_worker.worker import marks
from support.working import Gate, Jobs, Workers, until, until_listening


@pytest.fixture(autouse=True)
def slow_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fetch counts as slow, and full ones come seldom."""
    monkeypatch.setattr(marks, "SLOW", -1.0)
    monkeypatch.setattr(marks, "SHARE", 100)
    monkeypatch.setattr(marks, "SHARE_IF_PROMISED", 50)


def long_ago(minutes: int = 60) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": 4}}])
async def test_an_announced_job_behind_the_mark_is_found_without_polling(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any]
) -> None:
    async def step() -> None:
        pass

    # Somebody else's job, so that there is a priority to mark.
    await jobs.add("not ours", run_at=long_ago(1))
    await workers.start([step], events=recorder.events, **options)
    await until_listening(recorder, jobs.connection)
    for n in range(1, 4):
        await jobs.add("step", run_at=long_ago())
        await recorder.wait_for(JobSucceeded, count=n)
        await jobs.add("step")
        await jobs.add("step", run_at=long_ago(), priority=7)
    await recorder.wait_for(JobSucceeded, count=9)


@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": 4}}])
async def test_a_once_run_leaves_nothing_behind_a_mark(
    jobs: Jobs, workers: Workers, options: dict[str, Any]
) -> None:
    ran: list[int] = []

    async def step(payload: Any, helpers: Any) -> None:
        ran.append(payload["left"])
        if payload["left"]:
            await helpers.add_job("step", {"left": payload["left"] - 1}, run_at=long_ago(payload["left"]))

    await jobs.add("not ours", run_at=long_ago(1))
    await jobs.add("step", {"left": 5}, run_at=long_ago(1))
    await workers.once([step], **options)
    assert ran == [5, 4, 3, 2, 1, 0]


async def test_a_job_that_becomes_due_while_a_fetch_runs_is_not_passed_over(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "SLACK", 0.0)

    async def step() -> None:
        pass

    await jobs.add("not ours", run_at=long_ago(1))
    now = await jobs.connection.fetchval("select clock_timestamp()")
    for n in range(40):
        await jobs.add("step", run_at=now + timedelta(milliseconds=200 + 10 * n))
    await workers.start([step], events=recorder.events, poll_interval=0.02)
    await recorder.wait_for(JobSucceeded, count=40)


async def test_jobs_given_back_are_found_again(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate(payload)

    await jobs.add("not ours", run_at=long_ago(1))
    await jobs.add_many("step", 3)
    first = await workers.start([step], concurrency=3, grace=0)
    await gate.until_inside(3)
    await workers.start([step], concurrency=3, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await workers.stop(first)
    await gate.until_inside(3)
    for _ in range(3):
        gate.open()
    await recorder.wait_for(JobSucceeded, count=3)


async def test_marks_do_not_lose_jobs_of_queues(jobs: Jobs, workers: Workers) -> None:
    done: list[int] = []

    async def step(payload: Any) -> None:
        await asyncio.sleep(0)
        done.append(payload["n"])

    await jobs.add("not ours", run_at=long_ago(1))
    await jobs.add_many("step", 40, queue="serial")
    await jobs.add_many("step", 40)
    await workers.start([step], concurrency=3)
    await until(lambda: len(done) == 80)
