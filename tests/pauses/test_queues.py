"""A paused queue is held: its row looks locked to every runtime, whatever happens to workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.database.statements import pauses
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.hooks.events import JobStarted, JobSucceeded, PoolPaused, PoolResumed
from graphile_worker.recovery.sweeper import reset_locked
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.schema_name import SchemaName
from support.working import PATIENCE, Gate, Jobs, Workers, until, until_listening

SCHEMA = SchemaName()
HELD = "select count(*) from graphile_worker._private_job_queues where locked_by = 'py:hold'"
HOLDS = "select count(*) from graphile_worker._private_py_queue_holds"


async def passing() -> None:
    pass


async def lock_of(jobs: Jobs, queue: str = "q") -> str | None:
    """Who has the queue locked."""
    locked_by: str | None = next(
        row["locked_by"] for row in await jobs.queues() if row["queue_name"] == queue
    )
    return locked_by


async def test_a_running_job_ends_and_the_next_waits_for_the_resume(
    utils: WorkerUtils, jobs: Jobs, any_workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await any_workers.start({"a": gate, "b": passing}, events=recorder.events)
    await until_listening(recorder, jobs.connection)
    first, second = await jobs.add_many("a", 2, queue="q")
    await gate.until_inside(1)
    await utils.queues.pause("q", reason="deploy")
    assert (await recorder.wait_for(PoolPaused)).pause.what == "queue q"
    gate.open()
    assert (await recorder.wait_for(JobSucceeded)).job.id == first
    await jobs.until_left(second)
    await jobs.add("b")  # jobs without a queue, and of other queues, run
    await jobs.add("b", queue="other")
    await recorder.wait_for(JobSucceeded, count=3)
    await jobs.until_left(second)
    assert (await lock_of(jobs), (await jobs.one())["attempts"]) == ("py:hold", 0)
    assert len(gate.started) == 1

    assert await utils.queues.resume("q")
    await gate.until_inside(1)
    assert (await recorder.wait_for(PoolResumed)).pause.reason == "deploy"
    assert not await utils.queues.resume("q")
    gate.open()
    await jobs.until_gone()
    assert await lock_of(jobs) is None


async def test_a_prefetched_job_of_the_queue_is_returned(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    await workers.start(
        {"a": gate}, events=recorder.events, concurrency=1, local_queue={"size": 4, "ttl": 600}
    )
    await until_listening(recorder, jobs.connection)
    await utils.add_jobs([JobSpec("a", 1, priority=-1), JobSpec("a", 2, queue_name="q")])
    await gate.until_inside(1)

    async def are_locked() -> bool:
        return await jobs.locked() == 3  # two jobs and the queue

    await until(are_locked)
    await utils.queues.pause("q")

    async def is_returned() -> bool:
        return [row["attempts"] for row in await jobs.all()] == [1, 0]

    await until(is_returned)
    gate.open()
    await recorder.wait_for(JobSucceeded)
    assert gate.started == [1]


@pytest.mark.usefixtures("look_often")
async def test_a_resume_while_a_job_is_running_keeps_the_queue_serial(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    first = await workers.start({"a": gate}, events=recorder.events)
    await workers.start({"a": gate}, events=recorder.events)
    await jobs.add_many("a", 3, queue="q")
    await gate.until_inside(1)
    holder = await lock_of(jobs)
    await utils.queues.pause("q")
    assert await utils.queues.resume("q")
    assert await lock_of(jobs) == holder
    assert await utils.queues.list_pauses() == []
    for _ in range(3):
        await gate.until_inside(1)
        gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 1
    assert first is not None

    async def is_settled() -> bool:
        return bool(await jobs.connection.fetchval(HOLDS) == 0)

    await until(is_settled)


async def test_a_queue_is_not_stuck_if_its_job_ends_while_it_is_resumed(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """The write has begun before the queue belongs to its pool again, so it does not free the queue."""
    gate = Gate()
    await workers.start({"a": gate}, events=recorder.events)
    await jobs.add_many("a", 2, queue="q")
    await gate.until_inside(1)
    await utils.queues.pause("q")
    await recorder.wait_for(PoolPaused)
    async with jobs.connection.transaction():
        assert await pauses.resume_queue(jobs.connection, SCHEMA, "q")
        gate.open()
        await until_write_waits(utils)
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()


async def test_a_job_that_ends_first_frees_the_queue_for_the_resume(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """The resume waits for the write that ends the job, and finds it gone."""
    gate = Gate()
    await workers.start({"a": gate}, events=recorder.events)
    (first,) = await jobs.add_many("a", 1, queue="q")
    await gate.until_inside(1)
    await utils.queues.pause("q")
    await recorder.wait_for(PoolPaused)
    async with jobs.connection.transaction():
        await jobs.connection.execute(
            "select from graphile_worker._private_jobs where id = $1 for update", first
        )
        gate.open()
        await until_write_waits(utils)
        resuming = asyncio.create_task(utils.queues.resume("q"))
        await until_write_waits(utils, sessions=2)
    assert await resuming
    await jobs.until_gone()
    assert await lock_of(jobs) is None
    assert await jobs.connection.fetchval(HOLDS) == 0


async def test_a_write_that_is_older_than_the_pause_may_take_the_next_job_and_the_queue_stays_serial(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """The resume finds the job that the write has locked meanwhile."""
    gate = Gate()
    pool = (await workers.start({"a": gate}, events=recorder.events, concurrency=2))._running_pool
    first, *_ = await jobs.add_many("a", 3, queue="q")
    await gate.until_inside(1)
    await until(lambda: pool._lanes.is_quiet)  # so that the queue goes on
    await workers.start({"a": gate}, events=recorder.events)
    async with jobs.connection.transaction():
        await jobs.connection.execute(
            "select from graphile_worker._private_jobs where id = $1 for update", first
        )
        gate.open()
        await until_write_waits(utils)
        await utils.queues.pause("q")
        resuming = asyncio.create_task(utils.queues.resume("q"))
        await until_write_waits(utils, sessions=2)
    assert await resuming
    await gate.until_inside(1)
    assert await lock_of(jobs) == (await jobs.all())[0]["locked_by"]
    gate.open()
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()
    assert gate.most_at_once == 1


async def until_write_waits(utils: WorkerUtils, sessions: int = 1) -> None:
    """Until this many sessions wait for a lock."""

    async def waits() -> bool:
        async with utils.with_pg_client() as other:
            waiting = await other.fetchval(
                "select count(*) from pg_stat_activity "
                "where datname = current_database() and wait_event_type = 'Lock'"
            )
        return bool(waiting == sessions)

    await until(waits)


async def test_a_pause_outlives_every_worker(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    gate = Gate()
    for _ in range(2):
        await workers.start({"a": gate}, events=recorder.events)
    await jobs.add_many("a", 3, queue="q")
    await gate.until_inside(1)
    await utils.queues.pause("q")
    await recorder.wait_for(PoolPaused, count=2)
    for runner in workers._runners:
        async with asyncio.timeout(60):
            await runner.kill()
    assert await lock_of(jobs) == "py:hold"
    assert {row["attempts"] for row in await jobs.all()} == {0}
    await workers.start({"a": gate, "b": passing}, events=recorder.events)
    await jobs.add("b")
    await recorder.wait_for(JobSucceeded, matching=lambda event: event.job.task_identifier == "b")
    assert len(gate.started) == 1
    await utils.queues.resume("q")
    await gate.until_inside(1)


async def test_a_worker_ends_the_pause_at_its_time(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    pause = await utils.queues.pause("q", until=timedelta(seconds=0.5))
    await jobs.add("a", queue="q")
    for _ in range(2):
        await workers.start({"a": passing}, events=recorder.events)
    started = await recorder.wait_for(JobStarted)
    assert started.job.locked_at is not None
    assert pause.until is not None
    assert started.job.locked_at >= pause.until
    await jobs.until_gone()
    assert await jobs.connection.fetchval(HOLDS) == 0


async def test_without_a_worker_a_pause_whose_time_is_over_is_resumed_by_hand(
    utils: WorkerUtils, jobs: Jobs
) -> None:
    await utils.queues.pause("q", until=timedelta(milliseconds=1))

    async def is_over() -> bool:
        return bool(
            await jobs.connection.fetchval(
                "select until < now() from graphile_worker._private_py_queue_holds"
            )
        )

    await until(is_over)
    assert [pause.queue_name for pause in await utils.queues.list_pauses()] == [
        "q"
    ]  # no worker takes its jobs
    assert await utils.queues.resume("q")
    assert await lock_of(jobs) is None


async def test_two_pauses_and_one_resume(utils: WorkerUtils, jobs: Jobs) -> None:
    first = await utils.queues.pause("q", until=timedelta(hours=1), reason="deploy")
    second = await utils.queues.pause("q", reason="incident")
    assert (second.paused_at, second.until, second.reason) == (first.paused_at, None, "incident")
    assert await utils.queues.list_pauses() == [second]
    assert await utils.queues.resume("q")
    assert await jobs.connection.fetchval(HELD) == 0
    assert not await utils.queues.resume("q")
    assert not await utils.queues.resume("never heard of")


async def test_pauses_and_resumes_at_the_same_time_leave_one_state(utils: WorkerUtils, jobs: Jobs) -> None:
    for _ in range(10):
        await asyncio.gather(
            *(utils.queues.pause("q") if n % 2 else utils.queues.resume("q") for n in range(12))
        )
        assert await jobs.connection.fetchval(HELD) == await jobs.connection.fetchval(HOLDS)
    await utils.queues.pause("q")
    await utils.queues.resume("q")
    assert await lock_of(jobs) is None


async def test_a_pause_in_a_transaction_begins_when_it_is_committed(utils: WorkerUtils, jobs: Jobs) -> None:
    transaction = jobs.connection.transaction()
    await transaction.start()
    await utils.queues.pause("q", connection=jobs.connection)
    await utils.pause(task="a", connection=jobs.connection)
    await transaction.rollback()
    assert await utils.queues.list_pauses() == []
    async with jobs.connection.transaction():
        await utils.queues.pause("q", connection=jobs.connection)
        assert await utils.queues.resume("q", connection=jobs.connection)
    assert await lock_of(jobs) is None


async def test_nothing_that_unlocks_queues_ends_a_pause(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    """Clean-up of queues, stale locks, unlocking and recovering of the pool that held the queue."""
    gate = Gate()
    await workers.start({"a": gate}, events=recorder.events)
    await jobs.add("a", queue="q")
    await gate.until_inside(1)
    holder = await lock_of(jobs)
    assert holder is not None
    await utils.queues.pause("q")
    await utils.queues.pause("unused")
    await utils.cleanup(["GC_JOB_QUEUES"])
    assert await jobs.connection.fetchval(HELD) == 2
    await jobs.connection.execute(
        "update graphile_worker._private_jobs set locked_at = now() - interval '1 day'"
    )
    assert await reset_locked(jobs.connection, SCHEMA) == (1, 0)
    await utils.force_unlock_workers([holder])
    with pytest.raises(InvalidArgumentError, match="the queues it locks are paused; resume them"):
        await utils.force_unlock_workers(["py:hold"])
    await workers.close()
    await utils.sweep_stale_workers()
    assert await jobs.connection.fetchval(HELD) == 2


async def test_a_paused_queue_is_listed_as_paused_and_not_as_locked(utils: WorkerUtils) -> None:
    await utils.add_job("a", queue_name="q")
    pause = await utils.queues.pause("q", until=timedelta(hours=1), reason="deploy")
    (queue,) = await utils.queues.list()
    assert (queue.locked_by, queue.locked_at, queue.ready, queue.pause) == (None, None, 1, pause)
    found = await utils.statistics.jobs()
    assert (found.queues, found.locked_queues, found.pauses) == (1, 0, [pause])


async def test_a_hold_whose_queue_was_deleted_is_forgotten(
    utils: WorkerUtils, jobs: Jobs, workers: Workers
) -> None:
    await utils.queues.pause("q")
    await jobs.connection.execute("delete from graphile_worker._private_job_queues")
    assert await utils.queues.list_pauses() == []
    assert not await utils.queues.resume("q")
    await workers.once({"a": passing})
    await utils.add_job("a")
    await workers.once({"a": passing})
    assert await jobs.connection.fetchval(HOLDS) == 0


async def test_a_queue_that_another_session_resumes_is_left_to_it(
    utils: WorkerUtils, jobs: Jobs, database_url: str
) -> None:
    """Waiting for it would be a deadlock: a resume locks the hold before the queue."""
    await utils.queues.pause("q")
    await jobs.connection.execute(  # as after a resume beside a running job that has ended since
        "update graphile_worker._private_py_queue_holds set holder = 'gone', job_id = 1"
    )
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute("select from graphile_worker._private_py_queue_holds for update")
            async with asyncio.timeout(PATIENCE):
                assert await pauses.end_due_pauses(jobs.connection, SCHEMA) == 0
            assert await jobs.connection.fetchval(HOLDS) == 1
        await pauses.end_due_pauses(jobs.connection, SCHEMA)
        assert await jobs.connection.fetchval(HOLDS) == 0
    finally:
        other.terminate()


@pytest.mark.parametrize("mode", [{}, {"local_queue": {"size": 100}}], ids=["default", "local queue"])
async def test_under_load_a_paused_queue_starts_nothing_once_workers_have_heard(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder, mode: dict[str, Any]
) -> None:
    """Short jobs in many queues, which go on from job to job; the pause comes in the middle."""
    started: list[str] = []

    async def record(name: str) -> None:
        started.append(name)

    queues = [f"q{n}" for n in range(20)]
    await utils.add_jobs(
        [JobSpec("a", queue, queue_name=queue) for _ in range(300) for queue in queues], return_jobs=False
    )
    for _ in range(2):
        await workers.start({"a": record}, events=recorder.events, concurrency=10, **mode)
    await until(lambda: len(started) > 500)
    await utils.queues.pause("q7")
    await recorder.wait_for(PoolPaused, count=2)
    before = started.count("q7")
    assert before < 300, "the pause came too late to show anything"
    await until(lambda: len(started) - started.count("q7") == 300 * 19)
    assert started.count("q7") == before

    async def are_written() -> bool:
        return await jobs.count() == 300 - before

    await until(are_written)
    await utils.queues.resume("q7")
    await jobs.until_gone()
    assert started.count("q7") == 300
