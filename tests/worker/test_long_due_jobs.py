"""A job that has been due for long is found like a new one, whatever a fetch has waited for before.

It was returned, unlocked, added in a long transaction or with a `run_at` in the past. If a fetch that waited
were taken for one that reads past many rows, the worker would look for such jobs after 50 times as long.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.sql import load
from graphile_worker.database.statements.cleanup import force_unlock_workers
from graphile_worker.database.statements.manage_jobs import reschedule_jobs
from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.recovery.orphaned_jobs import reclaim_jobs
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.clock import SystemClock
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.fetch import plan as watermarks
from support.command_line import clean_environment
from support.worker_process import WorkerProcess
from support.working import SCHEMA, Jobs, Workers, until, until_listening

WAITS = 2.0  # seconds; what is slow takes one of them here
ELSEWHERE = "a pool of another runtime"
WAITING = (
    "select count(*) from pg_locks where not granted and relation = "
    f"'{SCHEMA}._private_jobs'::regclass and database = (select oid from pg_database where datname = "
    "current_database())"
)
PROCESS = """
import asyncio, sys
from graphile_worker import run
from graphile_worker.worker.fetch import plan as watermarks

watermarks.SLOW = 1.0

async def step(payload):
    pass

async def main():
    async with run(task_list={"step": step}, connection_string=sys.argv[1], poll_interval=0.1) as runner:
        print("ready", flush=True)
        await runner.wait()

asyncio.run(main())
"""


async def step(payload: Any) -> None:
    pass


def an_hour_ago() -> datetime:
    return datetime.now(UTC) - timedelta(hours=1)


async def add_silently(jobs: Jobs, **values: Any) -> int:
    """Add a job that has been due for an hour, without an announcement."""
    values = {"run_at": an_hour_ago()} | values
    names, places = ", ".join(values), ", ".join(f"${n}" for n in range(1, len(values) + 1))
    return await jobs.connection.fetchval(
        f"insert into {SCHEMA}._private_jobs (task_id, payload, {names}) select id, '{{}}', {places} "
        f"from {SCHEMA}._private_tasks where identifier = 'step' returning id",
        *values.values(),
    )


@asynccontextmanager
async def locked_table(database_url: str, jobs: Jobs) -> AsyncIterator[None]:
    """Begins when a worker waits for the table; ends when it has gone on."""
    other = await asyncpg.connect(database_url)

    async def is_waiting() -> bool:
        return bool(await jobs.connection.fetchval(WAITING))

    async def is_over() -> bool:
        return not await is_waiting()

    try:
        async with other.transaction():
            await other.execute(f"lock table {SCHEMA}._private_jobs in access exclusive mode")
            await until(is_waiting)
            yield
        await until(is_over)
    finally:
        await other.close()


# -- what a fetch waits for --------------------------------------------------------------------------------


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What slow fetches were found to cost. Few are slow, so that the one that waits is a full one."""
    found: list[float] = []
    set_watermarks = watermarks.Watermarks.set

    def noted(self: watermarks.Watermarks, *arguments: Any, **options: Any) -> None:
        set_watermarks(self, *arguments, **options)
        found.append(self.cost)

    monkeypatch.setattr(watermarks, "SLOW", 1.0)
    monkeypatch.setattr(watermarks.Watermarks, "set", noted)
    return found


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}, {"local_queue": {"size": 4}}], ids=str)
async def test_after_a_lock_on_the_table(
    costs: list[float],
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    database_url: str,
    options: dict[str, Any],
) -> None:
    await jobs.add("of another worker")
    await workers.start([step], events=recorder.events, poll_interval=0.1, **options)
    await until_listening(recorder, jobs.connection)
    async with locked_table(database_url, jobs):
        await asyncio.sleep(WAITS)  # timing: the fetch has to wait for longer than what counts as slow
    for n in range(1, 4):
        job_id = await add_silently(jobs)
        assert (await recorder.wait_for(JobSucceeded, count=n)).job.id == job_id
    assert set(costs) == {0.0}


@pytest.mark.parametrize("options", [{}, {"prefetch": 0}], ids=str)
async def test_after_a_task_has_blocked_the_event_loop(
    costs: list[float], jobs: Jobs, workers: Workers, recorder: EventRecorder, options: dict[str, Any]
) -> None:
    async def block() -> None:
        pool = runner._running_pool
        pool._lanes.poll()
        while not pool._sessions.fetch.lock.locked():  # noqa: ASYNC110 - until the fetch is in flight
            await asyncio.sleep(0)
        time.sleep(WAITS)  # timing: longer than what counts as slow

    await jobs.add("of another worker")
    runner = await workers.start(
        {"step": step, "block": block}, events=recorder.events, poll_interval=0.1, concurrency=2, **options
    )
    await until_listening(recorder, jobs.connection)
    await jobs.add("block")
    await recorder.wait_for(JobSucceeded)
    for n in range(2, 5):
        job_id = await add_silently(jobs)
        assert (await recorder.wait_for(JobSucceeded, count=n)).job.id == job_id
    assert set(costs) == {0.0}


async def test_after_the_process_was_suspended(jobs: Jobs, database_url: str, tmp_path: Path) -> None:
    process = WorkerProcess(
        [sys.executable, "-c", PROCESS, database_url], folder=tmp_path, environment=clean_environment()
    )

    async def is_done() -> bool:
        return await jobs.count() == 1

    try:
        await asyncio.to_thread(process.wait_for, "ready")
        await jobs.add("of another worker")
        async with locked_table(database_url, jobs):
            process.send(signal.SIGSTOP)
        await asyncio.sleep(WAITS)  # timing: the answer has to wait for longer than what counts as slow
        process.send(signal.SIGCONT)
        for _ in range(3):
            await add_silently(jobs)
            await until(is_done)
    finally:
        process.close()


# -- what frees jobs tells every pool ----------------------------------------------------------------------

Free = Callable[[Any, int], Awaitable[Any]]


async def unlock(connection: Any, job_id: int) -> None:
    await force_unlock_workers(connection, SchemaName(), [ELSEWHERE])


async def give_back(connection: Any, job_id: int) -> None:
    await connection.fetch(load("write/return_jobs", SchemaName()), ELSEWHERE, [job_id], None, [], 0.0)


async def reclaim(connection: Any, job_id: int) -> None:
    await reclaim_jobs(connection, SchemaName(), ELSEWHERE, [])


async def release(connection: Any, job_id: int) -> None:
    """As the end of a held batch does."""
    await force_unlock_silently(connection)
    await connection.fetchval(load("add/announce_jobs", SchemaName()), 1)


async def reschedule(connection: Any, job_id: int) -> None:
    await force_unlock_silently(connection)
    await reschedule_jobs(connection, SchemaName(), [job_id], run_at=an_hour_ago())


async def force_unlock_silently(connection: Any) -> None:
    await connection.execute(f"select {SCHEMA}.force_unlock_workers(array[$1])", ELSEWHERE)


@pytest.fixture
def seldom_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetches begin at watermarks; full ones come only for jobs that were freed or announced in vain."""
    monkeypatch.setattr(watermarks, "SLOW", -1.0)
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER", 1e9)
    monkeypatch.setattr(watermarks, "FULL_FETCH_WITHIN", 1e9)
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER_AWAITED", 0)


async def until_watermarks(jobs: Jobs, recorder: EventRecorder, runner: Any) -> int:
    """How many jobs it took until fetches begin at watermarks."""
    for n in range(1, 20):
        await jobs.add("step")
        await recorder.wait_for(JobSucceeded, count=n)
        if all(lane.fetcher._plan._watermarks._by_priority for lane in runner._running_pool._lanes):
            return n
    raise AssertionError("there are no watermarks")


@pytest.mark.parametrize("free", [unlock, give_back, reclaim, release, reschedule])
@pytest.mark.parametrize("options", [{}, {"local_queue": {"size": 4}}], ids=str)
async def test_a_worker_that_finds_other_jobs_reads_from_the_start_for_those_that_were_freed(
    seldom_full: None,
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    options: dict[str, Any],
    free: Free,
) -> None:
    """A new job is announced together with the one that is free, and found without a full fetch."""
    await jobs.add("of another worker")
    runner = await workers.start([step], events=recorder.events, **options)
    await until_listening(recorder, jobs.connection)
    ran = await until_watermarks(jobs, recorder, runner)
    freed = await add_silently(jobs, locked_at=datetime.now(UTC), locked_by=ELSEWHERE, attempts=1)
    async with jobs.connection.transaction():
        await free(jobs.connection, freed)
        new = await jobs.add("step")
    await recorder.wait_for(JobSucceeded, count=ran + 2)
    assert {event.job.id for event in recorder.of(JobSucceeded)[ran:]} == {freed, new}


async def test_an_announced_job_that_is_not_found_is_searched_for_everywhere(
    seldom_full: None, jobs: Jobs, workers: Workers, recorder: EventRecorder, database_url: str
) -> None:
    """As one that was added in a transaction of several seconds: it is due since that began."""
    await jobs.add("of another worker")
    runner = await workers.start([step], events=recorder.events)
    await until_listening(recorder, jobs.connection)
    other = await asyncpg.connect(database_url)
    try:
        transaction = other.transaction()
        await transaction.start()
        late = await other.fetchval(f"select id from {SCHEMA}.add_job('step')")
        await asyncio.sleep(1.5 * watermarks.SLACK)  # timing: fetches look back for less than that
        ran = await until_watermarks(jobs, recorder, runner)
        await transaction.commit()
        await recorder.wait_for(JobSucceeded, count=ran + 1)
        assert late in {event.job.id for event in recorder.of(JobSucceeded)}
    finally:
        await other.close()


# -- clocks ------------------------------------------------------------------------------------------------


class Ahead(SystemClock):
    def now(self) -> datetime:
        return super().now() + timedelta(hours=2)


async def test_a_worker_whose_clock_is_two_hours_ahead_finds_new_jobs(
    seldom_full: None,
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are due before the time to which it has read."""
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER_AWAITED", 1e9)
    await jobs.add("of another worker")
    runner = await workers.start([step], events=recorder.events, use_local_time=True, clock=Ahead())
    await until_listening(recorder, jobs.connection)
    ran = await until_watermarks(jobs, recorder, runner)
    for n in range(1, 4):
        await jobs.add("step")
        await recorder.wait_for(JobSucceeded, count=ran + n)
