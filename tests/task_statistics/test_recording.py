"""Workers record what they did: exactly, whatever ends them, and at no cost for those that do nothing."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from graphile_worker import run_once
from graphile_worker.client import WorkerUtils
from support.proxy import proxy_to
from support.server import DatabaseServer
from support.worker_process import Start, recorded
from support.working import MODES, SCHEMA, SELDOM, Gate, Jobs, Workers, until
from task_statistics.tables import Tables, table_of, totals_of

HOUR = timedelta(hours=1)
QUICK: dict[str, Any] = {"heartbeat_interval": 0.5, "recovery_grace": 5.0, "sweep_interval": SELDOM}
ENVIRONMENT = {"GRAPHILE_WORKER_HEARTBEAT_INTERVAL": "0.3", "GRAPHILE_WORKER_RECOVERY_GRACE": "6"}
PROCESSES = 3
JOBS = 900


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Paths of sockets must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def nothing(payload: Any) -> None: ...


async def fail(payload: Any) -> None:
    raise ValueError("no")


@pytest.mark.parametrize("mode", MODES)
async def test_completed_and_failed_jobs_are_recorded(
    workers: Workers, jobs: Jobs, utils: WorkerUtils, mode: str
) -> None:
    await jobs.add_many("nothing", 250)
    await jobs.add_many("fail", 20, max_attempts=1)
    await jobs.add_many("fail", 30, max_attempts=25)
    runner = await workers.start({"nothing": nothing, "fail": fail}, concurrency=4, **QUICK | MODES[mode])
    await until(lambda: has_ended(jobs, left=50))
    await workers.stop(runner)
    found = {row.task_identifier: row for row in await utils.statistics.tasks(since=HOUR, by="task")}
    assert found["nothing"].completed == 250
    # Of the failed ones, a few may have been retried on a slow machine.
    assert (found["fail"].completed, found["fail"].permanently_failed) == (0, 20)
    assert found["fail"].failed >= 30
    for row in found.values():
        assert sum(row.run_times) == sum(row.wait_times) == row.attempts
        assert row.run_seconds > 0
        # They were due an hour ago, but nothing waits before it is added.
        assert (row.wait_percentile(0.99) or 0) < 600
        assert (row.run_percentile(0.99) or 0) <= row.longest


async def has_ended(jobs: Jobs, *, left: int) -> bool:
    rows = await jobs.all()
    return len(rows) == left and all(row["attempts"] > 0 and row["locked_at"] is None for row in rows)


async def test_statistics_arrive_while_the_worker_runs(workers: Workers, jobs: Jobs, tables: Tables) -> None:
    await workers.start({"nothing": nothing}, **QUICK)
    await jobs.add_many("nothing", 10)

    async def have_arrived() -> bool:
        return await tables.completed() == 10

    await until(have_arrived)


async def test_a_worker_on_a_pool_of_the_caller_records_too(
    workers: Workers, jobs: Jobs, tables: Tables, database_url: str
) -> None:
    await jobs.add_many("nothing", 10)
    async with asyncpg.create_pool(database_url, min_size=1, max_size=6) as pool:
        runner = await workers.start({"nothing": nothing}, pg_pool=pool, **QUICK)
        await jobs.until_gone()
        await workers.stop(runner)
    assert await tables.completed() == 10


@pytest.mark.parametrize("recovery", [True, False])
async def test_a_run_that_drains_the_queue_records_at_its_end(
    workers: Workers, jobs: Jobs, tables: Tables, recovery: bool
) -> None:
    await jobs.add_many("nothing", 10)
    await workers.once({"nothing": nothing}, recovery=recovery)
    assert await tables.completed() == 10


async def test_without_recovery_a_worker_records_all_the_same(
    workers: Workers, jobs: Jobs, tables: Tables
) -> None:
    await jobs.add_many("nothing", 10)
    runner = await workers.start({"nothing": nothing}, recovery=False, heartbeat_interval=0.1)

    async def have_arrived() -> bool:
        return await tables.completed() == 10

    await until(have_arrived)
    await jobs.add_many("nothing", 5)
    await jobs.until_gone()
    await workers.stop(runner)
    assert await tables.completed() == 15


async def test_runs_that_drain_the_queue_also_fold(workers: Workers, jobs: Jobs, tables: Tables) -> None:
    """There may be no other worker to do it."""
    long_ago = datetime.now(UTC).replace(second=0, microsecond=0) - HOUR
    await tables.write(long_ago, totals_of(7))
    await jobs.add_many("nothing", 3)
    await workers.once({"nothing": nothing})
    assert await tables.completed("hours") == 7
    assert await tables.completed() == 10


async def test_a_run_on_a_connection_of_the_caller_records_nothing(
    jobs: Jobs, tables: Tables, connection: Any
) -> None:
    """Its outcomes can still be rolled back, and a refused statement would abort the caller's transaction."""
    await jobs.add_many("nothing", 3)
    async with connection.transaction():
        await run_once(pg_pool=connection, task_list={"nothing": nothing})
    assert (await jobs.count(), await tables.rows()) == (0, 0)


async def test_statistics_can_be_switched_off(
    workers: Workers, jobs: Jobs, tables: Tables, connection: Any
) -> None:
    await jobs.add_many("nothing", 3)
    await workers.once({"nothing": nothing}, statistics=False)
    assert await jobs.count() == 0
    assert await tables.rows() == 0
    assert await tables.rows("duties") == 0


async def test_interrupted_jobs_do_not_count(workers: Workers, jobs: Jobs, tables: Tables) -> None:
    gate = Gate()
    await jobs.add("work")
    runner = await workers.start({"work": gate}, grace=0, **QUICK)
    await gate.until_inside(1)
    await workers.stop(runner)
    assert (await jobs.one())["attempts"] == 0
    assert await tables.rows() == 0


async def test_an_outcome_that_was_not_written_does_not_count(
    workers: Workers, jobs: Jobs, tables: Tables, connection: Any
) -> None:
    gate = Gate()
    await jobs.add("work")
    runner = await workers.start({"work": gate}, **QUICK)
    await gate.until_inside(1)
    await connection.execute(f"delete from {SCHEMA}._private_jobs")
    gate.open()
    await workers.stop(runner)
    assert await tables.rows() == 0


# -- several processes, and their ends -----------------------------------------------------------------------


async def test_processes_together_record_every_job_once(
    start: Start, jobs: Jobs, tables: Tables, utils: WorkerUtils, database_url: str
) -> None:
    """While one pool folds what the others write."""
    await jobs.add_many("record_in_file", JOBS)
    processes = [start("-j", 8, url=database_url, **ENVIRONMENT) for _ in range(PROCESSES)]
    for process in processes:
        process.ready()

    async def is_empty() -> bool:
        await tables.fold(after=timedelta(0))
        return await jobs.count() == 0

    await until(is_empty)
    for process in processes:
        process.send(signal.SIGTERM)
    assert [process.ended() for process in processes] == [143] * PROCESSES
    assert await tables.completed() == JOBS
    while await tables.rows("minutes where pool_id <> ''"):
        await tables.fold(after=timedelta(minutes=-10))
    assert await tables.completed("hours") == JOBS
    (total,) = await utils.statistics.tasks(since=timedelta(hours=3))
    assert (total.completed, sum(total.run_times), sum(total.wait_times)) == (JOBS, JOBS, JOBS)


async def test_a_killed_process_loses_only_what_it_had_not_recorded_yet(
    start: Start, jobs: Jobs, tables: Tables, database_url: str, folder: Path
) -> None:
    await jobs.add_many("record_in_file", 100)
    process = start("-j", 4, url=database_url, **ENVIRONMENT)

    async def has_recorded() -> bool:
        return await tables.completed() == 100

    await until(has_recorded)
    await jobs.add_many("record_in_file", 2000)
    await until(lambda: len(recorded(folder)) > 150)
    process.send(signal.SIGKILL)
    process.ended()
    completed = await tables.completed()
    deleted = 2100 - await jobs.count()
    assert 100 <= completed <= deleted


# -- who may not, and who has nothing to say -----------------------------------------------------------------


async def test_a_database_without_the_tables_runs_jobs_as_before(
    workers: Workers, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An owner dropped them while the worker runs."""
    await workers.start({"nothing": nothing}, **QUICK)
    await connection.execute(f"drop table {table_of('minutes')}, {table_of('duties')}")
    await jobs.add_many("nothing", 3)
    await jobs.until_gone()
    await until(lambda: "statistics are off" in caplog.text)
    await jobs.add_many("nothing", 3)
    await jobs.until_gone()
    assert caplog.text.count("statistics are off") == 1
    assert "heartbeat failed" not in caplog.text


async def test_a_role_without_rights_on_them_says_so_once(
    workers: Workers,
    jobs: Jobs,
    connection: Any,
    server: DatabaseServer,
    database_url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    role = f"{server.prefix}no_statistics"
    shared = [f"_private_{name}" for name in ("jobs", "job_queues", "tasks", "known_crontabs")]
    own = ["_private_py_workers", "_private_py_recoveries", "_private_py_migrations", "migrations"]
    await connection.execute(
        f'create role "{role}" login; grant usage on schema {SCHEMA} to "{role}"; '
        + "".join(
            f'grant all on {SCHEMA}.{table} to "{role}"; '
            f'create policy limited on {SCHEMA}.{table} to "{role}" using (true) with check (true); '
            for table in (*shared, *own)
        )
        + f'grant all on all sequences in schema {SCHEMA} to "{role}"'
    )
    try:
        await jobs.add_many("nothing", 3)
        separator = "&" if "?" in database_url else "?"
        url = f"{database_url}{separator}options=-c%20role%3D{role}"
        runner = await workers.start({"nothing": nothing}, connection_string=url, **QUICK)
        await jobs.until_gone()
        await until(lambda: "statistics are off" in caplog.text)
        await workers.stop(runner)
        said = [record.getMessage() for record in caplog.records if "statistics" in record.getMessage()]
        assert len(said) == 1
        assert "permission denied" in said[0]
    finally:
        await connection.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_an_idle_worker_writes_no_statistics(workers: Workers, jobs: Jobs, connection: Any) -> None:
    await connection.execute(
        "create table writes (at timestamptz default now()); "
        "create function count_write() returns trigger language plpgsql as "
        "$$ begin insert into writes default values; return null; end $$; "
        f"create trigger count_writes after insert or update on {table_of('minutes')} "
        "for each row execute function count_write()"
    )

    async def writes() -> int:
        return await connection.fetchval("select count(*) from writes")

    async def heartbeats(number: int) -> None:
        for _ in range(number):
            seen = await last_seen(connection)
            await until(lambda seen=seen: is_later(connection, seen))  # type: ignore[misc]

    await workers.start({"nothing": nothing}, heartbeat_interval=0.2, recovery_grace=5, sweep_interval=SELDOM)
    await heartbeats(8)
    assert await writes() == 0
    await jobs.add("nothing")
    await jobs.until_gone()
    await until(lambda: is_one(writes))
    await heartbeats(8)
    assert await writes() == 1


async def is_one(count: Any) -> bool:
    return await count() == 1


async def last_seen(connection: Any) -> Any:
    return await connection.fetchval(f"select last_seen_at from {SCHEMA}._private_py_workers")


async def is_later(connection: Any, seen: Any) -> bool:
    return await last_seen(connection) != seen


async def test_a_write_whose_answer_was_lost_is_not_repeated(
    workers: Workers, jobs: Jobs, tables: Tables, database_url: str, short_folder: Path
) -> None:
    async with proxy_to(database_url, short_folder) as (proxy, url):
        runner = await workers.start(
            {"nothing": nothing, "other": nothing}, connection_string=url, concurrency=2, **QUICK
        )
        proxy.needle = b"INSERT 0 2"  # the answer to statistics of two tasks
        await jobs.add_many("nothing", 5)
        await jobs.add_many("other", 5)
        await jobs.until_gone()
        await until(lambda: proxy.cuts == 1)
        await jobs.add("nothing")
        await jobs.until_gone()
        await workers.stop(runner)
    assert await tables.completed() == 11
