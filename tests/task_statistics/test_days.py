"""Days: hours that are folded, and read together with those that are not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.metrics import upkeep
from graphile_worker.metrics.upkeep import DeleteOldStatistics, FoldHours
from support.working import until
from task_statistics.tables import NAME, Tables, table_of, totals_of

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
TODAY = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
AT_ONCE = timedelta()
"""Age of the end of a day to fold, so that yesterday is folded at any hour."""


async def write_days(tables: Tables, *days: int, tasks: int = 2) -> None:
    """Statistics at several hours of days before today."""
    for day in days:
        for hour in (0, 7, 23):
            for task in range(tasks):
                totals = totals_of(day + hour + 1, failed=task, took=day / 3, buckets=1 + (day + hour) % 28)
                await tables.write(TODAY - day * DAY + hour * HOUR, totals, task=f"task {task}")
    while await tables.fold(after=timedelta(days=-1)):
        pass


async def folded(tables: Tables) -> list[datetime]:
    rows = await tables.connection.fetch(f"select distinct day from {table_of('days')} order by day")
    return [row["day"] for row in rows]


async def test_folding_keeps_every_sum_and_can_be_repeated(tables: Tables) -> None:
    await write_days(tables, *range(1, 26))
    await tables.connection.execute("set timezone = 'Asia/Kolkata'")  # days are those of UTC
    for _ in range(3):
        await tables.fold_days(after=AT_ONCE)
        assert await tables.sums("days") == await tables.sums("hours")
        assert await folded(tables) == [TODAY - day * DAY for day in range(25, 0, -1)]
    assert await tables.rows("days") == 25 * 2


async def test_a_day_is_folded_some_hours_after_its_end(tables: Tables) -> None:
    await write_days(tables, 0, 1, 2, 3)
    now = await tables.connection.fetchval("select now()")
    await tables.fold_days(after=now - TODAY + HOUR)  # yesterday ended less than that ago
    assert await folded(tables) == [TODAY - 3 * DAY, TODAY - 2 * DAY]
    await tables.fold_days(after=now - TODAY - timedelta(seconds=1))
    assert await folded(tables) == [TODAY - 3 * DAY, TODAY - 2 * DAY, TODAY - DAY]


async def test_a_day_with_minutes_that_are_not_folded_yet_is_not_over(tables: Tables) -> None:
    await write_days(tables, 3, 4)
    await tables.write(TODAY - 3 * DAY, totals_of())  # written when all workers had stopped, say
    await tables.fold_days(after=AT_ONCE)
    assert await folded(tables) == [TODAY - 4 * DAY]
    await tables.fold()
    await tables.fold_days(after=AT_ONCE)
    assert await tables.sums("days") == await tables.sums("hours")


async def test_statistics_that_come_late_are_folded_the_next_time(tables: Tables) -> None:
    await write_days(tables, 1, 2, 3)
    await tables.fold_days(after=AT_ONCE)
    await write_days(tables, 2)
    await tables.fold_days(after=AT_ONCE)
    assert await tables.sums("days") == await tables.sums("hours")


async def test_it_is_done_in_steps_over_long_pauses(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "FOLDED_DAYS", 3 * DAY)
    await write_days(tables, 1, 2, 30, 31, 60, 61, 62, 63, 64, tasks=1)
    maintenance_task = FoldHours(NAME, after=AT_ONCE)
    assert [await maintenance_task.run(tables.connection) for _ in range(4)] == [True, True, True, False]
    assert await tables.sums("days") == await tables.sums("hours")


async def test_old_days_are_deleted_with_their_hours(tables: Tables) -> None:
    await write_days(tables, 1, 89, 91, 92)
    await tables.fold_days(after=AT_ONCE)
    await DeleteOldStatistics(NAME).run(tables.connection)
    assert await folded(tables) == [TODAY - 89 * DAY, TODAY - DAY]
    await tables.fold_days(after=AT_ONCE)
    assert await tables.sums("days") == await tables.sums("hours", f"hour < '{TODAY}'")


async def test_two_pools_that_fold_at_once_keep_the_later_statistics(
    tables: Tables, database_url: str
) -> None:
    """One has read the hours before statistics came late, and writes after the other one."""
    await write_days(tables, 1)
    first, second = [await asyncpg.connect(database_url) for _ in range(2)]

    async def is_blocked() -> bool:
        return await tables.connection.fetchval(
            "select cardinality(pg_blocking_pids($1::integer)) > 0", second.get_server_pid()
        )

    try:
        async with first.transaction():
            await FoldHours(NAME, after=AT_ONCE).run(first)
            slow = asyncio.ensure_future(FoldHours(NAME, after=AT_ONCE).run(second))
            await until(is_blocked)
            await write_days(tables, 1)
            await FoldHours(NAME, after=AT_ONCE).run(first)
        await asyncio.wait_for(slow, 60)
    finally:
        await first.close(timeout=60)
        await second.close(timeout=60)
    assert await tables.sums("days") == await tables.sums("hours")


# -- reading -------------------------------------------------------------------------------------------------


def _total(rows: Any) -> list[tuple[Any, ...]]:
    return [
        (
            row.start,
            row.task_identifier,
            row.attempts,
            round(row.run_seconds, 6),
            row.longest,
            list(row.wait_times),
        )
        for row in rows
    ]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
async def test_days_and_hours_give_the_same_answers(tables: Tables, utils: WorkerUtils, zone: str) -> None:
    """Whole days, a part of a day at either end, the current day, and minutes that are not folded."""
    await tables.connection.execute(f"set timezone = '{zone}'")
    await write_days(tables, *range(12), 40)
    await tables.write(datetime.now(UTC), totals_of(5))
    questions: list[dict[str, Any]] = [
        {"since": since, "until": until, "by": by, "task_identifier": task, "connection": tables.connection}
        for since in (TODAY - 6 * DAY, TODAY - 5 * DAY - 3 * HOUR, TODAY - 50 * DAY)
        for until in (None, TODAY - DAY, TODAY - 2 * DAY + 20 * HOUR, TODAY - 5 * DAY + HOUR)
        for by in ((), "day", ("day", "task"))
        for task in (None, "task 1")
    ]
    from_hours = [_total(await utils.statistics.tasks(**question)) for question in questions]
    await tables.fold_days(after=timedelta(days=2))
    assert (await folded(tables))[-1] < TODAY - DAY
    assert [_total(await utils.statistics.tasks(**question)) for question in questions] == from_hours
    await tables.connection.execute(f"delete from {table_of('hours')} where hour < now() - interval '9 days'")
    assert _total(await utils.statistics.tasks(since=TODAY - 50 * DAY)) == from_hours[2 * 24], (
        "days were not read"
    )


async def test_a_day_begins_at_midnight_of_utc(tables: Tables, utils: WorkerUtils) -> None:
    await write_days(tables, 1, 2, tasks=1)
    found = await utils.statistics.tasks(since=timedelta(hours=30), by="day")
    assert found.since.hour == 0
    assert {row.start for row in found} <= {TODAY, TODAY - DAY, TODAY - 2 * DAY}


async def test_without_the_table_statistics_come_from_the_hours(tables: Tables, utils: WorkerUtils) -> None:
    await write_days(tables, 1, 2, 3)
    expected = _total(await utils.statistics.tasks(since=10 * DAY, by="day"))
    await tables.connection.execute(f"drop table {table_of('days')}")
    await tables.fold_days(after=AT_ONCE)  # has nothing to do
    assert _total(await utils.statistics.tasks(since=10 * DAY, by="day")) == expected != []
    await tables.connection.execute(f"drop table {table_of('hours')}")
    assert not (await utils.statistics.tasks(since=10 * DAY, by="day")).is_recorded
