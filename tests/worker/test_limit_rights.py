"""Roles that may not use the objects of limits, and databases without them: a limit is kept, or refused."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker import Limit, task
from graphile_worker.errors import ConfigError, GraphileWorkerError
from graphile_worker.hooks.events import PoolJobsFetched
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.options import MOST_HOLD
from support.held_load import ROUNDS
from support.server import DatabaseServer
from support.working import SCHEMA, Jobs, Workers

OBJECTS = ("_private_py_limits", "_private_py_limit_holds")


@task("limited", limit=Limit("x", concurrency=1))
async def limited() -> None:
    """A task with a limit."""


async def plain() -> None:
    """A task without."""


@pytest.fixture
async def pool(server: DatabaseServer, connection: Any, database_url: str) -> AsyncIterator[Any]:
    """Connections of a role that may use everything except the tables of limits."""
    name = f"{server.prefix}clerk"
    await connection.execute(
        f'create role "{name}" login; grant usage on schema {SCHEMA} to "{name}"; '
        f'grant usage on all sequences in schema {SCHEMA} to "{name}"; '
        f'grant all on all tables in schema {SCHEMA} to "{name}"'
    )
    tables = await connection.fetch(
        "select relname from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' "
        "and relrowsecurity",
        SCHEMA,
    )
    for (table,) in tables:
        await connection.execute(
            f'create policy clerk on {SCHEMA}.{table} to "{name}" using (true) with check (true)'
        )
    for table in OBJECTS:
        await connection.execute(f'revoke all on {SCHEMA}.{table} from "{name}"')
    try:
        async with asyncpg.create_pool(
            database_url, server_settings={"role": name}, min_size=0, max_size=8
        ) as pool:
            yield pool
    finally:
        await connection.execute(f'drop owned by "{name}"; drop role "{name}"')


async def test_a_role_without_rights_cannot_run_limited_tasks_but_runs_others(
    pool: Any, jobs: Jobs, workers: Workers
) -> None:
    with pytest.raises(GraphileWorkerError, match="_private_py_limits"):
        await workers.start([limited], pg_pool=pool)
    await jobs.add("plain")
    await workers.start([plain], pg_pool=pool)
    await jobs.until_gone()


async def test_a_database_without_the_objects_refuses_limited_tasks(
    pool: Any, connection: Any, jobs: Jobs, workers: Workers
) -> None:
    """The role may not create them, so nothing would keep the limit."""
    await connection.execute(
        f"drop function {SCHEMA}._private_py_get_limited_jobs; "
        f"drop table {SCHEMA}._private_py_limits, {SCHEMA}._private_py_limit_holds; "
        f"delete from {SCHEMA}._private_py_migrations where id = 13"
    )
    with pytest.raises(ConfigError, match="the limits of limited cannot be kept, because the schema has no"):
        await workers.start([limited], pg_pool=pool)
    assert await jobs.locked() == 0
    await jobs.add("plain")
    await workers.start([plain], pg_pool=pool)
    await jobs.until_gone()


async def test_without_the_function_for_held_batches_limited_jobs_are_locked_one_by_one(
    never_slow: None, pool: Any, jobs: Jobs, connection: Any, workers: Workers, recorder: EventRecorder
) -> None:
    """The objects of an earlier version, and a role that may not replace them."""
    await connection.execute(
        f"drop function {SCHEMA}._private_py_admit_held_jobs;"
        f"delete from {SCHEMA}._private_py_migrations where name = 'held_limits'"
    )
    role = await pool.fetchval("select current_user")
    for table in OBJECTS:
        await connection.execute(f'grant all on {SCHEMA}.{table} to "{role}"')

    @task("wide", limit=Limit("wide", concurrency=800))
    async def wide() -> None: ...

    await workers.start(
        [wide, task("plain")(plain)], pg_pool=pool, max_pool_size=8, hold=MOST_HOLD, events=recorder.events
    )
    for _ in range(3):
        await jobs.add_many("wide", 400)
        await jobs.until_gone()
    assert "held" not in {event.kind for event in recorder.of(PoolJobsFetched)}


async def test_where_the_function_for_held_batches_is_refused_limited_jobs_are_locked_one_by_one(
    never_slow: None,
    pool: Any,
    jobs: Jobs,
    connection: Any,
    workers: Workers,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    role = await pool.fetchval("select current_user")
    for table in OBJECTS:
        await connection.execute(f'grant all on {SCHEMA}.{table} to "{role}"')
    await connection.execute(f"revoke execute on function {SCHEMA}._private_py_admit_held_jobs from public")

    @task("wide", limit=Limit("wide", concurrency=800))
    async def wide() -> None: ...

    await workers.start([wide], pg_pool=pool, max_pool_size=8, hold=MOST_HOLD, events=recorder.events)

    def is_said() -> bool:
        return any("jobs with the limit wide are not held" in message for message in caplog.messages)

    for _ in range(ROUNDS):
        await jobs.add_many("wide", 400)
        await jobs.until_gone()
        if is_said():
            break
    assert is_said()
    await jobs.add_many("wide", 400)
    await jobs.until_gone()
    assert sum("not held" in message for message in caplog.messages) == 1
    assert "held" not in {event.kind for event in recorder.of(PoolJobsFetched)}
