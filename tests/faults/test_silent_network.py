"""A network that swallows everything and closes nothing, and statements that get no answer."""

from __future__ import annotations

import asyncio
import gc
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, FastClock, Log, Ran, fresh_database, rate
from graphile_worker import make_worker_utils
from graphile_worker.database.connections import open as opening
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.hooks.events import PoolListenError, PoolListenSuccess, WorkerGetJobError
from graphile_worker.recovery.lease import Lease
from graphile_worker.runner import services
from graphile_worker.testing.results import EventRecorder
from graphile_worker.worker import session
from graphile_worker.worker.control.listener import Listener
from graphile_worker.worker.session import Sessions
from support.pool_parts import pool_context
from support.proxy import proxy_to
from support.working import SCHEMA, Gate, Jobs, Workers, until, workers_of


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Paths of sockets must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds of what takes a minute by default."""
    monkeypatch.setattr(session, "ANSWER_WITHIN", 1.0)
    monkeypatch.setattr(session, "LONGEST_WAIT", 3.0)
    monkeypatch.setattr(opening, "CONNECT_WITHIN", 1.0)
    defaults = Listener.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "watch_interval", 0.5)
    monkeypatch.setitem(defaults, "answer_within", 1.0)


@pytest.mark.parametrize("is_busy", [False, True], ids=["idle", "busy"])
async def test_a_worker_notices_that_nothing_comes_through_and_goes_on_when_it_does(
    impatient: None,
    workers: Workers,
    jobs: Jobs,
    database_url: str,
    short_folder: Path,
    recorder: EventRecorder,
    ran: Ran,
    log: Log,
    is_busy: bool,
) -> None:
    gate = Gate()
    async with proxy_to(database_url, short_folder) as (proxy, url):
        await workers.start(
            {"note": ran, "wait": gate}, connection_string=url, events=recorder.events, concurrency=2, **BRIEF
        )
        if is_busy:
            await jobs.add("wait")
            await gate.until_inside(1, timeout=PATIENCE)
        await recorder.wait_for(PoolListenSuccess, timeout=PATIENCE)
        await until(lambda: len(proxy.links) >= 4, timeout=PATIENCE)  # fetch, write, listen, show life
        proxy.is_silent = True
        for link in proxy.links:
            link.is_silent = True
        if is_busy:
            gate.open()
        await jobs.add_many("note", 10)
        await recorder.wait_for(PoolListenError, timeout=PATIENCE)
        await log.says("heartbeat failed: ")
        assert await rate(lambda: len(proxy.links)) <= 7.5  # tries to connect
        assert recorder.count(WorkerGetJobError) <= 10
        assert len(log.lines) <= 20, log.lines
        proxy.is_silent = False  # what was silent before stays so
        await ran.until(*range(10))
        await jobs.until_gone(timeout=PATIENCE)
        await log.says("heartbeat restored")
        ran.assert_each_once(10)
        assert len(gate.started) == int(is_busy)
        await workers.close()


async def test_a_transaction_that_gets_no_answer_is_given_up(
    impatient: None, database_url: str, short_folder: Path
) -> None:
    """Its rollback gets none either. A session that waited for that would block all others."""
    async with (
        proxy_to(database_url, short_folder) as (proxy, url),
        asyncpg.create_pool(url, min_size=0, max_size=1) as database,
    ):
        sessions = Sessions(pool_context("pool-silent"), database, Lease())
        held = sessions.fetch

        async def goes_silent(connection: Any) -> None:
            async with connection.transaction():
                proxy.is_silent = True  # also for requests to cancel a statement
                for link in proxy.links:
                    link.is_silent = True
                await connection.fetchval("select 1")

        async def answers(connection: Any) -> int:
            return await connection.fetchval("select 1")

        running = asyncio.ensure_future(held.run(goes_silent))
        try:
            await asyncio.wait((running,), timeout=PATIENCE)
            assert running.done()
            assert isinstance(running.exception(), TimeoutError)
        finally:
            proxy.is_silent = False
            running.cancel()
        async with asyncio.timeout(PATIENCE):
            while await asyncio.gather(held.run(answers), return_exceptions=True) != [1]:
                pass
        await sessions.close()


async def test_a_statement_without_an_answer_is_ended_on_the_server_too_and_does_nothing_later(
    impatient: None, workers: Workers, jobs: Jobs, database_url: str, ran: Ran, log: Log
) -> None:
    """A fetch that waits for a lock when it is given up must not lock jobs without the worker's knowledge."""
    await workers.start({"note": ran}, poll_interval=0.2, concurrency=4, recovery=False)
    await log.says("connected; listening")
    foreign = await asyncpg.connect(database_url)
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute(f"select {SCHEMA}.add_job('note', json_build_object('n', 5))")
    await foreign.execute(f"lock table {SCHEMA}._private_jobs in access exclusive mode")
    await log.says("jobs cannot be fetched: the database server did not answer in time")
    for _ in range(6):
        await asyncio.sleep(0.5)  # timing: the fetch is tried again and again meanwhile; more is as good
        assert await connections(jobs) <= 8
    await transaction.commit()
    await foreign.close()
    await jobs.add_many("note", 5)
    await ran.until(*range(6))
    await log.says("jobs are fetched again")
    await jobs.until_gone(timeout=PATIENCE)
    assert await jobs.locked() == 0
    ran.assert_each_once(6)


async def connections(jobs: Jobs) -> int:
    return await jobs.connection.fetchval(
        "select count(*) from pg_stat_activity "
        "where datname = current_database() and application_name = 'graphile_worker'"
    )


# -- what is set on every connection -------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
async def test_every_connection_of_a_worker_and_a_client_has_limits_of_time(
    broken_server: EmbeddedPostgres, log: Log
) -> None:
    url = await fresh_database(broken_server, "limits")
    async for workers in workers_of(url):
        async with make_worker_utils(connection_string=url) as utils:
            working = await workers.start({"note": print}, **BRIEF)
            await log.says("connected; listening")
            # A connection that is being made gets its limits a turn of the loop after it is there. How many
            # there are depends on what had to wait for another one.
            await until(
                lambda: (
                    len(found := open_sockets(broken_server)) >= 4 and set(map(limits_of, found)) == {LIMITS}
                ),
                timeout=PATIENCE,
            )
            await utils.add_job("note", {})
            pool: Any = working._pool
            settings = await pool.run_statement(
                lambda connection: connection.fetchrow(
                    "select current_setting('statement_timeout'), current_setting('lock_timeout'), "
                    "current_setting('idle_in_transaction_session_timeout'), "
                    "current_setting('tcp_keepalives_idle')"
                )
            )
            assert tuple(settings) == ("11min", "0", "15s", "30")


LIMITS = (1, 30, 60_000)


def limits_of(endpoint: Any) -> tuple[int, int, int]:
    return (
        endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        endpoint.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


def open_sockets(server: EmbeddedPostgres) -> list[Any]:
    """The sockets of all connections of this process to the server."""
    port = int(server.url().rpartition(":")[2].partition("/")[0])
    found = []
    for thing in gc.get_objects():
        if type(thing) is asyncpg.Connection and not thing.is_closed():
            endpoint = thing._transport.get_extra_info("socket")
            if endpoint is not None and endpoint.getpeername()[1] == port:
                found.append(endpoint)
    return found


async def test_recurring_jobs_go_on_after_a_connection_has_gone_silent(
    impatient: None,
    workers: Workers,
    jobs: Jobs,
    database_url: str,
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    log: Log,
) -> None:
    monkeypatch.setattr(services, "CRON_TIMEOUT", 1.0)
    async with proxy_to(database_url, short_folder) as (proxy, url):
        await workers.start(
            {"note": print},
            connection_string=url,
            clock=FastClock(60.0),
            use_local_time=True,  # else it waits for minutes of the server
            crontab="* * * * * another",
        )
        await until(lambda: has_jobs(jobs), timeout=PATIENCE)
        proxy.is_silent = True
        for link in proxy.links:
            link.is_silent = True
        await log.says("recurring jobs: attempt 1 failed, retrying in ")
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
        proxy.is_silent = False
        await until(lambda: has_jobs(jobs), timeout=PATIENCE)
        await workers.close()


async def has_jobs(jobs: Jobs) -> bool:
    return await jobs.count() > 0
