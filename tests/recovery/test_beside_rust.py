"""Rust workers with recovery: they see every Python pool that is alive, and none that is dead for ever."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.database.migrations import migrate
from graphile_worker.recovery.registry import rust_heartbeat
from graphile_worker.recovery.registry.workers import running_tasks
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from recovery.history import History
from support.rust_port import REVISION_21, RustPort
from support.server import DatabaseServer
from support.worker_process import Start
from support.working import SCHEMA, SELDOM, Gate, Jobs, Workers, until

TASKS = Path(__file__).with_name("tasks_to_lose.py")
REGISTER = (
    "_private_workers",
    "worker_heartbeat(text, json)",
    "worker_deregister(text)",
    "list_stale_workers(interval)",
    "list_orphan_locked_workers(interval)",
    "recover_dead_worker_jobs(text[], interval)",
    "delete_stale_workers(text[])",
)


@pytest.fixture
def rust(connection: Any) -> RustPort:
    return RustPort(connection)


async def rows(connection: Any) -> dict[str, Any]:
    found = await connection.fetch(f"select *, metadata ->> 'pid' as pid from {SCHEMA}._private_workers")
    return {row["id"]: row for row in found}


async def until_known(connection: Any, pool_id: str) -> None:
    async def is_known() -> bool:
        return pool_id in await rows(connection)

    await until(is_known)


async def make_old(connection: Any) -> None:
    """Let every lock be an hour old, far beyond the threshold of a Rust worker."""
    for table in ("jobs", "job_queues"):
        await connection.execute(
            f"update {SCHEMA}._private_{table} set locked_at = now() - interval '1 hour' "
            "where locked_at is not null"
        )


async def drop_register(connection: Any) -> None:
    """Bring the database back to what an earlier version of this package installed."""
    await connection.execute(f"drop table {SCHEMA}._private_workers")
    for function in REGISTER[1:]:
        await connection.execute(f"drop function {SCHEMA}.{function}")
    await connection.execute(f"delete from {SCHEMA}._private_py_migrations where name = 'rust_register'")


# -- a running job -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"recovery": False}, {"max_pool_size": 2}], ids=str)
@pytest.mark.parametrize("queue", [None, "named"])
async def test_a_rust_worker_that_joins_leaves_a_running_job_alone(
    workers: Workers,
    jobs: Jobs,
    connection: Any,
    rust: RustPort,
    queue: str | None,
    options: dict[str, Any],
) -> None:
    gate = Gate()
    await jobs.add("work", queue=queue)
    runner = await workers.start({"work": gate}, concurrency=1, hold=0, **options)
    await gate.until_inside(1)
    await make_old(connection)
    assert await rust.join() == 0
    assert (await jobs.one())["locked_by"] == runner.pool_id
    gate.open()
    await jobs.until_gone()
    assert len(gate.started) == 1


async def test_a_run_that_ends_with_the_queue_is_known_too(
    workers: Workers, jobs: Jobs, connection: Any, rust: RustPort
) -> None:
    gate = Gate()
    await jobs.add("work")
    running = asyncio.create_task(workers.once({"work": gate}, hold=0))
    await gate.until_inside(1)
    await make_old(connection)
    assert await rust.join() == 0
    gate.open()
    await running
    assert list(await rows(connection)) == [rust.worker_id]


async def test_a_killed_worker_loses_its_jobs_to_rust(
    start: Start, database_url: str, jobs: Jobs, history: History, connection: Any, rust: RustPort
) -> None:
    """Without Python workers nobody else would recover them."""
    await jobs.add("work", queue="named")
    worker = start(url=database_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT).ready()
    await history.until_count("start", 1)
    worker.send(signal.SIGKILL)
    worker.process.wait()
    await make_old(connection)
    await connection.execute(
        f"update {SCHEMA}._private_workers set last_heartbeat_at = now() - interval '1 hour'"
    )
    assert await rust.join() == 1
    job = await jobs.one()
    assert (job["locked_by"], job["attempts"]) == (None, 0)
    assert list(await rows(connection)) == [rust.worker_id]


# -- the row -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", [True, False])
async def test_a_pool_has_its_row_from_the_start_to_the_end(
    workers: Workers, connection: Any, recovery: bool
) -> None:
    runner = await workers.start({"work": Gate()}, recovery=recovery, **QUICK)
    row = (await rows(connection))[runner.pool_id]
    assert row["pid"] == str(os.getpid())
    await workers.stop(runner)
    assert await rows(connection) == {}


@pytest.mark.parametrize(
    ("recovery", "interval"), [(True, 0.1), (True, 0.0), (False, 0.1)], ids=["in time", "late", "no recovery"]
)
async def test_the_row_stays_fresh_however_rare_our_own_heartbeats_are(
    workers: Workers, connection: Any, monkeypatch: pytest.MonkeyPatch, recovery: bool, interval: float
) -> None:
    """Also if one takes so long that the next is due when it has ended, as without an interval."""
    monkeypatch.setattr(rust_heartbeat, "HEARTBEAT_INTERVAL", interval)
    runner = await workers.start(
        {"work": Gate()}, recovery=recovery, heartbeat_interval=SELDOM if recovery else 0.1,
        recovery_grace=3 * SELDOM,
    )  # fmt: skip
    seen = set()

    async def stays_fresh() -> bool:
        """At the start it is written twice: by the pool, and by the thread of the heartbeats."""
        seen.add((await rows(connection))[runner.pool_id]["last_heartbeat_at"])
        return len(seen) > 3

    await until(stays_fresh)


async def test_a_pool_that_was_swept_has_its_row_again(
    workers: Workers, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rust_heartbeat, "HEARTBEAT_INTERVAL", SELDOM)
    runner = await workers.start({"work": Gate()}, **QUICK)
    await connection.execute(f"delete from {SCHEMA}._private_workers")
    await connection.execute(f"delete from {SCHEMA}._private_py_workers")  # as a sweep does, with both
    await until_known(connection, runner.pool_id)


async def test_a_dead_worker_is_removed_from_the_register(
    utils: WorkerUtils, connection: Any, graveyard: Graveyard
) -> None:
    await connection.execute(
        f"insert into {SCHEMA}._private_workers values ('pool-dead', now()), ('graphile_worker_ab', now())"
    )
    await graveyard.bury("pool-dead")
    await utils.sweep_stale_workers()
    assert list(await rows(connection)) == ["graphile_worker_ab"]


async def test_a_dead_worker_without_recovery_is_removed_after_four_hours(
    workers: Workers, connection: Any
) -> None:
    await connection.execute(
        f"insert into {SCHEMA}._private_workers values ('pool-old', now() - interval '5 hours'), "
        "('otpool-old', now() - interval '5 hours'), ('pool-young', now() - interval '3 hours'), "
        "('graphile_worker_old', now() - interval '5 hours')"
    )
    await workers.start(
        {"work": Gate()}, recovery=False, min_reset_locked_interval=0.1, max_reset_locked_interval=0.2
    )

    async def are_gone() -> bool:
        found = await rows(connection)
        return not {"pool-old", "otpool-old"} & found.keys() and found.keys() > {
            "pool-young", "graphile_worker_old",
        }  # fmt: skip

    await until(are_gone)


# -- roles ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def clerk(server: DatabaseServer, connection: Any) -> AsyncIterator[str]:
    """A role that may use everything but create nothing."""
    name = f"{server.prefix}clerk"
    await connection.execute(
        f'create role "{name}" login bypassrls; grant usage on schema {SCHEMA} to "{name}"; '
        f'grant all on all tables in schema {SCHEMA} to "{name}"; '
        f'grant all on all sequences in schema {SCHEMA} to "{name}"'
    )
    try:
        yield name
    finally:
        await connection.execute(f'drop owned by "{name}"; drop role "{name}"')


def url_as(database_url: str, role: str) -> str:
    return f"{database_url}{'&' if '?' in database_url else '?'}options=-c%20role%3D{role}"


@pytest.mark.parametrize("recovery", [True, False])
async def test_a_role_that_may_not_create_the_register_finds_it_by_the_next_heartbeat(
    workers: Workers, database_url: str, connection: Any, clerk: str, rust: RustPort, recovery: bool
) -> None:
    await drop_register(connection)
    runner = await workers.start(
        {"work": Gate()}, connection_string=url_as(database_url, clerk), recovery=recovery, **QUICK
    )
    await rust.migrate()
    await connection.execute(f'grant all on {SCHEMA}._private_workers to "{clerk}"')
    await until_known(connection, runner.pool_id)
    await workers.stop(runner)
    assert await rows(connection) == {}


async def test_a_role_that_may_not_write_to_the_register_says_so_once_and_recovers_jobs(
    workers: Workers,
    jobs: Jobs,
    database_url: str,
    connection: Any,
    clerk: str,
    graveyard: Graveyard,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await connection.execute(f'revoke all on {SCHEMA}._private_workers from "{clerk}"')
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", await jobs.add("work"))
    gate = Gate()
    with caplog.at_level(logging.WARNING, "graphile_worker"):
        await workers.start({"work": gate}, connection_string=url_as(database_url, clerk), **QUICK)
        await gate.until_inside(1)  # recovered
        seen = (await graveyard.only_worker())["last_seen_at"]

        async def has_sent_another() -> bool:
            return (await graveyard.only_worker())["last_seen_at"] > seen

        await until(has_sent_another)
    told = [record.getMessage() for record in caplog.records if "Rust" in record.getMessage()]
    assert len(told) == 1
    assert "may take jobs that this worker runs" in told[0]
    gate.open()


# -- what is installed ---------------------------------------------------------------------------------------


async def test_the_register_is_what_rust_expects(connection: Any) -> None:
    time = "timestamp with time zone"
    catalogue = await read_catalogue(connection, SCHEMA)
    assert catalogue["columns"]["_private_workers"] == [
        "id text not null",
        f"last_heartbeat_at {time} not null",
        f"started_at {time} not null = now()",
        "metadata jsonb",
    ]
    assert catalogue["security"]["_private_workers"] == "f f"
    assert catalogue["indexes"]["_private_workers_last_heartbeat_at_idx"].endswith("(last_heartbeat_at)")
    assert catalogue["constraints"]["_private_workers._private_workers_pkey"] == "PRIMARY KEY (id)"
    signatures = {
        row["name"]: row["signature"]
        for row in await connection.fetch(
            "select proname::text as name, pg_get_function_arguments(oid) || ' -> ' "
            "|| pg_get_function_result(oid) as signature from pg_proc "
            "where pronamespace = $1::text::regnamespace and proname = any ($2::text[])",
            SCHEMA,
            [name.split("(")[0] for name in REGISTER],
        )
    }
    assert signatures == {
        "worker_heartbeat": "worker_id text, metadata json DEFAULT NULL::json -> void",
        "worker_deregister": "worker_id text -> void",
        "list_stale_workers": "stale_threshold interval -> TABLE(worker_id text)",
        "list_orphan_locked_workers": "stale_threshold interval -> TABLE(worker_id text)",
        "recover_dead_worker_jobs": "worker_ids text[], recovery_delay interval "
        "DEFAULT '00:00:00'::interval -> integer",
        "delete_stale_workers": "worker_ids text[] -> void",
    }


async def test_recovery_of_rust_works_with_our_functions(
    jobs: Jobs, connection: Any, graveyard: Graveyard, rust: RustPort
) -> None:
    """Those of Rust 0.13, which adds nothing to a ledger at 20."""
    left, orphaned, fresh = [await jobs.add(name, queue=name) for name in ("left", "orphaned", "fresh")]
    for pool_id, job_id in (("graphile_worker_old", left), ("pool-node", orphaned), ("pool-new", fresh)):
        await graveyard.give(pool_id, job_id)
    await make_old(connection)
    for pool_id in ("graphile_worker_old", "pool-new"):
        await connection.execute(f"select {SCHEMA}.worker_heartbeat($1, '{{\"pid\": 7}}')", pool_id)
    await connection.execute(
        f"update {SCHEMA}._private_workers set last_heartbeat_at = now() - interval '1 hour'"
    )
    await connection.execute(f"select {SCHEMA}.worker_heartbeat('pool-new')")  # keeps what it said before
    assert (await rows(connection))["pool-new"]["pid"] == "7"
    assert await rust.sweep() == 2
    found = {row["id"]: row for row in await jobs.all()}
    now = await connection.fetchval("select now()")
    for job_id in (left, orphaned):
        row = found[job_id]
        assert (row["locked_by"], row["locked_at"], row["attempts"]) == (None, None, 0)
        assert row["last_error"] == "Job recovered after worker interruption"
        assert row["run_at"] > now
    assert found[fresh]["locked_by"] == "pool-new"
    queues = {row["queue_name"]: row["locked_by"] for row in await jobs.queues()}
    assert queues == {"left": None, "orphaned": None, "fresh": "pool-new"}
    assert list(await rows(connection)) == ["pool-new"]
    await connection.execute(f"select {SCHEMA}.worker_deregister('pool-new')")
    assert await rows(connection) == {}


async def test_a_job_that_was_removed_does_not_come_back_by_our_functions(
    jobs: Jobs, connection: Any, graveyard: Graveyard, rust: RustPort
) -> None:
    await graveyard.give("pool-dead", await jobs.add("work", key="k"))
    await make_old(connection)
    await connection.execute(f"select {SCHEMA}.remove_job('k')")
    assert await rust.sweep() == 1
    row = await jobs.one()
    assert row["attempts"] == row["max_attempts"]


async def bodies(connection: Any) -> dict[str, str]:
    found = await connection.fetch(
        "select proname, prosrc from pg_proc where pronamespace = $1::text::regnamespace", SCHEMA
    )
    return {row["proname"]: row["prosrc"] for row in found}


async def test_what_rust_has_installed_stays(connection: Any, rust: RustPort) -> None:
    await drop_register(connection)
    await rust.migrate()
    before = await bodies(connection)
    report = await migrate(connection, SchemaName())
    assert report.has_rust_register
    assert await bodies(connection) == before


@pytest.mark.parametrize("name", ["graphile_worker", 'My "odd" Schema', "it's $$ $1"])
async def test_a_schema_of_any_name_gets_the_register(connection: Any, name: str) -> None:
    if name != SCHEMA:
        await migrate(connection, SchemaName(name))
    quoted = SchemaName(name).quoted
    await connection.execute(f"select {quoted}.worker_heartbeat('pool-x', '{{}}')")
    assert await connection.fetchval(f"select count(*) from {quoted}._private_workers") == 1


async def test_a_rust_worker_that_migrates_at_the_same_time_waits_for_us(
    connection: Any, database_url: str, rust: RustPort
) -> None:
    """Both create the table; one of them would fail."""
    await drop_register(connection)
    other = await asyncpg.connect(database_url)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(f"insert into {SCHEMA}.migrations (id, breaking) values (21, false)")
        ours = asyncio.create_task(migrate(other, SchemaName()))

        async def waits() -> bool:
            return await connection.fetchval(
                "select exists (select from pg_locks where not granted "
                f"and relation = '{SCHEMA}.migrations'::regclass)"
            )

        await until(waits)
        await connection.execute(f"delete from {SCHEMA}.migrations where id = 21")
        await connection.execute(REVISION_21)
        await transaction.commit()
        assert (await ours).has_rust_register
    finally:
        await other.close(timeout=60)


# -- which workers there are ---------------------------------------------------------------------------------


async def test_the_register_alone_means_no_rust_worker(connection: Any, rust: RustPort) -> None:
    assert not (await running_tasks(connection, SchemaName())).has_others
    await connection.execute(f"select {SCHEMA}.worker_heartbeat('pool-x')")
    assert not (await running_tasks(connection, SchemaName())).has_others
    await connection.execute(f"select {SCHEMA}.worker_heartbeat('graphile_worker_x')")
    assert (await running_tasks(connection, SchemaName())).has_others


async def test_a_schema_that_rust_migrated_may_have_rust_workers(connection: Any, rust: RustPort) -> None:
    await rust.migrate()
    assert (await running_tasks(connection, SchemaName())).has_others
