"""Folding, deleting and sampling: what one pool does for all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.metrics import backlog, upkeep
from graphile_worker.metrics.minutes import MinuteStatistics, write_minutes
from graphile_worker.metrics.upkeep import DeleteOldStatistics, FoldMinutes, SampleJobs
from support.working import SCHEMA, Jobs, until
from task_statistics.tables import NAME, Tables, table_of, totals_of

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
OLD = NOW - timedelta(minutes=30)
MINUTE = timedelta(minutes=1)


# -- folding -------------------------------------------------------------------------------------------------


async def test_folding_keeps_every_sum(tables: Tables) -> None:
    for number in range(90):
        for pool in ("pool-1", "pool-2", "pool-3"):
            totals = totals_of(number + 1, failed=number, took=number / 7, buckets=1 + number % 28)
            await tables.write(OLD - number * MINUTE, totals, task=f"task {number % 4}", pool=pool)
    before = await tables.sums("minutes")
    await tables.fold()
    assert await tables.sums("minutes") == await tables.sums("hours") == before
    assert await tables.rows("minutes") == 90
    assert await tables.rows("minutes where pool_id <> ''") == 0
    assert await tables.rows("hours") <= 4 * 3


async def test_an_hour_is_one_of_utc(tables: Tables) -> None:
    """Some zones are half an hour apart from it."""
    await tables.connection.execute("set timezone = 'Asia/Kolkata'")
    await tables.write(OLD, totals_of())
    await tables.fold()
    found = await tables.connection.fetchval(f"select hour from {table_of('hours')}")
    assert found == OLD.replace(minute=0)


async def test_the_statistics_of_the_last_minutes_are_left_to_their_pools(tables: Tables) -> None:
    await tables.write(datetime.now(UTC).replace(second=0, microsecond=0), totals_of())
    await tables.write(OLD, totals_of())
    await tables.fold()
    assert await tables.rows("minutes where pool_id = 'pool-1'") == 1
    assert await tables.completed("hours") == 1


async def test_statistics_that_come_late_are_not_lost(tables: Tables, utils: WorkerUtils) -> None:
    """As after an interruption of the network, or from a machine whose clock is wrong."""
    for _ in range(3):
        await tables.write(OLD, totals_of(5, buckets=9))
        await tables.fold()
    assert await tables.completed("minutes") == await tables.completed("hours") == 15
    assert await tables.sums("minutes") == await tables.sums("hours")
    (total,) = await utils.statistics.tasks(since=timedelta(hours=5))
    assert total.completed == 15


async def test_it_is_done_in_steps(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "STEP", 10)
    for number in range(25):
        await tables.write(OLD - number * MINUTE, totals_of())
    assert [await tables.fold() for _ in range(3)] == [True, True, False]
    assert await tables.completed("hours") == 25


async def test_folding_beside_writers_loses_nothing(tables: Tables, database_url: str) -> None:
    """Pools go on writing the very rows that two others fold at the same time."""
    async with asyncpg.create_pool(database_url, min_size=6, max_size=6) as pool:

        async def write(pool_id: str) -> None:
            async with pool.acquire() as connection:
                for number in range(60):
                    await Tables(connection).write(OLD + number % 3 * MINUTE, totals_of(2), pool=pool_id)

        async def fold() -> None:
            async with pool.acquire() as connection:
                while not is_over.is_set():
                    await FoldMinutes(NAME).run(connection)

        is_over = asyncio.Event()
        folding = [asyncio.ensure_future(fold()) for _ in range(2)]
        await asyncio.gather(*(write(f"pool-{number}") for number in range(4)))
        is_over.set()
        await asyncio.gather(*folding)
    await tables.fold()
    assert await tables.completed("minutes") == await tables.completed("hours") == 480
    assert await tables.sums("minutes") == await tables.sums("hours")


# -- deleting ------------------------------------------------------------------------------------------------


async def test_what_is_old_is_deleted_in_steps(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "STEP", 10)
    for number in range(25):
        await tables.write(NOW - timedelta(days=3) - number * MINUTE, totals_of())
    await tables.write(NOW - timedelta(days=100), totals_of())
    await tables.write(OLD, totals_of())
    while await tables.fold():
        pass
    await add_samples(tables, ("3 days", 25), ("1 hour", 3))
    maintenance_task = DeleteOldStatistics(NAME)
    assert [await maintenance_task.run(tables.connection) for _ in range(3)] == [True, True, False]
    assert await tables.rows("minutes") == 1
    hours = [row[0] for row in await tables.connection.fetch(f"select hour from {table_of('hours')}")]
    assert min(hours) > NOW - timedelta(days=4)  # only the hour of a hundred days ago is gone
    assert await tables.completed("hours") == 26
    assert await tables.rows("samples") == 3


async def add_samples(tables: Tables, *ages: tuple[str, int]) -> None:
    for age, count in ages:
        await tables.connection.execute(
            f"insert into {table_of('samples')} select now() - interval '{age}' - n * interval '10 s', "
            f"n, n, n, 0, 0, 0, 0, false, 0 from generate_series(1, {count}) n"
        )


async def test_statistics_that_are_not_folded_yet_are_not_deleted(tables: Tables) -> None:
    await tables.write(NOW - timedelta(days=3), totals_of())
    await DeleteOldStatistics(NAME).run(tables.connection)
    assert await tables.rows("minutes") == 1


# -- sampling ------------------------------------------------------------------------------------------------


async def sampled(tables: Tables, utils: WorkerUtils) -> Any:
    await SampleJobs(NAME).run(tables.connection)
    return (await utils.statistics.samples(since=timedelta(hours=1)))[-1]


async def test_a_sample_counts_what_is_waiting(tables: Tables, utils: WorkerUtils, jobs: Jobs) -> None:
    await jobs.add_many("work", 12)
    for priority in range(-3, 4):
        await jobs.add("work", priority=priority)
        await jobs.add("work", priority=priority, run_at=NOW + timedelta(days=1))
    failed = await jobs.add_many("work", 4)
    await tables.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = max_attempts where id = any ($1::bigint[])", failed
    )
    locked = await jobs.add("work")
    await tables.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = 'x' where id = $1", locked
    )
    found = await sampled(tables, utils)
    assert (found.ready, found.scheduled, found.failed, found.is_estimate) == (19, 7, 4, False)


async def test_the_oldest_wait_begins_when_a_job_could_run(
    tables: Tables, utils: WorkerUtils, jobs: Jobs
) -> None:
    assert (await sampled(tables, utils)).oldest_wait == 0
    await jobs.add("work", run_at=NOW - timedelta(days=1))  # but it was added just now
    assert (await sampled(tables, utils)).oldest_wait < 600
    await tables.connection.execute(f"update {SCHEMA}._private_jobs set created_at = now() - interval '1 h'")
    await jobs.add("work", priority=-1)
    assert 3600 <= (await sampled(tables, utils)).oldest_wait < 4200


async def test_few_jobs_of_a_large_table_are_counted(
    tables: Tables, utils: WorkerUtils, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "SCANNED_PAGES", 1)
    await tables.connection.execute(
        f"select {SCHEMA}.add_job('work', run_at => now() + interval '1 d') from generate_series(1, 2000)"
    )
    for priority in range(-3, 4):
        await jobs.add("work", priority=priority)
    await tables.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = max_attempts where run_at > now() and id % 100 = 0"
    )
    found = await sampled(tables, utils)
    assert (found.ready, found.failed, found.is_estimate) == (7, 20, True)
    assert found.scheduled > backlog.COUNTED  # from one page
    assert 0 < found.oldest_wait < 600
    monkeypatch.setattr(backlog, "COUNTED", 3000)
    found = await sampled(tables, utils)
    assert (found.ready, found.scheduled, found.failed, found.is_estimate) == (7, 1980, 20, False)


async def test_many_ready_jobs_are_estimated(
    tables: Tables, utils: WorkerUtils, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "SCANNED_PAGES", 20)
    monkeypatch.setattr(backlog, "MANY", 10)
    await jobs.add_many("work", 5000)
    pages = await tables.connection.fetchval(
        f"select pg_relation_size('{SCHEMA}._private_jobs') / current_setting('block_size')::bigint"
    )
    assert pages > 60  # so a third of the table is read, at most
    found = await sampled(tables, utils)
    assert found.is_estimate
    assert 500 < found.ready < 20_000
    assert 0 < found.oldest_wait < 600


async def test_differences_of_counters_tell_what_happened_in_between(
    tables: Tables, utils: WorkerUtils
) -> None:
    await tables.connection.execute(
        f"insert into {table_of('samples')} values "
        "(now() - interval '50 s', 100, 50, 70, 0, 0, 0, 0, false, 0), "
        "(now() - interval '40 s', 130, 70, 90, 0, 0, 0, 0, false, 0), "
        "(now() - interval '30 s', 5, 2, 1, 0, 0, 0, 0, false, 0), "  # the server has crashed
        "(now() - interval '20 s', 9, 3, 5, 0, 0, 0, 0, false, 0)"
    )
    found = await utils.statistics.samples(since=timedelta(hours=1))
    assert [(each.added, each.deleted, each.updated) for each in found] == [
        (None, None, None), (30, 20, 20), (None, None, None), (4, 1, 4)
    ]  # fmt: skip
    assert [each.seconds for each in found] == [None, *[pytest.approx(10)] * 3]
    found = await utils.statistics.samples(since=timedelta(seconds=45))
    assert (len(found), found[0].added) == (3, 30)  # compared with the sample before the period


async def test_a_worker_takes_samples(workers: Any, utils: WorkerUtils) -> None:
    async def nothing(payload: Any) -> None: ...

    await workers.start({"nothing": nothing})

    async def has_samples() -> bool:
        return bool(await utils.statistics.samples(since=timedelta(hours=1)))

    await until(has_samples)


async def test_samples_are_rare_while_nothing_happens(tables: Tables, jobs: Jobs) -> None:
    is_active = True
    maintenance_task = SampleJobs(NAME, lambda: is_active)
    assert maintenance_task.interval == 10
    await maintenance_task.run(tables.connection)
    is_active = False
    assert maintenance_task.interval == 10  # the first sample cannot tell whether anything has changed

    async def is_quiet() -> bool:
        await maintenance_task.run(tables.connection)  # the server's counters lag behind
        return maintenance_task.interval == 60

    await until(is_quiet)
    await jobs.add("work")  # also by other runtimes

    async def is_noticed() -> bool:
        await maintenance_task.run(tables.connection)
        return maintenance_task.interval == 10

    await until(is_noticed)


async def test_folding_is_rare_while_there_is_nothing_to_fold(tables: Tables) -> None:
    maintenance_task = FoldMinutes(NAME, lambda: False)
    assert maintenance_task.interval == 300
    await tables.write(OLD, totals_of())
    await maintenance_task.run(tables.connection)
    assert maintenance_task.interval == 60
    await maintenance_task.run(tables.connection)
    assert maintenance_task.interval == 300
    assert FoldMinutes(NAME, lambda: True).interval == 60


# -- clocks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [timedelta(), timedelta(days=3000), timedelta(days=-3000)])
async def test_minutes_are_those_of_the_server_whatever_the_worker_believes(
    tables: Tables, ahead: timedelta
) -> None:
    now = (await tables.connection.fetchval("select now()")).timestamp() + ahead.total_seconds()
    minute = int(now) // 60 * 60
    written = [MinuteStatistics(minute - 60 * ago, "task", totals_of(ago + 1)) for ago in range(4)]
    await write_minutes(tables.connection, NAME, "pool-1", written, now=now)
    found = await tables.connection.fetch(
        f"select date_part('epoch', now() - minute) as age, completed from {table_of('minutes')} "
        "order by minute desc"
    )
    assert [row["completed"] for row in found] == [1, 2, 3, 4]
    assert -30 <= found[0]["age"] < 150
