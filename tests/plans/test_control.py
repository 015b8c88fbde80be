"""Plans of what operators ask for, in a full table: cancelling, and how pools learn what is asked of them.

As in `test_fetching`, with fresh statistics and with those of an empty table. TEST_PLAN_ROWS=1000000 runs
them on a larger table.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from graphile_worker.database.sql import load
from graphile_worker.database.statements.bulk_changes import READ, BulkWalk, cancellation
from graphile_worker.database.statements.control import leftover_cancels, read_control_state
from graphile_worker.database.statements.inspection import JobFilter
from graphile_worker.database.statements.manage_jobs import cancel_jobs, cancel_reasons
from plans.backlogs import EARLIER, FOREIGN, LATER, SCHEMA, SIZE, jobs, queues
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

POOL = "pool under test"
FEW = 10
RUNNING, OF_ANOTHER, FAILED = 100, 200, 300  # the first id of FEW jobs each
BACKLOG = (
    queues(100),
    jobs(SIZE, run_at=LATER),
    jobs(FEW, task=FOREIGN, run_at=EARLIER),
    f"update {SCHEMA}._private_jobs set key = 'the key' where id = 7",
    f"update {SCHEMA}._private_jobs set locked_at = now(), locked_by = case when id < {OF_ANOTHER} "
    f"then '{POOL}' else 'another pool' end where id between {RUNNING} and {RUNNING + FEW - 1} "
    f"or id between {OF_ANOTHER} and {OF_ANOTHER + FEW - 1}",
    f"update {SCHEMA}._private_jobs set attempts = max_attempts "
    f"where id between {FAILED} and {FAILED + FEW - 1}",
)
ASK = (
    f"insert into {SCHEMA}._private_py_cancels (job_id, asked_at) "
    "select id, now() - interval '1 minute' from unnest($1::bigint[]) id"
)


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    with filled_databases(server, template_database, BACKLOG) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    """A connection like a worker's."""
    async with desk_in(databases[request.param]) as desk:
        yield desk


@pytest.fixture(params=STATISTICS)
async def client(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param], tuned=False) as desk:
        yield desk


@pytest.fixture(params=["auto", "force_generic_plan"])
async def plans(request: pytest.FixtureRequest, client: Desk) -> None:
    """From the sixth time on the server may use one plan for all values of the parameters."""
    await client.connection.execute(f"set local plan_cache_mode = {request.param}")


def few(first: int) -> list[int]:
    return list(range(first, first + FEW))


def assert_bounded(plan: Plan, rows: int) -> None:
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= rows, plan.describe()
    assert plan.pages <= 20 + 4 * rows, plan.describe()


# -- cancelling ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("plans")
@pytest.mark.parametrize("first", [1, RUNNING], ids=["waiting", "running"])
async def test_jobs_are_cancelled_by_their_ids(client: Desk, first: int) -> None:
    report = await cancel_jobs(client.explaining, client.schema, few(first))
    assert len(report.removed) + len(report.asked) == FEW
    (plan,) = client.explaining.plans
    assert_bounded(plan, 4 * FEW)


@pytest.mark.usefixtures("plans")
async def test_a_job_is_cancelled_by_its_key(client: Desk) -> None:
    report = await cancel_jobs(client.explaining, client.schema, job_key="the key")
    assert len(report.removed) == 1
    (plan,) = client.explaining.plans
    assert_bounded(plan, 4)


@pytest.mark.usefixtures("plans")
async def test_jobs_are_cancelled_by_a_filter_in_bounded_steps(client: Desk) -> None:
    await client.connection.execute(load("manage/read_by_indexes", client.schema))
    options: Any = {"all": True}
    change = cancellation(None, client.schema)
    walk = BulkWalk(client.schema, JobFilter(task_identifier=FOREIGN), change, options)
    await walk.begin(client.explaining)
    while not walk.report.is_complete:
        await walk.step(client.explaining)
    assert walk.report.changed == FEW
    for plan in client.explaining.plans:
        assert_bounded(plan, 2 * READ + 2 * FEW)


# -- how pools learn of it -----------------------------------------------------------------------------------


async def test_a_pool_that_is_asked_for_nothing_reads_no_jobs(desk: Desk) -> None:
    await read_control_state(desk.explaining, desk.schema, POOL)
    (plan,) = desk.explaining.plans
    assert plan.touched == 0, plan.describe()
    assert plan.all_pages <= 20, plan.describe()


async def test_a_pool_reads_only_the_jobs_that_were_cancelled(desk: Desk) -> None:
    await desk.connection.execute(ASK, [*few(RUNNING), *few(OF_ANOTHER), *few(FAILED)])
    state = await read_control_state(desk.explaining, desk.schema, POOL)
    assert sorted(state.cancelled) == few(RUNNING)
    assert state.has_leftover_cancels
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 3 * 3 * FEW)


async def test_leftovers_are_found_by_what_was_cancelled(desk: Desk) -> None:
    await desk.connection.execute(ASK, [*few(RUNNING), *few(FAILED), 10**12])
    found = await leftover_cancels(desk.explaining, desk.schema)
    assert [job.id for job in found] == few(FAILED)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * (2 * FEW + 1))


async def test_reasons_are_found_by_id(client: Desk) -> None:
    await client.connection.execute(ASK, few(RUNNING))
    assert len(await cancel_reasons(client.explaining, client.schema, few(RUNNING))) == FEW
    (plan,) = client.explaining.plans
    assert plan.touched == 0
