"""Workers stopped in the middle of a thousand jobs, with and without database failures.

Afterwards nothing is locked, and the jobs that noted that they ran are exactly those whose rows are gone.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.database.migrations import migrate
from graphile_worker.values.schema_name import SchemaName
from support.scratch import scratch_folder
from support.server import chosen_programs
from support.worker_process import Start, WorkerProcess, let_go, recorded
from support.working import Jobs, terminate_workers, until

COUNT = 1000


async def add_thousand(jobs: Jobs, task: str) -> set[int]:
    """Half of them in ten named queues."""
    added = set(await jobs.add_many(task, COUNT // 2))
    for number in range(10):
        added.update(await jobs.add_many(task, COUNT // 20, queue=f"queue {number}"))
    return added


async def until_done(folder: Path, worker: WorkerProcess, count: int) -> None:
    await until(lambda: len(recorded(folder)) >= count or worker.process.poll() is not None)
    assert worker.process.poll() is None, worker.output


async def assert_exact(jobs: Jobs, added: set[int], done: list[int]) -> None:
    left = {row["id"] for row in await jobs.all()}
    assert await jobs.locked() == 0
    assert added - left == set(done)
    assert [job for job, times in Counter(done).items() if times > 1] == []


@pytest.mark.compat("EXT-14")
async def test_a_worker_stopped_by_sigterm_leaves_done_jobs_and_gone_rows_in_agreement(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    await jobs.connection.execute("create table done (job_id bigint not null)")
    added = await add_thousand(jobs, "record")
    worker = start("-j", 10, url=database_url, NO_LOG_SUCCESS="1", STOP_AFTER="300")
    assert worker.ended() == 143
    done = [row["job_id"] for row in await jobs.connection.fetch("select job_id from done")]
    assert 300 <= len(done) < COUNT
    await assert_exact(jobs, added, done)


async def test_several_processes_stopped_by_sigterm_do_so_too(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    added = await add_thousand(jobs, "record_in_file")
    stop = {"STOP_AFTER": "150", "STOP_PARENT": "1"}
    parent = start("-j", 4, "--processes", 2, url=database_url, NO_LOG_SUCCESS="1", **stop)
    assert parent.ended() == 143
    done = recorded(folder)
    assert 150 <= len(done) < COUNT
    await assert_exact(jobs, added, done)


async def test_a_worker_goes_on_and_stops_well_although_backends_are_terminated_at_random(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    added = await add_thousand(jobs, "record_in_file")
    worker = start("-j", 10, "--poll-interval", 200, url=database_url, NO_LOG_SUCCESS="1")
    await until_done(folder, worker, 10)
    for number in range(15):
        # However slow this test is, there is work left at every cut.
        added.update(await jobs.add_many("record_in_file", 20, queue=f"queue {number % 10}"))
        added.update(await jobs.add_many("record_in_file", 20))
        victim = await jobs.connection.fetchval(
            "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() "
            "and application_name = 'graphile_worker' order by random() limit 1"
        )
        assert victim in (True, None)  # None: all of them are just reconnecting
        await asyncio.sleep(random.random() * 0.1)
    await terminate_workers(jobs.connection)
    before = len(recorded(folder))
    added.update(await jobs.add_many("record_in_file", 100))
    await until_done(folder, worker, before + 100)  # and the worker continues
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    await assert_exact(jobs, added, recorded(folder))


# -- a server that is restarted ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def own_server() -> Any:
    """A server for this file, because the tests restart it."""
    settings = {"fsync": "off"}
    with scratch_folder() as folder, EmbeddedPostgres(folder, settings=settings, **chosen_programs()) as own:
        yield own


@pytest.fixture
async def own_database(own_server: EmbeddedPostgres) -> str:
    """A fresh database there with the schema installed."""
    admin = await asyncpg.connect(own_server.url())
    await admin.execute("drop database if exists restarted with (force)")
    await admin.execute("create database restarted")
    await admin.close()
    url = own_server.url("restarted")
    connection = await asyncpg.connect(url)
    await migrate(connection, SchemaName())
    await connection.close()
    return url


def stop_server(server: EmbeddedPostgres, how: signal.Signals) -> None:
    """Like `pg_ctl stop`: SIGINT is the mode fast, SIGQUIT the mode immediate."""
    (pid_file,) = server.data_dir.glob("*/postmaster.pid")
    os.kill(int(pid_file.read_text().split()[0]), how)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "immediate"])
async def test_a_worker_goes_on_and_stops_well_although_the_server_is_restarted(
    start: Start, own_server: EmbeddedPostgres, own_database: str, folder: Path, how: signal.Signals
) -> None:
    connection = await asyncpg.connect(own_database)
    added = await add_thousand(Jobs(connection), "record_in_file")
    await connection.close()
    worker = start("-j", 10, "--poll-interval", 200, url=own_database, NO_LOG_SUCCESS="1")
    await until_done(folder, worker, COUNT // 5)
    stop_server(own_server, how)
    await until(lambda: not own_server.is_running)
    before = len(recorded(folder))
    await asyncio.to_thread(own_server.start)
    connection = await asyncpg.connect(own_database)
    added.update(await Jobs(connection).add_many("record_in_file", 100))  # the first may all be done
    await until_done(folder, worker, before + 100)  # without a restart
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    await assert_exact(Jobs(connection), added, recorded(folder))
    await connection.close()


async def test_outcomes_are_written_when_the_server_comes_back_while_the_worker_stops(
    start: Start, own_server: EmbeddedPostgres, own_database: str, folder: Path
) -> None:
    """Outcomes wait in memory until they can be written."""
    connection = await asyncpg.connect(own_database)
    jobs = Jobs(connection)
    for number in range(3):
        await jobs.add("wait_for_test", queue=f"queue {number}")
    await connection.close()
    worker = start("-j", 3, url=own_database, last_write=60.0).wait_for("started\n", times=3)
    stop_server(own_server, signal.SIGINT)
    worker.send(signal.SIGTERM)
    await until(lambda: not own_server.is_running)
    let_go(folder)
    worker.wait_for("finished\n", times=3)
    await asyncio.to_thread(own_server.start)
    assert worker.ended() == 143
    connection = await asyncpg.connect(own_database)
    jobs = Jobs(connection)
    assert (await jobs.count(), await jobs.locked()) == (0, 0)
    await connection.close()


async def test_a_server_that_stays_away_does_not_keep_the_worker_from_ending(
    start: Start, own_server: EmbeddedPostgres, own_database: str, folder: Path
) -> None:
    connection = await asyncpg.connect(own_database)
    await Jobs(connection).add("wait_for_test")
    await connection.close()
    worker = start("--grace", 0, url=own_database, last_write=0.5).wait_for("started\n")
    stop_server(own_server, signal.SIGINT)
    await until(lambda: not own_server.is_running)
    try:
        let_go(folder)
        worker.wait_for("finished\n")
        worker.send(signal.SIGTERM)
        assert worker.ended() == 1
        assert "the database is unavailable: 1 job" in worker.output
        assert "Traceback" not in worker.output
    finally:
        await asyncio.to_thread(own_server.start)
