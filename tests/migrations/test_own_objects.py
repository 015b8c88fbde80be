"""Python-only objects: a ledger of their own, recreated when lost, never required."""

from __future__ import annotations

import re
from typing import Any

import pytest

from graphile_worker.database.migrations import OWN_FILES, Change, migrate
from graphile_worker.database.migrations.own_functions import EARLIER, digest
from graphile_worker.database.sql import FOLDER, load
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.earlier import MARKED_FUNCTION

SCHEMA = SchemaName()
NUMBERS = tuple(range(1, len(Change) + 1))


async def test_every_change_is_in_our_ledger(connection: Any) -> None:
    rows = await connection.fetch("select id, name from graphile_worker._private_py_migrations order by id")
    assert [tuple(row) for row in rows] == [(change.value, change.label) for change in Change]
    assert tuple(row["id"] for row in rows) == NUMBERS


def test_every_change_has_a_file_and_every_file_is_listed() -> None:
    assert {change for file in OWN_FILES for change in file.changes} == set(Change)
    assert {file.name for file in OWN_FILES} == {path.stem for path in (FOLDER / "own_objects").iterdir()}


async def test_our_ledger_is_protected_like_its_siblings(connection: Any) -> None:
    assert await connection.fetchval(
        "select relrowsecurity from pg_class where oid = 'graphile_worker._private_py_migrations'::regclass"
    )


async def test_the_shared_ledger_knows_nothing_of_them(connection: Any) -> None:
    assert await connection.fetchval("select max(id) from graphile_worker.migrations") == 20


async def test_they_are_added_to_a_schema_of_another_runtime(connection: Any) -> None:
    await connection.execute("drop table graphile_worker._private_py_migrations")
    report = await migrate(connection, SCHEMA)
    assert report.applied_revisions == ()
    assert report.applied_own_objects == NUMBERS


@pytest.mark.parametrize("change", Change)
async def test_any_change_can_be_made_again(connection: Any, change: Change) -> None:
    before = await read_catalogue(connection)
    await connection.execute("delete from graphile_worker._private_py_migrations where id = $1", change)
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (change,)
    assert await read_catalogue(connection) == before


async def test_they_come_back_after_the_schema_was_dropped(connection: Any) -> None:
    await connection.execute("drop schema graphile_worker cascade")
    report = await migrate(connection, SCHEMA)
    assert report.applied_own_objects == NUMBERS
    assert not (await migrate(connection, SCHEMA)).changed


async def test_they_can_be_left_out(connection: Any) -> None:
    await connection.execute("drop schema graphile_worker cascade")
    report = await migrate(connection, SCHEMA, own_objects=False)
    assert not report.has_own_objects
    assert await connection.fetchval("select to_regclass('graphile_worker._private_py_migrations') is null")


async def test_a_read_only_session_goes_on_without_them(
    connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute("drop table graphile_worker._private_py_migrations")
    await connection.execute("set default_transaction_read_only = on")
    report = await migrate(connection, SCHEMA)
    assert not report.has_own_objects
    assert "works without them" in caplog.text


EARLIER_REMOVE_JOB = """
create or replace function graphile_worker.remove_job(job_key text)
returns graphile_worker._private_jobs language plpgsql strict as $body$
{body}
$body$
"""


async def test_functions_of_an_earlier_version_are_replaced_and_those_of_others_stay(connection: Any) -> None:
    await connection.execute("delete from graphile_worker._private_py_migrations where name = 'functions'")
    present = load("migrations/functions/remove_job", SCHEMA).split("$body$")[1]
    earlier = re.sub(r"pg_catalog\.(set_config|current_setting)", r"\1", present)
    assert digest(earlier, SCHEMA) in EARLIER["remove_job"]
    await connection.execute(EARLIER_REMOVE_JOB.format(body=earlier))
    await connection.execute(MARKED_FUNCTION)
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (6,)
    bodies = {
        row["proname"]: row["prosrc"]
        for row in await connection.fetch(
            "select proname, prosrc from pg_proc where pronamespace = 'graphile_worker'::regnamespace"
        )
    }
    assert bodies["remove_job"] == present
    assert "the body of an earlier revision" in bodies["add_jobs"]  # of unknown origin
