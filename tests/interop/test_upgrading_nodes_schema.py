"""Schemas that older releases of Node's worker left behind: upgraded by us, or refused with the way out."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from graphile_worker import make_worker_utils
from graphile_worker.database.migrations import migrate
from graphile_worker.errors import SchemaTooOldError
from graphile_worker.values.schema_name import SchemaName
from interop import catalogue
from interop.conftest import SharedDatabase
from interop.node import Ended
from interop.node_packages import ENDS_AT_14, ENDS_AT_18, ENDS_AT_19

pytestmark = pytest.mark.interop

A_DAY_AGO = "UPDATE graphile_worker.migrations SET ts = now() - interval '1 day'"


@pytest.mark.parametrize(("package", "level"), [(ENDS_AT_18, 18), (ENDS_AT_19, 19)])
async def test_we_upgrade_an_older_schema_and_node_goes_on_with_it(
    empty_database: SharedDatabase, node_database: SharedDatabase, package: str, level: int
) -> None:
    ended = await empty_database.node.command("--schema-only", package=package)
    assert ended.status == 0, ended.output
    await empty_database.connection.execute(
        "SELECT graphile_worker.add_job('echo', '{\"added\": \"before\"}')"
    )

    report = await migrate(empty_database.connection, SchemaName())

    assert (report.found_revision, report.applied_revisions) == (level, tuple(range(level + 1, 21)))
    assert await catalogue.ledger(empty_database.connection) == catalogue.FULL_LEDGER
    assert await catalogue.read(empty_database.connection) == await catalogue.read(node_database.connection)
    assert await empty_database.node.command("--schema-only") == Ended(0, "Schema updated\n")

    async with make_worker_utils(connection_string=empty_database.url) as utils:
        await utils.add_job("echo", {"added": "after"})
    async with empty_database.node.worker("echo"):
        await empty_database.runs.wait_until_idle()
    payloads = [run.payload for run in await empty_database.runs.all()]
    assert payloads == [{"added": "before"}, {"added": "after"}]


async def test_an_older_node_worker_ends_when_we_upgrade_the_schema_under_it(
    empty_database: SharedDatabase, tmp_path: Path
) -> None:
    """Revision 19 is breaking: workers from before it must not go on, and our notification tells them so."""
    await empty_database.node.command("--schema-only", package=ENDS_AT_18)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "hello.js").write_text("module.exports = () => {};")
    older = asyncio.create_task(empty_database.node.command(package=ENDS_AT_18, folder=tmp_path))
    await empty_database.runs.wait_until_listening()
    await migrate(empty_database.connection, SchemaName())
    ended = await older
    assert ended.status == 57, ended.output


async def test_the_release_before_only_warns_about_the_newer_schema(our_database: SharedDatabase) -> None:
    ended = await our_database.node.command("--schema-only", package=ENDS_AT_19)
    assert ended.status == 0, ended.output
    assert ended.output.endswith("Schema updated\n")
    assert await catalogue.ledger(our_database.connection) == catalogue.FULL_LEDGER


async def test_a_schema_that_is_too_old_is_refused_until_node_has_upgraded_it(
    empty_database: SharedDatabase, node_database: SharedDatabase
) -> None:
    ended = await empty_database.node.command("--schema-only", package=ENDS_AT_14)
    assert ended.status == 0, ended.output
    await empty_database.connection.execute(A_DAY_AGO)  # or it would look like an install under way
    numbers = "SELECT array_agg(id ORDER BY id) FROM graphile_worker.migrations"

    with pytest.raises(SchemaTooOldError, match="--schema-only"):
        await migrate(empty_database.connection, SchemaName())

    assert await empty_database.connection.fetchval(numbers) == list(range(1, 15))
    assert await empty_database.node.command("--schema-only") == Ended(0, "Schema updated\n")
    report = await migrate(empty_database.connection, SchemaName())
    assert (report.found_revision, report.applied_revisions) == (20, ())
    assert await catalogue.ledger(empty_database.connection) == catalogue.FULL_LEDGER
    assert await catalogue.read(empty_database.connection) == await catalogue.read(node_database.connection)
