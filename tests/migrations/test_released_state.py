"""Upgrading a database of the released state beside one of its workers: nothing is lost or run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import make_worker_utils, run_migrations
from graphile_worker.database.migrations import known_own_objects, migrate
from graphile_worker.values.schema_name import SchemaName
from migrations.catalogue import read_catalogue
from migrations.released_worker import ReleasedWorker, released_schema, released_statements
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, Jobs, Workers, until, workers_of

OWN_LEDGER = f"select id, name from {SCHEMA}._private_py_migrations order by id"


@pytest.fixture
async def connection(empty_database_url: str) -> AsyncIterator[Any]:
    """To a database of the released state."""
    connection = await asyncpg.connect(empty_database_url)
    try:
        await connection.execute(released_schema())
        yield connection
    finally:
        await connection.close(timeout=60)


@pytest.fixture
async def workers(empty_database_url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(empty_database_url):
        yield workers


async def test_an_upgraded_database_equals_a_fresh_one(
    connection: Any, create_database: Callable[..., str]
) -> None:
    known = [step.number for step in known_own_objects()]
    before = [row["id"] for row in await connection.fetch(OWN_LEDGER)]
    assert before == known[: len(before)]
    fresh = await asyncpg.connect(create_database())
    try:
        await migrate(fresh, SchemaName())
        report = await migrate(connection, SchemaName())
        assert report.applied_own_objects == tuple(known[len(before) :])
        assert await connection.fetch(OWN_LEDGER) == await fresh.fetch(OWN_LEDGER)
        assert await read_catalogue(connection) == await read_catalogue(fresh)
    finally:
        await fresh.close(timeout=60)


async def test_every_statement_of_a_released_worker_is_still_understood(connection: Any) -> None:
    await migrate(connection, SchemaName())
    refused = {}
    for name, text in released_statements().items():
        try:
            await connection.prepare(text)
        except asyncpg.PostgresError as error:
            refused[name] = str(error)
    assert refused == {}


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
            {"work": work, "retried": work, "given up": work, "long": work, "short": work}, **QUICK
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
            return {row["id"] for row in await jobs.all()} == {later, given_up, unkept}

        await until(has_nothing_else)
        everything = [*plain, *queued, keyed, retried, *locked, locked_in_queue, behind, *held]
        assert Counter(ran) + Counter(released.completed) == Counter(everything)

        waiting, failed, _ = await jobs.all()
        assert (waiting["attempts"], waiting["locked_by"]) == (0, None)
        assert (failed["attempts"], failed["last_error"]) == (1, "it failed")
        assert await utils.wait_for(kept, timeout=60) == {"answer": 42}
        (end,) = await utils.get_job_history(unkept)
        assert (end.state, end.error) == ("failed", "ValueError: no")
        (error,) = await utils.get_job_errors(unkept)
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
