"""`run_once` on one connection, as in a test whose transaction is rolled back at the end."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, make_worker_utils, run, run_once
from graphile_worker.errors import ConnectionConfigError
from support.working import PATIENCE, Jobs


async def once(connection: Any, tasks: Any, **options: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        await run_once(pg_pool=connection, task_list=tasks, handle_signals=False, **options)


async def test_jobs_of_a_transaction_are_run_in_it_and_nothing_is_left(jobs: Jobs, database_url: str) -> None:
    ran: list[int] = []

    async def step(payload: Any, helpers: JobHelpers) -> None:
        ran.append(payload["n"])
        if payload["n"] == 0:
            await helpers.add_job("step", {"n": 10})

    transaction = jobs.connection.transaction()
    await transaction.start()
    await jobs.add_many("step", 3, queue="named")
    await jobs.add("step", {"n": 3})
    await once(jobs.connection, {"step": step})
    assert sorted(ran) == [0, 1, 2, 3, 10]
    assert await jobs.count() == 0
    assert jobs.connection.is_in_transaction()
    others = await asyncpg.connect(database_url)
    assert await others.fetchval("select count(*) from graphile_worker._private_tasks") == 0
    await others.close()
    await transaction.rollback()
    assert await jobs.count() == 0
    assert await jobs.connection.fetchval("show enable_seqscan") == "on"
    assert await jobs.connection.fetchval("select count(*) from graphile_worker._private_py_workers") == 0


async def test_a_query_that_fails_in_a_task_fails_the_job_and_not_the_transaction(jobs: Jobs) -> None:
    async def breaks(helpers: JobHelpers) -> None:
        await helpers.query("select 1 / 0")

    async with jobs.connection.transaction():
        await jobs.add("breaks")
        await once(jobs.connection, {"breaks": breaks})
        job = await jobs.one()
        assert (job["attempts"], job["locked_by"]) == (1, None)
        assert "division by zero" in job["last_error"]


async def test_a_task_may_use_transactions_of_its_own(jobs: Jobs) -> None:
    """A rollback in a task does not undo what the worker has written."""
    await jobs.connection.execute("create temporary table noted (n integer)")

    async def notes(payload: Any, helpers: JobHelpers) -> None:
        async with helpers.with_pg_client() as client:
            try:
                async with client.transaction():
                    await client.execute("insert into noted values ($1)", payload["n"])
                    await helpers.add_job("other", job_key=f"other {payload['n']}")
                    await asyncio.sleep(0.01)  # timing: outcomes of other jobs are pending meanwhile
                    if payload["n"] % 2:
                        raise LookupError
            except LookupError:
                pass

    async with jobs.connection.transaction():
        await jobs.add_many("notes", 6)
        await once(jobs.connection, {"notes": notes}, concurrency=3)
        rows = await jobs.connection.fetch("select n from noted order by n")
        assert [row["n"] for row in rows] == [0, 2, 4]
        assert sorted(row["key"] for row in await jobs.all()) == ["other 0", "other 2", "other 4"]
        assert await jobs.locked() == 0


async def test_outside_of_a_transaction_it_does_as_well(jobs: Jobs, database_url: str) -> None:
    async def step() -> None:
        pass

    await jobs.add_many("step", 3)
    async with asyncpg.create_pool(database_url, min_size=0, max_size=1) as pool, pool.acquire() as borrowed:
        await once(borrowed, {"step": step})
    assert await jobs.count() == 0


async def test_a_connection_where_a_pool_is_needed_is_refused(jobs: Jobs) -> None:
    async def step() -> None:
        pass

    with pytest.raises(ConnectionConfigError, match=r"expected a pool of asyncpg.*single connection"):
        await run(pg_pool=jobs.connection, task_list={"step": step})
    with pytest.raises(ConnectionConfigError, match="connection="):
        await make_worker_utils(pg_pool=jobs.connection)


@pytest.mark.parametrize("given", ["postgres:///db", object(), 7])
async def test_what_is_neither_pool_nor_connection_is_refused(given: Any) -> None:
    async def step() -> None:
        pass

    kind = type(given).__name__
    for call in (run_once, run):
        with pytest.raises(ConnectionConfigError, match=f"expected a pool of asyncpg, got builtins.{kind}$"):
            await call(pg_pool=given, task_list={"step": step})
