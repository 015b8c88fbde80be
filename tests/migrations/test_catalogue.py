"""A fresh install has exactly the objects that Node and Rust expect, by name, order, type and definition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.migrations import migrate
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from support.rust_port import REGISTER_NAMES

TIME = "timestamp with time zone"

COLUMNS = {
    "migrations": ["id integer not null", f"ts {TIME} not null = now()", "breaking boolean not null = false"],
    "_private_tasks": ["id integer not null identity always", "identifier text not null"],
    "_private_job_queues": [
        "id integer not null identity always",
        "queue_name text not null",
        f"locked_at {TIME}",
        "locked_by text",
        "is_available boolean not null stored = (locked_at IS NULL)",
    ],
    "_private_jobs": [
        "id bigint not null identity always",
        "job_queue_id integer",
        "task_id integer not null",
        "payload json not null = '{}'::json",
        "priority smallint not null = 0",
        f"run_at {TIME} not null = now()",
        "attempts smallint not null = 0",
        "max_attempts smallint not null = 25",
        "last_error text",
        f"created_at {TIME} not null = now()",
        f"updated_at {TIME} not null = now()",
        "key text",
        f"locked_at {TIME}",
        "locked_by text",
        "revision integer not null = 0",
        "flags jsonb",
        "is_available boolean not null stored = ((locked_at IS NULL) AND (attempts < max_attempts))",
    ],
    "_private_known_crontabs": [
        "identifier text not null",
        f"known_since {TIME} not null",
        f"last_execution {TIME}",
    ],
    "jobs": [
        "id bigint",
        "queue_name text",
        "task_identifier text",
        "priority smallint",
        f"run_at {TIME}",
        "attempts smallint",
        "max_attempts smallint",
        "last_error text",
        f"created_at {TIME}",
        f"updated_at {TIME}",
        "key text",
        f"locked_at {TIME}",
        "locked_by text",
        "revision integer",
        "flags jsonb",
    ],
    "job_spec": [
        "identifier text",
        "payload json",
        "queue_name text",
        f"run_at {TIME}",
        "max_attempts smallint",
        "job_key text",
        "priority smallint",
        "flags text[]",
    ],
}

CONSTRAINTS = {
    "migrations.migrations_pkey": "PRIMARY KEY (id)",
    "_private_tasks.tasks_pkey": "PRIMARY KEY (id)",
    "_private_tasks.tasks_identifier_key": "UNIQUE (identifier)",
    "_private_tasks.tasks_identifier_check": "CHECK ((length(identifier) <= 128))",
    "_private_job_queues.job_queues_pkey1": "PRIMARY KEY (id)",
    "_private_job_queues.job_queues_queue_name_key": "UNIQUE (queue_name)",
    "_private_job_queues.job_queues_queue_name_check": "CHECK ((length(queue_name) <= 128))",
    "_private_jobs.jobs_pkey1": "PRIMARY KEY (id)",
    "_private_jobs.jobs_key_key1": "UNIQUE (key)",
    "_private_jobs.jobs_key_check": "CHECK (((length(key) > 0) AND (length(key) <= 512)))",
    "_private_jobs.jobs_max_attempts_check": "CHECK ((max_attempts >= 1))",
    "_private_known_crontabs.known_crontabs_pkey": "PRIMARY KEY (identifier)",
}

INDEXES = {
    "migrations_pkey": "CREATE UNIQUE INDEX migrations_pkey ON S.migrations USING btree (id)",
    "tasks_pkey": "CREATE UNIQUE INDEX tasks_pkey ON S._private_tasks USING btree (id)",
    "tasks_identifier_key": (
        "CREATE UNIQUE INDEX tasks_identifier_key ON S._private_tasks USING btree (identifier)"
    ),
    "job_queues_pkey1": "CREATE UNIQUE INDEX job_queues_pkey1 ON S._private_job_queues USING btree (id)",
    "job_queues_queue_name_key": (
        "CREATE UNIQUE INDEX job_queues_queue_name_key ON S._private_job_queues USING btree (queue_name)"
    ),
    "jobs_pkey1": "CREATE UNIQUE INDEX jobs_pkey1 ON S._private_jobs USING btree (id)",
    "jobs_key_key1": "CREATE UNIQUE INDEX jobs_key_key1 ON S._private_jobs USING btree (key)",
    "jobs_main_index": (
        "CREATE INDEX jobs_main_index ON S._private_jobs USING btree (priority, run_at) "
        "INCLUDE (id, task_id, job_queue_id) WHERE (is_available = true)"
    ),
    "jobs_no_queue_index": (
        "CREATE INDEX jobs_no_queue_index ON S._private_jobs USING btree (priority, run_at) "
        "INCLUDE (id, task_id) WHERE ((is_available = true) AND (job_queue_id IS NULL))"
    ),
    "known_crontabs_pkey": (
        "CREATE UNIQUE INDEX known_crontabs_pkey ON S._private_known_crontabs USING btree (identifier)"
    ),
}

SEQUENCES = {
    "tasks_id_seq": "integer 1 1 1 f _private_tasks.id",
    "job_queues_id_seq": "integer 1 1 1 f _private_job_queues.id",
    "jobs_id_seq1": "bigint 1 1 1 f _private_jobs.id",
}

FUNCTIONS = {
    "add_job(identifier text, payload json DEFAULT NULL::json, queue_name text DEFAULT NULL::text, "
    f"run_at {TIME} DEFAULT NULL::{TIME}, max_attempts integer DEFAULT NULL::integer, "
    "job_key text DEFAULT NULL::text, priority integer DEFAULT NULL::integer, "
    "flags text[] DEFAULT NULL::text[], job_key_mode text DEFAULT 'replace'::text)": (
        "S._private_jobs plpgsql volatile invoker unsafe"
    ),
    "add_jobs(specs S.job_spec[], job_key_preserve_run_at boolean DEFAULT false)": (
        "SETOF S._private_jobs plpgsql volatile invoker unsafe"
    ),
    "remove_job(job_key text)": "S._private_jobs plpgsql volatile strict invoker unsafe",
    "complete_jobs(job_ids bigint[])": "SETOF S._private_jobs sql volatile invoker unsafe",
    "permanently_fail_jobs(job_ids bigint[], error_message text DEFAULT NULL::text)": (
        "SETOF S._private_jobs sql volatile invoker unsafe"
    ),
    f"reschedule_jobs(job_ids bigint[], run_at {TIME} DEFAULT NULL::{TIME}, "
    "priority integer DEFAULT NULL::integer, attempts integer DEFAULT NULL::integer, "
    "max_attempts integer DEFAULT NULL::integer)": ("SETOF S._private_jobs sql volatile invoker unsafe"),
    "force_unlock_workers(worker_ids text[])": "void sql volatile invoker unsafe",
}

SECURITY = {
    "migrations": "f f",
    "_private_tasks": "t f",
    "_private_job_queues": "t f",
    "_private_jobs": "t f",
    "_private_known_crontabs": "t f",
    "jobs": "f f",
}

LEDGER = [(revision, revision in {1, 3, 11, 13, 14, 16, 19}) for revision in range(1, 21)]


@pytest.fixture
async def connection(empty_database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(empty_database_url)
    try:
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.mark.parametrize("name", ["graphile_worker", 'My "odd" Schema'])
async def test_a_fresh_install_has_exactly_the_shared_objects(connection: Any, name: str) -> None:
    await migrate(connection, SchemaName(name), own_objects=False)
    catalogue = await read_catalogue(connection, name)
    assert catalogue["columns"] == COLUMNS
    assert catalogue["constraints"] == CONSTRAINTS
    assert catalogue["indexes"] == INDEXES
    assert catalogue["sequences"] == SEQUENCES
    assert catalogue["functions"] == FUNCTIONS
    assert catalogue["security"] == SECURITY
    assert catalogue["oddities"] == []
    assert catalogue["ledger"] == LEDGER


async def test_own_objects_are_all_objects_that_carry_our_prefix(connection: Any) -> None:
    await migrate(connection, SchemaName("without"), own_objects=False)
    await migrate(connection, SchemaName("with"))
    without, extended = await read_catalogue(connection, "without"), await read_catalogue(connection, "with")
    for kind, shared in without.items():
        if kind in ("ledger", "oddities"):
            assert [each for each in extended[kind] if "_private_py_" not in str(each)] == shared
            continue
        assert {name: extended[kind][name] for name in shared} == shared
        added = [
            name.removeprefix("trigger ").split(".")[0].split("(")[0]
            for name in extended[kind].keys() - shared.keys()
        ]
        assert {name for name in added if not name.startswith("_private_py_")} <= REGISTER_NAMES
