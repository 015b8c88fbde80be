"""Held batches of a worker that pauses or stops: nothing is lost, and no attempt is used up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from graphile_worker import WorkerUtils, run_once
from graphile_worker.hooks.events import JobStarted, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.held_load import LOAD, Holding
from support.working import SCHEMA, Gate, Jobs, Workers, until


async def test_a_graceful_stop_locks_what_runs_and_releases_what_waits(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=2)
    ids = await holding.add(lambda: jobs.add_many("step", 20))
    await gate.until_inside(2)
    assert holding.last_fetch == "held"
    stopping = asyncio.create_task(runner.stop())
    await until(lambda: holding.are_locked("step", 2))
    free = [row for row in await holding.rows("step") if row["locked_by"] is None]
    assert [(row["attempts"], row["last_error"]) for row in free] == [(0, None)] * 18
    assert await holding.row_locked(ids) == []
    gate.open_all()
    await stopping
    assert [row["id"] for row in await holding.rows("step")] == ids[2:]
    assert len(gate.started) == 2


async def test_a_forced_stop_returns_every_job_without_an_attempt(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=2)
    ids = await holding.add(lambda: jobs.add_many("step", 20))
    await gate.until_inside(2)
    await runner.kill()
    rows = await holding.rows("step")
    assert [row["id"] for row in rows] == ids
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}
    assert await holding.row_locked(ids) == []


async def test_every_task_of_the_loop_is_cancelled_while_jobs_are_held(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    """As `asyncio.run` does at the end of a program that did not stop its worker."""
    runner = await holding.start({"step": gate.__call__}, concurrency=2)
    ids = await holding.add(lambda: jobs.add_many("step", 20))
    await gate.until_inside(2)
    own = asyncio.current_task()
    for each in asyncio.all_tasks():
        if each is not own:
            each.cancel()
    with suppress(asyncio.CancelledError):
        await runner.wait()
    rows = await holding.rows("step")
    assert [row["id"] for row in rows] == ids
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}
    assert await holding.row_locked(ids) == []


async def test_the_end_of_a_batch_is_cancelled(
    holding: Holding, jobs: Jobs, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever it was doing, its jobs are settled, and the next batch of the session is one of its own."""
    await holding.start({"step": gate.__call__}, concurrency=10)
    for steps in range(6):
        ids = await holding.add(lambda: jobs.add_many("step", 3))
        await gate.until_inside(3)
        gate.open_all()
        ending = await _ending()
        for _ in range(steps):
            await asyncio.sleep(0)
        ending.cancel()
        await jobs.until_gone()
        await until(lambda ids=ids: sorted(holding.of(JobSucceeded, ids)) == ids)  # type: ignore[misc]
        await holding.warm_up()
    assert len(gate.started) == 18
    assert "could not be written" not in caplog.text


async def _ending() -> asyncio.Task[Any]:
    """The task that ends a batch."""
    async with asyncio.timeout(60):
        while True:
            for each in asyncio.all_tasks():
                if each.get_name() == "graphile-worker end of a held batch":
                    return each
            await asyncio.sleep(0)


async def test_a_pause_frees_held_jobs_that_have_not_started(
    holding: Holding, jobs: Jobs, gate: Gate, utils: WorkerUtils
) -> None:
    await holding.start({"step": gate.__call__}, concurrency=2)
    ids = await holding.add(lambda: jobs.add_many("step", 20))
    await gate.until_inside(2)
    await utils.pause(task="step")
    await until(lambda: holding.are_locked("step", 2))
    assert await holding.row_locked(ids) == []
    gate.open_all()

    async def have_ended() -> bool:
        return await jobs.count() == 18

    await until(have_ended)
    assert {row["attempts"] for row in await jobs.all()} == {0}
    await utils.resume(task="step")
    await holding.open_until_gone(gate)
    assert len(gate.started) == 20


async def test_a_single_run_holds_jobs_and_leaves_nothing(
    never_slow: None, database_url: str, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    runs: list[int] = []

    async def step(payload: Any) -> None:
        runs.append(payload["n"])

    await jobs.add_many("step", 3 * LOAD)
    await run_once(connection_string=database_url, task_list={"step": step}, events=recorder.events)
    assert await jobs.count() == 0
    assert sorted(runs) == list(range(3 * LOAD))
    assert recorder.count(JobStarted) == recorder.count(JobSucceeded) == 3 * LOAD
    left = "select count(*) from pg_locks where relation = $1::regclass and pid <> pg_backend_pid()"
    assert await jobs.connection.fetchval(left.replace("$1", f"'{SCHEMA}._private_jobs'")) == 0
