"""Plans of bulk changes, in a full table: each statement reads a bounded number of jobs, whatever the filter.

As in `test_inspection`, with fresh statistics and with those of an empty table.
TEST_PLAN_ROWS=1000000 runs them on a larger table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from graphile_worker.database.sql import load
from graphile_worker.database.statements.bulk_changes import (
    COMPLETE,
    READ,
    STEP,
    BulkReport,
    BulkWalk,
    failure,
    new_schedule,
)
from graphile_worker.database.statements.inspection import JobFilter
from plans.backlogs import EARLIER, FOREIGN, LATER, OURS, SIZE, jobs, queues
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

FAILED = 5
FEW = 10
BACKLOG = (
    queues(100),
    jobs(SIZE, run_at=LATER),
    jobs(FEW, task=FOREIGN, run_at=EARLIER),
    jobs(SIZE // 2, priority=1, run_at=LATER, queue="1 + number % 100"),
    # Few, and in the middle of all ids: a scan for them reads most of the table.
    "update graphile_worker._private_jobs set attempts = max_attempts, last_error = 'no' "
    f"where id between {SIZE // 2} and {SIZE // 2 + FAILED - 1}",
    "update graphile_worker._private_jobs set key = 'the key' where id = 7",
)
RESCHEDULE = new_schedule(run_at=None, priority=5, attempts=0, max_attempts=None)
CHANGES = {"reschedule": RESCHEDULE, "fail": failure("no"), "complete": COMPLETE}


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, BACKLOG) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        await desk.connection.execute(load("manage/read_by_indexes", desk.schema))
        yield desk


@pytest.fixture(params=["auto", "force_generic_plan"])
async def plans(request: pytest.FixtureRequest, desk: Desk) -> None:
    """From the sixth time on the server may use one plan for all values of the parameters."""
    await desk.connection.execute(f"set local plan_cache_mode = {request.param}")


async def walk(
    desk: Desk, filter: JobFilter, change: Any = RESCHEDULE, *, steps: int | None = None, **options: Any
) -> tuple[BulkReport, list[Plan]]:
    """The report and the plans of the steps."""
    given: Any = {"all": True, **options}
    walk = BulkWalk(desk.schema, filter, change, given)
    await walk.begin(desk.explaining)
    (bounds,) = desk.explaining.plans
    assert bounds.touched <= 1, bounds.describe()
    made = 0
    while not walk.report.is_complete and (steps is None or made < steps):
        await walk.step(desk.explaining)
        made += 1
    return walk.report, desk.explaining.plans[1:]


def assert_bounded(plan: Plan, rows: int) -> None:
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= rows, plan.describe()
    assert plan.pages <= 20 + 4 * rows, plan.describe()


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_failed_jobs_are_found_through_their_index(desk: Desk, change: Any) -> None:
    report, plans = await walk(desk, JobFilter(state="failed"), change)
    assert report.changed == FAILED
    (plan,) = plans
    assert_bounded(plan, 4 * FAILED)


@pytest.mark.usefixtures("plans")
async def test_a_key_is_found_through_its_index(desk: Desk) -> None:
    report, plans = await walk(desk, JobFilter(job_key="the key"))
    assert report.changed == 1
    (plan,) = plans
    assert_bounded(plan, 4)


FEW_AMONG_MANY = {
    "task": JobFilter(task_identifier=FOREIGN),
    "ready": JobFilter(state="ready"),
    "error": JobFilter(error="nothing like it"),
    "flag": JobFilter(flag="none"),
    "key prefix": JobFilter(key_prefix="none"),
    "payload": JobFilter(payload={"number": "none"}),
    "text": JobFilter(text="none", attempts_from=1),
}


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("filter", FEW_AMONG_MANY.values(), ids=FEW_AMONG_MANY)
async def test_few_among_many_are_found_in_steps_of_bounded_work(desk: Desk, filter: JobFilter) -> None:
    report, plans = await walk(desk, filter)
    assert report.changed in (FEW, 0)
    assert len(plans) == -(-(SIZE + FEW + SIZE // 2) // READ)
    for plan in plans:
        # The jobs to match, the same in the index alone to find the end of the step, and those to change.
        assert_bounded(plan, 2 * READ + FEW)


@pytest.mark.usefixtures("plans")
async def test_a_range_of_ids_reads_little_more(desk: Desk) -> None:
    first = SIZE // 3
    report, plans = await walk(desk, JobFilter(id_from=first, id_to=first + FEW - 1, priority_to=0))
    assert (report.changed, report.is_complete) == (FEW, True)
    (plan,) = plans
    assert plan.pages <= 2 * READ, plan.describe()


MANY = {
    "task": JobFilter(task_identifier=OURS),
    "scheduled": JobFilter(state="scheduled"),
    "everything": JobFilter(),
    "queue": JobFilter(queue_name="queue 7", after=SIZE + FEW),
}


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("filter", MANY.values(), ids=MANY)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_a_full_batch_reads_little_more_than_its_jobs(
    desk: Desk, filter: JobFilter, change: Any
) -> None:
    size = STEP if filter.queue_name is None else STEP // 100
    report, plans = await walk(desk, filter, change, steps=2, step_size=size)
    assert report.changed == 2 * size
    for plan in plans:
        between = 1 if filter.queue_name is None else 100
        assert_bounded(plan, size * (between + 1) + FEW + between)


@pytest.mark.usefixtures("plans")
async def test_a_dry_run_reads_in_bounded_steps(desk: Desk) -> None:
    report, plans = await walk(desk, JobFilter(task_identifier=OURS), dry_run=True)
    assert report.changed == SIZE + SIZE // 2
    for plan in plans:
        assert_bounded(plan, 2 * READ)
