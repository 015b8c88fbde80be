"""Installing into a database that has nothing, or only what was prepared for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg
import pytest

from graphile_worker.database.migrations import migrate, migration_sql
from graphile_worker.errors import MigrationError, PermissionDeniedError
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.listening import heard_by

SCHEMA = SchemaName()
ODD_NAMES = [
    'My "odd" Schema',
    "UPPER",
    "with space",
    "ünïcode",
    "semi;colon'--",
    ":GRAPHILE_WORKER_SCHEMA",
    "$$x$1",
]


@pytest.fixture
async def empty(empty_database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(empty_database_url)
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.mark.compat("MIG-1")
async def test_installing_again_changes_nothing(empty: Any) -> None:
    report = await migrate(empty, SCHEMA)
    assert report.found_revision is None
    assert report.applied_revisions == tuple(range(1, 21))
    await empty.execute("select graphile_worker.add_job('assert_jobs_work')")
    before = await read_catalogue(empty), await empty.fetch("select * from graphile_worker._private_jobs")
    for _ in range(3):
        again = await migrate(empty, SCHEMA)
        assert not again.changed
        assert again.revision == again.found_revision == 20
    after = await read_catalogue(empty), await empty.fetch("select * from graphile_worker._private_jobs")
    assert after == before
    assert [row[0] for row in after[0]["ledger"]] == list(range(1, 21))


@pytest.mark.compat("MIG-2")
async def test_twenty_installers_at_once_all_succeed(empty_database_url: str) -> None:
    connections = await asyncio.gather(*(asyncpg.connect(empty_database_url) for _ in range(20)))
    try:
        reports = await asyncio.gather(*(migrate(connection, SCHEMA) for connection in connections))
        assert sorted(len(report.applied_revisions) for report in reports) == [0] * 19 + [20]
        assert sorted(bool(report.applied_own_objects) for report in reports) == [False] * 19 + [True]
        assert all(report.has_own_objects for report in reports)
        assert [row[0] for row in (await read_catalogue(connections[0]))["ledger"]] == list(range(1, 21))
        job = await connections[1].fetchrow("select * from graphile_worker.add_job('assert_jobs_work')")
        assert job["id"] == 1
    finally:
        await asyncio.gather(*(connection.close(timeout=60) for connection in connections))


@pytest.mark.parametrize("name", ODD_NAMES)
async def test_any_schema_name_works_in_every_function(empty: Any, name: str) -> None:
    schema = SchemaName(name)
    await migrate(empty, schema)
    for call in (
        "add_job('a', job_key => 'k', queue_name => 'q', flags => array['f'])",
        "add_job('a', job_key => 'k', job_key_mode => 'unsafe_dedupe')",
        f"add_jobs(array[('a', '1', 'q', null, 1, 'k2', 1, '{{f}}')]::{schema.quoted}.job_spec[])",
        "remove_job('k')",
        "permanently_fail_jobs(array[2])",
        "reschedule_jobs(array[2], attempts => 0)",
        "force_unlock_workers(array['w'])",
        "complete_jobs(array[2])",
    ):
        assert len(await empty.fetch(f"select * from {schema.quoted}.{call}")) == 1, call
    assert await empty.fetchval(f"select count(*) from {schema.quoted}._private_jobs") == 0


async def test_two_schemas_live_side_by_side(empty: Any) -> None:
    for name in ("one", "two"):
        await migrate(empty, SchemaName(name))
    await empty.execute("select one.add_job('a')")
    assert await empty.fetchval("select count(*) from two.jobs") == 0


async def test_the_callers_transaction_takes_the_install_back(empty: Any) -> None:
    transaction = empty.transaction()
    await transaction.start()
    await migrate(empty, SCHEMA)
    assert await empty.fetchval("select to_regclass('graphile_worker.migrations') is not null")
    await transaction.rollback()
    assert await empty.fetchval("select to_regnamespace('graphile_worker') is null")


async def test_a_repeatable_read_default_does_not_confuse_installers(empty_database_url: str) -> None:
    settings = {"default_transaction_isolation": "repeatable read"}
    connections = await asyncio.gather(
        *(asyncpg.connect(empty_database_url, server_settings=settings) for _ in range(5))
    )
    try:
        reports = await asyncio.gather(*(migrate(connection, SCHEMA) for connection in connections))
        assert sorted(len(report.applied_revisions) for report in reports) == [0, 0, 0, 0, 20]
    finally:
        await asyncio.gather(*(connection.close(timeout=60) for connection in connections))


async def test_an_install_tells_running_workers_only_its_last_revision(
    empty: Any, empty_database_url: str
) -> None:
    async with heard_by(empty_database_url, "worker:migrate") as heard:
        await migrate(empty, SCHEMA)
        await migrate(empty, SCHEMA)
    assert [json.loads(text) for text in heard] == [{"migrationNumber": 20, "breaking": False}]


async def test_an_empty_ledger_left_by_another_installer_is_filled(empty: Any) -> None:
    await empty.execute(
        "create schema graphile_worker; create table graphile_worker.migrations "
        "(id int constraint migrations_pkey primary key, ts timestamptz not null default now())"
    )
    report = await migrate(empty, SCHEMA)
    assert report.applied_revisions == tuple(range(1, 21))
    assert await empty.fetchval("select count(*) from graphile_worker.migrations where breaking") == 7


async def test_objects_without_a_ledger_are_named_and_left_alone(empty: Any) -> None:
    await migrate(empty, SCHEMA)
    await empty.execute("truncate graphile_worker.migrations")
    with pytest.raises(MigrationError, match=r"_private_job_queues, _private_jobs.*ledger.*is empty"):
        await migrate(empty, SCHEMA)
    await empty.execute("drop table graphile_worker.migrations")
    with pytest.raises(MigrationError, match=r"ledger.*is missing"):
        await migrate(empty, SCHEMA)


async def test_a_foreign_migrations_table_is_recognised(empty: Any) -> None:
    await empty.execute("create table public.migrations (version text, name text)")
    with pytest.raises(MigrationError, match=r"is not Graphile Worker's: it has the columns version, name"):
        await migrate(empty, SchemaName("public"))


async def test_a_name_that_would_end_a_function_body_is_refused(empty: Any) -> None:
    for attempt in (lambda name: migrate(empty, name), lambda name: asyncio.sleep(0, migration_sql(name))):
        with pytest.raises(MigrationError, match=r"must not contain \$body\$"):
            await attempt(SchemaName("a$body$b"))


class TestAsARoleWithFewRights:
    """The role owns at most one schema; it may not create any in the database."""

    @pytest.fixture
    async def role(self, empty: Any) -> AsyncIterator[str]:
        name = f"role_{await empty.fetchval('select current_database()')}"
        await empty.execute(f"create role {name} login password 'secret'")
        yield name
        await empty.execute(f"drop owned by {name} cascade; drop role {name}")

    @pytest.fixture
    async def restricted(self, role: str, empty_database_url: str) -> AsyncIterator[Any]:
        parts = urlsplit(empty_database_url)
        location = f"{quote(role)}:secret@{parts.netloc.rpartition('@')[2]}"
        connection = await asyncpg.connect(urlunsplit(parts._replace(netloc=location)))
        try:
            yield connection
        finally:
            await connection.close(timeout=60)

    async def test_a_prepared_schema_is_enough(self, empty: Any, role: str, restricted: Any) -> None:
        await empty.execute(f"create schema graphile_worker authorization {role}")
        report = await migrate(restricted, SCHEMA)
        assert report.applied_revisions == tuple(range(1, 21))
        assert report.has_own_objects
        assert await restricted.fetchval("select id from graphile_worker.add_job('a')") == 1

    async def test_a_prepared_schema_is_enough_for_the_script(
        self, empty: Any, role: str, restricted: Any
    ) -> None:
        await empty.execute(f"create schema graphile_worker authorization {role}")
        await restricted.execute(migration_sql(SCHEMA))
        assert not (await migrate(restricted, SCHEMA)).changed

    async def test_without_a_schema_the_error_says_what_an_administrator_can_do(
        self, restricted: Any
    ) -> None:
        with pytest.raises(PermissionDeniedError, match=r'create schema "graphile_worker" authorization'):
            await migrate(restricted, SCHEMA)

    async def test_a_user_of_an_installed_schema_may_migrate_when_there_is_nothing_to_do(
        self, empty: Any, role: str, restricted: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        await migrate(empty, SCHEMA, own_objects=False)
        await empty.execute(
            f"grant usage on schema graphile_worker to {role}; "
            f"grant select on graphile_worker.migrations to {role}"
        )
        report = await migrate(restricted, SCHEMA)
        assert not report.changed
        assert not report.has_own_objects
        assert "works without them" in caplog.text
