"""Plans of the dashboard's lists and explanations, in a full table: a page reads little more than it shows.

As in `test_inspection`. TEST_PLAN_ROWS=1000000 runs them on a larger table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from graphile_worker.admin.answers import Count
from graphile_worker.admin.jobs import listing, searching
from graphile_worker.admin.jobs.searching import ListOrder
from graphile_worker.database.sql import load
from graphile_worker.database.statements.inspection import JobFilter, JobState
from plans.backlogs import LATER, SIZE, jobs, queues
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

LIMIT = 50
FAILED = 5
BACKLOG = (
    queues(100),
    jobs(SIZE, run_at=LATER, priority=-5),  # in front of the ready ones
    jobs(SIZE // 2, priority=1, run_at="now() - interval '1 hour'", queue="1 + number % 100"),  # all at once
    "update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'no' "
    f"where id between {SIZE // 2} and {SIZE // 2 + FAILED - 1}",
    "update graphile_worker._private_jobs set key = 'the key' where id = 7",
)


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, BACKLOG) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        await desk.connection.execute(load("manage/read_by_indexes", desk.schema))
        yield desk


def assert_bounded(plan: Plan, rows: int) -> None:
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= rows, plan.describe()
    assert plan.pages <= 20 + 2 * rows, plan.describe()


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize(
    ("filter", "found"),
    [
        (JobFilter(), LIMIT),
        (JobFilter(state="failed"), FAILED),
        (JobFilter(job_key="the key"), 1),
        (JobFilter(id_from=20, id_to=29), 10),
    ],
    ids=["all", "failed", "key", "ids"],
)
async def test_lists_by_id_follow_an_index(
    desk: Desk, filter: JobFilter, found: int, order: ListOrder
) -> None:
    result = await searching.find_by_id(
        desk.explaining, desk.schema, filter, order, after=None, limit=LIMIT, has_failed_index=True
    )
    assert len(result.rows) == found
    (plan,) = desk.explaining.plans
    if filter.id_from is None:
        assert_bounded(plan, 3 * LIMIT)


@pytest.mark.parametrize("state", ["ready", "scheduled"])
async def test_waiting_jobs_are_read_priority_by_priority(desk: Desk, state: str) -> None:
    filter = JobFilter(state=state)  # type: ignore[arg-type]
    result = await searching.find_in_run_order(
        desk.explaining, desk.schema, filter, after=None, limit=LIMIT, has_queue_index=True
    )
    assert len(result.rows) == LIMIT
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 2 * searching.OF_PRIORITY + 3 * LIMIT)


async def test_counts_read_no_more_than_their_bound(desk: Desk) -> None:
    found = await listing.estimates(desk.explaining, desk.schema)
    assert found.failed is not None
    assert (found.failed.value, found.failed.kind) == (FAILED, "exact")
    assert (found.ready.value, found.ready.kind) == (listing.BOUND, "at_least")
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 3 * listing.BOUND + 20)


async def test_scheduled_jobs_are_counted_up_to_a_bound(desk: Desk) -> None:
    many = Count(SIZE, "estimate")
    found = await listing.count_later(desk.explaining, desk.schema, many)
    assert found == (many, Count(0, "at_least"))
    plan, size = desk.explaining.plans  # the second tells how large the table is
    assert_bounded(plan, listing.BOUND + listing.READ + 20)
    assert not size.job_scans, size.describe()


@pytest.mark.parametrize("state", [None, "ready", "scheduled"])
async def test_jobs_of_a_queue_are_read_by_its_index(desk: Desk, state: JobState | None) -> None:
    filter = JobFilter(state=state, queue_name="queue 7")
    result = await searching.find_in_run_order(
        desk.explaining, desk.schema, filter, after=None, limit=LIMIT, has_queue_index=True
    )
    assert len(result.rows) == (0 if state == "scheduled" else LIMIT)
    assert {row["queue"] for row in result.rows} <= {"queue 7"}
    *_, plan = desk.explaining.plans
    index = "_private_py_jobs_queue_next_index"
    assert index in {node.get("Index Name") for node in plan.job_scans}, plan.describe()
    if state != "scheduled":
        assert_bounded(plan, 2 * searching.OF_PRIORITY)
