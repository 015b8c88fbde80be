"""What an administrator sets for a role: the worker's own sessions do without it, tasks see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, JobSpec, make_worker_utils
from graphile_worker.database.migrations import migrate
from graphile_worker.database.sql import load
from graphile_worker.errors import ConnectionFailedError
from graphile_worker.values.schema_name import SchemaName
from support.server import DatabaseServer
from support.working import PATIENCE, SCHEMA, Gate, Jobs, Workers, until, workers_of

LIMIT = 1.0  # seconds, of the role
LONGER = 1.5  # seconds for which something has to wait
TIMEOUTS = (
    "statement_timeout",
    "lock_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
)
SESSIONS = (
    "session/tune_own",
    "session/tune_session",
    "session/tune_listener",
    "recovery/begin_heartbeats",
)
SETTINGS = {
    "texts": (
        "DateStyle = 'SQL, DMY'",
        "IntervalStyle = 'iso_8601'",
        "TimeZone = 'Asia/Kathmandu'",
        "bytea_output = 'escape'",
        "extra_float_digits = -15",
        "standard_conforming_strings = off",
        "array_nulls = off",
        "transform_null_equals = on",
        "quote_all_identifiers = on",
        "check_function_bodies = off",
    ),
    "transactions": (
        "default_transaction_isolation = 'serializable'",
        "default_transaction_deferrable = on",
        "synchronous_commit = off",
        "row_security = off",
        "search_path = ''",
        "plan_cache_mode = 'force_custom_plan'",
        "enable_indexscan = off",
    ),
    "times": (
        "statement_timeout = '10s'",
        "lock_timeout = '10s'",
        "idle_session_timeout = '300ms'",
        "idle_in_transaction_session_timeout = '300ms'",
        "transaction_timeout = '10s'",
        "search_path = 'public, pg_catalog'",
    ),
}
"""Those of a group do not cover for each other: what one of them breaks stays broken beside the others."""


ALL_SETTINGS = "select array_agg(current_setting(name)) from unnest($1::text[]) name"


@pytest.fixture
async def role(server: DatabaseServer, connection: Any) -> AsyncIterator[str]:
    """A role that owns the schema of the test's database."""
    if not await connection.fetchval("select rolsuper from pg_roles where rolname = current_user"):
        pytest.skip("only a superuser may make a role the owner of a schema")
    name = f"{server.prefix}owner"
    await connection.execute(f'create role "{name}" login')
    await connection.execute(
        f"""
        do $do$
        declare each record;
        begin
            execute 'alter schema {SCHEMA} owner to "{name}"';
            for each in select oid::regclass as it from pg_class
                where relnamespace = '{SCHEMA}'::regnamespace and relkind in ('r', 'p', 'v')
            loop
                execute 'alter table ' || each.it || ' owner to "{name}"';
            end loop;
            for each in select oid::regprocedure as it, prokind from pg_proc
                where pronamespace = '{SCHEMA}'::regnamespace
            loop
                execute 'alter routine ' || each.it || ' owner to "{name}"';
            end loop;
        end $do$
        """
    )
    try:
        yield name
    finally:
        await connection.execute(f'reassign owned by "{name}" to current_user; drop owned by "{name}"')
        await connection.execute(f'drop role "{name}"')


@pytest.fixture
def role_url(database_url: str, role: str) -> str:
    return re.sub(r"://[^/@]*@", f"://{role}@", database_url)


@pytest.fixture
async def of_role(role_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(role_url):
        yield workers


async def set_for(connection: Any, role: str, *settings: str) -> list[str]:
    """Change what the role has for new sessions; the names of the settings that the server knows."""
    known = []
    for setting in settings:
        name = setting.partition(" ")[0]
        if await connection.fetchval("select current_setting($1, true) is not null", name):
            await connection.execute(f'alter role "{role}" set {setting}')
            known.append(name)
    if not known:
        pytest.skip(f"this server knows none of {settings}")
    return known


@pytest.mark.parametrize("path", SESSIONS)
async def test_no_session_of_a_worker_has_the_timeouts_of_the_role(
    role_url: str, role: str, connection: Any, path: str
) -> None:
    known = [
        name
        for name in TIMEOUTS
        if await connection.fetchval("select current_setting($1, true) is not null", name)
    ]
    for name in known:
        await connection.execute(f"alter role \"{role}\" set {name} = '7s'")
    session = await asyncpg.connect(role_url)
    try:
        statement = load(path, SchemaName())
        begun_by = (SCHEMA, "pool-1", session.get_server_pid()) if "$1" in statement else ()
        await session.fetch(statement, *begun_by)
        left = [
            name
            for name in known
            if await session.fetchval("select current_setting($1)", name) == "7s"
            # A connection of the pool is not idle for long while the worker uses it for itself.
            and not (path == "session/tune_own" and name == "idle_session_timeout")
        ]
        assert left == []
    finally:
        await session.close(timeout=60)


@pytest.mark.parametrize("name", ["statement_timeout", "lock_timeout", "transaction_timeout"])
async def test_a_worker_starts_though_it_has_to_wait_for_longer_than_the_role_may(
    of_role: Workers, role: str, jobs: Jobs, name: str
) -> None:
    await set_for(jobs.connection, role, f"{name} = '{LIMIT}s'")
    gate = Gate()
    async with jobs.connection.transaction():
        await jobs.connection.execute(f"lock table {SCHEMA}._private_py_workers in exclusive mode")
        starting = asyncio.create_task(of_role.start({"work": gate}))
        await until(lambda: is_waiting(jobs.connection))
        await asyncio.sleep(LONGER)  # timing: longer than the limit; more is as good
        assert not starting.done()
    await starting
    await jobs.add("work")
    await gate.until_inside(1)
    gate.open()
    await jobs.until_gone()


@pytest.mark.parametrize("name", ["statement_timeout", "transaction_timeout"])
async def test_a_migration_may_take_longer_than_the_role_may(
    role_url: str, role: str, connection: Any, name: str
) -> None:
    await set_for(connection, role, f"{name} = '{LIMIT}s'")
    await connection.execute(f"delete from {SCHEMA}._private_py_migrations where name = 'failed_index'")
    session = await asyncpg.connect(role_url)
    try:
        async with connection.transaction():
            await connection.fetchval(load("migrate/lock", SchemaName()), SCHEMA)
            migrating = asyncio.create_task(migrate(session, SchemaName()))
            await until(lambda: is_waiting(connection))
            await asyncio.sleep(LONGER)  # timing: longer than the limit; more is as good
        assert (await migrating).changed
        assert await session.fetchval("select current_setting($1)", name) == f"{LIMIT:.0f}s"
    finally:
        await session.close(timeout=60)


async def is_waiting(connection: Any) -> bool:
    return await connection.fetchval("select exists (select from pg_locks where not granted)")


@pytest.mark.parametrize("group", SETTINGS)
async def test_settings_of_the_role_change_nothing_but_what_tasks_see(
    of_role: Workers, role: str, role_url: str, jobs: Jobs, group: str
) -> None:
    """Every kind of statement of a worker and a client, and values whose texts depend on settings."""
    names = await set_for(jobs.connection, role, *SETTINGS[group])
    session = await asyncpg.connect(role_url)
    expected = await session.fetchrow(ALL_SETTINGS, names)
    await session.close(timeout=60)
    seen: list[Any] = []
    ran: list[Any] = []

    async def see(payload: Any, helpers: JobHelpers) -> None:
        async with helpers.with_pg_client() as connection:
            seen.append(await connection.fetchrow(ALL_SETTINGS, names))
        await helpers.add_job("note", {"n": 1})

    async def note(payload: Any) -> None:
        ran.append(payload)

    async def fail(payload: Any) -> None:
        raise ValueError("it's a \\ 'quoted' error")

    later = datetime(2030, 2, 1, 12, 30, 15, 123456, tzinfo=UTC)
    async with make_worker_utils(connection_string=role_url) as utils:
        kept = await utils.add_job("note", {"text": 'it\'s \\ "x"'}, run_at=later, job_key="a\\'b")
        assert kept.run_at == later
        failing = await utils.add_job("fail", max_attempts=1)
        await utils.add_job("see")
        await utils.add_jobs([JobSpec("note", {"q": n}, queue_name="q") for n in range(3)])
        await jobs.connection.execute(  # so that there is something to backfill
            f"insert into {SCHEMA}._private_known_crontabs "
            "values ('note', now() - interval '1 hour', date_trunc('minute', now() - interval '90 seconds'))"
        )
        runner = await of_role.start(
            {"see": see, "note": note, "fail": fail}, crontab="* * * * * note ?fill=2m {cron: true}"
        )

        async def is_done() -> bool:
            rows = await jobs.all()
            are_gone = {row["id"] for row in rows} == {kept.id, failing.id}
            return are_gone and len(seen) == 1 and any("cron" in payload for payload in ran)

        await until(is_done, timeout=2 * PATIENCE)
        assert seen == [expected]
        assert {payload["q"] for payload in ran if "q" in payload} == {0, 1, 2}
        found = None
        while found is None:  # the server may close the idle session in the same moment, as the role says
            with suppress(ConnectionFailedError):
                found = await utils.jobs.get(failing.id)
        assert "it's a \\ 'quoted' error" in (found.last_error or "")
        (rescheduled,) = await utils.reschedule_jobs([kept.id], run_at=later, priority=3)
        assert (rescheduled.run_at, rescheduled.key) == (later, "a\\'b")
        assert [worker.id for worker in await utils.list_workers()] == [runner.pool_id]
    await of_role.stop(runner)
