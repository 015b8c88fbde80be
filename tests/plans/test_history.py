"""Plans of the statements that read the history, with full tables.

As in `test_inspection`: pages read, with fresh statistics and with those of empty tables, planned for
the values and for any values. TEST_PLAN_ROWS=1000000 fills the tables with a million rows each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.admin.answers import RangeName
from graphile_worker.admin.jobs.filters import FinishedFilter
from graphile_worker.admin.jobs.searching import find_finished
from graphile_worker.admin.queues.queries import read_finished
from graphile_worker.admin.tasks.series import RANGES
from graphile_worker.database.sql import load
from graphile_worker.history.error_groups import list_error_groups
from graphile_worker.history.records import (
    HistoryFilter,
    current_states,
    errors_of_job,
    history_of_job,
    list_errors,
    list_finished_jobs,
)
from graphile_worker.values.schema_name import SchemaName
from plans.backlogs import LATER, SCHEMA, SIZE, jobs
from plans.desks import STATEMENTS_FOR, STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

PAGES = 1_000
"""What an answer of one page may read, whatever the size of the tables."""
LIMIT = 50
DAYS = 14
GROUPS = 500
RARE_ROWS = 30
FREQUENT, RARE, NEVER = "frequent", "rare", "never"
HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
STEP = f"interval '{DAYS * 86_400 / SIZE} seconds'"  # from one end to the next
FULL = (
    f"insert into {SCHEMA}._private_tasks (identifier) values ('{FREQUENT}'), ('{RARE}'), ('{NEVER}')",
    f"insert into {SCHEMA}._private_py_task_names (id, identifier) "
    f"select id, identifier from {SCHEMA}._private_tasks",
    *(
        f"select {SCHEMA}._private_py_add_partition('{table}'::regclass, current_date + day) "
        f"from generate_series(0, {DAYS + 1}) day"
        for table in (HISTORY, ERRORS)
    ),
    # The oldest expire first. Every hundredth job failed; the rare task ended long ago.
    f"""
    insert into {HISTORY} (
      job_id, task_id, state, priority, attempts, max_attempts, created_at, run_at, started_at, finished_at,
      result, expires_on
    )
    select
      10000000 + n, (select id from {SCHEMA}._private_tasks where identifier = '{FREQUENT}'),
      case when n % 100 = 0 then 'failed' else 'completed' end, 0, 1, 25, at, at, at, at, '"done"',
      (at at time zone 'UTC')::date + {DAYS + 1}
    from (
      select n, now() - interval '{DAYS} days' + n * {STEP} as at from generate_series(1, {SIZE}) n
    ) job
    """,
    f"""
    update {HISTORY} set task_id = (select id from {SCHEMA}._private_tasks where identifier = '{RARE}')
    where job_id between 10000090 and {10_000_090 + RARE_ROWS - 1}
    """,
    f"""
    insert into {ERRORS} (
      job_id, attempt, task_id, failed_at, is_final, error_type, message, traceback, fingerprint, expires_on
    )
    select
      10000000 + n, 1, (select id from {SCHEMA}._private_tasks where identifier = '{FREQUENT}'), at, true,
      'ValueError', 'no', repeat('File, line', 20), 'group ' || n % {GROUPS},
      (at at time zone 'UTC')::date + {DAYS + 1}
    from (
      select n, now() - interval '{DAYS} days' + n * {STEP} as at from generate_series(1, {SIZE}) n
    ) error
    """,
    f"""
    insert into {SCHEMA}._private_py_error_groups (
      fingerprint, task_id, error_type, message, place, first_at, last_at, errors, permanent, last_job_id
    )
    select
      'group ' || n, (select id from {SCHEMA}._private_tasks where identifier = '{FREQUENT}'), 'ValueError',
      'no', 'x', now(), now() - n * interval '1 minute', 1, 1, n
    from generate_series(1, {GROUPS}) n
    """,
    jobs(SIZE, run_at=LATER),
)


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, FULL) as found:
        yield found


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def plan_mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=STATISTICS)
async def desk(
    request: pytest.FixtureRequest, databases: dict[str, str], plan_mode: str
) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        await desk.connection.execute(f"set local plan_cache_mode = {plan_mode}")
        yield desk


@pytest.fixture
async def lists(desk: Desk) -> Desk:
    """With the settings for lists, which apply where the transaction is not the caller's."""
    await desk.connection.execute(load("history/read_in_order", desk.schema))
    return desk


@pytest.fixture(params=STATEMENTS_FOR)
def ends(request: pytest.FixtureRequest, lists: Desk) -> Desk:
    lists.explaining.server_version = STATEMENTS_FOR[request.param]
    return lists


def assert_bounded(desk: Desk) -> None:
    plan: Plan
    (plan,) = desk.explaining.plans
    assert plan.all_pages <= PAGES, f"{plan.all_pages} pages\n{plan.describe()}"


def ago(**period: float) -> datetime:
    return datetime.now(UTC) - timedelta(**period)


FILTERS: dict[str, tuple[dict[str, Any], int]] = {
    "newest": ({}, LIMIT),
    "failed": ({"state": "failed"}, LIMIT),
    "completed": ({"state": "completed"}, LIMIT),
    "never cancelled": ({"state": "cancelled"}, 0),
    "a frequent task": ({"task_identifier": FREQUENT}, LIMIT),
    "a rare task": ({"task_identifier": RARE}, RARE_ROWS),
    "a task that never ended": ({"task_identifier": NEVER}, 0),
    "an unknown task": ({"task_identifier": "no such task"}, 0),
    "failed of a frequent task": ({"task_identifier": FREQUENT, "state": "failed"}, LIMIT),
    "failed of a rare task": ({"task_identifier": RARE, "state": "failed"}, 1),
    "completed of a rare task": ({"task_identifier": RARE, "state": "completed"}, RARE_ROWS - 1),
    "since a time": ({"since": ago(hours=48)}, LIMIT),
    "until a time": ({"until": ago(days=5)}, LIMIT),
    "a period": ({"since": ago(days=6), "until": ago(days=5)}, LIMIT),
    "a rare task since a time": ({"task_identifier": RARE, "since": ago(days=1)}, 0),
}


@pytest.mark.parametrize("name", FILTERS)
async def test_a_page_of_ends(ends: Desk, name: str) -> None:
    values, count = FILTERS[name]
    found = await list_finished_jobs(ends.explaining, ends.schema, HistoryFilter(**values, limit=LIMIT))
    assert len(found) == count
    assert_bounded(ends)


@pytest.mark.parametrize("values", [{}, {"state": "failed"}, {"task_identifier": FREQUENT}], ids=str)
async def test_the_second_page_and_one_far_back(ends: Desk, values: dict[str, Any]) -> None:
    first = await list_finished_jobs(ends.connection, ends.schema, HistoryFilter(**values, limit=LIMIT))
    far = await list_finished_jobs(
        ends.connection, ends.schema, HistoryFilter(**values, until=ago(days=9), limit=1)
    )
    for last in (first[-1], far[0]):
        ends.explaining.plans.clear()
        page = await list_finished_jobs(
            ends.explaining, ends.schema, HistoryFilter(**values, after=last, limit=LIMIT)
        )
        assert len(page) == LIMIT
        assert page[0].finished_at <= last.finished_at
        assert last.job_id not in {end.job_id for end in page}
        assert_bounded(ends)


@pytest.mark.parametrize("name", ["1h", "90d"])
async def test_the_chart_of_a_queue(desk: Desk, name: RangeName) -> None:
    now = datetime.now(UTC)
    found = await read_finished(desk.explaining, desk.schema, "q", RANGES[name], now)
    assert found.is_empty
    if name == "90d":
        assert found.read_since is not None  # more than are read
    _, plan = desk.explaining.plans
    assert plan.all_pages <= PAGES, plan.describe_all()


async def test_the_ends_and_errors_of_a_job(desk: Desk) -> None:
    assert len(await history_of_job(desk.explaining, desk.schema, 10_000_007)) == 1
    assert_bounded(desk)
    desk.explaining.plans.clear()
    assert len(await errors_of_job(desk.explaining, desk.schema, 10_000_007)) == 1
    assert_bounded(desk)


@pytest.mark.parametrize(
    "period", [{}, {"since": ago(days=1)}, {"before": ago(days=5)}], ids=["all", "since", "before"]
)
async def test_errors_of_all_and_of_one_fingerprint(lists: Desk, period: dict[str, Any]) -> None:
    assert len(await list_errors(lists.explaining, lists.schema, limit=LIMIT, **period)) == LIMIT
    assert_bounded(lists)
    lists.explaining.plans.clear()
    found = await list_errors(lists.explaining, lists.schema, fingerprint="group 7", limit=LIMIT, **period)
    assert found
    assert_bounded(lists)


@pytest.mark.parametrize("task_identifier", [None, FREQUENT, NEVER])
async def test_groups_of_errors(lists: Desk, task_identifier: str | None) -> None:
    found = await list_error_groups(lists.explaining, lists.schema, task_identifier=task_identifier)
    assert len(found) == (0 if task_identifier == NEVER else 50)
    assert_bounded(lists)


async def test_the_state_of_one_job(desk: Desk) -> None:
    (found,) = await current_states(desk.explaining, desk.schema, [10_000_100])
    assert found.state == "failed"
    assert_bounded(desk)


async def test_the_states_of_two_thousand_jobs(desk: Desk) -> None:
    """A third each ended, waits, or is gone. Each takes a look into an index of every partition."""
    ended, waiting = range(10_000_001, 10_000_668), range(1, 667)
    gone = range(20_000_000, 20_000_667)
    found = await current_states(desk.explaining, desk.schema, [*ended, *waiting, *gone])
    states = [standing.state for standing in found]
    assert states.count("gone") == len(gone)
    assert states.count("pending") == len(waiting)
    (plan,) = desk.explaining.plans
    scanned = {scan["Node Type"] for scan in plan.job_scans}
    assert "Seq Scan" not in scanned, plan.describe()
    assert plan.all_pages <= 2_000 * 3 * (DAYS + 4), f"{plan.all_pages} pages\n{plan.describe()}"


async def test_lists_use_their_settings_and_leave_none_behind(databases: dict[str, str]) -> None:
    connection = await asyncpg.connect(databases["fresh"])
    try:
        seen: list[str] = []
        connection.add_query_logger(lambda record: seen.append(record.query))
        await list_finished_jobs(connection, SchemaName(), HistoryFilter(limit=1))
        await list_errors(connection, SchemaName(), limit=1)
        assert sum("enable_sort" in query for query in seen) == 2
        assert await connection.fetchval("select current_setting('enable_sort')") == "on"
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (FinishedFilter(), LIMIT),
        (FinishedFilter(task_identifier=RARE), RARE_ROWS),
        (FinishedFilter(task_identifier=NEVER), 0),
        (FinishedFilter(outcome="failed"), LIMIT),
        (FinishedFilter(outcome="cancelled"), 0),
        (FinishedFilter(outcome="failed", task_identifier=FREQUENT), LIMIT),
        (FinishedFilter(id_from=10_000_007, id_to=10_000_007), 1),
    ],
    ids=["all", "rare task", "unused task", "failed", "cancelled", "failed of a task", "id"],
)
async def test_the_dashboard_lists_finished_jobs_by_indexes(
    desk: Desk, filter: FinishedFilter, found: int
) -> None:
    result = await find_finished(desk.explaining, desk.schema, filter, after=None, limit=LIMIT)
    assert len(result.rows) == found
    _, plan = desk.explaining.plans
    assert plan.all_pages <= PAGES, plan.describe_all()
