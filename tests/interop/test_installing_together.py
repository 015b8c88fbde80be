"""Node's installer and ours on one database at the same moment: both succeed, and the schema is whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest

from graphile_worker.database.migrations import MigrationReport, migrate
from graphile_worker.values.schema_name import SchemaName
from interop import catalogue
from interop.conftest import SharedDatabase, shared_database
from interop.node import Ended
from interop.node_packages import ENDS_AT_18, ENDS_AT_19, NodePackages

pytestmark = pytest.mark.interop

OURS, THEIRS = 2, 2

# Statements that make every installer wait at its first step, until the transaction they are in is over.
NO_SCHEMA_YET = "CREATE SCHEMA graphile_worker"
EMPTY_LEDGER = "LOCK TABLE graphile_worker.migrations"

WAITING = """
    count(*) >= $1 FROM pg_stat_activity
    WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


@asynccontextmanager
async def held_back(database: SharedDatabase, barrier: str, waiters: int) -> AsyncIterator[None]:
    """Start the installers within the block; they are let go all at once when each of them waits."""
    holder = await asyncpg.connect(database.url)
    try:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute(barrier)
        yield
        await database.runs.wait_until(WAITING, waiters)
        await transaction.rollback()
    finally:
        await holder.close()


async def install_ours(url: str) -> MigrationReport:
    connection = await asyncpg.connect(url)
    try:
        return await migrate(connection, SchemaName())
    finally:
        await connection.close()


async def race(database: SharedDatabase, barrier: str) -> None:
    async with asyncio.TaskGroup() as group, held_back(database, barrier, OURS + THEIRS):
        ours = [group.create_task(install_ours(database.url)) for _ in range(OURS)]
        theirs = [group.create_task(database.node.command("--schema-only")) for _ in range(THEIRS)]
    assert [task.result() for task in theirs] == [Ended(0, "Schema updated\n")] * THEIRS
    assert [task.result().revision for task in ours] == [20] * OURS


async def assert_whole(database: SharedDatabase, reference: SharedDatabase) -> None:
    assert await catalogue.ledger(database.connection) == catalogue.FULL_LEDGER
    assert await catalogue.read(database.connection) == await catalogue.read(reference.connection)
    job = await database.connection.fetchrow("SELECT * FROM graphile_worker.add_job('hello', '{}')")
    assert job["id"] == 1


@pytest.mark.parametrize("turn", range(3))
async def test_several_installers_meet_on_an_empty_database(
    empty_database: SharedDatabase, node_database: SharedDatabase, turn: int
) -> None:
    await race(empty_database, NO_SCHEMA_YET)
    await assert_whole(empty_database, node_database)


@pytest.mark.parametrize("turn", range(3))
async def test_several_installers_meet_on_an_empty_ledger(
    empty_database: SharedDatabase, node_database: SharedDatabase, turn: int
) -> None:
    await empty_database.connection.execute("""
        CREATE SCHEMA graphile_worker;
        CREATE TABLE graphile_worker.migrations (
            id integer PRIMARY KEY,
            ts timestamptz NOT NULL DEFAULT now(),
            breaking boolean NOT NULL DEFAULT false
        );
    """)
    await race(empty_database, EMPTY_LEDGER)
    await assert_whole(empty_database, node_database)


@pytest.mark.parametrize("package", [ENDS_AT_18, ENDS_AT_19])
async def test_several_installers_upgrade_an_older_schema(
    empty_database: SharedDatabase, node_database: SharedDatabase, package: str
) -> None:
    await empty_database.node.command("--schema-only", package=package)
    await race(empty_database, EMPTY_LEDGER)
    await assert_whole(empty_database, node_database)


async def test_installers_that_start_on_their_own_time_agree_too(
    node_packages: NodePackages, node_database: SharedDatabase, create_database: Callable[..., str]
) -> None:
    """Ours begins as soon as Node's schema can be seen, so that it meets Node halfway."""
    async with AsyncExitStack() as stack:
        databases = [
            await stack.enter_async_context(shared_database(create_database(), node_packages))
            for _ in range(3)
        ]

        async def meet(database: SharedDatabase) -> None:
            node = asyncio.create_task(database.node.command("--schema-only"))
            await database.runs.wait_until("to_regnamespace('graphile_worker') IS NOT NULL")
            await install_ours(database.url)
            assert await node == Ended(0, "Schema updated\n")

        for database in databases:
            await meet(database)
            await assert_whole(database, node_database)
