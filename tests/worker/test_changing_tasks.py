"""A worker whose set of tasks changes while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.recovery.lease import Lease
from graphile_worker.tasks.registry import build_registry
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker.fetch import plan as watermarks
from graphile_worker.worker.fetch.fetcher import Fetcher
from graphile_worker.worker.session import Sessions
from support.pool_parts import pool_context
from support.working import Gate, Jobs, Workers, until_listening


@pytest.fixture(params=["fast fetches", "watermarks"])
def fetches(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With watermarks, every fetch counts as slow and full ones are rare."""
    if request.param == "watermarks":
        monkeypatch.setattr(watermarks, "SLOW", -1.0)
        monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER", 10**6)
        monkeypatch.setattr(watermarks, "FULL_FETCH_WITHIN", 10**6)
        monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER_AWAITED", 10**6)


def passing() -> None:
    pass


async def passing_soon() -> None:
    pass


@pytest.mark.usefixtures("fetches")
@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"local_queue": {"size": 4}}])
async def test_a_worker_runs_jobs_of_an_added_task_and_leaves_those_of_a_dropped_one(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any]
) -> None:
    only_a, both = build_registry({"a": passing_soon}), build_registry({"a": passing_soon, "b": passing})
    waiting = await jobs.add("b")
    runner = await workers.start({"a": passing_soon}, events=recorder.events, **options)
    pool = runner._running_pool
    await until_listening(recorder, jobs.connection)
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded)
    assert (await jobs.one())["id"] == waiting

    pool.set_tasks(both)
    assert (await recorder.wait_for(JobSucceeded, count=2)).job.id == waiting

    await pool._lanes.quiet()  # a fetch in flight may still lock jobs of the old tasks
    pool.set_tasks(only_a)
    left = await jobs.add("b")
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded, count=3)
    await jobs.until_left(left)
    row = await jobs.one()
    assert (row["locked_by"], row["attempts"]) == (None, 0)


async def test_a_dropped_task_still_runs_the_jobs_that_are_locked(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add_many("b", 3)
    runner = await workers.start(
        {"b": gate}, events=recorder.events, concurrency=1, local_queue={"size": 2, "ttl": 600}
    )
    await gate.until_inside(1)
    runner._running_pool.set_tasks(build_registry({"a": passing_soon}))
    for _ in range(2):
        await gate.until_inside(1)
        gate.open()
    await recorder.wait_for(JobSucceeded, count=2)
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded, count=3)
    assert len(gate.started) == 2


async def test_a_task_may_be_replaced_by_another_function(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    ran: list[str] = []

    async def first() -> None:
        ran.append("first")

    async def second() -> None:
        ran.append("second")

    runner = await workers.start({"a": first}, events=recorder.events)
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded)
    runner._running_pool.set_tasks(build_registry({"a": second}))
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded, count=2)
    assert ran == ["first", "second"]


async def test_tasks_that_change_while_the_old_ones_are_registered_are_not_overwritten(
    jobs: Jobs, database_url: str
) -> None:
    await jobs.add("a")
    wanted = await jobs.add("b")
    async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as database:
        sessions = Sessions(pool_context("pool-a"), database, Lease())
        fetcher = Fetcher(pool_context("pool-a"), sessions.fetch, ["a"])
        registering = asyncio.create_task(fetcher.register())
        await asyncio.sleep(0)
        fetcher.set_tasks(["b"])
        await registering
        assert fetcher.continuation() is None  # no queue goes on with a job of a task that may be dropped
        assert [job.id for job in await fetcher.fetch(9)] == [wanted]
        await sessions.close()
