"""Installing while a Node-like installer is at work, which writes its ledger rows one by one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import BREAKING_REVISIONS, migrate
from graphile_worker.database.sql import load
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.waiting import is_blocked

SCHEMA = SchemaName()
OBJECTS = load("migrations/baseline", SCHEMA).split('create table "graphile_worker"._private_tasks', 1)[1]
LEDGER = """
create table if not exists graphile_worker.migrations (
    id int primary key, ts timestamptz not null default now(), breaking boolean not null default false
)
"""
CLASHES = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
)


class OtherInstaller:
    """Does what Node does, step by step; our files stand in for the bodies of its revisions."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def bootstrap(self) -> None:
        await self.connection.execute("create schema if not exists graphile_worker")
        await self.connection.execute(LEDGER)

    async def insert(self, revision: int) -> None:
        await self.connection.execute(
            "insert into graphile_worker.migrations (id, breaking) values ($1, $2)",
            revision,
            revision in BREAKING_REVISIONS,
        )

    async def change(self, revision: int) -> None:
        if revision == 11:
            await self.connection.execute('create table "graphile_worker"._private_tasks' + OBJECTS)
        for name in {
            16: (
                "add_job",
                "add_jobs",
                "remove_job",
                "complete_jobs",
                "permanently_fail_jobs",
                "reschedule_jobs",
            ),
            20: ("force_unlock_workers",),
        }.get(revision, ()):
            await self.connection.execute(load(f"migrations/functions/{name}", SCHEMA))
        if revision == 17:
            await self.connection.execute(load("migrations/000017_jobs_view", SCHEMA))

    async def apply(self, revision: int) -> bool:
        try:
            async with self.connection.transaction():
                await self.insert(revision)
                await self.change(revision)
        except asyncpg.UniqueViolationError:
            return False
        return True

    async def install(self) -> None:
        for _ in range(5):
            try:
                await self.bootstrap()
                break
            except CLASHES:
                await asyncio.sleep(0.1)  # timing: as the other installer does before it tries again
        for revision in range(1, 21):
            await self.apply(revision)


@pytest.fixture
async def two(empty_database_url: str) -> AsyncIterator[tuple[Any, OtherInstaller]]:
    ours = await asyncpg.connect(empty_database_url)
    theirs = await asyncpg.connect(empty_database_url)
    try:
        yield ours, OtherInstaller(theirs)
    finally:
        await ours.close(timeout=60)
        await theirs.close(timeout=60)


async def test_we_wait_until_the_other_installer_has_come_far_enough(two: tuple[Any, OtherInstaller]) -> None:
    ours, other = two
    await other.bootstrap()
    theirs = other.connection.transaction()
    await theirs.start()
    await other.insert(1)
    migrating = asyncio.create_task(migrate(ours, SCHEMA))
    await is_blocked(other.connection, ours)
    await theirs.commit()
    for revision in range(2, 18):
        assert await other.apply(revision)
    report = await migrating
    assert set(report.applied_revisions) <= {18, 19, 20}
    assert report.revision == 20
    for revision in range(18, 21):
        await other.apply(revision)
    assert [row[0] for row in (await read_catalogue(ours))["ledger"]] == list(range(1, 21))
    assert await ours.fetchval("select id from graphile_worker.add_job('a')") == 1


async def test_the_other_installer_finds_everything_done_when_we_were_first(
    two: tuple[Any, OtherInstaller],
) -> None:
    ours, other = two
    await other.bootstrap()
    await migrate(ours, SCHEMA)
    assert not any([await other.apply(revision) for revision in range(1, 21)])


async def test_both_installing_at_once_end_with_one_whole_schema(empty_database_url: str) -> None:
    connections = await asyncio.gather(*(asyncpg.connect(empty_database_url) for _ in range(8)))
    others = [OtherInstaller(connection) for connection in connections[:3]]
    try:
        await asyncio.gather(
            *(other.install() for other in others), *(migrate(each, SCHEMA) for each in connections[3:])
        )
        catalogue = await read_catalogue(connections[0])
        assert [row[0] for row in catalogue["ledger"]] == list(range(1, 21))
        shared = [name for name in catalogue["functions"] if not name.startswith("_private_py_")]
        assert len(shared) == 7 + 6  # and those of the register for Rust workers
        assert await connections[0].fetchval("select id from graphile_worker.add_job('a')") == 1
    finally:
        await asyncio.gather(*(connection.close(timeout=60) for connection in connections))
