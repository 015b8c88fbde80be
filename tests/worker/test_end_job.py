"""Ending one running job for a cause: its task ends or leaks, and the jobs beside it go on."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import Job, JobHelpers, Runner, Snooze
from graphile_worker.errors import BatchFailureError, JobInterruptedError, JobTimeoutError
from graphile_worker.hooks.events import JobErrored, JobFailed, JobInterrupted, JobSnoozed, JobSucceeded
from graphile_worker.tasks import load_tasks
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.outcome import Interrupted, Outcome
from graphile_worker.worker.run import termination
from graphile_worker.worker.run.outcomes import TAKEN_AWAY, EndReason, TimedOut
from graphile_worker.worker.run.slots import Slots
from support.working import PATIENCE, Gate, Jobs, Workers, until

LATE = TimedOut(7)
MESSAGE = "the task ran longer than its time limit of 7 s"
LONG = 3600.0


class Unwanted(EndReason, frozen=True):
    """A cause that returns the job."""

    rank = 2
    reason = "not wanted any more"

    def outcome(self, own: Outcome | None, error: BaseException | None) -> Outcome:
        return Interrupted(JobInterruptedError(self.reason))


@pytest.fixture(autouse=True)
def short_last_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(termination, "LAST_CHANCE", 0.01)


def slots_of(runner: Runner) -> Slots:
    (lane,) = runner._running_pool._lanes
    return lane.slots


def leaked_tasks(runner: Runner) -> list[str]:
    return runner._running_pool._leaked_tasks.names


async def two_jobs(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, task: Any
) -> tuple[Runner, int, int]:
    """A worker for two jobs of one task; a job that was ended does not run again within the test."""
    first, second = await jobs.add_many("job1", 2, max_attempts=1)
    runner = await workers.start(
        {"job1": task}, concurrency=2, events=recorder.events, interrupted_job_retry_delay=LONG
    )
    return runner, first, second


async def has_timed_out(jobs: Jobs, recorder: EventRecorder, job_id: int) -> None:
    """The job failed with the error of its limit, and only it is left."""
    event = (await recorder.wait_for(JobErrored)).error
    assert isinstance(event, JobTimeoutError)
    assert isinstance(event, TimeoutError)
    row = await jobs.one()
    assert (row["id"], row["attempts"], row["locked_by"]) == (job_id, 1, None)
    assert str(row["last_error"]).startswith(MESSAGE)


async def test_a_coroutine_is_cancelled_and_its_neighbour_does_not_notice(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    helpers_of: dict[int, JobHelpers] = {}

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        helpers_of[helpers.job.id] = helpers
        await gate(payload)

    runner, first, second = await two_jobs(jobs, workers, recorder, job1)
    await gate.until_inside(2)
    assert slots_of(runner).end_job(first, LATE, LONG)
    await recorder.wait_for(JobErrored)
    assert helpers_of[first].abort_signal.reason == MESSAGE
    assert not helpers_of[second].abort_signal.is_set()
    assert gate.inside == 1
    gate.open()
    await recorder.wait_for(JobSucceeded)
    await has_timed_out(jobs, recorder, first)
    assert not leaked_tasks(runner)


async def test_a_thread_ends_when_it_notices(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    started: list[int] = []
    resume = threading.Event()

    def job1(payload: Any, helpers: JobHelpers) -> None:
        started.append(helpers.job.id)
        while not resume.is_set():
            helpers.abort_signal.wait_blocking(0.001)
            helpers.raise_if_aborted()

    runner, first, _ = await two_jobs(jobs, workers, recorder, job1)
    try:
        await until(lambda: len(started) == 2)
        assert slots_of(runner).end_job(first, LATE, LONG)
        await recorder.wait_for(JobErrored)
        assert recorder.count(JobSucceeded) == 0
    finally:
        resume.set()
    await recorder.wait_for(JobSucceeded)
    await has_timed_out(jobs, recorder, first)


async def test_a_thread_that_does_not_end_is_left_behind(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    resume = threading.Event()
    started: list[int] = []

    def job1(payload: Any, helpers: JobHelpers) -> None:
        started.append(helpers.job.id)
        resume.wait(PATIENCE)

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    try:
        await until(lambda: started == [first])
        assert slots_of(runner).end_job(first, LATE, 0.1)
        await has_timed_out(jobs, recorder, first)
        assert leaked_tasks(runner) == [f"job1 (job {first})"]
        assert f"task job1 (job {first}) leaked: it runs in a thread" in caplog.text
        assert "resume.wait(PATIENCE)" in caplog.text  # where it is
        (second,) = await jobs.add_many("job1", 1)
        await until(lambda: started == [first, second])
    finally:
        resume.set()
    await recorder.wait_for(JobSucceeded)
    await until(lambda: not leaked_tasks(runner))
    assert recorder.count(JobSucceeded) == 1
    assert (await jobs.one())["id"] == first


async def test_a_coroutine_that_ignores_its_cancellation_is_left_behind(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    resume = asyncio.Event()
    started: list[int] = []
    cancelled = 0

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        nonlocal cancelled
        started.append(helpers.job.id)
        while not resume.is_set():
            try:
                await resume.wait()
            except asyncio.CancelledError:
                cancelled += 1

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    slots = slots_of(runner)
    await until(lambda: started == [first])
    assert slots.end_job(first, LATE, 0.01)
    await has_timed_out(jobs, recorder, first)
    assert leaked_tasks(runner) == [f"job1 (job {first})"]
    assert cancelled >= 2
    (second,) = await jobs.add_many("job1", 1)
    await until(lambda: started == [first, second])
    resume.set()
    await recorder.wait_for(JobSucceeded)
    await until(lambda: not leaked_tasks(runner))
    assert recorder.count(JobSucceeded) == 1
    assert f"task job1 (job {first}) leaked" in caplog.text
    assert "await resume.wait()" in caplog.text  # where it is
    assert f"task job1 (job {first}), which leaked, has ended" in caplog.text


async def test_a_worker_stops_beside_a_task_that_was_left_behind(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    resume = asyncio.Event()

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        while not resume.is_set():
            with suppress(asyncio.CancelledError):
                await resume.wait()

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    await until(lambda: len(slots_of(runner).running) == 1)
    assert slots_of(runner).end_job(first, LATE, 0.01)
    await has_timed_out(jobs, recorder, first)
    try:
        async with asyncio.timeout(PATIENCE):
            await runner.stop()
    finally:
        resume.set()


async def test_a_task_is_left_behind_while_the_worker_stops(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    resume = asyncio.Event()

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        while not resume.is_set():
            with suppress(asyncio.CancelledError):
                await resume.wait()

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events, grace=LONG)
    slots = slots_of(runner)
    await until(lambda: len(slots.running) == 1)
    stop = asyncio.ensure_future(runner.stop())
    await until(lambda: slots._closing)
    assert slots.end_job(first, LATE, 0.01)
    try:
        async with asyncio.timeout(PATIENCE):
            await stop
        await has_timed_out(jobs, recorder, first)
    finally:
        resume.set()


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
        assert slots_of(runner).end_job(first, LATE, LONG)
        await recorder.wait_for(JobErrored)
        assert recorder.count(JobSucceeded) == 0
    finally:
        (tmp_path / "go-on").touch()
    await recorder.wait_for(JobSucceeded)
    await has_timed_out(jobs, recorder, first)


async def test_an_executable_that_ignores_the_signal_is_killed(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(termination, "LAST_CHANCE", PATIENCE)  # it ends in time, but how soon is open
    script = tmp_path / "job1"
    script.write_text(
        f"#!/bin/sh\ntrap '' TERM\necho $$ > {tmp_path}/pid.new\nmv {tmp_path}/pid.new {tmp_path}/pid\n"
        f"while [ ! -e {tmp_path}/go-on ]; do sleep 0.01; done\n"
    )
    script.chmod(0o755)
    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start(load_tasks(tmp_path), events=recorder.events)
    try:
        await until(lambda: (tmp_path / "pid").exists())
        assert slots_of(runner).end_job(first, LATE, 0.05)
        await has_timed_out(jobs, recorder, first)
        pid = int((tmp_path / "pid").read_text())
        assert not Path(f"/proc/{pid}").exists()
        assert not leaked_tasks(runner)
    finally:
        (tmp_path / "go-on").touch()


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_batch_job_keeps_the_items_that_did_not_end(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, is_async: bool
) -> None:
    gate = Gate()

    async def promises(payload: list[int]) -> list[Any]:
        return [gate(item) for item in payload]

    def promises_of_a_thread(payload: list[int]) -> list[Any]:
        return [gate(item) for item in payload]

    first = await jobs.add("job1", [1, 2], max_attempts=1)  # the first item ends in time
    runner = await workers.start(
        {"job1": promises if is_async else promises_of_a_thread}, events=recorder.events
    )
    await gate.until_inside(2)
    gate.open()
    await until(lambda: gate.ended == [1])
    assert slots_of(runner).end_job(first, LATE, LONG)
    error = (await recorder.wait_for(JobErrored)).error
    assert isinstance(error, BatchFailureError)
    assert [str(each) for each in error.errors] == [MESSAGE]
    assert json.loads((await jobs.one())["payload"]) == [2]
    assert gate.inside == 0


async def test_a_task_that_returns_although_it_was_cancelled_is_completed(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        try:
            await gate(payload)
        except asyncio.CancelledError:
            return

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    await gate.until_inside(1)
    assert slots_of(runner).end_job(first, LATE, LONG)
    await recorder.wait_for(JobSucceeded)
    assert recorder.count(JobErrored) == 0


async def test_an_error_after_the_cancellation_is_the_cause_of_the_timeout(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        try:
            await gate(payload)
        except asyncio.CancelledError:
            raise ConnectionError("the request was cut off") from None

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    await gate.until_inside(1)
    assert slots_of(runner).end_job(first, LATE, LONG)
    await has_timed_out(jobs, recorder, first)
    assert isinstance(recorder.of(JobErrored)[0].error.__cause__, ConnectionError)


async def test_a_task_may_decide_its_ending_after_it_was_cancelled(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        try:
            await gate(payload)
        except asyncio.CancelledError:
            raise Snooze(LONG) from None

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    await gate.until_inside(1)
    assert slots_of(runner).end_job(first, LATE, LONG)
    await recorder.wait_for(JobSnoozed)


@pytest.mark.parametrize("order", [(LATE, Unwanted()), (Unwanted(), LATE)])
async def test_of_two_causes_the_one_with_the_higher_rank_holds(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, order: tuple[EndReason, EndReason]
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events, interrupted_job_retry_delay=LONG)
    await gate.until_inside(1)
    for cause in order:
        assert slots_of(runner).end_job(first, cause, LONG)
    event = await recorder.wait_for(JobInterrupted)
    assert str(event.error) == "not wanted any more"
    assert recorder.count(JobFailed) == 0


async def test_the_slot_takes_the_next_job(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    gate = Gate()
    slots: set[asyncio.Task[Any] | None] = set()

    async def job1(payload: Any) -> None:
        slots.add(asyncio.current_task())
        await gate(payload)

    first, _ = await jobs.add_many("job1", 2, max_attempts=1)
    runner = await workers.start({"job1": job1}, concurrency=1, events=recorder.events)
    await gate.until_inside(1)
    assert slots_of(runner).end_job(first, LATE, LONG)
    await recorder.wait_for(JobErrored)
    await gate.until_inside(1)
    gate.open()
    await recorder.wait_for(JobSucceeded)
    assert gate.ended == [{"n": 1}]
    assert len(slots) == 1


async def test_no_timer_is_left_when_the_job_has_ended(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    resume = threading.Event()
    started: list[Job] = []

    def job1(payload: Any, helpers: JobHelpers) -> None:
        started.append(helpers.job)
        resume.wait(PATIENCE)

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events)
    try:
        await until(lambda: bool(started))
        assert slots_of(runner).end_job(first, LATE, LONG)
        slot = slots_of(runner)._all[0]
        ending = slot.early_end
        assert ending is not None
        loop = asyncio.get_running_loop()
        # The timer of the grace: at the one before it, a thread that has only just ended would be cancelled.
        await until(lambda: ending._timer is not None and ending._timer.when() > loop.time() + LONG / 2)
    finally:
        resume.set()
    await recorder.wait_for(JobSucceeded)
    assert slot.early_end is None
    assert ending._timer is None


async def test_a_job_that_another_worker_has_taken_over_is_ended(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    (first,) = await jobs.add_many("job1", 1, max_attempts=1)
    runner = await workers.start({"job1": job1}, events=recorder.events, interrupted_job_retry_delay=LONG)
    await gate.until_inside(1)
    assert slots_of(runner).end_job(first, LATE, LONG)
    slots_of(runner).cancel_lost(lambda job: job.id == first)
    event = await recorder.wait_for(JobInterrupted)
    assert str(event.error) == TAKEN_AWAY.reason


async def test_a_job_that_does_not_run_here_cannot_be_ended(jobs: Jobs, workers: Workers) -> None:
    async def job1() -> None:
        pass

    runner = await workers.start({"job1": job1})
    assert not slots_of(runner).end_job(17, LATE, 0)
