"""Databases for tests: copies of a template, on servers with all kinds of URLs."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import asyncpg
import pytest

from graphile_worker import WorkerUtils
from graphile_worker.testing import AddedJobs, DatabaseServer
from graphile_worker.testing.database import url_beside
from graphile_worker.values.schema_name import SchemaName
from support.working import until


@pytest.mark.parametrize("time", ["first", "second"])
async def test_each_test_has_a_database_of_its_own(
    time: str, graphile_worker_utils: WorkerUtils, added_jobs: AddedJobs
) -> None:
    assert await added_jobs() == []
    await graphile_worker_utils.add_job("greet", time)
    assert len(await added_jobs()) == 1


def test_a_template_is_made_with_another_schema_and_tables_of_the_application(server: DatabaseServer) -> None:
    async def create_table(url: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("create table customer (name text)")
        await connection.close()

    def prepare(url: str) -> None:
        """Like a migration tool: a plain function that runs its own event loop."""
        asyncio.run(create_table(url))

    async def look(connection: Any) -> tuple[int, int]:
        jobs = await connection.fetchval('select count(*) from "other ""schema""".jobs')
        return jobs, await connection.fetchval("select count(*) from customer")

    template = server.create_template(SchemaName('other "schema"'), prepare)
    copy = server.create_database(template=template)
    try:
        assert server.run(server.url(copy), look) == (0, 0)
    finally:
        server.drop_database(copy)
        server.drop_database(template)


def test_an_error_of_the_preparation_is_the_users_to_see(server: DatabaseServer) -> None:
    def prepare(url: str) -> None:
        raise LookupError("no such migration")

    with pytest.raises(LookupError, match="no such migration"):
        server.create_template(prepare=prepare)


async def test_a_database_with_open_sessions_is_dropped(server: DatabaseServer) -> None:
    name = server.create_database()
    connection = await asyncpg.connect(server.url(name))
    try:
        server.drop_database(name)
        with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
            await connection.fetchval("select 1")
    finally:
        connection.terminate()


class OldServer(DatabaseServer):
    """PostgreSQL 12 cannot drop a database by force."""

    major = 12


async def test_a_session_may_take_long_to_end(server: DatabaseServer, connection: Any) -> None:
    """The server waits five seconds for it, then refuses to drop the database."""
    old = OldServer(server.admin_url)
    name = old.create_database()
    session = await asyncpg.connect(old.url(name))
    attempts: set[Any] = set()

    async def has_tried_again() -> bool:
        attempts.update(
            await connection.fetch(
                "select query_start from pg_stat_activity where query like 'drop database%' || $1 || '%'",
                name,
            )
        )
        return dropping.done() or len(attempts) > 1

    suspend(session, signal.SIGSTOP)
    try:
        dropping = asyncio.create_task(asyncio.to_thread(old.drop_database, name))
        await until(has_tried_again)
    finally:
        suspend(session, signal.SIGCONT)
        session.terminate()
    await dropping


def suspend(session: asyncpg.Connection[Any], number: signal.Signals) -> None:
    try:
        os.kill(session.get_server_pid(), number)
    except (ProcessLookupError, PermissionError):
        pytest.skip("the server is not on this machine, or belongs to another user")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("postgres://me:secret@host:5433/main?sslmode=require", "postgres://me:secret@host:5433/a%2Fb?sslmode=require"),
        ("postgresql://postgres@/main?host=/tmp/socket&port=5", "postgresql://postgres@/a%2Fb?host=/tmp/socket&port=5"),
        ("postgresql:///main", "postgresql:///a%2Fb"),
        ("postgresql://host?dbname=main", "postgresql://host/a%2Fb"),
        ("host=localhost dbname=main user=me", "postgresql:///a%2Fb?host=localhost&user=me"),
    ],
    ids=["host", "socket", "nothing but a name", "name as a parameter", "pairs"],
)  # fmt: skip
def test_every_kind_of_connection_string_leads_to_the_other_databases(given: str, expected: str) -> None:
    assert url_beside(given, "a/b") == expected
