"""A worker whose slow fetches set watermarks still finds jobs that turn up below them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker.database.statements.fetch import HIGHEST, LOWEST, MANY_PRIORITIES
from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.fetch import plan as watermarks
from graphile_worker.worker.fetch.plan import Watermarks, reach_of
from support.working import SCHEMA, Gate, Jobs, Workers, until, until_listening


@pytest.fixture(autouse=True)
def slow_fetches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fetch counts as slow, and full ones are rare."""
    monkeypatch.setattr(watermarks, "SLOW", -1.0)
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER", 100)
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER_AWAITED", 50)


def long_ago(minutes: int = 60) -> datetime:
    return datetime.now(UTC) - timedelta(minutes=minutes)


@pytest.mark.parametrize("beside", ["a job of others", "nothing"])
@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": 4}}])
async def test_an_announced_job_below_the_watermark_is_found_without_polling(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any], beside: str
) -> None:
    async def step() -> None:
        pass

    if beside != "nothing":
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
async def test_a_once_run_leaves_no_job_below_a_watermark(
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
    monkeypatch.setattr(watermarks, "SLACK", 0.0)

    async def step() -> None:
        pass

    await jobs.add("not ours", run_at=long_ago(1))
    now = await jobs.connection.fetchval("select clock_timestamp()")
    for n in range(40):
        await jobs.add("step", run_at=now + timedelta(milliseconds=200 + 10 * n))
    await workers.start([step], events=recorder.events, poll_interval=0.02)
    await recorder.wait_for(JobSucceeded, count=40)


async def test_returned_jobs_are_found_again(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
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


async def test_watermarks_do_not_lose_jobs_of_queues(jobs: Jobs, workers: Workers) -> None:
    done: list[int] = []

    async def step(payload: Any) -> None:
        await asyncio.sleep(0)
        done.append(payload["n"])

    await jobs.add("not ours", run_at=long_ago(1))
    await jobs.add_many("step", 40, queue="serial")
    await jobs.add_many("step", 40)
    await workers.start([step], concurrency=3)
    await until(lambda: len(done) == 80)


@pytest.mark.parametrize("flags", [None, lambda: ["forbidden"]])
async def test_jobs_of_very_many_priorities_run_in_order(jobs: Jobs, workers: Workers, flags: Any) -> None:
    """With a function for flags each fetch is a full one, and sets no watermarks."""
    order: list[int] = []

    async def step(payload: Any) -> None:
        order.append(payload["priority"])

    await jobs.connection.execute(
        f"select {SCHEMA}.add_job('step', json_build_object('priority', priority), priority => priority) "
        f"from generate_series(-{2 * MANY_PRIORITIES}, {MANY_PRIORITIES}, 3) priority"
    )
    await workers.once({"step": step}, concurrency=1, prefetch=0, forbidden_flags=flags)
    assert order == list(range(-2 * MANY_PRIORITIES, MANY_PRIORITIES + 1, 3))
    assert len(order) > MANY_PRIORITIES


def test_dead_rows_where_no_job_waits_are_not_read_again_and_again() -> None:
    """The priorities of the jobs that ran here get watermarks, and the default one."""
    found = Watermarks(poll_interval=2.0)
    assert found.full_fetch_took(0.3, 0, ended_at=10.0)
    found.set([], reach_of([], full=False), now=1000.0, cost=0.3)
    assert not found.is_full_due(11.0)
    low, high, since = found.ranges()
    assert (low, high) == ([LOWEST, 0, 1], [-1, 0, HIGHEST])
    assert since == [float("-inf"), 1000.0 - watermarks.SLACK, float("-inf")]
    assert found.is_full_due(12.0)


def test_a_slow_fetch_that_read_past_little_sets_no_watermarks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "SLOW", 0.005)
    found = Watermarks(poll_interval=2.0)
    assert found.full_fetch_took(0.05, 0, ended_at=10.0)
    found.set([], reach_of([], full=False), now=1000.0, cost=0.005)
    assert found.is_full_due(10.0)
