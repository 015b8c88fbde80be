"""Plans of the statements that read statistics and sample the backlog, with full tables.

As in `test_inspection`: pages read, with fresh statistics and with those of empty tables. The statistics
are those of 50 tasks in 20 pools. TEST_PLAN_ROWS=1000000 fills the tables as far as they ever are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from graphile_worker.history.statistics import read_samples, read_statistics
from graphile_worker.metrics import backlog, upkeep
from graphile_worker.metrics.backlog import COUNTED, SCANNED_PAGES
from graphile_worker.metrics.upkeep import DeleteOldStatistics, FoldMinutes, SampleJobs
from plans.backlogs import LATER, SIZE, jobs
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

PAGES = 1000
"""What one question may read."""
TASKS, POOLS = 50, 20
UNFOLDED = int(upkeep.FOLD_AFTER.total_seconds() // 60) + 2
IS_FULL = SIZE >= 1_000_000
MINUTES = 48 * 60 if IS_FULL else 24 * 60
HOURS = 90 * 24
SAMPLES = 48 * 360 if IS_FULL else 25 * 360
COLUMNS = "100, 1, 1, 3.5, 1.5, 0.25, array[1, 2, 3, 4, 5, 6, 7, 8], array[8, 7, 6, 5, 4, 3, 2, 1, 1]"
TABLE = "graphile_worker._private_py_"


def minutes(first: int, last: int, pools: str) -> str:
    return (
        f"insert into {TABLE}minutes select date_trunc('minute', now()) - minute * interval '1 minute', "
        f"'some task ' || task, pool, {COLUMNS} from generate_series({first}, {last}) minute, "
        f"generate_series(1, {TASKS}) task, {pools}"
    )


BACKLOG = (
    jobs(SIZE, run_at=LATER),
    jobs(SIZE // 2, priority="number % 40 - 20"),
    "update graphile_worker._private_jobs set attempts = max_attempts where id % 100 = 0",
    minutes(UNFOLDED, MINUTES, "(values ('')) pools (pool)"),
    minutes(0, UNFOLDED - 1, f"(select 'pool-' || md5(n::text) from generate_series(1, {POOLS}) n) x (pool)"),
    f"insert into {TABLE}hours select date_trunc('hour', now()) - hour * interval '1 hour', "
    f"'some task ' || task, {COLUMNS} "
    f"from generate_series(0, {HOURS}) hour, generate_series(1, {TASKS}) task",
    f"insert into {TABLE}samples select now() - n * interval '10 s', n, n, n, n, n, n, n, false, n "
    f"from generate_series(1, {SAMPLES}) n",
)


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, BACKLOG) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        yield desk


@pytest.fixture
async def now(desk: Desk) -> datetime:
    """The minute in which the tables were filled."""
    last: datetime = await desk.connection.fetchval(f"select max(minute) from {TABLE}minutes")
    return last


@pytest.fixture(params=STATISTICS)
async def tuned_desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    """With the settings of the connection that maintenance tasks run on."""
    async with desk_in(databases[request.param]) as desk:
        yield desk


def last_plan(desk: Desk) -> Plan:
    return desk.explaining.plans[-1]


def scans_of(plan: Plan, table: str) -> set[str]:
    """How a table with statistics is read."""
    return {
        node["Node Type"] for node in plan.nodes if node.get("Relation Name") == f"_private_py_{table}"
    } - {"ModifyTable", "LockRows"}


@pytest.mark.parametrize(
    ("period", "by", "rows"),
    [
        (timedelta(hours=3), "minute", 181),
        (timedelta(hours=2), "task", TASKS),
        (timedelta(hours=24), "task", TASKS),
        (timedelta(hours=24), (), 1),
        (timedelta(hours=24), ("hour", "task"), 25 * TASKS),
        (timedelta(days=7), "hour", 169),
        (timedelta(minutes=3), "pool", POOLS),
    ],
)
async def test_statistics_are_read_in_few_pages(
    desk: Desk, now: datetime, period: timedelta, by: Any, rows: int
) -> None:
    found = await read_statistics(
        desk.explaining, desk.schema, since=now - period, until=None, now=now, by=by
    )
    assert rows - 1 <= len(found) <= rows + 2  # the clock goes on while tables are filled
    plan = last_plan(desk)
    assert plan.all_pages <= PAGES, plan.all_pages


async def test_statistics_of_one_task_are_too(desk: Desk, now: datetime) -> None:
    (found,) = await read_statistics(
        desk.explaining,
        desk.schema,
        since=now - timedelta(hours=24),
        until=None,
        now=now,
        task_identifier="some task 7",
    )
    assert found.completed == 100 * (25 + POOLS * UNFOLDED)
    assert last_plan(desk).all_pages <= PAGES


async def test_samples_of_a_day_are_read_in_few_pages(desk: Desk, now: datetime) -> None:
    found = await read_samples(desk.explaining, desk.schema, since=now - timedelta(hours=24), until=None)
    assert 24 * 360 - 60 <= len(found) <= 24 * 360 + 60
    assert last_plan(desk).all_pages <= PAGES


async def test_a_sample_reads_part_of_a_large_table(tuned_desk: Desk) -> None:
    await SampleJobs(tuned_desk.schema).run(tuned_desk.explaining)
    scan, _ = tuned_desk.explaining.plans
    assert scan.kinds_of_scans == {"Sample Scan"}
    assert scan.all_pages <= 2 * SCANNED_PAGES, scan.all_pages


async def test_few_ready_jobs_in_a_large_table_are_counted_through_indexes(
    tuned_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "MANY", 10 * SIZE)  # in this table there are many
    await SampleJobs(tuned_desk.schema).run(tuned_desk.explaining)
    _, look, _ = tuned_desk.explaining.plans
    assert "Seq Scan" not in look.kinds_of_scans, look.describe()
    assert look.touched <= 3 * (COUNTED + 1) + 300, look.describe()
    # A row of a table that was never vacuumed may take a page.
    assert look.all_pages <= 4 * PAGES, look.describe()


async def test_folding_finds_its_rows_through_an_index(tuned_desk: Desk) -> None:
    await FoldMinutes(tuned_desk.schema).run(tuned_desk.explaining)
    plan = last_plan(tuned_desk)
    assert "Seq Scan" not in scans_of(plan, "minutes"), scans_of(plan, "minutes")


async def test_deleting_finds_its_rows_through_indexes(tuned_desk: Desk) -> None:
    await DeleteOldStatistics(tuned_desk.schema).run(tuned_desk.explaining)
    plan = last_plan(tuned_desk)
    for table in ("minutes", "hours", "samples"):
        assert "Seq Scan" not in scans_of(plan, table), table
    assert plan.all_pages <= PAGES
