"""Roles that may not use the history, and databases without it: jobs run, and the worker says so once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import WorkerUtils, make_worker_utils, task
from graphile_worker.database.migrations import migrate
from graphile_worker.errors import JobGoneError, SchemaMissingError
from graphile_worker.history.upkeep import add_partitions
from graphile_worker.values.schema_name import SchemaName
from support.cases import looped
from support.server import DatabaseServer
from support.working import PATIENCE, SCHEMA, Jobs, Workers

PLAIN_TABLES = ("_private_jobs", "_private_job_queues", "_private_tasks", "_private_known_crontabs")
OWN_TABLES = ("_private_py_workers", "_private_py_recoveries", "_private_py_migrations", "_private_workers")
HISTORY_TABLES = (
    "_private_py_history", "_private_py_errors", "_private_py_task_names", "_private_py_error_groups",
    "_private_py_progress", "_private_py_duties", "_private_py_minutes", "_private_py_hours",
    "_private_py_days", "_private_py_samples",
)  # fmt: skip


@task(keep=True)
async def kept(payload: Any) -> str:
    return "done"


@task
async def fail(payload: Any) -> None:
    raise ValueError("no")


@pytest.fixture
async def role(server: DatabaseServer, connection: Any) -> AsyncIterator[str]:
    """A role that may use the shared tables, and nothing of the history."""
    name = f"{server.prefix}clerk"
    await connection.execute(
        f'create role "{name}" login; grant usage on schema {SCHEMA} to "{name}"; '
        f'grant usage on all sequences in schema {SCHEMA} to "{name}"'
    )
    await connection.execute(f'grant select on {SCHEMA}.migrations to "{name}"')
    await allow(connection, name, *PLAIN_TABLES, *OWN_TABLES)
    try:
        yield name
    finally:
        await connection.execute(f'drop owned by "{name}"; drop role "{name}"')


async def allow(connection: Any, role: str, *tables: str) -> None:
    for table in tables:
        await connection.execute(
            f'grant all on {SCHEMA}.{table} to "{role}"; '
            f'create policy clerk on {SCHEMA}.{table} to "{role}" using (true) with check (true)'
        )


def url_as(database_url: str, role: str) -> str:
    return f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20role%3D{role}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name != "graphile_worker.job"
        and "permanently failed" not in record.getMessage()
    ]  # fmt: skip


async def run_jobs(jobs: Jobs, workers: Workers, url: str) -> None:
    """Jobs run to their ends, whatever is kept."""
    await jobs.add_many("kept", 30)
    failed = await jobs.add("fail", max_attempts=1)
    await workers.once([kept, fail], concurrency=4, connection_string=url)
    assert [(row["id"], row["attempts"]) for row in await jobs.all()] == [(failed, 1)]
    assert (await jobs.one())["last_error"].startswith("ValueError: no")


async def make_partitions(jobs: Jobs) -> None:
    """As the owner does, so that only a write finds out what is not allowed."""
    week = [7 * 86_400.0]
    await add_partitions(jobs.connection, SchemaName(), history=week, errors=week)


async def ends(jobs: Jobs) -> int:
    return int(await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_py_history"))


async def test_a_role_without_rights_on_the_history(
    jobs: Jobs, workers: Workers, database_url: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    await run_jobs(jobs, workers, url_as(database_url, role))
    assert await ends(jobs) == 0
    said = [line for line in warnings(caplog) if "history" in line]
    assert len(said) == 1, said
    assert "workers as the owner of the schema" in said[0]


async def test_a_role_that_may_do_everything_but_write_ends(
    jobs: Jobs, workers: Workers, database_url: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    await make_partitions(jobs)
    await allow(jobs.connection, role, *HISTORY_TABLES)
    await jobs.connection.execute(f'revoke insert on {SCHEMA}._private_py_history from "{role}"')
    await run_jobs(jobs, workers, url_as(database_url, role))
    assert await ends(jobs) == 0
    assert len([line for line in warnings(caplog) if "cannot write to the history" in line]) == 1


async def test_row_security_that_hides_the_history(
    jobs: Jobs, workers: Workers, database_url: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    await make_partitions(jobs)
    await allow(jobs.connection, role, *HISTORY_TABLES)
    for table in ("_private_py_history", "_private_py_errors"):
        await jobs.connection.execute(f"drop policy clerk on {SCHEMA}.{table}")
    await run_jobs(jobs, workers, url_as(database_url, role))
    assert await ends(jobs) == 0
    assert len([line for line in warnings(caplog) if "cannot write to the history" in line]) == 1


async def test_a_role_that_may_write_but_not_make_partitions(
    jobs: Jobs, workers: Workers, database_url: str, role: str
) -> None:
    await make_partitions(jobs)
    await allow(jobs.connection, role, *HISTORY_TABLES)
    await run_jobs(jobs, workers, url_as(database_url, role))
    assert await ends(jobs) == 31


async def test_tables_that_are_dropped_while_the_worker_runs(
    jobs: Jobs, workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    await workers.start([kept, fail])
    await jobs.add("kept")
    await jobs.until_gone()
    await jobs.connection.execute(
        f"drop table {SCHEMA}._private_py_history, {SCHEMA}._private_py_errors, {SCHEMA}._private_py_minutes"
    )
    for _ in range(3):
        await jobs.add("kept")
        await jobs.until_gone()
    assert len([line for line in warnings(caplog) if "cannot write to the history" in line]) == 1


# -- reading -------------------------------------------------------------------------------------------------


@pytest.fixture
async def foreign_utils(create_database: Callable[..., str]) -> AsyncIterator[WorkerUtils]:
    """A client of a database in which another runtime has installed the schema."""
    url = create_database()
    connection = await asyncpg.connect(url)
    await migrate(connection, SchemaName(), own_objects=False)
    await connection.close()
    async with make_worker_utils(connection_string=url) as utils:
        yield utils


Read = Callable[[WorkerUtils], Awaitable[object]]
HISTORY_READS: dict[str, Read] = {
    "list_finished_jobs": lambda utils: utils.history.list_finished(),
    "get_job_history": lambda utils: utils.history.of_job(1),
    "get_job_errors": lambda utils: utils.history.errors_of_job(1),
    "list_errors": lambda utils: utils.history.list_errors(),
    "list_errors of a kind": lambda utils: utils.history.list_errors(fingerprint="x"),
    "list_error_groups": lambda utils: utils.history.list_error_groups(),
}


@looped("read", HISTORY_READS.values())
async def test_reading_a_history_that_does_not_exist_says_what_to_do(
    foreign_utils: WorkerUtils, read: Read
) -> None:
    """An empty answer would mean that nothing had ended or failed."""
    with pytest.raises(SchemaMissingError, match="install it with `graphile-worker migrate`"):
        await read(foreign_utils)


async def test_jobs_are_followed_without_a_history(foreign_utils: WorkerUtils) -> None:
    job = await foreign_utils.add_job("step")
    assert (await foreign_utils.jobs.get_status(job)).state == "ready"
    async with foreign_utils.with_pg_client() as connection:
        await connection.execute(f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = 'node'")
    status = await foreign_utils.jobs.get_status(job)
    assert (status.state, status.progress) == ("running", None)
    with pytest.raises(JobGoneError):
        await foreign_utils.wait_for(job.id + 1, timeout=PATIENCE)


async def test_statistics_that_do_not_exist_are_none(foreign_utils: WorkerUtils) -> None:
    assert list(await foreign_utils.statistics.tasks(since=timedelta(hours=1))) == []
    assert await foreign_utils.statistics.samples(since=timedelta(hours=1)) == []
