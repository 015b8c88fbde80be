"""A paused task, or everything: Python workers start none of its jobs."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from graphile_worker import JobSpec, WorkerUtils, task
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.hooks.events import JobStarted, JobSucceeded, PoolPaused, PoolResumed
from graphile_worker.results import Pause
from graphile_worker.testing.results import EventRecorder
from support.cases import Cases
from support.working import Gate, Jobs, Workers, until, until_listening


async def passing() -> None:
    pass


@task("a")
async def named() -> None:
    pass


TASKS = {"a": passing, "b": passing}


async def test_jobs_of_a_paused_task_wait_until_it_is_resumed(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await utils.pause(task=named, reason="deploy")
    waiting = await jobs.add("a")
    await workers.start(TASKS, events=recorder.events)
    await jobs.add("b")
    await recorder.wait_for(JobSucceeded)
    await jobs.until_left(waiting)
    row = await jobs.one()
    assert (row["attempts"], row["locked_by"]) == (0, None)
    assert (await recorder.wait_for(PoolPaused)).pause.what == "task a"

    assert await utils.resume(task="a")
    assert (await recorder.wait_for(JobSucceeded, count=2)).job.id == waiting
    assert (await recorder.wait_for(PoolResumed)).pause.reason == "deploy"
    assert not await utils.resume(task="a")


async def test_a_running_worker_hears_of_a_pause_at_once_and_returns_what_it_has_prefetched(
    utils: WorkerUtils, jobs: Jobs, any_workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await any_workers.start({"a": gate}, events=recorder.events, concurrency=2)
    await until_listening(recorder, jobs.connection)
    await jobs.add_many("a", 20)
    await gate.until_inside(2)
    await utils.pause(task="a")
    await recorder.wait_for(PoolPaused)
    gate.open()
    gate.open()
    await recorder.wait_for(JobSucceeded, count=2)

    async def are_returned() -> bool:
        return await jobs.locked() == 0

    await until(are_returned)
    rows = await jobs.all()
    assert len(rows) == 18
    assert {row["attempts"] for row in rows} == {0}
    assert len(gate.started) == 2

    await utils.resume(task="a")
    await gate.until_inside(2)


async def test_what_a_fetch_in_flight_brings_is_returned(
    utils: WorkerUtils, jobs: Jobs, any_workers: Workers, recorder: EventRecorder
) -> None:
    """The fetch waits for the lock of the table; the pool learns of the pause meanwhile."""
    await any_workers.start({"a": passing, "b": passing}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    for _ in range(3):
        await jobs.add("b")
    await recorder.wait_for(JobSucceeded, count=3)
    await jobs.until_gone()
    pool = any_workers._runners[0]._running_pool
    async with jobs.connection.transaction():
        await jobs.connection.execute("lock table graphile_worker._private_jobs in exclusive mode")
        pool._lanes.pulse()
        await until(lambda: pool._sessions.fetch.lock.locked())
        await jobs.add("a")
        await utils.pause(task="a")
        await recorder.wait_for(PoolPaused)
    await jobs.add("b")
    await recorder.wait_for(JobSucceeded, count=4)

    async def is_returned() -> bool:
        return [(row["identifier"], row["attempts"]) for row in await jobs.all()] == [("a", 0)]

    await until(is_returned)
    assert [event.job.task_identifier for event in recorder.of(JobStarted)] == ["b"] * 4


async def test_everything_is_paused_and_resumed_at_once(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await workers.start(TASKS, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await utils.pause(all=True)
    await recorder.wait_for(PoolPaused)
    await utils.add_jobs([JobSpec("a"), JobSpec("b"), JobSpec("b", queue_name="q")])
    await utils.pause(task="b")
    await recorder.wait_for(PoolPaused, count=2)
    assert await utils.resume(all=True)
    await recorder.wait_for(JobSucceeded)
    assert [pause.what for pause in await utils.queues.list_pauses()] == ["task b"]
    await utils.resume(task="b")
    await recorder.wait_for(JobSucceeded, count=3)
    await jobs.until_gone()


async def test_a_queue_does_not_go_on_with_a_job_of_a_paused_task(
    utils: WorkerUtils, jobs: Jobs, any_workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await any_workers.start({"a": passing, "b": gate}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    await jobs.add("b", queue="q")
    await gate.until_inside(1)
    left = await jobs.add("a", queue="q")
    await utils.pause(task="a")
    await recorder.wait_for(PoolPaused)
    gate.open()
    await recorder.wait_for(JobSucceeded)
    await jobs.until_left(left)
    after = await jobs.add("b", queue="q")
    await gate.until_inside(1)  # the queue is free for others
    gate.open()
    await recorder.wait_for(JobSucceeded, count=2)
    assert after not in [row["id"] for row in await jobs.all() if row["locked_by"] is None]


async def test_a_pause_ends_at_its_time(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    pause = await utils.pause(task="a", until=timedelta(seconds=0.5))
    assert pause.until is not None
    assert pause.paused_at is not None
    assert timedelta(0) < pause.until - pause.paused_at <= timedelta(seconds=0.5)
    await jobs.add("a")
    await workers.start(TASKS, events=recorder.events)
    started = await recorder.wait_for(JobStarted)
    assert started.job.locked_at is not None
    assert started.job.locked_at >= pause.until
    assert await utils.queues.list_pauses() == []
    assert not await utils.resume(task="a")


async def test_two_pauses_and_one_resume(utils: WorkerUtils) -> None:
    first = await utils.pause(task="a", until=timedelta(hours=1), reason="deploy")
    second = await utils.pause(task="a", reason="incident")
    assert (second.paused_at, second.until, second.reason) == (first.paused_at, None, "incident")
    assert await utils.queues.list_pauses() == [second]
    assert await utils.resume(task="a")
    assert await utils.queues.list_pauses() == []


async def test_a_drain_leaves_paused_jobs_and_says_so(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    await utils.pause(task="a", reason="deploy")
    await utils.queues.pause("slow")
    await utils.add_jobs([JobSpec("a"), JobSpec("a"), JobSpec("b"), JobSpec("b", queue_name="slow")])
    with caplog.at_level(logging.INFO, "graphile_worker"):
        await workers.once(TASKS)
    assert sorted(row["identifier"] for row in await jobs.all()) == ["a", "a", "b"]
    assert await jobs.connection.fetchval("select max(attempts) from graphile_worker._private_jobs") == 0
    lines = [record.getMessage() for record in caplog.records]
    assert "task a is paused (deploy); its jobs wait" in lines
    assert "2 jobs of the paused task a were left" in lines
    assert "1 job of the paused queue slow was left" in lines


@pytest.mark.usefixtures("look_often")
async def test_a_pause_is_seen_although_no_notification_arrives(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """With two connections a worker cannot listen; it looks from time to time."""
    await workers.start(TASKS, events=recorder.events, max_pool_size=2)
    await utils.pause(task="a")
    assert (await recorder.wait_for(PoolPaused)).pause.task_identifier == "a"


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"until": timedelta(0)}, "until: must be in the future"),
    ({"until": datetime(2020, 1, 1, tzinfo=UTC)}, "until: must be in the future"),
    ({"until": datetime(2120, 1, 1)}, "until: .* has no time zone"),
    ({"until": "1h"}, "until: expected a datetime"),
    ({"reason": 7}, "reason: expected text"),
    ({"reason": "a\0b"}, "reason: contains a NUL byte"),
    ({"reason": "a" * 1001}, "reason: has 1001 characters; at most 1000 are allowed"),
]


async def test_terms_that_make_no_sense_are_refused(utils: WorkerUtils) -> None:
    with Cases() as cases:
        for arguments, problem in SENSELESS:
            for pausing in (partial(utils.pause, task="a"), partial(utils.queues.pause, "q")):
                with (
                    cases(pausing.func.__name__, arguments),
                    pytest.raises(InvalidArgumentError, match=problem),
                ):
                    await pausing(**arguments)
    with pytest.raises(InvalidArgumentError, match="task: must not be empty"):
        await utils.pause(task="")
    with pytest.raises(InvalidArgumentError, match="queue_name: must not be empty"):
        await utils.queues.pause("")
    assert await utils.queues.list_pauses() == []


async def test_the_list_has_everything_first_then_tasks_then_queues(utils: WorkerUtils) -> None:
    for pausing in (
        utils.queues.pause("b"),
        utils.pause(task="z"),
        utils.pause(task="c"),
        utils.pause(all=True),
    ):
        await pausing
    assert [pause.what for pause in await utils.queues.list_pauses()] == [
        "every task", "task c", "task z", "queue b",
    ]  # fmt: skip


def test_a_pause_in_words() -> None:
    until = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert Pause(queue_name="q", until=until, reason="why").terms == " until 2030-01-31 12:00:00 UTC (why)"
    assert (Pause(task_identifier="t").terms, Pause().what) == ("", "every task")
