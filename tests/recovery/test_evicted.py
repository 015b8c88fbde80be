"""A worker that was declared dead but is alive: it notices and does not overwrite others' results."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements.fetch import get_jobs, register_tasks
from graphile_worker.errors import WorkerStoppedError
from graphile_worker.hooks.events import JobCompleted, JobInterrupted, PoolEvicted
from graphile_worker.recovery.lease import Lease
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.clock import uptime
from graphile_worker.values.job import Job
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker import shutdown
from graphile_worker.worker.fetch.adaptive import AdaptiveSource
from graphile_worker.worker.fetch.fetcher import Fetcher
from graphile_worker.worker.session import Sessions
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from recovery.history import History
from support.pool_parts import pool_context
from support.worker_process import Start
from support.working import PATIENCE, SCHEMA, Gate, Jobs, Workers, until

TASKS = Path(__file__).with_name("tasks_to_lose.py")


async def test_a_worker_that_was_stopped_and_cut_off_leaves_the_job_to_its_new_owner(
    start: Start,
    database_url: str,
    jobs: Jobs,
    history: History,
    workers: Workers,
    connection: Any,
    graveyard: Graveyard,
) -> None:
    job_id = await jobs.add("work")
    first = start(url=database_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT).ready()
    await history.until_count("start", 1)
    row = await graveyard.holding()
    first.send(signal.SIGSTOP)
    await connection.fetch("select pg_terminate_backend($1)", row["backend_pid"])
    gate = Gate()
    second = await workers.start({"work": gate}, **QUICK)
    await gate.until_inside(1)
    await history.release()  # the task of the first worker ends as soon as it wakes up
    first.send(signal.SIGCONT)
    first.wait_for("other workers took over")
    assert (await jobs.one())["locked_by"] == second.pool_id
    gate.open(ValueError("the new owner's result"))

    async def is_written() -> bool:
        return "ValueError: the new owner's result" in ((await jobs.one())["last_error"] or "")

    await until(is_written)
    assert (await jobs.one())["id"] == job_id
    first.send(signal.SIGTERM)
    assert first.ended() == 143
    assert await jobs.count() == 1


async def _given_away(connection: Any, pool_id: str) -> None:
    """The worker was declared dead, and another one has its jobs."""
    async with connection.transaction():
        await connection.execute(f"delete from {SCHEMA}._private_py_workers where id = $1", pool_id)
        await connection.execute(
            f"update {SCHEMA}._private_jobs set locked_by = 'another' where locked_by = $1", pool_id
        )
        await connection.execute(
            f"update {SCHEMA}._private_job_queues set locked_by = 'another' where locked_by = $1", pool_id
        )


async def test_it_cancels_what_it_can_and_drops_the_rest_and_goes_on(
    workers: Workers,
    jobs: Jobs,
    connection: Any,
    recorder: EventRecorder,
    graveyard: Graveyard,
) -> None:
    gate, may_end, in_thread = Gate(), threading.Event(), threading.Event()

    def stubborn(payload: Any) -> None:
        in_thread.set()
        may_end.wait(PATIENCE)

    async def deaf(payload: Any) -> None:
        with suppress(asyncio.CancelledError):
            await gate(payload)

    async def other(payload: Any) -> None:
        return None

    runner = await workers.start(
        {"work": gate, "stubborn": stubborn, "deaf": deaf, "other": other},
        events=recorder.events,
        concurrency=3,
        **QUICK,
    )
    expected = [await jobs.add("work", queue="named"), await jobs.add("stubborn"), await jobs.add("deaf")]
    try:
        await gate.until_inside(2)
        await until(in_thread.is_set)
        await _given_away(connection, runner.pool_id)
        evicted = await recorder.wait_for(PoolEvicted)
        assert sorted(job.id for job in evicted.jobs) == expected
        await until(lambda: gate.inside == 0)
    finally:
        may_end.set()
    await until(lambda: recorder.count(JobInterrupted) == 3)
    assert recorder.count(JobCompleted) == 0
    assert [row["locked_by"] for row in await jobs.all()] == ["another"] * 3
    assert [row["locked_by"] for row in await jobs.queues()] == ["another"]
    assert list(await graveyard.workers()) == [runner.pool_id]
    await jobs.add("other")  # life goes on
    await until(lambda: recorder.count(JobCompleted) == 1)
    await workers.stop(runner)
    assert [row["locked_by"] for row in await jobs.all()] == ["another"] * 3


async def test_it_drops_what_it_has_locked_ahead(
    workers: Workers, jobs: Jobs, connection: Any, recorder: EventRecorder
) -> None:
    gate = Gate()
    await jobs.add_many("work", 5)
    runner = await workers.start({"work": gate}, events=recorder.events, local_queue={"size": 5}, **QUICK)
    await gate.until_inside(1)
    await _given_away(connection, runner.pool_id)
    assert len((await recorder.wait_for(PoolEvicted)).jobs) == 5
    later = await jobs.add("work")
    await gate.until_inside(1)
    assert len(gate.started) == 2
    locks = {row["id"]: row["locked_by"] for row in await jobs.all()}
    assert locks.pop(later) == runner.pool_id
    assert set(locks.values()) == {"another"}


async def test_so_does_the_source_that_serves_by_default(jobs: Jobs, connection: Any) -> None:
    await jobs.add_many("work", 2)
    tasks = await register_tasks(connection, SchemaName(), ["work"])
    lost, kept = await get_jobs(connection, SchemaName(), pool_id="pool-a", tasks=tasks, limit=2)
    absent: Any = None  # the test fetches and writes nothing
    fetcher = Fetcher(pool_context(), absent, ["work"])
    source = AdaptiveSource(pool_context(), fetcher, absent, concurrency=1, prefetch=60.0)
    source.adopt([lost, kept])
    assert source.drop(lambda job: job is lost) == [lost]
    assert (source.take(), source.take()) == (kept, None)
    await source.release()


@pytest.fixture
async def silenced(connection: Any) -> Any:
    """Holds the rows of all workers, so that no heartbeat arrives although the database answers."""
    transaction = connection.transaction()
    await transaction.start()

    async def silence() -> None:
        await connection.execute(f"select from {SCHEMA}._private_py_workers for update")

    silence.end = transaction.rollback  # type: ignore[attr-defined]
    yield silence
    if connection.is_in_transaction():
        await transaction.rollback()


class TestWhileItIsInDoubt:
    """The worker can reach the database, but cannot send heartbeats."""

    @pytest.fixture
    async def gate(self) -> Gate:
        return Gate()

    @pytest.fixture
    async def watching(self, database_url: str) -> Any:
        watching = await asyncpg.connect(database_url)
        yield Jobs(watching)
        await watching.close()

    async def test_it_neither_writes_nor_fetches_until_it_can(
        self, workers: Workers, watching: Jobs, gate: Gate, silenced: Any, graveyard: Graveyard
    ) -> None:
        await watching.add("work")
        runner = await workers.start({"work": gate}, concurrency=2, **QUICK)
        await gate.until_inside(1)
        await silenced()
        await until(lambda: not runner._running_pool.lease.is_open)
        gate.open()
        await watching.add("work")
        runner._running_pool._lanes.pulse()
        await asyncio.sleep(0.5)  # timing: nothing may happen, so there is no event; more is as good
        assert len(gate.started) == 1
        assert [row["locked_by"] for row in await watching.all()] == [runner.pool_id, None]
        await silenced.end()
        await gate.until_inside(1)
        gate.open()
        await watching.until_gone()

    async def test_a_stop_does_not_wait_for_ever_and_leaves_the_row_so_that_others_find_its_jobs(
        self,
        workers: Workers,
        watching: Jobs,
        gate: Gate,
        silenced: Any,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(shutdown, "LAST_WRITE", 0.3)
        await watching.add("work")
        runner = await workers.start({"work": gate}, grace=0.3, **QUICK)
        await gate.until_inside(1)
        await silenced()
        await until(lambda: not runner._running_pool.lease.is_open)
        gate.open()
        with pytest.raises(WorkerStoppedError, match="run again once it is declared dead"):
            await workers.stop(runner)
        assert (await watching.one())["locked_by"] == runner.pool_id
        await silenced.end()
        rows = await watching.connection.fetch(f"select id from {SCHEMA}._private_py_workers")
        assert [row["id"] for row in rows] == [runner.pool_id]


async def test_a_worker_that_could_not_write_everything_leaves_its_row_so_that_others_find_its_jobs(
    workers: Workers, jobs: Jobs, connection: Any, monkeypatch: pytest.MonkeyPatch, graveyard: Graveyard
) -> None:
    monkeypatch.setattr(shutdown, "LAST_WRITE", 0.3)
    gate = Gate()
    await jobs.add("work")
    runner = await workers.start({"work": gate}, grace=0.3, **QUICK)
    await gate.until_inside(1)
    async with connection.transaction():
        await connection.execute(f"select from {SCHEMA}._private_jobs for update")
        gate.open()
        with pytest.raises(WorkerStoppedError, match="run again once it is declared dead"):
            await workers.stop(runner)
    assert list(await graveyard.workers()) == [runner.pool_id]


async def test_jobs_that_arrive_after_the_worker_was_taken_for_dead_go_back(
    jobs: Jobs, database_url: str, connection: Any
) -> None:
    """The reply to a fetch took so much time that the pool may have lost the jobs."""
    job_id = await jobs.add("work")
    lease = Lease()
    lease.begin(60.0, uptime())
    async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as database:
        sessions = Sessions(pool_context("pool-late"), database, lease)
        session = sessions.fetch

        async def fetch(session_connection: Any) -> list[Job]:
            tasks = await register_tasks(session_connection, SchemaName(), ["work"])
            fetched = await get_jobs(
                session_connection, SchemaName(), pool_id="pool-late", tasks=tasks, limit=1
            )
            assert [job.id for job in fetched] == [job_id]
            lease.renew(uptime(), was_swept=True)
            return fetched

        try:
            assert await session.run_under_lease(fetch) == []
            assert (await jobs.one())["locked_by"] == "pool-late"
            await sessions.reclaim()
        finally:
            await sessions.close()
    after = await jobs.one()
    assert (after["locked_by"], after["attempts"]) == (None, 0)


async def test_a_sweep_by_hand_after_that_gives_the_jobs_back(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury("pool-gone", grace=0.0)
    await graveyard.give("pool-gone", job_id)
    report = await utils.sweep_stale_workers()
    assert [(worker.id, worker.returned) for worker in report.recovered] == [("pool-gone", [job_id])]
