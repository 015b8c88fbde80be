"""Upgrading schemas that an earlier Node or Rust worker installed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import migrate
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.earlier import go_back
from migrations.listening import heard_by
from migrations.waiting import is_blocked

SCHEMA = SchemaName()


@pytest.mark.parametrize("level", [16, 17, 18, 19])
async def test_an_upgraded_schema_equals_a_fresh_one(connection: Any, database_url: str, level: int) -> None:
    fresh = await read_catalogue(connection)
    await connection.execute("select graphile_worker.add_job('kept', job_key => 'k')")
    await go_back(connection, level)
    assert await read_catalogue(connection) != fresh

    async with heard_by(database_url, "worker:migrate") as heard:
        report = await migrate(connection, SCHEMA)

    steps = list(range(level + 1, 21))
    assert report.found_revision == level
    assert list(report.applied_revisions) == steps
    assert await read_catalogue(connection) == fresh
    assert [json.loads(text) for text in heard] == [
        {"migrationNumber": step, "breaking": step == 19} for step in steps
    ]
    assert (
        await connection.fetchval("select task_identifier from graphile_worker.jobs where key = 'k'")
        == "kept"
    )


async def test_many_upgraders_at_once_apply_each_revision_once(connection: Any, database_url: str) -> None:
    fresh = await read_catalogue(connection)
    await go_back(connection, 16)
    connections = await asyncio.gather(*(asyncpg.connect(database_url) for _ in range(10)))
    try:
        reports = await asyncio.gather(*(migrate(each, SCHEMA) for each in connections))
    finally:
        await asyncio.gather(*(each.close(timeout=60) for each in connections))
    assert sorted(step for report in reports for step in report.applied_revisions) == [17, 18, 19, 20]
    assert await read_catalogue(connection) == fresh


async def test_an_upgrade_waits_for_another_runtime_that_is_at_the_same_revision(
    connection: Any, database_url: str
) -> None:
    await go_back(connection, 19)
    other = await asyncpg.connect(database_url)
    try:
        theirs = other.transaction()
        await theirs.start()
        await other.execute("insert into graphile_worker.migrations (id) values (20)")
        ours = asyncio.create_task(migrate(connection, SCHEMA))
        await is_blocked(other, connection)
        await theirs.commit()
        assert (await ours).applied_revisions == ()
    finally:
        await other.close(timeout=60)
    # Theirs won, so their body stays.
    with pytest.raises(asyncpg.RaiseError, match="the body of an earlier revision"):
        await connection.execute("select graphile_worker.add_jobs('{}')")


async def test_revision_20_is_left_as_it_is_whoever_wrote_it(connection: Any) -> None:
    await go_back(connection, 19)
    await connection.execute("insert into graphile_worker.migrations (id) values (20)")
    before = await read_catalogue(connection)
    assert not (await migrate(connection, SCHEMA)).changed
    assert await read_catalogue(connection) == before


async def test_gaps_below_the_newest_revision_are_not_filled(connection: Any) -> None:
    await connection.execute("delete from graphile_worker.migrations where id in (5, 19)")
    assert not (await migrate(connection, SCHEMA)).changed
    assert await connection.fetchval("select count(*) from graphile_worker.migrations") == 18


async def test_a_ledger_from_before_the_breaking_marks_gets_them(connection: Any) -> None:
    fresh = await read_catalogue(connection)
    await go_back(connection, 18)
    await connection.execute("alter table graphile_worker.migrations drop column breaking")
    assert (await migrate(connection, SCHEMA)).applied_revisions == (19, 20)
    assert (await read_catalogue(connection))["ledger"] == fresh["ledger"]
