"""What cancelling does to the database, and what the caller learns. No worker runs here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from graphile_worker import WorkerUtils, make_worker_utils
from graphile_worker.errors import InvalidArgumentError, JobCancelledError
from graphile_worker.options import JobFilter
from graphile_worker.results import CancelReport
from support.server import DatabaseServer
from support.working import PATIENCE, SCHEMA, Jobs, until

CANCELS = f"{SCHEMA}._private_py_cancels"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def lock(jobs: Jobs, *job_ids: int, pool_id: str = "pool-x", hours_ago: int = 0) -> None:
    """As a fetch does it."""
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = $2, attempts = attempts + 1, "
        "locked_at = now() - $3 * interval '1 hour' where id = any ($1)",
        list(job_ids),
        pool_id,
        hours_ago,
    )


async def cancels(jobs: Jobs) -> dict[int, str | None]:
    return dict(await jobs.connection.fetch(f"select job_id, reason from {CANCELS}"))


def outline(report: CancelReport) -> dict[str, list[int]]:
    return {
        "removed": [job.id for job in report.removed],
        "asked": [job.id for job in report.asked],
        "running": [job.id for job in report.running],
        "gone": report.gone,
    }


async def test_the_caller_learns_what_became_of_each_job(utils: WorkerUtils, jobs: Jobs) -> None:
    waiting, running, stale = [await jobs.add("work", key=f"k{n}") for n in range(3)]
    await lock(jobs, running)
    await lock(jobs, stale, hours_ago=5)
    report = await utils.cancel_jobs([waiting, running, stale, 999], reason="not needed")
    assert outline(report) == {
        "removed": [waiting, stale],
        "asked": [running],
        "running": [],
        "gone": [999],
    }
    assert (report.asked[0].locked_by, report.asked[0].key) == ("pool-x", "k1")
    assert await cancels(jobs) == {running: "not needed"}


@pytest.mark.parametrize("by", ["id", "key", "filter"])
async def test_a_running_job_is_cut_off_and_its_worker_told(utils: WorkerUtils, jobs: Jobs, by: str) -> None:
    """However it is named: without key and attempts, no runtime runs it again."""
    heard: list[str] = []
    await jobs.connection.add_listener("worker:py", lambda *message: heard.append(message[3]))
    job_id = await jobs.add("work", key="k")
    await lock(jobs, job_id)
    if by == "id":
        assert outline(await utils.jobs.cancel(job_id, reason="why"))["asked"] == [job_id]
    elif by == "key":
        assert outline(await utils.jobs.cancel(job_key="k", reason="why"))["asked"] == [job_id]
    else:
        bulk = await utils.cancel_jobs(filter=JobFilter(job_key="k"), reason="why")
        assert (bulk.changed, bulk.asked, bulk.skipped, bulk.failed, bulk.problem) == (1, 1, 0, 0, None)
    row = await jobs.one()
    assert (row["key"], row["attempts"], row["max_attempts"]) == (None, 25, 25)
    assert row["updated_at"] > row["locked_at"]
    assert await cancels(jobs) == {job_id: "why"}

    async def is_heard() -> bool:
        await jobs.connection.fetchval("select 1")
        return bool(heard)

    await until(is_heard)
    assert heard == ['{"schema" : "graphile_worker"}']


async def test_the_cut_is_later_than_the_lock_in_an_old_transaction(utils: WorkerUtils, jobs: Jobs) -> None:
    """`now()` is the beginning of the transaction, before the job was locked."""
    job_id = await jobs.add("work")
    async with utils.with_pg_client() as connection, connection.transaction():
        await connection.fetchval("select now()")
        await lock(jobs, job_id)
        await utils.cancel_jobs([job_id], connection=connection)
    row = await jobs.one()
    assert row["updated_at"] > row["locked_at"]


async def test_cancelling_twice_keeps_the_first_reason(utils: WorkerUtils, jobs: Jobs) -> None:
    job_id = await jobs.add("work")
    await lock(jobs, job_id)
    for reason in ("first", "second"):
        assert outline(await utils.cancel_jobs([job_id], reason=reason))["asked"] == [job_id]
    assert await cancels(jobs) == {job_id: "first"}


async def test_a_key_that_no_job_has(utils: WorkerUtils, jobs: Jobs) -> None:
    assert await utils.jobs.cancel(job_key="k") == CancelReport()
    with pytest.raises(InvalidArgumentError, match="name the job, or its job_key, and not both"):
        await utils.jobs.cancel()  # type: ignore[call-overload]
    with pytest.raises(InvalidArgumentError, match="job_key"):
        await utils.jobs.cancel(job_key="")


async def test_the_key_is_free_for_the_next_job(utils: WorkerUtils, jobs: Jobs) -> None:
    first = await utils.add_job("work", job_key="k")
    await lock(jobs, first.id)
    await utils.jobs.cancel(job_key="k")
    second = await utils.add_job("work", job_key="k")
    assert second.id != first.id
    assert outline(await utils.jobs.cancel(job_key="k"))["removed"] == [second.id]


async def test_a_filter_cancels_waiting_and_running_jobs_in_batches(utils: WorkerUtils, jobs: Jobs) -> None:
    ids = await jobs.add_many("work", 7)
    await jobs.add("other")
    await lock(jobs, *ids[2:5])
    chosen = JobFilter(task_identifier="work")
    counted = await utils.cancel_jobs(filter=chosen, dry_run=True)
    assert (counted.changed, counted.asked, counted.skipped) == (7, 3, 0)
    report = await utils.cancel_jobs(filter=chosen, step_size=2)
    assert (report.changed, report.asked, report.skipped, report.tasks) == (7, 3, 0, {"work": 7})
    assert set(await cancels(jobs)) == set(ids[2:5])
    assert [row["id"] for row in await jobs.all() if row["identifier"] == "work"] == ids[2:5]


async def test_nothing_is_asked_if_the_transaction_is_rolled_back(utils: WorkerUtils, jobs: Jobs) -> None:
    job_id = await jobs.add("work", key="k")
    await lock(jobs, job_id)
    async with utils.with_pg_client() as connection:
        transaction = connection.transaction()
        await transaction.start()
        assert outline(await utils.cancel_jobs([job_id], connection=connection))["asked"] == [job_id]
        await transaction.rollback()
    assert await cancels(jobs) == {}
    assert (await jobs.one())["key"] == "k"


# -- against other sessions --------------------------------------------------------------------------------


async def test_a_job_that_is_being_completed_is_gone(utils: WorkerUtils, jobs: Jobs) -> None:
    """Cancelling waits for the write in flight, and the answer is true."""
    job_id = await jobs.add("work")
    await lock(jobs, job_id)
    async with utils.with_pg_client() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"delete from {SCHEMA}._private_jobs")
        cancelling = asyncio.create_task(utils.cancel_jobs([job_id]))
        await until_waiting(jobs)
        await transaction.commit()
    assert outline(await cancelling)["gone"] == [job_id]
    assert await cancels(jobs) == {}


async def test_a_job_that_is_being_returned_is_removed(utils: WorkerUtils, jobs: Jobs) -> None:
    job_id = await jobs.add("work")
    await lock(jobs, job_id)
    async with utils.with_pg_client() as connection:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null")
        cancelling = asyncio.create_task(utils.cancel_jobs([job_id]))
        await until_waiting(jobs)
        await transaction.commit()
    assert outline(await cancelling)["removed"] == [job_id]
    assert (await jobs.count(), await cancels(jobs)) == (0, {})


async def until_waiting(jobs: Jobs) -> None:
    async def waits() -> bool:
        return bool(
            await jobs.connection.fetchval(
                "select exists (select from pg_stat_activity where wait_event_type = 'Lock' "
                "and datname = current_database())"
            )
        )

    await until(waits)


# -- what those who wait learn -----------------------------------------------------------------------------


async def test_a_job_that_failed_after_the_cancel_is_cancelled_for_those_who_wait(
    utils: WorkerUtils, jobs: Jobs
) -> None:
    """Its row is there until a worker has noticed."""
    handle = await utils.add_job("work", keep=True)
    await lock(jobs, handle.id)
    assert await handle.cancel("stop") is True
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null")
    with pytest.raises(JobCancelledError, match="was cancelled: stop"):
        await handle.result(timeout=PATIENCE)
    status, record = await handle.status(), await utils.jobs.get_record(handle.id)
    assert (status.state, status.error) == ("cancelled", "stop")
    assert (record.state, record.is_cancelled, record.cancel_reason) == ("cancelled", True, "stop")


# -- without rights, or without the table ------------------------------------------------------------------


async def test_without_the_table_waiting_jobs_are_removed(utils: WorkerUtils, jobs: Jobs) -> None:
    await jobs.connection.execute(f"drop table {CANCELS}")
    await check_without_asking(utils, jobs, "the schema has no table of cancelled jobs")


async def test_a_role_that_may_not_ask_workers_removes_waiting_jobs(
    server: DatabaseServer, database_url: str, jobs: Jobs, create_role: Callable[..., str]
) -> None:
    role_url = create_role(database_url)
    async with make_worker_utils(connection_string=role_url) as utils:
        await check_without_asking(utils, jobs, "this role may not ask workers")


@pytest.fixture
async def create_role(jobs: Jobs) -> AsyncIterator[Callable[..., str]]:
    """A role that has all rights but those on the table."""
    name = f"clerk_{id(jobs)}"
    await jobs.connection.execute(
        f"create role {name} login password 'clerk'; grant usage on schema {SCHEMA} to {name}; "
        f"grant all on all tables in schema {SCHEMA} to {name}; "
        f"grant all on all sequences in schema {SCHEMA} to {name}; revoke all on {CANCELS} from {name}; "
        f"create policy clerk on {SCHEMA}._private_jobs to {name} using (true); "
        f"create policy clerk on {SCHEMA}._private_tasks to {name} using (true)"
    )

    def url(database_url: str) -> str:
        head, _, tail = database_url.partition("//")
        return f"{head}//{name}:clerk@{tail.rpartition('@')[2]}"

    yield url
    await jobs.connection.execute(f"drop owned by {name}; drop role {name}")


async def check_without_asking(utils: WorkerUtils, jobs: Jobs, problem: str) -> None:
    waiting, running, third, fourth = [await jobs.add("work", key=f"k{n}") for n in range(4)]
    await lock(jobs, running)
    report = await utils.cancel_jobs([waiting, running])
    assert outline(report) == {"removed": [waiting], "asked": [], "running": [running], "gone": []}
    assert (report.problem or "").startswith(problem)
    bulk = await utils.cancel_jobs(filter=JobFilter(task_identifier="work"), step_size=1)
    assert (bulk.changed, bulk.asked, bulk.skipped, bulk.is_complete) == (2, 0, 1, True)
    assert (bulk.problem or "").startswith(problem)
    row = await jobs.one()
    assert (row["id"], row["key"], row["attempts"]) == (running, "k1", 1)
    assert not {third, fourth} & {row["id"]}
    async with utils.with_pg_client() as connection, connection.transaction():
        again: Any = await utils.cancel_jobs([running], connection=connection)
        assert await connection.fetchval("select 1") == 1  # the transaction is not spoilt
    assert outline(again)["running"] == [running]
    with pytest.raises(asyncpg.PostgresError):
        async with utils.with_pg_client() as connection:
            await connection.execute(f"insert into {CANCELS} (job_id) values (1)")
