"""Questions about statistics, as a client asks them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.history.statistics import bucket_of
from support.cases import looped
from task_statistics.tables import Tables, table_of, totals_of

NOW = datetime.now(UTC).replace(second=0, microsecond=0)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


async def test_without_groups_there_is_one_row(tables: Tables, utils: WorkerUtils) -> None:
    for number in range(3):
        await tables.write(NOW - number * MINUTE, totals_of(10, failed=2, took=number), task=f"task {number}")
    (found,) = await utils.statistics.tasks(since=HOUR)
    assert (found.completed, found.failed, found.permanently_failed, found.attempts) == (30, 6, 0, 36)
    assert (found.start, found.task_identifier, found.pool_id) == (None, None, None)
    assert (found.run_seconds, found.wait_seconds, found.longest) == (30.0, 15.0, 2.0)
    assert list(found.run_times) == [30, 33, 36]


async def test_nothing_is_an_empty_list(utils: WorkerUtils) -> None:
    for by in ((), "task", "minute", "hour", "day", "pool"):
        found = await utils.statistics.tasks(since=HOUR, by=by)
        assert (list(found), found.is_recorded) == ([], True)
    assert await utils.statistics.samples(since=HOUR) == []


async def test_rows_are_grouped_by_what_is_asked_for(tables: Tables, utils: WorkerUtils) -> None:
    for number in range(4):
        await tables.write(
            NOW - number % 2 * MINUTE, totals_of(), task=f"task {number // 2}", pool=f"pool-{number}"
        )
    by_minute = await utils.statistics.tasks(since=HOUR, by="minute")
    assert [(row.start, row.completed) for row in by_minute] == [(NOW - MINUTE, 2), (NOW, 2)]
    by_task = await utils.statistics.tasks(since=HOUR, by="task")
    assert [(row.task_identifier, row.completed) for row in by_task] == [("task 0", 2), ("task 1", 2)]
    by_pool = await utils.statistics.tasks(since=HOUR, by="pool")
    assert [(row.pool_id, row.completed) for row in by_pool] == [(f"pool-{number}", 1) for number in range(4)]
    assert len(await utils.statistics.tasks(since=HOUR, by=("minute", "task"))) == 4
    (only,) = await utils.statistics.tasks(since=HOUR, task_identifier="task 1")
    assert only.completed == 2


async def test_a_long_period_has_folded_statistics_and_those_of_the_last_minutes(
    tables: Tables, utils: WorkerUtils
) -> None:
    for hours in (2, 5, 30, 24 * 40):
        await tables.write(NOW - hours * HOUR, totals_of(10))
    await tables.fold()
    await tables.write(NOW, totals_of(1))
    (day,) = await utils.statistics.tasks(since=DAY)
    assert day.completed == 21
    (quarter,) = await utils.statistics.tasks(since=60 * DAY)
    assert quarter.completed == 41
    by_hour = await utils.statistics.tasks(since=DAY, by="hour")
    assert [row.completed for row in by_hour] == [10, 10, 1]
    assert by_hour[-1].start == NOW.replace(minute=0)
    (one,) = await utils.statistics.tasks(since=NOW - 31 * HOUR, until=NOW - 29 * HOUR)
    assert one.completed == 10


async def test_the_period_is_told(utils: WorkerUtils) -> None:
    short = await utils.statistics.tasks(since=HOUR)
    assert short.since.second == 0
    assert HOUR <= short.until - short.since < HOUR + MINUTE
    long = await utils.statistics.tasks(since=DAY)
    assert (long.since.minute, long.since.second) == (0, 0)
    assert DAY <= long.until - long.since < DAY + HOUR


async def test_a_worker_whose_clock_is_ahead_is_seen(tables: Tables, utils: WorkerUtils) -> None:
    await tables.write(NOW + 3 * MINUTE, totals_of())
    assert (await utils.statistics.tasks(since=HOUR))[0].completed == 1
    assert await utils.statistics.tasks(since=NOW - HOUR, until=NOW) == []


async def test_percentiles_come_from_the_histograms(tables: Tables, utils: WorkerUtils) -> None:
    totals = totals_of(100, took=3.0, buckets=0)
    totals.run_times[bucket_of(0.1)] = 90
    totals.run_times[bucket_of(2.5)] = 10
    totals.wait_times[0] = 100
    await tables.write(NOW, totals)
    (found,) = await utils.statistics.tasks(since=HOUR)
    assert 0.0625 <= (found.run_percentile(0.5) or 0) <= 0.125
    assert 2.0 <= (found.run_percentile(0.95) or 0) <= 3.0
    assert 0 < (found.wait_percentile(0.99) or 0) < 0.001


async def test_missing_tables_are_told(tables: Tables, utils: WorkerUtils) -> None:
    await tables.connection.execute(f"drop table {table_of('hours')}")
    found = await utils.statistics.tasks(since=HOUR)
    assert (list(found), found.is_recorded) == ([], False)
    assert await utils.statistics.samples(since=HOUR) == []


@looped(
    ("arguments", "message"),
    [
        ({"since": HOUR, "by": "week"}, "by: expected names from minute, hour, day, task, pool; got 'week'"),
        ({"since": HOUR, "by": ("hour", "pool")}, "'hour' cannot be combined with 'minute' or 'pool'"),
        (
            {"since": HOUR, "by": ("hour", "day")},
            "'day' cannot be combined with 'minute' or 'hour' or 'pool'",
        ),
        ({"since": -HOUR}, "since: must be before"),
        ({"since": datetime(2030, 1, 1)}, "since: expected a time with a time zone"),
    ],
)
async def test_questions_that_make_no_sense_are_refused(
    utils: WorkerUtils, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await utils.statistics.tasks(**arguments)  # type: ignore[arg-type]
