"""The grace of running tasks during a shutdown, and what happens when it is over."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker import JobHelpers
from graphile_worker.errors import ConfigError, LeakedTasksError
from graphile_worker.hooks.events import JobFailed, JobInterrupted, PoolGracefulShutdownWorkerError
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.options import WorkerOptions
from support.worker_process import Start
from support.working import PATIENCE, SELDOM, Gate, Jobs, Workers, until


def interrupted(job: Any) -> bool:
    """Whether the job was returned with its attempt, and says why."""
    return (job["attempts"], job["locked_by"], job["locked_at"]) == (0, None, None) and bool(
        job["last_error"]
    )


@pytest.mark.compat("MAIN-3")
async def test_tasks_see_the_abort_signal_after_its_timeout_and_not_before(
    workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> None:
    gate, seen = Gate(), list[float]()

    async def wait(payload: Any, helpers: JobHelpers) -> None:
        gate.started.append(None)
        await helpers.abort_signal.wait()
        seen.append(time.monotonic())

    await jobs.add("wait")
    runner = await workers.start({"wait": wait}, graceful_shutdown_abort_timeout=0.2, events=recorder.events)
    await until(lambda: bool(gate.started))
    began = time.monotonic()
    await workers.stop(runner)
    # timing: the default of 5 s would hold if the option did not; it takes a quarter of a second.
    assert 0.2 <= seen[0] - began < WorkerOptions().graceful_shutdown_abort_timeout
    assert await jobs.count() == 0  # it completed within the grace


@pytest.mark.compat("MAIN-3")
async def test_a_task_that_gives_way_to_the_abort_signal_loses_no_attempt(
    workers: Workers, jobs: Jobs
) -> None:
    gate = Gate()

    async def wait(payload: Any, helpers: JobHelpers) -> None:
        await helpers.abortable(gate())

    await jobs.add("wait")
    runner = await workers.start({"wait": wait}, graceful_shutdown_abort_timeout=0.02, use_local_time=True)
    await gate.until_inside(1)
    await workers.stop(runner, reason="time to go")
    job = await jobs.one()
    assert interrupted(job)
    assert "time to go" in job["last_error"]


async def test_a_task_is_cancelled_after_the_grace_and_its_job_goes_back(
    workers: Workers, jobs: Jobs, recorder: EventRecorder
) -> None:
    gate = Gate()
    job_id = await jobs.add("wait", queue="one at a time")
    runner = await workers.start(
        {"wait": gate}, grace=0.2, graceful_shutdown_abort_timeout=0.1, events=recorder.events
    )
    await gate.until_inside(1)
    began = time.monotonic()
    await workers.stop(runner, reason="time to go")
    # timing: the default of 25 s would hold if the option did not; it takes a quarter of a second.
    assert 0.2 <= time.monotonic() - began < WorkerOptions().grace
    job = await jobs.one()
    assert interrupted(job)
    assert job["last_error"] == "Interrupted: time to go"
    assert await jobs.locked() == 0
    assert [event.job.id for event in recorder.of(JobInterrupted)] == [job_id]
    assert [event.job.id for event in recorder.of(PoolGracefulShutdownWorkerError)] == [job_id]
    assert recorder.count(JobFailed) == 0


async def test_a_grace_shorter_than_the_abort_timeout_is_kept(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    await jobs.add("wait")
    runner = await workers.start({"wait": gate}, grace=0.1, graceful_shutdown_abort_timeout=SELDOM)
    await gate.until_inside(1)
    await workers.stop(runner)  # within the patience of the test
    assert interrupted(await jobs.one())


async def test_a_job_that_ends_within_the_grace_is_done_and_others_are_not_begun(
    workers: Workers, jobs: Jobs
) -> None:
    gate = Gate()
    await jobs.add_many("wait", 5)
    runner = await workers.start({"wait": gate}, concurrency=2)
    await gate.until_inside(2)
    stopping = asyncio.ensure_future(workers.stop(runner))
    await until(lambda: runner_is_stopping(runner))
    gate.open()
    gate.open()
    await stopping
    assert len(gate.started) == 2
    rows = await jobs.all()
    assert len(rows) == 3
    assert {(row["attempts"], row["last_error"], row["locked_by"]) for row in rows} == {(0, None, None)}


async def test_a_cancelled_task_may_clean_up(workers: Workers, jobs: Jobs) -> None:
    gate, cleaned = Gate(), list[str]()

    async def careful(payload: Any, helpers: JobHelpers) -> None:
        try:
            await gate()
        finally:
            await helpers.query("select 1")
            cleaned.append("done")

    await jobs.add("careful")
    runner = await workers.start({"careful": careful}, grace=0)
    await gate.until_inside(1)
    await workers.stop(runner)
    assert cleaned == ["done"]
    assert interrupted(await jobs.one())


async def test_a_task_that_ends_well_although_it_was_cancelled_is_done(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()

    async def finish(payload: Any) -> None:
        try:
            await gate()
        except asyncio.CancelledError:
            await asyncio.sleep(0)

    await jobs.add("finish")
    runner = await workers.start({"finish": finish}, grace=0)
    await gate.until_inside(1)
    await workers.stop(runner)
    assert await jobs.count() == 0


async def test_a_task_that_swallows_cancellation_is_left_behind_and_its_job_given_back(
    workers: Workers, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphile_worker.worker.shutdown.FORCED_WAIT", 0.2)
    started, release = asyncio.Event(), asyncio.Event()

    async def swallow(payload: Any, helpers: JobHelpers) -> None:
        async with helpers.with_pg_client():  # nor does it release its connection
            started.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

    monkeypatch.setattr("graphile_worker.runner.build.CLOSE_WITHIN", 0.2)
    job_id = await jobs.add("swallow")
    runner = await workers.start({"swallow": swallow}, grace=0)
    try:
        await asyncio.wait_for(started.wait(), PATIENCE)
        with pytest.raises(LeakedTasksError, match=rf"swallow \(job {job_id}\)") as caught:
            await workers.stop(runner)
        assert caught.value.jobs == (("swallow", job_id),)
        assert interrupted(await jobs.one())
    finally:
        release.set()
        await asyncio.sleep(0)


async def test_a_thread_that_cannot_be_ended_is_left_behind_with_a_warning_that_names_the_task(
    workers: Workers, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import threading

    started, release = threading.Event(), threading.Event()

    def stuck(payload: Any) -> None:
        started.set()
        release.wait(PATIENCE)

    job_id = await jobs.add("stuck")
    runner = await workers.start({"stuck": stuck}, grace=0)
    try:
        await until(started.is_set)
        with caplog.at_level(logging.WARNING, "graphile_worker"):
            await workers.stop(runner)
        assert f"task stuck (job {job_id}) leaked: it runs in a thread" in caplog.text
        assert interrupted(await jobs.one())
    finally:
        release.set()


async def test_the_flag_sets_the_grace_of_a_process(start: Start, database_url: str, jobs: Jobs) -> None:
    await jobs.add("sleep_long")
    worker = start("--grace", "0.2", url=database_url).wait_for("started")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert "cancelled, abort_signal set" in worker.output
    job = await jobs.one()
    assert interrupted(job)
    assert job["last_error"] == "Interrupted: SIGTERM received"


async def test_a_process_ends_although_tasks_swallow_cancellation_or_are_stuck_in_threads(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    for task in ("swallow", "stuck_thread", "polite_thread", "leave_something_behind"):
        await jobs.add(task)
    worker = start("-j", 4, "--grace", "0.2", url=database_url, forced_wait=0.3)
    worker.wait_for("started\n", times=4)
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert worker.was_killed_by() is signal.SIGTERM
    assert "task stuck_thread (job 2) leaked: it runs in a thread" in worker.output
    assert (
        "these tasks did not end even when cancelled; they leaked, and their jobs were returned to "
        "the queue: swallow (job 1)" in worker.output
    )
    rows = {row["identifier"]: row for row in await jobs.all()}
    assert set(rows) == {"swallow", "stuck_thread", "polite_thread"}
    assert all(interrupted(row) for row in rows.values())


def runner_is_stopping(runner: Any) -> bool:
    return bool(runner.is_stopping)


# -- when interrupted jobs run again -------------------------------------------------------------------------


@pytest.mark.parametrize("gives_way", [False, True], ids=["cancelled", "gives way"])
async def test_interrupted_jobs_wait_as_long_as_asked_and_those_that_never_ran_do_not(
    workers: Workers, jobs: Jobs, gives_way: bool
) -> None:
    gate = Gate()

    async def wait(payload: Any, helpers: JobHelpers) -> None:
        await (helpers.abortable(gate(payload)) if gives_way else gate(payload))

    await jobs.add_many("wait", 5)
    runner = await workers.start(
        {"wait": wait},
        local_queue={"size": 5},
        graceful_shutdown_abort_timeout=0.05,
        grace=0.05 if not gives_way else 60.0,
        interrupted_job_retry_delay=90.0,
    )
    await gate.until_inside(1)
    await workers.stop(runner)
    rows = await jobs.all()
    assert len(rows) == 5
    delayed = [row for row in rows if row["run_at"] > datetime.now(UTC)]
    assert [interrupted(row) for row in delayed] == [True]
    assert 60 < (delayed[0]["run_at"] - datetime.now(UTC)).total_seconds() <= 90
    assert {(row["attempts"], row["locked_by"]) for row in rows} == {(0, None)}


async def test_a_job_that_is_due_later_than_the_delay_keeps_its_time(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    later = datetime.now(UTC) + timedelta(hours=1)

    async def wait(payload: Any) -> None:
        await jobs.connection.execute("update graphile_worker._private_jobs set run_at = $1", later)
        await gate(payload)

    await jobs.add("wait")
    runner = await workers.start({"wait": wait}, grace=0.0, interrupted_job_retry_delay=1.0)
    await gate.until_inside(1)
    await workers.stop(runner)
    job = await jobs.one()
    assert interrupted(job)
    assert job["run_at"] == later


async def test_by_default_interrupted_jobs_may_run_at_once(workers: Workers, jobs: Jobs) -> None:
    gate = Gate()
    await jobs.add("wait")
    before = (await jobs.one())["run_at"]
    runner = await workers.start({"wait": gate}, grace=0.0)
    await gate.until_inside(1)
    await workers.stop(runner)
    job = await jobs.one()
    assert interrupted(job)
    assert job["run_at"] == before


def test_a_delay_is_a_number_of_seconds() -> None:
    assert WorkerOptions(interrupted_job_retry_delay=timedelta(seconds=5)).interrupted_job_retry_delay == 5.0
    with pytest.raises(ConfigError, match="interrupted_job_retry_delay"):
        WorkerOptions(interrupted_job_retry_delay=-1)
