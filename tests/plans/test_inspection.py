"""Plans of the statements that inspect jobs, in a full table.

As in `test_fetching`: no timings, but rows and pages read, with fresh statistics and with those of an empty
table. TEST_PLAN_ROWS=1000000 runs them on a larger table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from graphile_worker.database.statements import inspection as inspect
from graphile_worker.database.statements.cleanup import cleanup
from graphile_worker.database.statements.inspection import (
    READ_JOBS,
    JobFilter,
    JobOrder,
    JobState,
    ready_tasks,
)
from graphile_worker.diagnostics import facts as diagnose
from graphile_worker.recovery.registry import workers
from plans.backlogs import LATER, SIZE, jobs, queues
from plans.desks import STATEMENTS_FOR, STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

FAILED = 5
LOCKED = 3
LIMIT = 50
PAGES = 1000
"""What a look at a table of any size may read."""
BACKLOG = (
    queues(100),
    jobs(SIZE, run_at=LATER),
    jobs(SIZE // 2, priority=1, queue="1 + number % 100"),
    # Few, and in the middle of all ids: a scan for them reads most of the table.
    "update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'no' "
    f"where id between {SIZE // 2} and {SIZE // 2 + FAILED - 1}",
    "update graphile_worker._private_jobs set key = 'the key' where id = 7",
    "update graphile_worker._private_jobs set locked_at = now(), locked_by = 'pool-x' "
    f"where id between 100 and {100 + LOCKED - 1}",
)


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, BACKLOG) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        yield desk


@pytest.fixture(params=STATEMENTS_FOR)
async def in_order(request: pytest.FixtureRequest, desk: Desk) -> int:
    """How many rows a page in run order may read.

    One form of the statement reads each row twice; a server that can sort within groups does it for 32 rows.
    """
    desk.explaining.server_version = STATEMENTS_FOR[request.param]
    return LIMIT + 5 if desk.explaining.sorts_within_groups else 2 * LIMIT + 37


def assert_bounded(plan: Plan, rows: int) -> None:
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= rows, plan.describe()
    assert plan.pages <= 20 + 4 * rows, plan.describe()


async def listed(desk: Desk, filter: JobFilter) -> tuple[int, Plan]:
    found = await inspect.list_jobs(desk.explaining, desk.schema, filter)
    plan, *others = desk.explaining.plans
    for other in others:  # of failed jobs, how many attempts they had
        assert other.touched <= 2 * LIMIT, other.describe()
    return len(found), plan


@pytest.mark.parametrize("order", ["oldest", "newest"])
async def test_failed_jobs_are_listed_through_their_index(desk: Desk, order: JobOrder) -> None:
    count, plan = await listed(desk, JobFilter(state="failed", order=order, limit=LIMIT))
    assert count == FAILED
    assert_bounded(plan, FAILED)


async def test_a_page_of_failed_jobs_begins_where_the_last_one_ended(desk: Desk) -> None:
    first = SIZE // 2
    count, plan = await listed(desk, JobFilter(state="failed", after=first + 1, limit=2))
    assert count == 2
    assert_bounded(plan, FAILED)


async def test_a_statement_that_is_used_often_is_planned_no_worse(desk: Desk) -> None:
    """From the sixth time on the server may use one plan for all values of the parameters."""
    await desk.connection.execute("set local plan_cache_mode = force_generic_plan")
    count, plan = await listed(desk, JobFilter(state="failed", limit=LIMIT))
    assert count == FAILED
    assert_bounded(plan, FAILED)
    desk.explaining.plans.clear()
    count, plan = await listed(desk, JobFilter(job_key="the key"))
    assert count == 1
    assert_bounded(plan, 1)


@pytest.mark.parametrize("state", ["scheduled", "ready"])
async def test_jobs_that_wait_are_listed_in_run_order_through_the_index_of_workers(
    desk: Desk, in_order: int, state: JobState
) -> None:
    count, plan = await listed(desk, JobFilter(state=state, order="run_order", limit=LIMIT))
    assert count == LIMIT
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= in_order, plan.describe()
    # Before PostgreSQL 18 the index is read past scheduled jobs of a better priority, but no row of theirs.
    assert plan.pages <= SIZE // 100, plan.describe()


async def test_the_next_page_in_run_order_does_not_read_the_one_before(desk: Desk, in_order: int) -> None:
    read = JobFilter(order="run_order", limit=min(SIZE // 4, inspect.MAX_LIMIT))
    page = await inspect.list_jobs(desk.connection, desk.schema, read)
    count, plan = await listed(desk, JobFilter(order="run_order", after=page[-1], limit=LIMIT))
    assert count == LIMIT
    assert_bounded(plan, in_order)


async def test_failed_jobs_are_counted_through_their_index(desk: Desk) -> None:
    found = await diagnose.failures(desk.explaining, desk.schema, 1_000_000, has_index=True)
    assert (found.jobs, found.is_estimate) == (FAILED, False)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, FAILED)


async def test_failed_jobs_are_deleted_through_their_index(desk: Desk) -> None:
    report = await cleanup(desk.explaining, desk.schema, ["DELETE_PERMAFAILED_JOBS"])
    assert report.permafailed_jobs == FAILED
    assert_bounded(desk.explaining.plans[0], 2 * FAILED)


async def test_queues_without_a_row_are_found_from_queue_to_queue(desk: Desk) -> None:
    await desk.connection.execute("delete from graphile_worker._private_job_queues where id = 3")
    (found,) = await diagnose.LostQueue.load(desk.explaining, desk.schema, None)
    assert found.job_queue_id == 3
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * 100)


async def test_workers_are_listed_without_a_scan_of_a_large_table(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SCANNED_PAGES", min(workers.SCANNED_PAGES, SIZE // 1000))
    found = await workers.list_workers(desk.explaining, desk.schema)
    assert (list(found), found.is_complete) == ([], False)
    plan, register = desk.explaining.plans
    assert plan.touched == register.touched == 0, plan.describe()
    assert plan.all_pages <= PAGES, plan.describe()


async def test_the_doctor_checks_locks_without_a_scan_of_a_large_table(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SCANNED_PAGES", min(workers.SCANNED_PAGES, SIZE // 1000))
    await diagnose.locks(desk.explaining, desk.schema, has_workers=True, scan=False)
    assert sum(plan.all_pages for plan in desk.explaining.plans) <= PAGES
    assert sum(plan.touched for plan in desk.explaining.plans) == 0


async def test_on_request_workers_take_one_pass_over_the_table(desk: Desk) -> None:
    """No index leads to locked jobs: every plain job would pay for it."""
    (worker,) = await workers.list_workers(desk.explaining, desk.schema, scan=True)
    assert worker.job_ids == [100, 101, 102]
    plan, _ = desk.explaining.plans
    (scan,) = (scan for scan in plan.job_scans if scan["Node Type"] == "Seq Scan")
    assert scan["Actual Rows"] * scan["Actual Loops"] == LOCKED


@pytest.mark.parametrize("mode", ["auto", "force_custom_plan", "force_generic_plan"])
async def test_tasks_with_ready_jobs_are_found_among_the_first_jobs_of_each_priority(
    desk: Desk, mode: str
) -> None:
    await desk.connection.execute(f"set local plan_cache_mode = {mode}")
    await desk.connection.execute(jobs(2 * READ_JOBS, task="foreign", priority=2))
    found = {task.task_identifier: task for task in await ready_tasks(desk.explaining, desk.schema)}
    assert {name: task.jobs for name, task in found.items()} == {"ours": READ_JOBS, "foreign": READ_JOBS}
    assert all(task.has_more for task in found.values())
    (plan,) = desk.explaining.plans
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= 2 * 2 * READ_JOBS + 10, plan.describe()  # each job, and its queue
    assert plan.pages <= 20 + 4 * 2 * 2 * READ_JOBS, plan.describe()
