"""Aborting one running job: its own signal is set, and the jobs beside it go on."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import JobHelpers, Runner
from graphile_worker.hooks.events import JobInterrupted, JobSucceeded
from graphile_worker.tasks import load_tasks
from graphile_worker.testing.recorder import EventRecorder
from graphile_worker.worker.slots import Slots
from support.working import PATIENCE, Gate, Jobs, Workers, until


def slots_of(runner: Runner) -> Slots:
    slots = runner._running_pool._slots
    assert slots is not None
    return slots._all[0]


async def two_jobs(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, task: Any
) -> tuple[Runner, int, int]:
    """A worker for two jobs of one task; an aborted job does not run again within the test."""
    first, second = await jobs.add_many("job1", 2)
    runner = await workers.start(
        {"job1": task}, concurrency=2, events=recorder.events, interrupted_job_retry_delay=3600
    )
    return runner, first, second


async def is_interrupted(jobs: Jobs, recorder: EventRecorder, job_id: int, message: str) -> None:
    event = await recorder.wait_for(JobInterrupted)
    assert event.job.id == job_id
    row = await jobs.one()
    assert (row["id"], row["attempts"], row["locked_by"]) == (job_id, 0, None)
    assert row["last_error"] == message


@pytest.mark.parametrize("how", ["wait", "raise_if_aborted", "abortable"])
async def test_an_async_task_ends_and_its_neighbour_does_not_notice(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, how: str
) -> None:
    helpers_of: dict[int, JobHelpers] = {}
    go_on = asyncio.Event()

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        helpers_of[helpers.job.id] = helpers
        if how == "abortable":
            await helpers.abortable(go_on.wait())
            return
        if how == "wait":
            await asyncio.wait(
                [asyncio.ensure_future(helpers.abort_signal.wait()), asyncio.ensure_future(go_on.wait())],
                return_when=asyncio.FIRST_COMPLETED,
            )
        else:
            while not go_on.is_set():
                helpers.raise_if_aborted()
                await asyncio.sleep(0.001)
        helpers.raise_if_aborted()

    runner, first, second = await two_jobs(jobs, workers, recorder, job1)
    await until(lambda: len(helpers_of) == 2)
    assert slots_of(runner).abort(first, "not needed any more")
    await recorder.wait_for(JobInterrupted)
    assert helpers_of[first].abort_signal.reason == "not needed any more"
    assert not helpers_of[second].abort_signal.is_set()
    go_on.set()
    await recorder.wait_for(JobSucceeded)
    await is_interrupted(jobs, recorder, first, "Interrupted: not needed any more")


async def test_a_task_in_a_thread_ends(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    started: list[int] = []
    go_on = threading.Event()

    def job1(payload: Any, helpers: JobHelpers) -> None:
        started.append(helpers.job.id)
        while not go_on.is_set():
            helpers.abort_signal.wait_blocking(0.001)
            helpers.raise_if_aborted()

    runner, first, _ = await two_jobs(jobs, workers, recorder, job1)
    try:
        await until(lambda: len(started) == 2)
        assert slots_of(runner).abort(first, "not needed any more")
        await recorder.wait_for(JobInterrupted)
        assert recorder.count(JobSucceeded) == 0
    finally:
        go_on.set()
    await recorder.wait_for(JobSucceeded)
    await is_interrupted(jobs, recorder, first, "Interrupted: not needed any more")


async def test_an_executable_gets_a_signal(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, tmp_path: Path
) -> None:
    script = tmp_path / "job1"
    script.write_text(
        "#!/bin/sh\n"
        f"touch {tmp_path}/started.$GRAPHILE_WORKER_JOB_ID\n"
        f"while [ ! -e {tmp_path}/go-on ]; do sleep 0.01; done\n"
    )
    script.chmod(0o755)
    runner, first, second = await two_jobs(jobs, workers, recorder, load_tasks(tmp_path)["job1"])
    try:
        await until(
            lambda: all((tmp_path / f"started.{job_id}").exists() for job_id in (first, second)),
        )
        assert slots_of(runner).abort(first, "not needed any more")
        await recorder.wait_for(JobInterrupted)
        assert recorder.count(JobSucceeded) == 0
    finally:
        (tmp_path / "go-on").touch()
    await recorder.wait_for(JobSucceeded)
    message = f"Interrupted: not needed any more: {script} was ended by SIGTERM"
    await is_interrupted(jobs, recorder, first, message)


async def test_a_task_that_ignores_its_signal_is_cancelled(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    runner, first, _ = await two_jobs(jobs, workers, recorder, job1)
    await gate.until_inside(2)
    assert slots_of(runner).abort(first, "not needed any more", cancel_after=0)
    await recorder.wait_for(JobInterrupted)
    assert gate.inside == 1
    gate.open()
    await recorder.wait_for(JobSucceeded)
    await is_interrupted(jobs, recorder, first, "not needed any more")


async def test_the_slot_of_an_aborted_job_takes_the_next_one(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    slots: set[asyncio.Task[Any] | None] = set()

    async def job1(payload: Any) -> None:
        slots.add(asyncio.current_task())
        await gate(payload)

    first, _ = await jobs.add_many("job1", 2)
    runner = await workers.start(
        {"job1": job1}, concurrency=1, events=recorder.events, interrupted_job_retry_delay=3600
    )
    await gate.until_inside(1)
    assert slots_of(runner).abort(first, "enough", cancel_after=0)
    await recorder.wait_for(JobInterrupted)
    await gate.until_inside(1)
    gate.open()
    await recorder.wait_for(JobSucceeded)
    assert gate.ended == [{"n": 1}]
    assert len(slots) == 1


async def test_a_cancellation_comes_too_late_for_a_job_that_has_ended(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    first, _ = await jobs.add_many("job1", 2)
    runner = await workers.start({"job1": job1}, concurrency=1, events=recorder.events)
    slots = slots_of(runner)
    await gate.until_inside(1)
    assert slots.abort(first, "enough", cancel_after=0.05)
    gate.open()
    await recorder.wait_for(JobSucceeded)
    await gate.until_inside(1)
    await until(lambda: not slots._cancel_timers)
    gate.open()
    await recorder.wait_for(JobSucceeded, count=2)
    assert recorder.count(JobInterrupted) == 0


async def test_a_job_can_be_aborted_again_in_its_next_attempt(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        await helpers.abortable(gate(payload)) if not gate.started else await gate(payload)

    (first,) = await jobs.add_many("job1", 1)
    runner = await workers.start({"job1": job1}, events=recorder.events, interrupted_job_retry_delay=0)
    await gate.until_inside(1)
    assert slots_of(runner).abort(first, "once", cancel_after=3600)
    await recorder.wait_for(JobInterrupted)
    await until(lambda: len(gate.started) == 2)
    assert slots_of(runner).abort(first, "twice", cancel_after=0)
    await recorder.wait_for(JobInterrupted, count=2)
    assert [str(event.error) for event in recorder.of(JobInterrupted)] == ["Interrupted: once", "twice"]


async def test_a_timer_does_not_outlive_the_worker(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    (first,) = await jobs.add_many("job1", 1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    slots = slots_of(runner)
    await gate.until_inside(1)
    assert slots.abort(first, "enough", cancel_after=3600)
    gate.open()
    async with asyncio.timeout(PATIENCE):
        await runner.stop()
    assert not slots._cancel_timers


async def test_a_job_that_does_not_run_here_cannot_be_aborted(jobs: Jobs, workers: Workers) -> None:
    async def job1() -> None:
        pass

    runner = await workers.start({"job1": job1})
    assert not slots_of(runner).abort(17, "no such job")
