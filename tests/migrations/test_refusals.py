"""Schemas that are too old or too new are refused in words that tell what to do; harmless ones are not."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.cli.commands.cleanup import describe_report
from graphile_worker.database.migrations import migrate
from graphile_worker.database.migrations.refusals import check_server
from graphile_worker.database.migrations.state import SchemaState, read_state
from graphile_worker.errors import MigrationError, SchemaTooNewError, SchemaTooOldError
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.earlier import go_back
from support.rust_port import RustPort

SCHEMA = SchemaName()


@pytest.mark.compat("MIG-3")
async def test_a_ledger_at_revision_1_without_breaking_marks_is_refused(connection: Any) -> None:
    await connection.execute(
        "drop schema graphile_worker cascade; create schema graphile_worker; "
        "create table graphile_worker.migrations (id int primary key, ts timestamptz default now()); "
        "create table graphile_worker.jobs (id bigserial primary key); "
        "insert into graphile_worker.migrations (id, ts) values (1, now() - interval '1 year')"
    )
    with pytest.raises(SchemaTooOldError, match=r"revision 1,.*graphile-worker@0\.18 --schema-only"):
        await migrate(connection, SCHEMA)
    columns = await connection.fetch("select * from graphile_worker.migrations")
    assert list(columns[0].keys()) == ["id", "ts"]


@pytest.mark.compat("MIG-5")
async def test_revision_10_with_a_locked_job_is_refused_and_untouched(connection: Any) -> None:
    await connection.execute("select graphile_worker.add_job('a')")
    await connection.execute("update graphile_worker._private_jobs set locked_at = now(), locked_by = 'w'")
    await go_back(connection, 10)
    before = await read_catalogue(connection)
    with pytest.raises(SchemaTooOldError, match=r"revision 10,.*Stop all workers"):
        await migrate(connection, SCHEMA)
    assert await read_catalogue(connection) == before


@pytest.mark.compat("MIG-4")
async def test_a_newer_breaking_revision_is_refused(connection: Any) -> None:
    await connection.execute("insert into graphile_worker.migrations (id, breaking) values (999999, true)")
    with pytest.raises(SchemaTooNewError) as refusal:
        await migrate(connection, SCHEMA)
    message = str(refusal.value)
    assert "revision 999999" in message
    assert "breaking revision is 999999" in message
    assert "supports revision 20" in message


async def test_a_newer_breaking_revision_below_a_harmless_one_is_refused_too(connection: Any) -> None:
    await connection.execute(
        "insert into graphile_worker.migrations values (21, now(), true), (22, now(), false)"
    )
    with pytest.raises(SchemaTooNewError, match=r"revision 22 .*breaking revision is 21"):
        await migrate(connection, SCHEMA)


async def test_a_newer_harmless_revision_is_only_warned_of(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute("insert into graphile_worker.migrations (id) values (23)")
    report = await migrate(connection, SCHEMA)
    assert report.revision == 23
    assert not report.changed
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "revision 23" in caplog.text


async def test_revisions_of_rust_are_known_by_what_they_install(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await RustPort(connection).migrate()
    report = await migrate(connection, SCHEMA)
    assert (report.revision, report.rust_revisions) == (22, (21, 22))
    assert describe_report(report).endswith("(revision 22; 21 and 22 of Rust).")
    assert caplog.records == []
    await connection.execute("drop table graphile_worker._private_job_retirements cascade")
    await migrate(connection, SCHEMA)
    assert "is at revision 22 and this version of the package supports revision 21" in caplog.text


class MigratedMeanwhile:
    """A connection beside which a Rust worker migrates after the first statement."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._is_migrated = False

    def is_in_transaction(self) -> bool:
        """So that the state is read in several statements."""
        return True

    async def fetch(self, statement: str, *values: Any) -> Any:
        rows = await self._connection.fetch(statement, *values)
        if not self._is_migrated:
            self._is_migrated = True
            await RustPort(self._connection).migrate()
        return rows


async def test_a_rust_worker_may_migrate_while_we_look(connection: Any) -> None:
    state = await read_state(MigratedMeanwhile(connection), SCHEMA)  # type: ignore[arg-type]
    assert (state.revision, state.known_revision) == (22, 22)


async def test_the_numbers_of_rust_alone_are_not_known(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The register that we install must not be taken for a revision of Rust."""
    await connection.execute("insert into graphile_worker.migrations (id) values (21), (22)")
    await migrate(connection, SCHEMA)
    assert "is at revision 22 and this version of the package supports revision 20" in caplog.text


async def test_servers_before_version_12_are_refused(connection: Any) -> None:
    state = await read_state(connection, SCHEMA)
    check_server(state)
    old = SchemaState(server_version=110022, schema_exists=False, objects=(), has_own_ledger=False)
    with pytest.raises(MigrationError, match=r"PostgreSQL 12 or later.*110022"):
        check_server(old)
