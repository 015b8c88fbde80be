"""A worker ends the jobs that were cancelled: what the task, the row, the history and the log get."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import Job, JobHelpers, Limit, Snooze, WorkerUtils, make_worker_utils, task
from graphile_worker.errors import JobCancelledError
from graphile_worker.hooks import Cancelled, Hooks, Outcome
from graphile_worker.hooks.events import JobCancelled, JobStarted
from graphile_worker.options import JobFilter
from graphile_worker.testing.results import EventRecorder
from support.working import MODES, PATIENCE, SCHEMA, Gate, Jobs, Workers, until, workers_of

CANCELS = f"{SCHEMA}._private_py_cancels"
HISTORY = f"{SCHEMA}._private_py_history"
EXECUTABLE = """#!/bin/sh
touch "$0.started"
trap 'touch "$0.ended"; exit 1' TERM
while true; do sleep 0.05; done
"""


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def until_settled(jobs: Jobs) -> None:
    """Until neither jobs nor cancels are left."""

    async def is_settled() -> bool:
        return await jobs.count() == 0 and not await jobs.connection.fetchval(
            f"select count(*) from {CANCELS}"
        )

    await until(is_settled)


async def ends(jobs: Jobs) -> list[tuple[Any, ...]]:
    rows = await jobs.connection.fetch(
        f"select job_id, state, error, job_key, attempts from {HISTORY} order by job_id"
    )
    return [tuple(row) for row in rows]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
async def test_a_running_coroutine_is_cancelled(
    database_url: str,
    utils: WorkerUtils,
    jobs: Jobs,
    caplog: pytest.LogCaptureFixture,
    recorder: EventRecorder,
    mode: dict[str, Any],
) -> None:
    started, reasons = asyncio.Event(), []

    @task
    async def work(payload: Any, helpers: JobHelpers) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            reasons.append(helpers.abort_signal.reason)
            raise

    async for workers in workers_of(database_url, mode):
        handle = await utils.add_job(work, {}, keep=True, queue_name="q", job_key="k")
        waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
        with caplog.at_level(logging.INFO, "graphile_worker"):
            runner = await workers.start([work], events=recorder.events, statistics=True)
            await asyncio.wait_for(started.wait(), PATIENCE)
            report = await utils.cancel_jobs([handle.id], reason="the user left")
            assert [job.id for job in report.asked] == [handle.id]
            with pytest.raises(JobCancelledError, match="was cancelled: the user left"):
                await waiting
            await until_settled(jobs)
            await workers.stop(runner)
    assert reasons == ["the job was cancelled: the user left"]
    assert await jobs.locked() == 0
    assert await ends(jobs) == [(handle.id, "cancelled", "the user left", "k", 1)]
    (end,) = await utils.history.of_job(handle)
    assert end.started_at is not None
    assert end.duration is not None
    assert end.pool_id == report.asked[0].locked_by
    event = await recorder.wait_for(JobCancelled)
    names = [event.name for event in recorder.seen if event.name.startswith("job:")]
    assert names == ["job:start", "job:cancelled"]
    assert (event.reason, event.has_started, event.error) == ("the user left", True, None)
    assert f"task work (job {handle.id}) was cancelled after" in caplog.text
    assert "s: the user left; deleted\n" in caplog.text
    statistics = await jobs.connection.fetch(f"select * from {SCHEMA}._private_py_minutes")
    assert [dict(row) for row in statistics] == []


async def test_a_thread_notices_its_signal(utils: WorkerUtils, jobs: Jobs, workers: Workers) -> None:
    started = threading.Event()

    @task
    def work(payload: Any, helpers: JobHelpers) -> None:
        started.set()
        while not helpers.abort_signal.is_set():
            threading.Event().wait(0.01)
        raise RuntimeError("stopped halfway")

    job_id = await jobs.add("work", flags=["py:keep"])
    await workers.start([work])
    await asyncio.to_thread(started.wait, PATIENCE)
    await utils.cancel_jobs([job_id])
    await until_settled(jobs)
    assert await ends(jobs) == [(job_id, "cancelled", None, None, 1)]


async def test_an_executable_gets_a_signal(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, tmp_path: Path
) -> None:
    file = tmp_path / "work"
    file.write_text(EXECUTABLE)
    file.chmod(0o755)
    job_id = await jobs.add("work", flags=["py:keep"])
    await workers.start(None, task_directory=tmp_path)
    await until(lambda: (tmp_path / "work.started").exists())
    await utils.cancel_jobs([job_id], reason="no")
    await until_settled(jobs)
    assert (tmp_path / "work.ended").exists()
    assert await ends(jobs) == [(job_id, "cancelled", "no", None, 1)]


async def test_a_coroutine_that_ignores_it_is_left_behind(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    started, go_on, ran = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @task
    async def stubborn() -> None:
        started.set()
        while not go_on.is_set():
            try:
                await go_on.wait()
            except asyncio.CancelledError:
                continue

    @task
    async def other() -> None:
        ran.set()

    job_id = await jobs.add("stubborn")
    await workers.start([stubborn, other], concurrency=1, timeout_grace=0.5)
    await asyncio.wait_for(started.wait(), PATIENCE)
    await utils.cancel_jobs([job_id])
    await until_settled(jobs)
    await jobs.add("other")
    await asyncio.wait_for(ran.wait(), PATIENCE)
    assert f"task stubborn (job {job_id}) leaked" in caplog.text
    go_on.set()


# -- how the task ends in spite of it ----------------------------------------------------------------------


async def test_a_task_that_completes_has_completed(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    started = asyncio.Event()

    @task
    async def work() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"
        return ""

    handle = await utils.add_job(work, keep=True)
    await workers.start([work], events=recorder.events)
    await asyncio.wait_for(started.wait(), PATIENCE)
    assert await handle.cancel() is True
    assert await handle.result(timeout=PATIENCE) == "done all the same"
    assert await ends(jobs) == [(handle.id, "completed", None, None, 25)]
    assert recorder.of(JobCancelled) == []


ENDINGS: dict[str, Any] = {"fail": ValueError("cannot clean up"), "snooze": Snooze(0)}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("hook", ["none", "around"])
async def test_any_other_ending_is_cancelled(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder, ending: str, hook: str
) -> None:
    started, seen = asyncio.Event(), []
    hooks = Hooks(events=recorder.events)
    if hook == "around":

        @hooks.around_run
        async def around(job: Job, call_next: Any) -> Outcome:
            outcome: Outcome = await call_next()
            seen.append(outcome)
            return outcome

    @task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ENDINGS[ending] from None

    job_id = await jobs.add("work", flags=["py:keep"])
    await workers.start([work], hooks=hooks)
    await asyncio.wait_for(started.wait(), PATIENCE)
    await utils.cancel_jobs([job_id], reason="no")
    await until_settled(jobs)
    assert await ends(jobs) == [(job_id, "cancelled", "no", None, 1)]
    event = await recorder.wait_for(JobCancelled)
    assert event.error is (ENDINGS["fail"] if ending == "fail" else None)
    assert all(isinstance(outcome, Cancelled) for outcome in seen)
    assert len(seen) == (hook == "around")


async def test_a_worker_that_stops_meanwhile_does_not_return_the_job(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    started, cancelled, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            await go_on.wait()
            raise

    job_id = await jobs.add("work", flags=["py:keep"])
    runner = await workers.start([work])
    await asyncio.wait_for(started.wait(), PATIENCE)
    await utils.cancel_jobs([job_id])
    await asyncio.wait_for(cancelled.wait(), PATIENCE)
    killing = asyncio.ensure_future(runner.kill())
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(killing, return_exceptions=True), PATIENCE)
    await until_settled(jobs)
    assert await ends(jobs) == [(job_id, "cancelled", None, None, 1)]


# -- jobs that have not started ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mode", [{"prefetch": 5.0}, {"local_queue": {"size": 20}}], ids=["default", "local queue"]
)
async def test_a_prefetched_job_does_not_start(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: dict[str, Any]
) -> None:
    gate = Gate()

    async def work(payload: Any) -> None:
        if payload["n"] == 5:  # the jobs before it are quick, so that the worker prefetches some
            await gate(payload["n"])

    await jobs.add_many("work", 8)
    ids = [await jobs.add("work", {"n": n}, flags=["py:keep"], priority=1) for n in range(8, 12)]
    await workers.start({"work": work}, events=recorder.events, concurrency=1, **mode)
    await gate.until_inside(1)

    async def are_locked() -> bool:
        return all(row["locked_by"] for row in await jobs.all())

    await until(are_locked)
    report = await utils.cancel_jobs(ids[:2], reason="no")
    assert [job.id for job in report.asked] == ids[:2]
    await until(lambda: len(recorder.of(JobCancelled)) == 2)
    assert {event.has_started for event in recorder.of(JobCancelled)} == {False}
    gate.open()
    await until_settled(jobs)
    started = [event.job.id for event in recorder.of(JobStarted)]
    assert started[-2:] == ids[2:]
    assert not set(started) & set(ids[:2])
    assert (await ends(jobs))[:2] == [(job_id, "cancelled", "no", None, 1) for job_id in ids[:2]]
    rows = await jobs.connection.fetch(
        f"select started_at, duration from {HISTORY} where state = 'cancelled'"
    )
    assert {tuple(row) for row in rows} == {(None, None)}


async def test_the_next_job_of_the_queue_follows(utils: WorkerUtils, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    first, _ = [await jobs.add("work", {"n": n}, queue="q") for n in range(2)]
    await workers.start({"work": gate}, concurrency=2)
    await gate.until_inside(1)
    await utils.cancel_jobs([first])
    await until(lambda: gate.started == [{"n": 0}, {"n": 1}])
    await gate.until_inside(1)
    gate.open()
    await until_settled(jobs)
    assert gate.most_at_once == 1
    assert await jobs.locked() == 0


async def test_a_job_in_a_lane_with_a_limit_makes_room_for_the_next(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()

    @task(limit=Limit("api", concurrency=1))
    async def work(payload: Any) -> None:
        await gate(payload)

    first, _ = [await jobs.add("work", {"n": n}) for n in range(2)]
    await workers.start([work], concurrency=2)
    await gate.until_inside(1)
    await utils.cancel_jobs([first])
    await until(lambda: gate.started == [{"n": 0}, {"n": 1}])
    gate.open()
    await until_settled(jobs)
    assert gate.most_at_once == 1


# -- how a worker learns of it -----------------------------------------------------------------------------


@pytest.mark.usefixtures("look_often")
async def test_a_worker_that_cannot_listen_looks(utils: WorkerUtils, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    job_id = await jobs.add("work")
    await workers.start({"work": gate}, max_pool_size=2)
    await gate.until_inside(1)
    await utils.cancel_jobs([job_id])
    await until_settled(jobs)
    assert gate.ended == []


@pytest.mark.usefixtures("look_often")
async def test_a_run_that_drains_the_queue_looks(utils: WorkerUtils, jobs: Jobs, workers: Workers) -> None:
    gate = Gate()
    job_id = await jobs.add("work")
    draining = asyncio.ensure_future(workers.once({"work": gate}))
    await gate.until_inside(1)
    await utils.cancel_jobs([job_id])
    await draining
    assert gate.ended == []
    assert await jobs.count() == 0


async def test_many_jobs_of_many_tasks_are_cancelled_at_once(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()
    await jobs.add_many("work", 300)
    await workers.start({"work": gate}, concurrency=50)
    await gate.until_inside(50)
    report = await utils.cancel_jobs(filter=JobFilter(task_identifier="work"))
    assert (report.changed, report.skipped) == (300, 0)
    await until_settled(jobs)
    assert gate.ended == []
