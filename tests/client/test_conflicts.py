"""Calls are retried after the server rolls them back because of a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec
from graphile_worker.client import WorkerUtils, make_worker_utils
from support.working import PATIENCE, SCHEMA, until

JOBS = f"{SCHEMA}._private_jobs"
Calls = dict[str, Callable[[WorkerUtils, int, Any], Awaitable[Any]]]
CALLS: Calls = {
    "add_job": lambda utils, _, given: utils.add_job("task", 2, job_key="k", connection=given),
    "add_jobs": lambda utils, _, given: utils.add_jobs([JobSpec("task", 2, job_key="k")], connection=given),
    "remove_job": lambda utils, _, given: utils.remove_job("k", connection=given),
    "complete_jobs": lambda utils, job, given: utils.complete_jobs(iter([job]), connection=given),
    "permanently_fail_jobs": lambda utils, job, given: utils.permanently_fail_jobs([job], connection=given),
    "reschedule_jobs": lambda utils, job, given: utils.reschedule_jobs([job], priority=7, connection=given),
    "force_unlock_workers": lambda utils, _, given: utils.force_unlock_workers(["pool-x"], connection=given),
}


@pytest.fixture
async def strict_utils(database_url: str, connection: Any) -> AsyncIterator[WorkerUtils]:
    """In a database whose transactions are repeatable read."""
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
async def foreign(database_url: str) -> AsyncIterator[Any]:
    """Another client, which never loses a deadlock."""
    foreign = await asyncpg.connect(database_url)
    await foreign.execute(
        "set deadlock_timeout = '1min'; set default_transaction_isolation = 'read committed'"
    )
    try:
        yield foreign
    finally:
        await foreign.close(timeout=60)


async def waits(connection: Any) -> bool:
    return await connection.fetchval(
        "select count(*) > 0 from pg_stat_activity where datname = current_database() "
        "and pid <> pg_backend_pid() and wait_event_type = 'Lock'"
    )


async def held_job(utils: WorkerUtils, connection: Any) -> int:
    job = await utils.add_job("task", 1, job_key="k")
    await connection.execute(
        f"update {JOBS} set locked_by = 'pool-x', locked_at = now() - interval '5 hours' where id = $1",
        job.id,
    )
    return job.id


async def provoke(
    utils: WorkerUtils, connection: Any, foreign: Any, call: Callable[..., Awaitable[Any]], given: Any = None
) -> Any:
    """Let the call wait for a row, and change that row."""
    job_id = await held_job(utils, connection)
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute(f"update {JOBS} set priority = 3 where id = $1", job_id)
    running = asyncio.ensure_future(call(utils, job_id, given))
    await until(lambda: waits(connection))
    await transaction.commit()
    return await asyncio.wait_for(running, PATIENCE)


@pytest.mark.parametrize("name", CALLS)
async def test_a_serialization_failure_is_not_the_callers_business(
    strict_utils: WorkerUtils, connection: Any, foreign: Any, name: str
) -> None:
    result = await provoke(strict_utils, connection, foreign, CALLS[name])
    rows = await connection.fetch(f"select * from {JOBS}")
    match name:
        case "add_job":
            assert len(rows) == 2
            assert result.payload == 2
        case "add_jobs":
            assert len(rows) == 2
            assert [job.payload for job in result] == [2]
        case "complete_jobs" | "remove_job":
            assert rows == []
        case "permanently_fail_jobs":
            assert rows[0]["attempts"] == rows[0]["max_attempts"]
            assert len(result) == 1
        case "reschedule_jobs":
            assert rows[0]["priority"] == 7
            assert len(result) == 1
        case _:
            assert rows[0]["locked_by"] is None


@pytest.mark.parametrize("name", CALLS)
async def test_on_a_connection_of_the_caller_it_is(
    strict_utils: WorkerUtils, connection: Any, foreign: Any, name: str, database_url: str
) -> None:
    """The transaction is the caller's, and only the caller can start it again."""
    given = await asyncpg.connect(database_url)
    try:
        with pytest.raises(asyncpg.SerializationError):
            await provoke(strict_utils, connection, foreign, CALLS[name], given)
    finally:
        await given.close(timeout=60)


@pytest.mark.parametrize("name", ["add_job", "add_jobs"])
async def test_an_add_that_is_the_victim_of_a_deadlock_is_repeated(
    utils: WorkerUtils, connection: Any, foreign: Any, name: str
) -> None:
    """It creates the name of a task and wants the job; the other one has the job and wants the name."""
    await utils.add_job("task", [1], job_key="k")
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute(f"select from {JOBS} for update")
    add: Callable[[], Coroutine[Any, Any, Any]] = {
        "add_job": lambda: utils.add_job("new", [2], job_key="k"),
        "add_jobs": lambda: utils.add_jobs([JobSpec("new", [2], job_key="k")]),
    }[name]
    running = asyncio.ensure_future(add())
    await until(lambda: waits(connection))
    async with asyncio.timeout(PATIENCE):
        await foreign.execute(f"insert into {SCHEMA}._private_tasks (identifier) values ('new')")
        await transaction.commit()
        await running
    row = await connection.fetchrow(f"select payload, revision from {JOBS}")
    assert tuple(row) == ("[1, 2]", 1)  # once


async def test_specs_of_a_generator_are_not_added_in_part(
    strict_utils: WorkerUtils, connection: Any, foreign: Any
) -> None:
    """It cannot be read again, so the caller gets the error."""

    async def add(utils: WorkerUtils, *_: Any) -> Any:
        return await utils.add_jobs(JobSpec("task", n, job_key=key) for n, key in enumerate(["a", "k"]))

    with pytest.raises(asyncpg.SerializationError):
        await provoke(strict_utils, connection, foreign, add)
    assert await connection.fetchval(f"select count(*) from {JOBS}") == 1
