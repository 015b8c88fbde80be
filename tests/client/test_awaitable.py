"""AwaitableContext, closing a client, and choosing the database."""

from __future__ import annotations

import copy
import os
from contextlib import suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

import asyncpg
import pytest

from graphile_worker import run
from graphile_worker.client import add_job_adhoc, make_worker_utils, run_migrations
from graphile_worker.errors import (
    ConfigError,
    ConnectionConfigError,
    ConnectionFailedError,
    GraphileWorkerError,
    SchemaMissingError,
)
from graphile_worker.values.spec import JobSpec


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No database in the environment."""
    for name in [*os.environ]:
        if name.startswith("PG") or name == "DATABASE_URL":
            monkeypatch.delenv(name)


@pytest.mark.compat("RUN-3")
async def test_no_database_at_all_names_the_four_ways() -> None:
    with pytest.raises(ConnectionConfigError) as caught:
        await make_worker_utils()
    for name in ("pg_pool", "connection_string", "DATABASE_URL", "PG*", "PGDATABASE"):
        assert name in str(caught.value)


@pytest.mark.compat("RUN-4")
async def test_a_pool_and_a_string_together_are_refused(database_url: str) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=0)
    try:
        with pytest.raises(ConnectionConfigError, match="both pg_pool and connection_string are set"):
            await make_worker_utils(pg_pool=pool, connection_string=database_url)
    finally:
        await pool.close()


@pytest.mark.compat("RUN-5")
async def test_only_database_url(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    async with make_worker_utils() as utils:
        assert (await utils.add_job("job1")).id == 1


@pytest.mark.compat("RUN-6")
async def test_only_the_pg_variables(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = urlsplit(database_url)
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    monkeypatch.setenv("PGHOST", parts.hostname or query["host"])
    monkeypatch.setenv("PGPORT", str(parts.port or query.get("port", 5432)))
    monkeypatch.setenv("PGDATABASE", parts.path.lstrip("/"))
    monkeypatch.setenv("PGUSER", parts.username or query["user"])
    if parts.password:
        monkeypatch.setenv("PGPASSWORD", parts.password)
    async with make_worker_utils() as utils:
        assert (await utils.add_job("job1")).id == 1


@pytest.mark.compat("RUN-7")
async def test_only_a_connection_string(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://unknown@localhost:1/nothing")
    async with make_worker_utils(connection_string=database_url) as utils:
        assert (await utils.add_job("job1")).id == 1


@pytest.mark.compat("RUN-8")
async def test_only_a_pool_which_stays_open(database_url: str) -> None:
    pool = await asyncpg.create_pool(database_url, min_size=0)
    try:
        async with make_worker_utils(pg_pool=pool) as utils:
            assert (await utils.add_job("job1")).id == 1
        assert (await add_job_adhoc("job1", pg_pool=pool)).id == 2
        assert await pool.fetchval("select count(*) from graphile_worker.jobs") == 2
    finally:
        await pool.close()


async def test_awaiting_it_leaves_closing_to_the_caller(database_url: str) -> None:
    utils = await make_worker_utils(connection_string=database_url)
    await utils.add_job("job1")
    await utils.release()
    for use in (utils.release, lambda: utils.add_job("job1"), utils.migrate):
        with pytest.raises(GraphileWorkerError, match="has been released"):
            await use()
    with pytest.raises(GraphileWorkerError, match="has been released"):
        utils.with_pg_client()


async def test_releasing_inside_the_block_is_no_error_at_its_end(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.release()


def test_nothing_happens_before_it_is_opened() -> None:
    make_worker_utils(connection_string="postgres://unknown@localhost:1/nothing")
    make_worker_utils()


@pytest.mark.parametrize(("schema", "option"), [("graphile_worker", ""), ("other", ' --schema "other"')])
async def test_a_missing_schema_names_the_command_that_installs_it(
    empty_database_url: str, schema: str, option: str
) -> None:
    async with make_worker_utils(connection_string=empty_database_url, schema=schema) as utils:
        calls: list[Any] = [
            utils.add_job("job1"),
            utils.add_jobs([JobSpec("job1")]),
            utils.add_jobs([JobSpec("job1", job_key="K")]),
            utils.complete_jobs([1]),
            utils.statistics.jobs(),
            utils.jobs.list(),
        ]
        for call in calls:
            with pytest.raises(SchemaMissingError) as caught:
                await call
            assert f'the schema "{schema}"' in str(caught.value)
            assert f"`graphile-worker migrate{option}`" in str(caught.value)
            assert f"`graphile-worker{option} --schema-only`" in str(caught.value)
            assert caught.value.__cause__ is not None


async def test_run_migrations_installs_the_schema(empty_database_url: str) -> None:
    report = await run_migrations(connection_string=empty_database_url, schema="other")
    assert report.changed
    assert (await add_job_adhoc("job1", connection_string=empty_database_url, schema="other")).id == 1
    assert not (await run_migrations(connection_string=empty_database_url, schema="other")).changed


def test_a_bad_schema_name_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="schema: the name is empty"):
        make_worker_utils(schema="")


async def test_a_lent_connection_comes_back_clean(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:

        async def misuse() -> None:
            async with utils.with_pg_client() as connection:
                await connection.execute("set statement_timeout = '7s'; select pg_advisory_lock(5); begin")
                raise ZeroDivisionError(connection.get_server_pid())

        with pytest.raises(ZeroDivisionError) as caught:
            await misuse()
        async with utils.with_pg_client() as connection:
            assert connection.get_server_pid() == caught.value.args[0]
            assert await connection.fetchval("show statement_timeout") == "0"
            assert not connection.is_in_transaction()
            locks = "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
            assert await connection.fetchval(locks) == 0


async def test_the_session_says_who_it_is(database_url: str) -> None:
    async def name(url: str) -> str:
        async with (
            make_worker_utils(connection_string=url) as utils,
            utils.with_pg_client() as connection,
        ):
            value: str = await connection.fetchval("show application_name")
            return value

    separator = "&" if "?" in database_url else "?"
    assert await name(database_url) == "graphile_worker"
    assert await name(f"{database_url}{separator}application_name=mine") == "mine"
    assert (
        await name(f"{database_url}{separator}fallback_application_name=spare&connect_timeout=9") == "spare"
    )


async def test_a_pool_survives_the_end_of_its_connections(database_url: str, connection: Any) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        await utils.add_job("job1")
        ended = await connection.fetchval(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity "
            "where application_name = 'graphile_worker' and datname = current_database()"
        )
        assert ended == 1
        with suppress(ConnectionFailedError):  # the first use may still meet the dead connection
            await utils.add_job("job1")
        await utils.add_job("job1")


async def test_a_connection_that_ends_in_the_middle_says_that_the_outcome_is_not_known(
    database_url: str, connection: Any
) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        await connection.execute(
            "create function public.die() returns trigger language plpgsql as "
            "'begin perform pg_terminate_backend(pg_backend_pid()); return new; end'; "
            "create trigger die before insert on graphile_worker._private_jobs "
            "for each row execute function public.die()"
        )
        with pytest.raises(ConnectionFailedError, match=r"was lost: .*may or may not have happened"):
            await utils.add_job("job1")
        await connection.execute("drop trigger die on graphile_worker._private_jobs")
        await utils.add_job("job1")


@pytest.mark.parametrize("scheme", ["postgresql+asyncpg", "postgresql+psycopg2", "postgres+pg8000"])
async def test_a_url_of_sqlalchemy_connects(database_url: str, scheme: str) -> None:
    url = f"{scheme}://{database_url.partition('://')[2]}"
    url += ("&" if "?" in url else "?") + "prepared_statement_cache_size=0&ssl=prefer"
    async with make_worker_utils(connection_string=url) as utils:
        assert (await utils.add_job("job1")).id == 1


def test_a_client_that_is_not_open_says_how_to_open_it() -> None:
    utils: Any = make_worker_utils()
    with pytest.raises(AttributeError) as caught:
        utils.add_job("hello")
    assert str(caught.value) == (
        "'AwaitableContext' object has no attribute 'add_job'; it is not open yet: use `async with … as …`, "
        "or `await` it"
    )
    with pytest.raises(AttributeError, match="not open yet"):
        _ = run(task_list={"a": print}).stop  # type: ignore[attr-defined]


def test_an_unopened_client_is_an_ordinary_object() -> None:
    utils = make_worker_utils()
    assert not hasattr(utils, "add_job")
    assert getattr(utils, "__wrapped__", None) is None
    assert copy.copy(utils)._open is utils._open
    with pytest.raises(AttributeError) as caught:
        _ = utils._nothing  # type: ignore[attr-defined]
    assert str(caught.value) == "'AwaitableContext' object has no attribute '_nothing'"
