"""The SQL script for other tools does exactly what `migrate` does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import migrate, migration_sql
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue


@pytest.fixture
async def empty(empty_database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(empty_database_url)
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.mark.parametrize("name", ["graphile_worker", 'My "odd" Schema'])
async def test_the_script_gives_the_same_catalogue_as_migrate(empty: Any, name: str) -> None:
    await empty.execute(migration_sql(SchemaName(name)))
    by_script = await read_catalogue(empty, name)
    assert not (await migrate(empty, SchemaName(name))).changed
    await empty.execute(f"drop schema {SchemaName(name).quoted} cascade")
    await migrate(empty, SchemaName(name))
    assert await read_catalogue(empty, name) == by_script


async def test_running_the_script_again_fails_as_a_whole(empty: Any) -> None:
    await empty.execute(migration_sql(SchemaName()))
    before = await read_catalogue(empty)
    with pytest.raises(asyncpg.UniqueViolationError):
        await empty.execute(migration_sql(SchemaName()))
    await empty.execute("rollback")
    assert await read_catalogue(empty) == before


def test_the_script_says_how_it_may_be_used() -> None:
    script = migration_sql(SchemaName())
    assert script.startswith("-- Graphile Worker")
    assert "Running it again changes nothing" in script
    assert ":GRAPHILE_WORKER_SCHEMA" not in script
