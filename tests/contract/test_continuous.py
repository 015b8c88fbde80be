"""A worker that runs until it is stopped."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextvars import ContextVar
from typing import Any

import pytest

from graphile_worker import JobHelpers, get_current_job
from graphile_worker.hooks.events import (
    JobCompleted,
    JobInterrupted,
    JobStarted,
    JobSucceeded,
    PoolCreated,
    PoolListenConnecting,
    PoolListenSuccess,
    PoolReleased,
    Stopped,
    WorkerCreated,
    WorkerReleased,
    WorkerStopped,
)
from graphile_worker.testing.results import EventRecorder
from support.working import IN_ONE_MODE, PATIENCE, Gate, Jobs, Workers, headline, until, until_listening


@pytest.mark.compat("MAIN-1")
async def test_jobs_start_as_they_are_added_and_a_graceful_stop_finishes_them(
    jobs: Jobs, workers: Workers
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    before = signal.getsignal(signal.SIGTERM)
    runner = await workers.start({"job1": job1}, concurrency=3, handle_signals=True)
    assert signal.getsignal(signal.SIGTERM) is not before
    for n in range(5):
        await jobs.add("job1", {"n": n}, queue="serial")
        await gate.until_inside(1)
        if n < 4:
            gate.open()
    ended = asyncio.create_task(runner.wait())
    stopping = asyncio.create_task(workers.stop(runner))
    await asyncio.sleep(0)
    assert not stopping.done()
    assert not ended.done()
    gate.open()
    await stopping
    await ended
    assert signal.getsignal(signal.SIGTERM) is before
    assert [payload["n"] for payload in gate.ended] == [0, 1, 2, 3, 4]
    assert await jobs.count() == 0


@pytest.mark.compat("EVT-1")
async def test_events_come_once_each_and_in_their_place(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()

    async def job1(payload: Any) -> None:
        await gate(payload)

    for n in range(5):
        await jobs.add("job1", {"n": n}, queue="serial")
    runner = await workers.start({"job1": job1}, concurrency=3, events=recorder.events)
    assert runner.events is recorder.events
    counts = (PoolCreated, PoolListenConnecting, WorkerCreated)
    assert [recorder.count(kind) for kind in counts] == [1, 1, 3]
    for n in range(5):
        await gate.until_inside(1)
        assert (recorder.count(JobStarted), recorder.count(JobSucceeded), recorder.count(JobCompleted)) == (
            n + 1,
            n,
            n,
        )
        gate.open()
        await recorder.wait_for(JobCompleted, count=n + 1)
        assert recorder.count(JobSucceeded) == n + 1
    for kind in (Stopped, WorkerReleased, WorkerStopped, PoolReleased):
        assert recorder.count(kind) == 0
    ended = asyncio.create_task(runner.wait())
    await workers.stop(runner)
    await ended
    assert [recorder.count(kind) for kind in (Stopped, WorkerReleased, WorkerStopped, PoolReleased)] == [
        1,
        3,
        3,
        1,
    ]
    assert await jobs.count() == 0


@pytest.mark.compat("EXT-14")
async def test_a_success_is_announced_after_the_row_is_gone(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    left: list[int] = []

    async def count(_event: JobSucceeded) -> None:
        left.append(await jobs.count())

    async def job1() -> None:
        pass

    recorder.events.on(JobSucceeded, count)
    await jobs.add("job1")
    await workers.start({"job1": job1}, events=recorder.events)
    await until(lambda: bool(left))
    assert left == [0]


@pytest.mark.compat("EXT-14")
async def test_a_graceful_stop_never_leaves_a_finished_job_locked(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    ran: list[int] = []

    async def job1(payload: Any) -> None:
        await asyncio.sleep(0.001)  # timing: so that some are running; how many does not matter
        ran.append(payload["n"])

    await jobs.add_many("job1", 300)
    await jobs.add_many("job1", 20, queue="serial")
    runner = await workers.start({"job1": job1}, concurrency=8, events=recorder.events)
    await until(lambda: len(ran) > 60)
    await workers.stop(runner)
    assert 60 < len(ran) < 320
    assert await jobs.count() == 320 - len(ran)
    assert await jobs.locked() == 0
    assert recorder.count(JobSucceeded) == len(ran)
    assert {row["attempts"] for row in await jobs.all()} == {0}


@pytest.mark.compat("MAIN-3", "RUN-10")
async def test_a_task_that_heeds_the_abort_signal_leaves_its_reason(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """`test_around_run.py` has one that takes no notice and is cancelled after the grace."""
    started: list[str] = []

    async def job1(payload: Any, helpers: JobHelpers) -> None:
        started.append(payload["how"])
        if payload["how"] == "abortable":
            await helpers.abortable(asyncio.Event().wait())
        await helpers.abort_signal.wait()
        if payload["how"] == "raise_if_aborted":
            helpers.raise_if_aborted()
        raise RuntimeError("gave up")

    hows = ("abortable", "raise_if_aborted", "an error of its own")
    for how in hows:
        await jobs.add("job1", {"how": how}, queue=how, max_attempts=1)
    runner = await workers.start(
        {"job1": job1},
        concurrency=len(hows),
        graceful_shutdown_abort_timeout=0.02,
        use_local_time=True,
        events=recorder.events,
    )
    await until(lambda: len(started) == len(hows))
    await workers.stop(runner, reason="time to go")
    rows = {row["queue_name"]: row for row in await jobs.all()}
    assert rows.keys() == {*hows}
    assert await jobs.locked() == 0
    failed = rows.pop("an error of its own")
    assert (headline(failed), failed["attempts"]) == ("RuntimeError: gave up", 1)
    assert {(row["last_error"], row["attempts"], row["is_available"]) for row in rows.values()} == {
        ("Interrupted: time to go", 0, True)
    }
    assert recorder.count(JobInterrupted) == 2


@IN_ONE_MODE
async def test_a_plain_function_does_not_block_the_loop(jobs: Jobs, workers: Workers) -> None:
    inside, go_on = threading.Event(), threading.Event()
    quick: list[int] = []

    def slow() -> None:
        inside.set()
        assert go_on.wait(PATIENCE)

    async def fast(payload: Any) -> None:
        quick.append(payload["n"])

    await jobs.add("slow")
    await workers.start({"slow": slow, "fast": fast}, concurrency=2)
    try:
        await until(inside.is_set)
        await jobs.add_many("fast", 20)
        await until(lambda: len(quick) == 20)
    finally:
        go_on.set()
    await jobs.until_gone()


colour: ContextVar[str] = ContextVar("colour", default="none")


@IN_ONE_MODE
async def test_a_context_variable_set_in_one_job_is_not_seen_by_the_next(
    jobs: Jobs, workers: Workers
) -> None:
    seen: list[str] = []

    class Odd:
        """A value that cannot be compared, as arrays of numbers are."""

        def __eq__(self, other: object) -> bool:
            raise ValueError("not comparable")

        __hash__ = None  # type: ignore[assignment]

    token: ContextVar[Any] = ContextVar("token")

    async def paints(payload: Any) -> None:
        seen.append(colour.get())
        colour.set(f"red {payload['n']}")
        token.set(Odd())
        if payload["n"] % 2:
            await asyncio.sleep(0)

    await jobs.add_many("paints", 10)
    await workers.start({"paints": paints})
    await jobs.until_gone()
    assert seen == ["none"] * 10


@IN_ONE_MODE
async def test_the_current_job_and_context_variables_reach_threads(jobs: Jobs, workers: Workers) -> None:
    seen: list[Any] = []

    def plain(payload: Any) -> None:
        seen.append((get_current_job().id, colour.get()))

    colour.set("blue")
    job_id = await jobs.add("plain")
    await workers.start({"plain": plain})
    await jobs.until_gone()
    assert seen == [(job_id, "blue")]


async def test_a_worker_hears_of_jobs_again_after_its_listener_was_cut_off(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def job1() -> None:
        pass

    await workers.start({"job1": job1}, events=recorder.events)
    await recorder.wait_for(PoolListenSuccess)
    await jobs.connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid()"
    )
    await jobs.add("job1")  # announced while nobody listens
    await recorder.wait_for(JobSucceeded)
    await recorder.wait_for(PoolListenSuccess, count=2)
    await until_listening(recorder, jobs.connection)
    await jobs.add("job1")
    await recorder.wait_for(JobSucceeded, count=2)


@IN_ONE_MODE
async def test_jobs_with_empty_or_strange_announcements_are_found(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def job1() -> None:
        pass

    await workers.start({"job1": job1}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await until(lambda: "worker:getJob:empty" in recorder.names)
    for n, payload in enumerate(["", "nonsense", "[]", '{"count": "many"}', '{"count": 1}'], start=1):
        # A raw insert tells nobody.
        await jobs.connection.execute(
            "insert into graphile_worker._private_jobs (task_id) "
            "select id from graphile_worker._private_tasks where identifier = 'job1'"
        )
        await jobs.connection.execute("select pg_notify('jobs:insert', $1)", payload)
        await recorder.wait_for(JobSucceeded, count=n)


async def test_jobs_nobody_announced_are_found_by_polling(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    async def job1() -> None:
        pass

    await workers.start({"job1": job1}, events=recorder.events, poll_interval=0.05)
    await recorder.wait_for(PoolListenSuccess)
    await jobs.connection.execute(
        "insert into graphile_worker._private_jobs (task_id) "
        "select id from graphile_worker._private_tasks where identifier = 'job1'"
    )
    await recorder.wait_for(JobSucceeded)
