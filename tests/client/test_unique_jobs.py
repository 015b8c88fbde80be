"""`unique=`: at most one job with the same arguments; a permanently failed one does not count."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from graphile_worker import CronItem, JobSpec, Unique, make_worker_utils, parse_cron_items, run_once, task
from graphile_worker.client import WorkerUtils
from graphile_worker.cron.due import cron_job
from graphile_worker.cron.scheduler import CronScheduler
from graphile_worker.database.statements.add import add_statement, job_from_row
from graphile_worker.database.statements.schedules import CronMinute, schedule_cron_jobs
from graphile_worker.errors import InvalidArgumentError, JobNotAddedError, TaskLoadError
from graphile_worker.values.schema_name import SchemaName
from support.working import PATIENCE

SCHEMA = SchemaName()
KEYS = "select count(*) from graphile_worker._private_jobs where key is not null"


@dataclass
class Sync:
    user_id: int
    reason: str = ""


@task(unique=Unique(fields=("user_id",)))
async def sync(payload: Sync) -> None:
    pass


@task(unique=Unique(fields=("user_id",), while_="waiting"))
async def refresh(payload: Sync) -> None:
    pass


async def lock(connection: Any, job_id: int) -> None:
    await connection.execute(
        "update graphile_worker._private_jobs set locked_by = 'w', locked_at = now(), attempts = 1 "
        "where id = $1",
        job_id,
    )


async def fail(connection: Any, job_id: int) -> None:
    await connection.execute(
        "update graphile_worker._private_jobs set attempts = max_attempts where id = $1", job_id
    )


async def test_a_waiting_job_is_kept_as_it_is(utils: WorkerUtils) -> None:
    first = await utils.add_job(sync, Sync(1, "first"), run_at=timedelta(hours=1))
    second = await utils.add_job(sync, Sync(1, "second"))
    other = await utils.add_job(sync, Sync(2))
    assert (second.id, second.payload["reason"], second.revision) == (first.id, "first", 0)
    assert second.run_at == first.run_at
    assert [first.is_existing, second.is_existing, other.is_existing] == [False, True, False]


async def test_a_running_job_counts_unless_told_otherwise(utils: WorkerUtils, connection: Any) -> None:
    kept = await utils.add_job(sync, Sync(1))
    left = await utils.add_job(refresh, Sync(1))
    for job in (kept, left):
        await lock(connection, job.id)
    assert (await utils.add_job(sync, Sync(1))).id == kept.id
    again = await utils.add_job(refresh, Sync(1))
    assert again.id != left.id
    row = await utils.jobs.get(left.id)
    assert row is not None
    assert (row.key, row.attempts) == (None, row.max_attempts)  # its successor does the work


@pytest.mark.parametrize("job", [sync, refresh])
async def test_a_permanently_failed_job_does_not_block(utils: WorkerUtils, connection: Any, job: Any) -> None:
    failed = await utils.add_job(job, Sync(1))
    await fail(connection, failed.id)
    successor = await utils.add_job(job, Sync(1))
    assert successor.id != failed.id
    assert not successor.is_existing
    row = await utils.jobs.get(failed.id)
    assert row is not None
    assert (row.key, row.state) == (None, "failed")


async def test_a_cancelled_job_that_still_runs_does_not_count(utils: WorkerUtils, connection: Any) -> None:
    cancelled = await utils.add_job(sync, Sync(1))
    await lock(connection, cancelled.id)
    await connection.execute(
        "insert into graphile_worker._private_py_cancels (job_id) values ($1)", cancelled.id
    )
    assert not (await utils.add_job(sync, Sync(1))).is_existing


async def test_a_batch_may_name_a_job_twice_and_mix_modes(utils: WorkerUtils) -> None:
    before = await utils.add_job(sync, Sync(3))
    jobs = await utils.add_jobs(
        [
            sync.spec(Sync(1)),
            JobSpec("plain"),
            sync.spec(Sync(2)),
            sync.spec(Sync(1, "again")),
            refresh.spec(Sync(1)),
            sync.spec(Sync(3)),
            JobSpec("keyed", job_key="k"),
            JobSpec("plain", queue_name="q"),
        ]
    )
    assert [job.is_existing for job in jobs] == [False, False, False, True, False, True, False, False]
    assert jobs[3].id == jobs[0].id
    assert jobs[5].id == before.id
    assert [job.task_identifier for job in jobs] == [
        "sync", "plain", "sync", "sync", "refresh", "sync", "keyed", "plain",
    ]  # fmt: skip


async def test_options_of_a_unique_job_are_written(utils: WorkerUtils) -> None:
    spec = sync.spec(
        Sync(1), queue_name="q", priority=3, max_attempts=2, flags=["f"], run_at=timedelta(days=1)
    )
    one = await utils.jobs.get((await utils.add_job(spec)).id)
    [job] = await utils.add_jobs([spec.replace(payload={"user_id": 2})])
    many = await utils.jobs.get(job.id)
    for row in (one, many):
        assert row is not None
        assert (row.queue_name, row.priority, row.max_attempts, row.flags) == ("q", 3, 2, {"f": True})
        assert row.run_at > datetime.now(UTC) + timedelta(hours=23)


async def test_jobs_added_by_name_are_unique_too(utils: WorkerUtils) -> None:
    first = await utils.add_job(sync, Sync(1))
    again = await utils.add_job("sync", {"user_id": 1, "x": 1}, unique=Unique(fields=["user_id"]))
    assert again.id == first.id
    whole = [
        await utils.add_job("any", payload, unique=Unique())
        for payload in ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    ]
    assert whole[0].id == whole[1].id


def test_the_key_depends_on_the_task_and_the_fields_alone() -> None:
    key = sync.spec(Sync(1)).job_key
    assert key is not None
    assert key.startswith("u:")
    assert sync.spec(Sync(1, "other")).job_key == key
    assert sync.spec(Sync(2)).job_key != key
    assert sync.with_identifier("other").spec(Sync(1)).job_key != key
    assert sync.spec(Sync(1)).replace(payload={"user_id": 2}).job_key == sync.spec(Sync(2)).job_key
    marked = JobSpec("any", {"a": 1, "_cron": {"ts": "2030"}, "_trace": {}}, unique=Unique())
    assert marked.job_key == JobSpec("any", {"a": 1}, unique=Unique()).job_key


def test_what_cannot_be_unique_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="no member 'user_id'"):
        JobSpec("any", {"id": 1}, unique=Unique(fields=("user_id",)))
    with pytest.raises(InvalidArgumentError, match="job_key: a job that is unique"):
        sync.spec(Sync(1), job_key="mine")
    with pytest.raises(InvalidArgumentError, match="job_key_mode: has no effect"):
        sync.spec(Sync(1), job_key_mode="replace")
    with pytest.raises(InvalidArgumentError, match="expected Unique"):
        JobSpec("any", unique=True)  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="expected a list of names, got 'user_id'"):
        Unique(fields="user_id")
    with pytest.raises(InvalidArgumentError, match="expected one of 'waiting', 'waiting or running'"):
        Unique(while_="running")  # type: ignore[arg-type]
    for options in ({"job_key": "k"}, {"job_key_mode": "replace"}):
        with pytest.raises(TaskLoadError, match="cannot be combined with unique"):
            task(unique=Unique(), **options)(sync.function)  # type: ignore[call-overload]


async def test_a_kept_unique_job_gives_the_same_handle(utils: WorkerUtils, database_url: str) -> None:
    first = await utils.add_job(sync, Sync(1), keep=True)
    again = await utils.add_job(sync, Sync(1), keep=True)
    assert (again.id, again.is_existing, first.is_existing) == (first.id, True, False)
    await run_once(connection_string=database_url, task_list=[sync])
    await again.result(timeout=PATIENCE)
    assert not (await utils.add_job(sync, Sync(1))).is_existing


def test_other_drivers_add_unique_jobs(database_url: str) -> None:
    statement = add_statement(SCHEMA, sync.spec(Sync(1)))
    found = []
    with psycopg.connect(database_url) as session:
        for _ in range(2):
            row = session.execute(*statement.pyformat()).fetchone()
            job = job_from_row(row, statement)
            assert job is not None
            found.append((job.id, job.is_existing))
    assert found[0][0] == found[1][0]
    assert [is_existing for _, is_existing in found] == [False, True]


# -- races -------------------------------------------------------------------------------------------------


@pytest.fixture
async def others(database_url: str) -> AsyncIterator[list[Any]]:
    connections = [await asyncpg.connect(database_url) for _ in range(2)]
    yield connections
    for connection in connections:
        await connection.close(timeout=PATIENCE)


async def test_many_clients_add_one_job(utils: WorkerUtils, connection: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        jobs = await asyncio.gather(*(utils.add_job(sync, Sync(1)) for _ in range(40)))
    assert len({job.id for job in jobs}) == 1
    assert [job.is_existing for job in jobs].count(False) == 1
    assert await connection.fetchval(KEYS) == 1


async def test_batches_in_opposite_order_do_not_deadlock(utils: WorkerUtils) -> None:
    specs = [sync.spec(Sync(number)) for number in range(300)]
    async with asyncio.timeout(PATIENCE):
        both = await asyncio.gather(utils.add_jobs(specs), utils.add_jobs(specs[::-1]))
    assert [job.id for job in both[0]] == [job.id for job in both[1][::-1]]
    assert sum(job.is_existing for job in (*both[0], *both[1])) == 300


async def test_a_waiting_job_does_not_start_before_the_caller_commits(
    utils: WorkerUtils, others: list[Any], database_url: str
) -> None:
    """Or the job might not see what the caller has changed."""
    job = await utils.add_job(refresh, Sync(1))
    runs: list[int] = []

    @task("refresh")
    async def running(payload: Sync) -> None:
        runs.append(payload.user_id)

    transaction = others[0].transaction()
    await transaction.start()
    again = await utils.add_job(refresh, Sync(1), connection=others[0])
    assert again.id == job.id
    async with asyncio.timeout(PATIENCE):
        await run_once(connection_string=database_url, task_list=[running])
        assert runs == []
        await transaction.commit()
        await run_once(connection_string=database_url, task_list=[running])
    assert runs == [1]


async def test_a_running_job_can_end_before_the_caller_commits(
    utils: WorkerUtils, connection: Any, others: list[Any]
) -> None:
    job = await utils.add_job(sync, Sync(1))
    await lock(connection, job.id)
    async with asyncio.timeout(PATIENCE), others[0].transaction():
        assert (await utils.add_job(sync, Sync(1), connection=others[0])).is_existing
        await others[1].execute("delete from graphile_worker._private_jobs where id = $1", job.id)


# -- recurring jobs, and roles without rights ----------------------------------------------------------------


async def test_a_recurring_job_is_added_once_while_it_waits(connection: Any, database_url: str) -> None:
    @task("clean", unique=Unique())
    async def clean(payload: dict[str, Any]) -> None:
        pass

    items = parse_cron_items(
        [
            CronItem(match="* * * * *", task="clean", payload={"a": 1}),
            CronItem(match="* * * * *", task="other", identifier="other"),
        ]
    )
    tasks = {"clean": clean}
    minutes = []
    for minute in (datetime(2030, 1, 1, 0, 0, tzinfo=UTC), datetime(2030, 1, 1, 0, 1, tzinfo=UTC)):
        jobs = [
            cron_job(item, minute, backfilled=False, task=tasks.get(item.task_identifier)) for item in items
        ]
        minutes.append(CronMinute(minute, jobs))
    for minute_jobs in minutes:
        await schedule_cron_jobs(connection, SCHEMA, [minute_jobs])
        await schedule_cron_jobs(connection, SCHEMA, [minute_jobs])  # another worker
    rows = await connection.fetch(
        "select identifier, count(*) from graphile_worker._private_jobs "
        "join graphile_worker._private_tasks on _private_tasks.id = task_id group by 1 order by 1"
    )
    assert [tuple(row) for row in rows] == [("clean", 1), ("other", 2)]


async def test_an_item_whose_options_fail_does_not_hold_up_others(caplog: pytest.LogCaptureFixture) -> None:
    @task("broken", queue_name=lambda payload: payload["missing"])
    async def broken(payload: dict[str, Any]) -> None:
        pass

    items = parse_cron_items(
        [CronItem(match="* * * * *", task="broken"), CronItem(match="* * * * *", task="fine")]
    )
    no_database: Any = None
    scheduler = CronScheduler(no_database, SCHEMA, items, tasks={"broken": broken})
    with caplog.at_level(logging.ERROR):
        prepared = await scheduler._prepare((datetime(2030, 1, 1, tzinfo=UTC), items), backfilled=False)
    assert [job.task_identifier for job in prepared.jobs] == ["fine"]
    assert prepared.refused == ["broken"]
    assert "recurring job 'broken' is not added" in caplog.text
    assert "KeyError: 'missing'" in caplog.text


async def test_without_the_function_an_add_says_what_to_do(utils: WorkerUtils, connection: Any) -> None:
    await connection.execute("drop function graphile_worker._private_py_add_unique_job")
    for add in (lambda: utils.add_job(sync, Sync(1)), lambda: utils.add_jobs([sync.spec(Sync(1))])):
        with pytest.raises(JobNotAddedError, match="create them with: graphile-worker migrate"):
            await add()


async def test_a_bound_client_adds_in_the_callers_transaction(database_url: str, others: list[Any]) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        transaction = others[0].transaction()
        await transaction.start()
        bound = WorkerUtils.bound(others[0])
        assert not (await bound.add_job(sync, Sync(1))).is_existing
        await transaction.rollback()
        assert not (await utils.add_job(sync, Sync(1))).is_existing
