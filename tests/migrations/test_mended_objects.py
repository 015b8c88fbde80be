"""What is installed changes only with a new number, and older databases catch up."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import OWN_FILES, Change, migrate
from graphile_worker.database.migrations.own_functions import EARLIER, digest
from graphile_worker.database.migrations.own_objects import LEDGER
from graphile_worker.database.sql import FOLDER, load
from graphile_worker.values.schema_name import SchemaName
from migrations.released_worker import released_objects

SCHEMA = SchemaName()
HISTORY = "'graphile_worker._private_py_history'"
A_DAY = date(2000, 1, 1)

OWN_TEXTS = {
    "job_indexes": (Change.KEYED_INDEX, "2bb0cc76b7b3cdec"),
    "adding": (Change.SAFE_SETTINGS, "225d0ebe52444434"),
    "workers": (Change.FLAG_RULES, "a007d94c7f72a0f7"),
    "recovery": (Change.RUST_REGISTER, "e38927df9281d333"),
    "history": (Change.PROGRESS, "91d74f1b00861791"),
    "partitions": (Change.SAFE_OPERATORS, "b7a059793d7321bf"),
    "statistics": (Change.SAFE_OPERATORS, "30eba256b9f4fa5e"),
    "control": (Change.CONCURRENCY_REQUESTS, "0b49a3083e071a3a"),
    "limits": (Change.HELD_LIMITS, "a25009dd99e5272c"),
    "limits@routed": (Change.HELD_LIMITS, "7554a6fdf099102d"),
    "tracks": (Change.SAFE_SETTINGS, "da8cee9539c6a5ee"),
    "admin": (Change.ADMIN, "89b0b58c45dc2ae6"),
    "schedules": (Change.SCHEDULES, "98bf4373acff49f3"),
}
"""The files of the Python-only objects, with the newest change of each and a digest of its text.

With the parts that it includes, and without comments and white space.
"""

FUNCTIONS = sorted((FOLDER / "migrations/functions").iterdir())
TEXTS = {
    "add_job": "37261e0c44efe72e",
    "add_jobs": "82c119efb3a768fb",
    "complete_jobs": "91bd40be8897376e",
    "force_unlock_workers": "687e05abda8b7fcd",
    "permanently_fail_jobs": "7589eab0b344aa7b",
    "remove_job": "9d8cb64ab656a734",
    "reschedule_jobs": "941e2aec1e4d0cb8",
}
"""The same for the shared functions, whose changes are those of `adding`."""

EARLIER_TEXTS = {
    "pg_catalog.format(": "format(",
    "pg_catalog.jsonb_object_agg(": "jsonb_object_agg(",
    "pg_catalog.unnest(": "unnest(",
    "pg_catalog.set_config(": "set_config(",
    "pg_catalog.current_setting(": "current_setting(",
}
MERGED = "(jobs.payload::jsonb || add_job.payload::jsonb)::json"
MERGED_IF_AVAILABLE = re.compile(r"-- Depends on the row.*?then \(.*?\)::json$", re.DOTALL | re.MULTILINE)
"""What `add_job` called, and how it merged arrays, before this package qualified every name."""


def text_digest(path: str) -> str:
    text = re.sub("--.*", "", load(path, SCHEMA))
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def test_a_text_changes_only_with_a_number() -> None:
    """To change an object, change its file, and add a number as `own_objects.py` says; then list both here.

    To change a shared function, put the digest of its earlier body into `EARLIER` of own_functions, and add a
    number to `ADDING` of own_objects.
    """
    own = {file.name: (max(file.changes), text_digest(file.path)) for file in OWN_FILES if file is not LEDGER}
    assert own == OWN_TEXTS
    assert {file.stem: text_digest(f"migrations/functions/{file.stem}") for file in FUNCTIONS} == TEXTS


async def test_a_database_with_the_functions_of_earlier_versions_gets_the_present_ones(
    connection: Any,
) -> None:
    present = load("migrations/functions/add_job", SCHEMA)
    earlier = MERGED_IF_AVAILABLE.sub(f"then {MERGED}", present)
    for now, before in EARLIER_TEXTS.items():
        earlier = earlier.replace(now, before)
    assert digest(earlier.split("$body$")[1], SCHEMA) in EARLIER["add_job"]
    await connection.execute(earlier)
    await connection.execute(released_objects(Change.HISTORY))
    await connection.execute(
        "delete from graphile_worker._private_py_migrations where id = $1", Change.MENDED_FUNCTIONS
    )
    await connection.execute("create table public.of_another_program_99999999 ()")
    await connection.fetchval(f"select graphile_worker._private_py_add_partition({HISTORY}, $1)", A_DAY)
    # The planner is free to look at the names of all tables first. A hash join does so.
    await connection.execute("set enable_nestloop = off; set enable_mergejoin = off")
    with pytest.raises(asyncpg.DatetimeFieldOverflowError):
        await drop_partitions(connection)

    assert (await migrate(connection, SCHEMA)).applied_own_objects == (Change.MENDED_FUNCTIONS,)
    assert await drop_partitions(connection) == 0
    body = await connection.fetchval(
        "select prosrc from pg_proc where proname = 'add_job' and pronamespace = $1::regnamespace",
        "graphile_worker",
    )
    assert body == present.split("$body$")[1]


async def drop_partitions(connection: Any) -> Any:
    return await connection.fetchval(
        f"select graphile_worker._private_py_drop_partitions({HISTORY}, $1)", A_DAY
    )


async def test_a_database_with_functions_that_others_can_misuse_gets_safe_ones(connection: Any) -> None:
    """They compared arrays with an operator that anybody may define for integer[]."""
    for change in (Change.LIMITS, Change.TRACKS, Change.MONITORING):
        await connection.execute(released_objects(change))
    assert await unsafe_functions(connection) == {
        "_private_py_get_limited_jobs", "_private_py_set_tracks",
        "_private_py_ready_jobs", "_private_py_oldest_ready_age",
    }  # fmt: skip
    await connection.execute(
        "delete from graphile_worker._private_py_migrations where id = $1", Change.SAFE_OPERATORS
    )
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (Change.SAFE_OPERATORS,)
    assert await unsafe_functions(connection) == set()


async def test_a_domain_with_the_name_of_a_function_is_not_called_after_a_migration(connection: Any) -> None:
    """`current_setting('x')` is a conversion to the domain, whose check runs with our rights."""
    await connection.execute(
        "create sequence public.calls; create function public.take_over() returns boolean "
        "language sql as $$ select nextval('public.calls') > 0 $$; "
        "create domain public.current_setting as text check (public.take_over())"
    )
    for name in ("add_job", "add_jobs", "remove_job"):
        text = load(f"migrations/functions/{name}", SCHEMA)
        await connection.execute(text.replace("pg_catalog.current_setting(", "current_setting("))
    for change in (Change.UNIQUE_JOBS, Change.SAFE_OPERATORS):
        await connection.execute(released_objects(change))
    with pytest.raises(asyncpg.PostgresError):  # the domain has nothing but the name of the setting
        await call_all(connection)
    assert await connection.fetchval("select last_value from public.calls where is_called") == 1

    await connection.execute(
        "delete from graphile_worker._private_py_migrations where id = $1", Change.SAFE_SETTINGS
    )
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (Change.SAFE_SETTINGS,)
    await call_all(connection)
    assert await connection.fetchval("select last_value from public.calls where is_called") == 1


async def call_all(connection: Any) -> None:
    """Call each function that looks at a setting of the session."""
    await connection.execute(
        "select graphile_worker.add_job('a', queue_name => 'q', job_key => 'k'); "
        "select graphile_worker.add_jobs("
        "array[row('a', '[1]', 'q', null, 3, 'k', 1, array['f'])]::graphile_worker.job_spec[]); "
        "select graphile_worker.remove_job('k'); "
        "select graphile_worker._private_py_set_tracks(array[1], array[2]); "
        "select graphile_worker._private_py_add_unique_job("
        "'a', '[]', 'q', null, null, 'u', null, null, 'waiting', true)"
    )


async def unsafe_functions(connection: Any) -> set[str]:
    rows = await connection.fetch(
        "select proname from pg_proc where pronamespace = 'graphile_worker'::regnamespace and ("
        "prosrc like '% <> ''{}''%' or "
        "prosecdef and proconfig <> array['search_path=pg_catalog, pg_temp'])"
    )
    return {row["proname"] for row in rows}


def test_every_statement_can_be_sent_to_a_database_of_any_encoding() -> None:
    """A database in LATIN1 refuses a script with a character that it does not have, even in a comment."""
    texts = {file: file.read_text() for file in FOLDER.rglob("*.sql")}
    assert [file.name for file, text in texts.items() if not text.isascii()] == []
