"""What is installed changes only by a new number: texts stay as they were, and older databases catch up."""

from __future__ import annotations

import hashlib
import re
from datetime import date
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import known_own_objects, migrate
from graphile_worker.database.migrations.own_functions import EARLIER, digest
from graphile_worker.database.sql import FOLDER, load
from graphile_worker.values.schema_name import SchemaName

SCHEMA = SchemaName()
NUMBER = 23
SAFE = 25
SAFE_SETTINGS = 28
HISTORY = "'graphile_worker._private_py_history'"
A_DAY = date(2000, 1, 1)

TEXTS = {
    "own_objects/0001_ledger": "6e3e51a27aa438be",
    "own_objects/0002_queue_indexes": "5d36f16fdbc7c122",
    "own_objects/0003_workers": "8ea2ff76c50c1d8c",
    "own_objects/0004_add_plain_job": "2bb0f2d968fa79b3",
    "own_objects/0005_failed_index": "2561f20ee6e261f9",
    "own_objects/0006_functions": "9f5aed440ca4cf18",
    "own_objects/0007_running_jobs": "8fb827ccdcc8ea3f",
    "own_objects/0008_blocked_loop": "095c7a9a435dcd5c",
    "own_objects/0009_figures": "4c8751a7940111f6",
    "own_objects/0010_history": "7678b2f1303b5da6",
    "own_objects/0011_progress": "8813f4877407cff4",
    "own_objects/0012_control": "c3b1124a55b34316",
    "own_objects/0013_limits": "a0882f633c6cea9c",
    "own_objects/0014_unique_jobs": "005461d351040104",
    "own_objects/0015_tracks": "7a4d7426a259834f",
    "own_objects/0016_failure_handlers": "ebfa8d59090fc367",
    "own_objects/0017_admin": "cc0bbbc44e93442a",
    "own_objects/0018_schedules": "eb214a25045e85b2",
    "own_objects/0019_requests": "71d67b182b3e5e24",
    "own_objects/0020_task_descriptions": "95feb8a35eaa7ebd",
    "own_objects/0021_days": "b02b8b4d0522c9fa",
    "own_objects/0022_monitoring": "71d8bdf45f0f9988",
    "own_objects/0023_mended_functions": "1ae2e8494d949c7e",
    "own_objects/0024_last_death": "0dba25ce421bbcd0",
    "own_objects/0025_safe_operators": "a6a7c9faa1b8e651",
    "own_objects/0026_rust_register": "5bbac13caa333b9c",
    "own_objects/0027_keyed_index": "c2e2c628a0a3851e",
    "own_objects/0028_safe_settings": "f37903ed203ba051",
    "migrations/functions/add_job": "37261e0c44efe72e",
    "migrations/functions/add_jobs": "82c119efb3a768fb",
    "migrations/functions/complete_jobs": "91bd40be8897376e",
    "migrations/functions/force_unlock_workers": "687e05abda8b7fcd",
    "migrations/functions/permanently_fail_jobs": "7589eab0b344aa7b",
    "migrations/functions/remove_job": "9d8cb64ab656a734",
    "migrations/functions/reschedule_jobs": "941e2aec1e4d0cb8",
}
"""Files and digests of their texts, with the parts that they include and without comments and white space."""

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


def test_the_text_of_a_file_never_changes() -> None:
    """A new file of own_objects is listed here, and one that is listed stays as it is.

    To change an object, add a file with the next number. To change a shared function, put the digest of its
    earlier body into `EARLIER` of own_functions, and add a file that is named in `REPLACING`.
    """
    functions = sorted(
        f"migrations/functions/{file.stem}" for file in (FOLDER / "migrations/functions").iterdir()
    )
    paths = [*(step.path for step in known_own_objects()), *functions]
    assert {path: text_digest(path) for path in paths} == TEXTS


async def test_a_database_with_the_functions_of_earlier_versions_gets_the_present_ones(
    connection: Any,
) -> None:
    present = load("migrations/functions/add_job", SCHEMA)
    earlier = MERGED_IF_AVAILABLE.sub(f"then {MERGED}", present)
    for now, before in EARLIER_TEXTS.items():
        earlier = earlier.replace(now, before)
    assert digest(earlier.split("$body$")[1], SCHEMA) in EARLIER["add_job"][1]
    await connection.execute(earlier)
    await connection.execute(load("own_objects/0010_history", SCHEMA))
    await connection.execute("delete from graphile_worker._private_py_migrations where id = $1", NUMBER)
    await connection.execute("create table public.of_another_program_99999999 ()")
    await connection.fetchval(f"select graphile_worker._private_py_add_partition({HISTORY}, $1)", A_DAY)
    # The planner is free to look at the names of all tables first. A hash join does so.
    await connection.execute("set enable_nestloop = off; set enable_mergejoin = off")
    with pytest.raises(asyncpg.DatetimeFieldOverflowError):
        await drop_partitions(connection)

    assert (await migrate(connection, SCHEMA)).applied_own_objects == (NUMBER,)
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
    for path in ("own_objects/0013_limits", "own_objects/0015_tracks", "own_objects/0022_monitoring"):
        await connection.execute(load(path, SCHEMA))
    assert await unsafe_functions(connection) == {
        "_private_py_get_limited_jobs", "_private_py_set_tracks",
        "_private_py_ready_jobs", "_private_py_oldest_ready_age",
    }  # fmt: skip
    await connection.execute("delete from graphile_worker._private_py_migrations where id = $1", SAFE)
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (SAFE,)
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
    for path in ("own_objects/0014_unique_jobs", "own_objects/0025_safe_operators"):
        await connection.execute(load(path, SCHEMA))
    with pytest.raises(asyncpg.PostgresError):  # the domain has nothing but the name of the setting
        await call_all(connection)
    assert await connection.fetchval("select last_value from public.calls where is_called") == 1

    await connection.execute(
        "delete from graphile_worker._private_py_migrations where id = $1", SAFE_SETTINGS
    )
    assert (await migrate(connection, SCHEMA)).applied_own_objects == (SAFE_SETTINGS,)
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
