"""A server that is gone for minutes, takes no writes, or has no connection left."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, FastClock, Log, Ran, fresh_database, rate, set_system, stop_server
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.hooks.events import PoolListenError, WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from support.working import Gate, Jobs, Workers, until, workers_of

MINUTES = 4.0


@pytest.fixture
async def url(broken_server: EmbeddedPostgres) -> str:
    return await fresh_database(broken_server, "faults")


@pytest.fixture
async def workers(url: str) -> AsyncIterator[Workers]:
    async for workers in workers_of(url):
        yield workers


@pytest.fixture
async def jobs(url: str) -> AsyncIterator[Jobs]:
    connection = await asyncpg.connect(url)
    yield Jobs(connection)
    await connection.close(timeout=10)


# -- gone ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", [{"recovery": False}, BRIEF], ids=["without recovery", "with recovery"])
async def test_a_worker_bears_that_the_server_is_gone_for_minutes(
    broken_server: EmbeddedPostgres,
    url: str,
    workers: Workers,
    recorder: EventRecorder,
    ran: Ran,
    log: Log,
    recovery: dict[str, Any],
) -> None:
    clock, gate = FastClock(100.0), Gate()
    connection = await asyncpg.connect(url)
    await Jobs(connection).add("wait")
    await connection.close()
    options: dict[str, Any] = {"clock": clock, "events": recorder.events, "poll_interval": 2.0, **recovery}
    await workers.start({"wait": gate, "note": ran}, concurrency=2, **options)
    await gate.until_inside(1, timeout=PATIENCE)
    await log.says("connected; listening")
    log.clear()
    await stop_server(broken_server)
    gate.open()  # the job ends while its outcome cannot be written
    began = clock.monotonic()
    await until(lambda: clock.monotonic() - began > 60 * MINUTES, timeout=PATIENCE)
    await log.says("jobs cannot be fetched: ", "cannot listen for new jobs: ")
    assert 1 <= recorder.count(WorkerGetJobError) <= 60 * MINUTES / 2.5 + 12  # at most 5 s, less a half
    assert 1 <= recorder.count(PoolListenError) <= 16  # 50 ms, growing to a minute
    if not recovery.get("recovery", True):
        await log.says("outcomes could not be written and are kept: ", " attempts)")
    else:
        await log.says("heartbeat failed: ")
    assert len(log.lines) <= 30, log.lines  # most of them from the listener, less and less often
    await asyncio.to_thread(broken_server.start)
    connection = await asyncpg.connect(url)
    jobs = Jobs(connection)
    await jobs.add_many("note", 20)
    await ran.until(*range(20))
    await jobs.until_gone(timeout=PATIENCE)  # the one that ended in between is written too
    await connection.close()
    ran.assert_each_once(20)
    assert len(gate.started) == 1
    await log.says("jobs are fetched again", "connected; listening for new jobs")
    if recovery.get("recovery", True):
        await log.says("heartbeat restored")


# -- read only -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", [{"recovery": False}, BRIEF], ids=["without recovery", "with recovery"])
async def test_a_worker_waits_while_the_server_takes_no_writes(
    broken_server: EmbeddedPostgres,
    workers: Workers,
    jobs: Jobs,
    recorder: EventRecorder,
    ran: Ran,
    log: Log,
    recovery: dict[str, Any],
) -> None:
    gate = Gate()
    await jobs.add("wait")
    await workers.start(
        {"wait": gate, "note": ran}, concurrency=2, events=recorder.events, poll_interval=0.2, **recovery
    )
    await gate.until_inside(1, timeout=PATIENCE)
    await jobs.add_many("note", 5)
    await ran.until(*range(5))
    await set_system(broken_server, "default_transaction_read_only", "on")
    try:
        gate.open()
        await log.says("cannot execute", "read-only transaction")
        with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
            await jobs.add("note", {"n": 99})
        assert await rate(lambda: recorder.count(WorkerGetJobError)) <= 10
        assert len(log.lines) <= 20, log.lines
    finally:
        await set_system(broken_server, "default_transaction_read_only", None)
    await until(lambda: writes_again(jobs), timeout=PATIENCE)
    for number in range(5, 10):
        await jobs.add("note", {"n": number})
    await ran.until(*range(10))
    await jobs.until_gone(timeout=PATIENCE)
    ran.assert_each_once(10)
    assert len(gate.started) == 1


async def test_a_worker_goes_on_when_a_server_that_became_a_standby_is_promoted_again(
    broken_server: EmbeddedPostgres, url: str, workers: Workers, ran: Ran, log: Log
) -> None:
    gate = Gate()
    connection = await asyncpg.connect(url)
    await Jobs(connection).add("wait")
    await connection.close()
    await workers.start({"note": ran, "wait": gate}, poll_interval=0.2, **BRIEF)
    await gate.until_inside(1, timeout=PATIENCE)
    await stop_server(broken_server)
    (cluster,) = broken_server.data_dir.glob("cluster")
    (cluster / "standby.signal").touch()
    shutil.chown(cluster / "standby.signal", cluster.stat().st_uid)
    await asyncio.to_thread(broken_server.start)
    gate.open()
    await log.says("cannot listen for new jobs: ", "cannot execute LISTEN during recovery")
    await log.says("in a read-only transaction")
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("select pg_promote()")
    jobs = Jobs(connection)
    await until(lambda: writes_again(jobs), timeout=PATIENCE)
    await jobs.add_many("note", 5)
    await ran.until(*range(5))
    await jobs.until_gone(timeout=PATIENCE)
    await connection.close()
    ran.assert_each_once(5)
    assert len(gate.started) == 1


async def writes_again(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval("show transaction_read_only") == "off"


# -- too many connections ------------------------------------------------------------------------------------


async def test_a_worker_waits_for_connections_that_others_have_taken(
    broken_server: EmbeddedPostgres,
    url: str,
    workers: Workers,
    jobs: Jobs,
    recorder: EventRecorder,
    ran: Ran,
    log: Log,
) -> None:
    """Not even those that the server keeps for superusers are left."""
    await workers.start({"note": ran}, events=recorder.events, poll_interval=0.2, **BRIEF)
    await log.says("connected; listening")
    async with AsyncExitStack() as others:
        await take_all(others, url, jobs)
        await log.says("jobs cannot be fetched: ", "no connection left")
        assert await rate(lambda: recorder.count(WorkerGetJobError)) <= 10
        await jobs.add_many("note", 5)
        assert len(log.lines) <= 30, log.lines
    await ran.until(*range(5))
    await log.says("jobs are fetched again", "heartbeat restored")
    ran.assert_each_once(5)


async def take_all(others: AsyncExitStack, url: str, jobs: Jobs) -> None:
    """Take every connection, those of the worker too."""
    failures = 0
    while failures < 20:
        try:
            taken = await asyncpg.connect(url)
            others.push_async_callback(taken.close, timeout=10)
        except asyncpg.TooManyConnectionsError:
            failures += 1
            await jobs.connection.fetch(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where application_name = 'graphile_worker'"
            )
