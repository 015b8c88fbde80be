"""What others create in `public` is never called with the rights of a worker or a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.sql import load
from graphile_worker.recovery.lease import Lease
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.session import Sessions
from hostile.invaders import (
    CANNOT_BE_PREPARED,
    MOST_ARGUMENTS,
    ParseTrees,
    calls_in,
    invade,
    paths,
    text_of,
)
from support.pool_parts import pool_context
from support.server import DatabaseServer


@pytest.fixture(scope="module")
def invaded_template(server: DatabaseServer) -> Iterator[str]:
    name = server.create_template()
    server.run(server.url(name), invade)
    yield name
    server.drop_database(name)


@pytest.fixture
def database_url(create_database: Callable[..., str], invaded_template: str) -> str:
    """In place of the usual one: a database in which others wait for our calls."""
    return create_database(template=invaded_template)


@pytest.fixture(scope="module")
def shared_url(server: DatabaseServer, invaded_template: str) -> Iterator[str]:
    """For statements that are not run."""
    name = server.create_database(template=invaded_template)
    yield server.url(name)
    server.drop_database(name)


@pytest.fixture
async def watched(shared_url: str) -> AsyncIterator[tuple[Any, ParseTrees]]:
    """A connection with the usual search_path, and what the server makes of its statements."""
    connection = await asyncpg.connect(shared_url)
    try:
        if connection.get_server_version().major < 14:
            pytest.skip("before PostgreSQL 14, the server prints no tree of PREPARE")
        trees = ParseTrees(connection)
        await trees.watch()
        yield connection, trees
    finally:
        await connection.close(timeout=60)


# -- each statement ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "called"),
    [
        ("select exp(1)", "exp(integer)"),
        ("select exp(1::double precision)", None),
        ("select from unnest(array['x'])", "unnest(text[])"),
        ("select from pg_catalog.unnest(array['x'])", None),
        ("select text 'x' || 1", "||(text,integer)"),
        ("select 2 * interval '1 second'", "*(integer,interval)"),
        ("select array[1] <> '{}'", "<>(integer[],integer[])"),
        ("select array[1] operator(pg_catalog.<>) '{}'", None),
        (
            "select '{}'::timestamptz[] = '{}'::timestamptz[]",
            "=(timestamp with time zone[],timestamp with time zone[])",
        ),
        ("select regprocedure 'now()' = 1", "=(regprocedure,integer)"),
        ("select - smallint '1' - varchar '1'", "-(smallint,character varying)"),
        ("select ~ name 'x'", "~(NONE,name)"),
        ("select max(true)", "max(boolean)"),
        ("select count(1), count(*)", "count(integer)"),
        ("select lower('X')", "lower"),
        ("select lower(text 'X'), count(*), 'X'::text, jsonb '{}', interval '1 day'", None),
        ("select text 'X' from pg_class", None),
        ("select public.hostile_row '(1)' = 1::bigint", "=(hostile_row,bigint)"),
        ("select 1::public.hostile_row", "hostile_cast(integer)"),
    ],
)
async def test_inexact_calls_are_seen(
    watched: tuple[Any, ParseTrees], statement: str, called: str | None
) -> None:
    """Without this the tests below could not fail."""
    connection, trees = watched
    await connection.execute(f"prepare tried as {statement}")
    found = await trees.called()
    assert found == [] if called is None else called in found


async def test_no_statement_calls_anything_outside_of_pg_catalog(watched: tuple[Any, ParseTrees]) -> None:
    connection, trees = watched
    found: dict[str, list[str]] = {}
    tried = 0
    for path in paths():
        statement = load(path, SchemaName()).rstrip().rstrip(";")
        if path.startswith(("migrations/", "own_objects/")) or text_of(path).split()[0] in CANNOT_BE_PREPARED:
            continue
        try:
            await connection.execute(f"prepare tried as {statement}")
            await connection.execute("deallocate tried")
        except asyncpg.PostgresError as error:  # a hostile function has another kind of result
            found[path] = [str(error)]
        if called := await trees.called():
            found[path] = called
        tried += 1
    assert found == {}
    assert tried > 80


async def test_calls_with_many_arguments_are_qualified(watched: tuple[Any, ParseTrees]) -> None:
    """There is no end to the combinations of types that somebody could have a function for."""
    connection, _ = watched
    rows = await connection.fetch("select distinct proname::text from pg_catalog.pg_proc")
    names = {row[0] for row in rows}
    names.remove("unnest")  # of several arrays it is always that of pg_catalog
    found = {
        (path, call.name)
        for path in paths()
        for call in calls_in(text_of(path))
        if call.arguments > MOST_ARGUMENTS or call.has_names
        if call.name in names and not call.is_qualified
    }
    assert found == set()


# -- search_path ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["public, pg_catalog", '"$user", public', ""])
async def test_the_sessions_of_a_worker_look_into_pg_catalog_first(database_url: str, path: str) -> None:
    """Whatever the database says; and a connection of the caller's pool goes back as it came."""
    admin = await asyncpg.connect(database_url, server_settings={"search_path": "pg_catalog"})
    name = await admin.fetchval("select current_database()")
    await admin.execute(f"alter database {name} set search_path = {path or chr(39) * 2}")
    await admin.close(timeout=60)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1) as pool:
        before = await pool.fetchval("show search_path")
        sessions = Sessions(pool_context("pool-x"), pool, Lease())
        session = sessions.fetch
        try:
            found = await session.run(
                lambda connection: connection.fetchval("select pg_catalog.current_schemas(true)::text[]")
            )
        finally:
            await sessions.close()
        assert found == ["pg_catalog", *(["public"] if "public" in path else [])]
        assert await pool.fetchval("show search_path") == before
