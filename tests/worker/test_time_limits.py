"""Time limits of tasks and jobs: when they hold, how a job ends, and what becomes of its worker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import JobHelpers, JobSpec, Lane, Runner, WorkerUtils, make_worker_utils, task
from graphile_worker.errors import (
    ConfigError,
    InvalidArgumentError,
    JobTimeoutError,
    TaskLoadError,
    WorkerUnhealthyError,
)
from graphile_worker.hooks import CallNext, Hooks
from graphile_worker.hooks.events import JobErrored, JobFailed, JobInterrupted, JobStarted, JobSucceeded
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.job import Job
from graphile_worker.values.options import WorkerOptions
from graphile_worker.values.outcome import Failed, Outcome
from graphile_worker.worker.run import termination
from graphile_worker.worker.run.slots import Slots
from graphile_worker.worker.run.termination import Slot
from support.working import PATIENCE, Jobs, Workers, headline, until

LONG = 3600.0
SHORT = 0.02  # seconds; a limit that a test waits for
MESSAGE = f"the task ran longer than its time limit of {SHORT:g} s"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


def slots_of(runner: Runner) -> Slots:
    (lane,) = runner._running_pool._lanes
    return lane.slots


def only_slot(runner: Runner) -> Slot:
    (slot,) = slots_of(runner)._all
    return slot


# -- where a limit comes from ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_the_workers", [False, True])
async def test_a_limit_of_the_task_the_job_or_the_worker(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, recorder: EventRecorder, is_the_workers: bool
) -> None:
    in_seconds = task("in seconds", timeout=SHORT)(forever)
    as_timedelta = task("as a timedelta", timeout=timedelta(seconds=SHORT))(forever)
    none = task("none")(forever)
    if is_the_workers:
        await utils.add_job("none", max_attempts=1)
    else:
        await utils.add_job("in seconds", max_attempts=1)
        await utils.add_job("as a timedelta", max_attempts=1)
        await utils.add_job("none", max_attempts=1, timeout=SHORT)
        await jobs.add("none", max_attempts=1, flags=[f"py:timeout={SHORT}"])
    options: dict[str, Any] = {"job_timeout": SHORT} if is_the_workers else {}
    await workers.start([in_seconds, as_timedelta, none], concurrency=4, events=recorder.events, **options)
    count = await jobs.count()
    await recorder.wait_for(JobFailed, count=count)
    for event in recorder.of(JobFailed):
        assert isinstance(event.error, JobTimeoutError)
        assert event.error.limit == SHORT
    rows = await jobs.all()
    assert [headline(row) for row in rows] == [MESSAGE] * count
    assert [(row["attempts"], row["locked_at"]) for row in rows] == [(1, None)] * count


async def test_the_limit_of_the_job_holds_instead_of_that_of_the_task(
    workers: Workers, utils: WorkerUtils, recorder: EventRecorder
) -> None:
    resume = asyncio.Event()

    @task(timeout=SHORT)
    async def wait() -> None:
        await resume.wait()

    await utils.add_job(wait, timeout=LONG, max_attempts=1)
    runner = await workers.start([wait], events=recorder.events)
    await recorder.wait_for(JobStarted)
    alarm = only_slot(runner).alarm
    assert alarm is not None
    assert alarm.when() > asyncio.get_running_loop().time() + LONG / 2
    resume.set()
    await recorder.wait_for(JobSucceeded)


@pytest.mark.parametrize("limit_before", [SHORT, LONG])
async def test_the_limit_counts_from_the_start_of_the_job(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, limit_before: float
) -> None:
    """Whatever alarm the job before it has left."""

    @task(timeout=limit_before)
    async def quick() -> None: ...

    hang = task("hang", timeout=SHORT)(forever)
    await jobs.add("quick", priority=-1)
    await jobs.add("hang", max_attempts=1)
    await workers.start([quick, hang], concurrency=1, events=recorder.events)
    await recorder.wait_for(JobFailed)
    (event,) = recorder.of(JobFailed)
    assert event.duration >= SHORT
    assert recorder.count(JobSucceeded) == 1


async def test_the_alarm_of_one_job_does_not_end_the_next(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    resume = asyncio.Event()

    @task(timeout=LONG)
    async def quick() -> None: ...

    @task
    async def no_limit() -> None:
        await resume.wait()

    await jobs.add("quick", priority=-1)
    await jobs.add("no_limit")
    runner = await workers.start([quick, no_limit], concurrency=1, events=recorder.events)
    await recorder.wait_for(JobStarted, count=2)
    slots, slot = slots_of(runner), only_slot(runner)
    assert slot.alarm is not None
    slots._alarm(slot)
    assert slot.early_end is None
    resume.set()
    await recorder.wait_for(JobSucceeded, count=2)


async def test_a_stopped_worker_leaves_no_alarm(jobs: Jobs, workers: Workers) -> None:
    """It would keep the pool in memory for as long as the limit."""

    @task(timeout=LONG)
    async def quick() -> None: ...

    await jobs.add("quick")
    runner = await workers.start([quick], concurrency=1)
    slot = only_slot(runner)
    await until(lambda: slot.alarm is not None)
    await workers.stop(runner)
    assert slot.alarm is not None
    assert slot.alarm.cancelled()


async def test_a_flag_that_is_no_limit_is_logged_and_ignored(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    async def quick() -> None:
        pass

    ids = {
        wrong: await jobs.add("quick", flags=[f"py:timeout={wrong}"])
        for wrong in ("soon", "0", "-3", "nan", "inf", "")
    }
    await workers.once({"quick": quick})
    assert await jobs.count() == 0
    for wrong, job_id in ids.items():
        assert (
            f"task quick (job {job_id}): the flag py:timeout={wrong} has no valid number of seconds; "
            "it is ignored" in caplog.text
        )


async def test_a_job_without_a_limit_has_no_timer(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    resume = asyncio.Event()

    async def wait() -> None:
        await resume.wait()

    @task(timeout=1)
    async def other() -> None:
        pass

    await jobs.add("wait", flags=["py:keep", "mail"])
    runner = await workers.start({"wait": wait, "other": other}, events=recorder.events)
    await recorder.wait_for(JobStarted)
    assert only_slot(runner).early_end is None
    resume.set()
    await recorder.wait_for(JobSucceeded)


def test_a_spec_carries_its_limit_as_a_flag() -> None:
    spec = JobSpec("hang", timeout=timedelta(minutes=2), flags=["mail"])
    assert spec.flags == ("mail", "py:timeout=120")
    assert spec.replace(timeout=0.5).flags == ("mail", "py:timeout=0.5")
    assert spec.replace(priority=1).flags == spec.flags
    assert JobSpec("hang", timeout=123456789.5).flags == ("py:timeout=123456789.5",)


@pytest.mark.parametrize("wrong", [0, -1, "30", True, float("nan"), float("inf"), timedelta()])
def test_what_is_no_limit_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"timeout: expected"):
        JobSpec("hang", timeout=wrong)
    with pytest.raises(TaskLoadError, match=r"@task of 'hang': timeout: expected"):
        task("hang", timeout=wrong)(forever)


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(TaskLoadError, match="on_timeout: expected one of abandon, wait; got 'kill'"):
        task("hang", on_timeout="kill")(forever)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_timeout": 0}, "job_timeout: must be more than 0 seconds"),
        ({"timeout_grace": -1}, "timeout_grace: must be a finite number"),
        ({"max_leaked_tasks": -1}, "max_leaked_tasks: must be at least 0"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        WorkerOptions(**options)


async def test_a_limit_holds_in_every_lane(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    @task(timeout=SHORT, lane="slow")
    async def hang() -> None:
        await forever()

    await jobs.add("hang", max_attempts=1)
    await workers.start([hang], lanes=[Lane("slow", concurrency=2)], events=recorder.events)
    assert isinstance((await recorder.wait_for(JobFailed)).error, JobTimeoutError)


# -- how a job ends ----------------------------------------------------------------------------------------


async def test_a_timeout_is_retried_with_the_back_off(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    @task(timeout=SHORT)
    async def hang() -> None:
        await forever()

    await jobs.add("hang")
    await workers.start([hang], events=recorder.events)
    await recorder.wait_for(JobErrored)

    async def is_retried() -> bool:
        row = await jobs.one()
        return bool(row["locked_at"] is None and row["last_error"])

    await until(is_retried)
    assert recorder.count(JobFailed) == 0


RULES: dict[str, tuple[dict[str, Any], bool]] = {
    "not after this": ({"dont_retry": JobTimeoutError}, False),
    "not after its base": ({"dont_retry": TimeoutError}, False),
    "only after others": ({"retry_on": ValueError}, False),
    "only after its base": ({"retry_on": TimeoutError}, True),
}
"""Rules of tasks, and whether their timeouts are retried."""


@pytest.mark.parametrize("is_async", [True, False])
async def test_the_rules_of_the_task_hold_for_timeouts(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, is_async: bool
) -> None:
    def hang_in_thread(helpers: JobHelpers) -> None:
        helpers.abort_signal.wait_blocking(PATIENCE)
        helpers.raise_if_aborted()

    hang: Any = forever if is_async else hang_in_thread
    for name in RULES:
        await jobs.add(name, max_attempts=3)
    tasks = [task(name, timeout=SHORT, **rules)(hang) for name, (rules, _) in RULES.items()]
    await workers.start(tasks, concurrency=4, events=recorder.events)
    await recorder.wait_for(JobErrored, count=len(RULES))
    assert all(isinstance(event.error, JobTimeoutError) for event in recorder.of(JobErrored))
    await recorder.wait_for(JobFailed, count=3)
    assert {name for name, (_, is_retried) in RULES.items() if not is_retried} == {
        event.job.task_identifier for event in recorder.of(JobFailed)
    }


async def test_a_named_queue_goes_on(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    @task(timeout=SHORT)
    async def hang() -> None:
        await forever()

    async def quick() -> None:
        pass

    await jobs.add("hang", queue="line", max_attempts=1)
    await jobs.add("quick", queue="line")
    await workers.start({"hang": hang, "quick": quick}, events=recorder.events)
    await recorder.wait_for(JobSucceeded)
    assert recorder.count(JobFailed) == 1
    assert (await jobs.one())["identifier"] == "hang"


async def test_a_task_in_a_shield_is_ended(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    resume = asyncio.Event()
    inner: list[asyncio.Future[Any]] = []

    @task(timeout=SHORT)
    async def hang() -> None:
        inner.append(asyncio.ensure_future(resume.wait()))
        await asyncio.shield(inner[0])

    await jobs.add("hang", max_attempts=1)
    await workers.start([hang], events=recorder.events)
    await recorder.wait_for(JobFailed)
    assert not inner[0].done()
    resume.set()
    await inner[0]


async def test_tasks_that_end_when_their_time_is_up_end_once(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    count = 200

    @task("race", timeout=0.005)
    async def race() -> None:
        await asyncio.sleep(0.005)  # timing: a race; whoever wins, each ends once

    await jobs.add_many("race", count, max_attempts=1)
    await workers.once([race], concurrency=10, events=recorder.events)
    ended = recorder.of(JobSucceeded), recorder.of(JobFailed)
    assert sorted(event.job.id for kind in ended for event in kind) == list(range(1, count + 1))
    assert {row["id"] for row in await jobs.all()} == {event.job.id for event in recorder.of(JobFailed)}
    assert await jobs.locked() == 0


async def test_threads_that_end_when_their_time_is_up_end_once(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    count = 100

    @task("race", timeout=0.005)
    def race(helpers: JobHelpers) -> None:
        helpers.abort_signal.wait_blocking(0.005)

    await jobs.add_many("race", count, max_attempts=1)
    await workers.once([race], concurrency=5, events=recorder.events, timeout_grace=PATIENCE)
    assert recorder.count(JobSucceeded) == count  # they returned, however late
    assert await jobs.count() == 0


async def test_a_thread_that_ends_while_the_event_loop_is_busy_completes_its_job(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Its result arrives in the same turn of the loop in which the worker looks whether it still runs."""
    loop, is_busy = asyncio.get_running_loop(), threading.Event()

    def be_busy() -> None:
        is_busy.set()
        time.sleep(0.3)  # timing: the thread ends meanwhile, or it does later; both are right

    @task("late", timeout=0.01)
    def late(helpers: JobHelpers) -> None:
        helpers.abort_signal.wait_blocking(PATIENCE)
        loop.call_soon_threadsafe(be_busy)
        is_busy.wait(PATIENCE)

    await jobs.add("late", max_attempts=1)
    await workers.once([late], events=recorder.events, timeout_grace=PATIENCE)
    assert recorder.count(JobSucceeded) == 1
    assert await jobs.count() == 0


async def test_interceptors_see_the_timeout(jobs: Jobs, workers: Workers, recorder: EventRecorder) -> None:
    seen: list[Outcome] = []
    hooks = Hooks(events=recorder.events)

    @hooks.around_run
    async def wrap(job: Job, call_next: CallNext) -> Outcome:
        outcome = await call_next()
        await asyncio.sleep(0)  # it is not cancelled too
        seen.append(outcome)
        return outcome

    @hooks.after_run
    async def after(job: Job, outcome: Outcome) -> None:
        await asyncio.sleep(0)
        seen.append(outcome)

    @task(timeout=SHORT)
    async def hang() -> None:
        await forever()

    await jobs.add("hang", max_attempts=1)
    await workers.start([hang], hooks=hooks)
    await recorder.wait_for(JobFailed)
    assert len(seen) == 2
    assert all(isinstance(each, Failed) and isinstance(each.error, JobTimeoutError) for each in seen)


@pytest.mark.parametrize("where", ["before", "around", "after"])
async def test_interceptors_are_within_the_limit(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, where: str
) -> None:
    hooks = Hooks(events=recorder.events)

    async def hang_before(job: Job) -> None:
        await forever()

    async def hang_around(job: Job, call_next: CallNext) -> Outcome:
        await call_next()
        await forever()
        raise AssertionError

    async def hang_after(job: Job, outcome: Outcome) -> None:
        await forever()

    if where == "before":
        hooks.before_run(hang_before)
    elif where == "around":
        hooks.around_run(hang_around)
    else:
        hooks.after_run(hang_after)

    @task(timeout=SHORT)
    def quick() -> None:
        pass

    await jobs.add("quick", max_attempts=1)
    await workers.start([quick], hooks=hooks, timeout_grace=LONG)
    assert isinstance((await recorder.wait_for(JobFailed)).error, JobTimeoutError)


async def test_a_job_that_is_being_returned_does_not_time_out(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    cancelled, resume = asyncio.Event(), asyncio.Event()

    @task(timeout=LONG)
    async def hang() -> None:
        try:
            await forever()
        except asyncio.CancelledError:
            cancelled.set()
            await resume.wait()
            raise

    await jobs.add("hang", max_attempts=1)
    runner = await workers.start([hang], events=recorder.events)
    await recorder.wait_for(JobStarted)
    killing = asyncio.ensure_future(runner.kill())
    await cancelled.wait()
    slots, slot = slots_of(runner), only_slot(runner)
    slot.started -= LONG
    slots._alarm(slot)
    resume.set()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait((killing,))
    assert recorder.count(JobInterrupted) == 1
    assert (await jobs.one())["attempts"] == 0


async def test_a_job_times_out_while_the_worker_stops(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    @task(timeout=0.5)
    async def hang() -> None:
        await forever()

    await jobs.add("hang", max_attempts=1)
    runner = await workers.start([hang], events=recorder.events, grace=LONG)
    await recorder.wait_for(JobStarted)
    await workers.stop(runner)
    assert recorder.count(JobFailed) == 1
    assert (await jobs.one())["attempts"] == 1


# -- tasks that do not end ---------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_slot_may_wait_for_its_task(
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
) -> None:
    monkeypatch.setattr(termination, "LAST_CHANCE", 0.0)
    resume = threading.Event()
    runs: list[int] = []

    @task("hang", timeout=SHORT, on_timeout="wait")
    async def hang() -> None:
        runs.append(1)
        while not resume.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)
        raise ValueError("late")

    @task("hang", timeout=SHORT, on_timeout="wait")
    def hang_in_thread() -> None:
        runs.append(1)
        resume.wait(PATIENCE)
        raise ValueError("late")

    await jobs.add("hang", max_attempts=1)
    runner = await workers.start(
        [hang if is_async else hang_in_thread], events=recorder.events, timeout_grace=0.05
    )
    try:
        await until(lambda: "still runs; its slot waits for it" in caplog.text)
        assert len(slots_of(runner).running) == 1
        assert recorder.count(JobErrored) == 0
    finally:
        resume.set()
    error = (await recorder.wait_for(JobFailed)).error
    assert isinstance(error, JobTimeoutError)
    assert isinstance(error.__cause__, ValueError)
    assert runs == [1]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_worker_with_too_many_tasks_that_do_not_end_shuts_down(
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    monkeypatch: pytest.MonkeyPatch,
    is_async: bool,
) -> None:
    monkeypatch.setattr(termination, "LAST_CHANCE", 0.0)
    resume = threading.Event()

    @task("hang", timeout=SHORT)
    async def hang() -> None:
        while not resume.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.005)

    @task("hang", timeout=SHORT)
    def hang_in_thread() -> None:
        resume.wait(PATIENCE)

    first, second, third = await jobs.add_many("hang", 3, max_attempts=1)
    runner = await workers.start(
        [hang if is_async else hang_in_thread],
        events=recorder.events,
        timeout_grace=0.01,
        max_leaked_tasks=1,
        prefetch=0,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(WorkerUnhealthyError) as caught:
                await runner.wait()
    finally:
        resume.set()
    assert str(caught.value) == (
        "2 tasks did not end when asked to and still run (max_leaked_tasks is 1): "
        f"hang (job {first}), hang (job {second})"
    )
    assert await jobs.locked() == 0
    attempts = {row["id"]: row["attempts"] for row in await jobs.all()}
    assert attempts == {first: 1, second: 1, third: 0}
