"""Upgrading a database of an earlier state beside one of its workers: nothing is lost or run twice."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import make_worker_utils, run_migrations
from graphile_worker.database.migrations import Change, migrate
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.released_worker import (
    LATER,
    RELEASED,
    ReleasedWorker,
    released_schema,
    released_statements,
)
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, Jobs, Workers, until, workers_of

OLDER = 12
"""A state before limits, wide queues, recurring jobs in the database, the dashboard and more."""
OWN_LEDGER = f"select id, name from {SCHEMA}._private_py_migrations order by id"
TABLES = f"""
select oid::regclass::text from pg_class
where relnamespace = '{SCHEMA}'::regnamespace and relkind in ('r', 'p') and not relispartition
"""
LOCKED = """
select class.relname::text, array_agg(locks.mode order by locks.mode)
from pg_locks as locks join pg_class as class on class.oid = locks.relation
where locks.pid = pg_backend_pid() and class.oid::regclass::text = any ($1)
    and locks.mode not in ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
group by class.relname
"""
KEPT = f"""
insert into {SCHEMA}._private_py_pauses (task, reason) values ('paused', 'a bad deploy');
insert into {SCHEMA}._private_py_queue_holds (queue_id, reason)
select id, 'a bad file' from {SCHEMA}._private_job_queues where queue_name = 'paused';
update {SCHEMA}._private_job_queues set locked_by = 'py:hold', locked_at = '9999-01-01 00:00:00+00'
where queue_name = 'paused';
insert into {SCHEMA}._private_py_recoveries (job_id, recoveries) values (1, 2);
insert into {SCHEMA}._private_py_minutes
values (now(), 'work', 'pool', 3, 2, 1, 4.5, 5.5, 2.5, '{{1}}', '{{2}}');
insert into {SCHEMA}._private_py_duties values ('sample', 'pool', now());
"""
LAST_CHANGES = {
    "_private_py_limit_holds": ["AccessExclusiveLock"],
    "_private_py_requests": ["AccessExclusiveLock"],
    "_private_py_workers": ["AccessExclusiveLock"],
    "migrations": ["ShareLock"],
}
"""The last changes are of the tables of limits, requests and workers, which are nearly empty."""
KEPT_LATER = f"""
insert into {SCHEMA}._private_py_limits
    (name, code_concurrency, set_concurrency, set_starts, set_period, tasks)
values ('openai', 20, 5, 500, 60, '{{work}}');
insert into {SCHEMA}._private_py_queue_widths values ('wide', 3);
select {SCHEMA}._private_py_set_tracks(array(
    select id from {SCHEMA}._private_job_queues where queue_name = 'wide'), array[3]);
insert into {SCHEMA}._private_py_schedule_pauses (identifier) values ('nightly');
insert into {SCHEMA}._private_py_failure_handlers (task) values ('work');
insert into {SCHEMA}._private_py_requests (pool_id, kind) values ('pool', 'quiet');
insert into {SCHEMA}._private_py_audit (who, how, origin, action, target, job_ids, details)
values ('ada', 'token', 'here', 'retry', 'jobs', '{{1}}', '{{}}');
"""


@pytest.fixture
def state() -> int:
    """The last of the Python-only objects that the database has."""
    return RELEASED


@pytest.fixture
async def connection(empty_database_url: str, state: int) -> AsyncIterator[Any]:
    """To a database of an earlier state."""
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute(released_schema(state))
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def workers(empty_database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(empty_database_url):
        yield workers


@pytest.mark.parametrize("state", range(1, LATER + 1))
async def test_an_upgraded_database_equals_a_fresh_one(
    connection: Any, create_database: Callable[..., str], state: int
) -> None:
    """Also by the ledger: a worker of an earlier version finds nothing missing in either."""
    fresh = await asyncpg.connect(create_database())
    try:
        await migrate(fresh, SchemaName())
        report = await migrate(connection, SchemaName())
        assert report.applied_own_objects == tuple(range(state + 1, max(Change) + 1))
        assert await connection.fetch(OWN_LEDGER) == await fresh.fetch(OWN_LEDGER)
        assert await read_catalogue(connection) == await read_catalogue(fresh)
    finally:
        await fresh.close(timeout=60)


@pytest.mark.parametrize(
    ("state", "locked"),
    [
        (
            OLDER,
            {
                "_private_jobs": ["ShareLock"],
                "_private_py_workers": ["AccessExclusiveLock", "ShareRowExclusiveLock"],
                "migrations": ["ShareLock"],
            },
        ),
        (RELEASED, {"_private_jobs": ["ShareLock"], **LAST_CHANGES}),
        (LATER - 1, LAST_CHANGES),
        (LATER, LAST_CHANGES),
    ],
)
async def test_an_upgrade_locks_only_what_it_changes(
    connection: Any, state: int, locked: dict[str, list[str]]
) -> None:
    """`create index if not exists` and `enable row level security` lock tables that have both already."""
    tables = [row[0] for row in await connection.fetch(TABLES)]
    async with connection.transaction():
        await migrate(connection, SchemaName())
        found = {row[0]: row[1] for row in await connection.fetch(LOCKED, tables)}
    assert {name: modes for name, modes in found.items() if name != "_private_py_migrations"} == locked


@pytest.mark.parametrize("state", [OLDER, RELEASED, LATER])
async def test_every_row_stays_and_counts(connection: Any, empty_database_url: str, state: int) -> None:
    jobs = Jobs(connection)
    for queue in (None, "named", "paused", "wide"):
        await jobs.add("work", queue=queue, key=f"key of {queue}")
    await jobs.add("work", run_at=datetime.now(UTC) + timedelta(days=1))
    await jobs.add_many("locked", 2)
    await jobs.add("given up", max_attempts=1)
    kept = [await jobs.add("kept"), await jobs.add("kept", max_attempts=1)]
    await connection.execute(KEPT if state == OLDER else KEPT + KEPT_LATER)
    async with ReleasedWorker(empty_database_url, "work", "locked") as released:
        assert len(await released.fetch("locked")) == 2
        await released.write(failed=[row["id"] for row in await released.fetch("given up")])
        by_id = {row["id"]: row for row in await released.fetch("kept")}
        await released.keep(*(by_id[job_id] for job_id in kept))
        before = await rows_of(connection)
        assert len(before) == (11 if state == OLDER else 19)
        await migrate(connection, SchemaName())
        after = await rows_of(connection)
        for table, rows in before.items():
            assert [{name: row[name] for name in rows[0]} for row in after[table]] == rows, table

    async with make_worker_utils(connection_string=empty_database_url) as utils:
        pauses = await utils.queues.list_pauses()
        assert {(pause.task_identifier, pause.queue_name) for pause in pauses if pause.schedule is None} == {
            ("paused", None), (None, "paused"),
        }  # fmt: skip
        assert [pause.schedule for pause in pauses if pause.schedule] == ["nightly"] * (state > OLDER)
        limits = {each.name: (each.concurrency, each.rate) for each in await utils.limits.list()}
        assert limits == ({} if state == OLDER else {"openai": (5, (500, timedelta(minutes=1)))})
        (end,) = await utils.history.of_job(kept[0])
        assert end.result == {"answer": 42}


async def rows_of(connection: Any) -> dict[str, list[dict[str, Any]]]:
    """All rows of the tables that have some, except the ledgers."""
    found = {}
    for (table,) in await connection.fetch(TABLES):
        if not table.endswith("migrations"):
            rows = await connection.fetch(f"select to_jsonb(each)::text from {table} as each order by 1")
            found[table] = [json.loads(row[0]) for row in rows]
    return {table: rows for table, rows in found.items() if rows}


async def test_every_statement_of_a_released_worker_is_still_understood(connection: Any) -> None:
    await migrate(connection, SchemaName())
    refused = {}
    for name, text in released_statements().items():
        try:
            await connection.prepare(text)
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    assert refused == {}


@pytest.mark.parametrize("state", [OLDER, RELEASED, LATER])
async def test_nothing_is_lost_and_nothing_runs_twice(
    connection: Any, empty_database_url: str, workers: Workers
) -> None:
    jobs = Jobs(connection)
    ran: list[int] = []

    async def work(_payload: Any, helpers: Any) -> None:
        ran.append(helpers.job.id)

    held = [await jobs.add("short") for _ in range(5)]
    keyed = await jobs.add("work", key="key")
    later = await jobs.add("work", run_at=datetime.now(UTC) + timedelta(days=1))
    retried = await jobs.add("retried")
    given_up = await jobs.add("given up", max_attempts=1)
    locked = [await jobs.add("long") for _ in range(3)]
    kept, unkept = await jobs.add("kept"), await jobs.add("kept", max_attempts=1)
    paused = await jobs.add("paused")
    await connection.execute(f"insert into {SCHEMA}._private_py_pauses (task) values ('paused')")

    async with (
        ReleasedWorker(empty_database_url, "work", "long", "short") as released,
        make_worker_utils(connection_string=empty_database_url) as utils,
    ):
        assert set(await released.hold("short")) == set(held)
        plain = await jobs.add_many("work", 100)
        queued = [await jobs.add("work", queue=f"queue {n % 3}") for n in range(12)]
        locked_in_queue, behind = [await jobs.add("long", queue="busy") for _ in range(2)]
        assert ids(await released.fetch("retried")) == {retried}
        await released.write(failed=[retried])
        assert ids(await released.fetch("given up")) == {given_up}
        await released.write(failed=[given_up])
        by_id = {row["id"]: row for row in await released.fetch("kept")}
        await released.keep(by_id[kept], by_id[unkept])
        assert ids(await released.fetch("long")) == {*locked, locked_in_queue}

        # The upgrade, beside a worker that goes on: with jobs that it runs, and with a batch that it holds.
        stop = asyncio.Event()
        at_work = asyncio.create_task(keep_working(released, stop))
        await run_migrations(connection_string=empty_database_url)
        done_before = len(released.completed)
        await workers.start(
            {"work": work, "retried": work, "given up": work, "long": work, "short": work, "paused": work},
            **QUICK,
        )
        while min(len(ran), len(released.completed) - done_before) < 20:
            plain += await jobs.add_many("work", 20)
        await until(lambda: not {*plain, *queued, keyed} - {*ran, *released.completed})
        stop.set()
        await at_work
        assert await released.beat(running=locked)

        await released.end_batch(held[:3], outlasting=held[3:])
        await released.complete(*held[3:])

        # What it has locked stays with it; it can end its jobs as before.
        while (swept := await utils.sweep_stale_workers()).is_busy:
            pass  # the worker sweeps
        assert (swept.lost, swept.recovered) == ({}, [])
        assert [worker.is_alive for worker in await utils.list_workers()] == [True, True]
        assert {row["id"] for row in await jobs.all() if row["locked_by"] == released.pool_id} == {
            *locked, locked_in_queue,
        }  # fmt: skip
        await released.complete(locked[0])
        await released.write(failed=[locked[1]])
        await utils.reschedule_jobs([retried, locked[1]], run_at=datetime.now(UTC))
        await until(lambda: {retried, locked[1]} <= set(ran))

        # What it has locked when it dies, and what waits behind that in a queue, runs elsewhere.
        released.die()
        await until(lambda: {locked[2], locked_in_queue, behind} <= set(ran))

        async def has_nothing_else() -> bool:
            return {row["id"] for row in await jobs.all()} == {later, given_up, unkept, paused}

        await until(has_nothing_else)
        everything = [*plain, *queued, keyed, retried, *locked, locked_in_queue, behind, *held]
        assert Counter(ran) + Counter(released.completed) == Counter(everything)

        waiting, failed, *_ = await jobs.all()
        assert (waiting["attempts"], waiting["locked_by"]) == (0, None)
        assert (failed["attempts"], failed["last_error"]) == (1, "it failed")
        assert await utils.wait_for(kept, timeout=60) == {"answer": 42}
        (end,) = await utils.history.of_job(unkept)
        assert (end.state, end.error) == ("failed", "ValueError: no")
        (error,) = await utils.history.errors_of_job(unkept)
        assert (error.error_type, error.traceback) == ("ValueError", "the traceback")


async def test_a_released_worker_recovers_what_a_dead_one_of_this_version_had(
    connection: Any, empty_database_url: str
) -> None:
    await migrate(connection, SchemaName())
    jobs, graveyard = Jobs(connection), Graveyard(connection)
    plain, queued = await jobs.add("work"), await jobs.add("work", queue="queue")
    await graveyard.bury("pool-dead")
    await graveyard.give("pool-dead", plain, queued)
    async with ReleasedWorker(empty_database_url, "work") as released:
        assert await released.fetch("work") == []
        assert set(await released.sweep()) == {plain, queued}
        assert ids(await released.fetch("work")) == {plain, queued}
        await released.give_back(plain)
        assert ids(await released.fetch("work")) == {plain}
        await released.write([plain, queued])
        assert (await jobs.count(), await jobs.locked()) == (0, 0)
        await released.leave()
        assert await graveyard.workers() == {}


async def keep_working(released: ReleasedWorker, stop: asyncio.Event) -> None:
    """Fetch and end jobs, those of queues by the write that also takes the next one of the queue."""
    while not stop.is_set():
        rows = await released.fetch("work", limit=5)
        await released.complete(*(row["id"] for row in rows if row["job_queue_id"] is None))
        in_queues = [row["id"] for row in rows if row["job_queue_id"] is not None]
        while in_queues:
            in_queues = await released.write(in_queues, go_on_with=["work"])
        await released.beat()


def ids(rows: list[Any]) -> set[int]:
    return {row["id"] for row in rows}
