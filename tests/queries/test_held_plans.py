"""Plans of the statements that hold jobs, beside backlogs that must not slow them down."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest

from graphile_worker.queries.hold import ID, get_held_jobs
from graphile_worker.worker.watermarks import FROM_START, ranges
from queries.backlogs import BACKLOGS, BETTER, FOREIGN_JOBS, OURS, READY, Backlog, jobs
from queries.desks import STATISTICS, Desk, desk_in, filled_databases
from queries.test_plans import BATCH, allowance, assert_bounded
from support.server import DatabaseServer

NOW = "now() - interval '1 minute' + number * interval '1 millisecond'"


@pytest.fixture(scope="module", params=BACKLOGS)
def backlog(request: pytest.FixtureRequest) -> Backlog:
    return BACKLOGS[request.param]


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str, backlog: Backlog) -> Iterator[dict[str, str]]:
    ready = jobs(READY, task=OURS, run_at=NOW)
    with filled_databases(server, template_database, (*backlog.statements, ready)) as found:
        yield found


@pytest.fixture(scope="module")
def foreign_databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    ready = jobs(READY, task=OURS, run_at=NOW)
    with filled_databases(server, template_database, (*FOREIGN_JOBS, ready)) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def desk(request: pytest.FixtureRequest, databases: dict[str, str]) -> AsyncIterator[Desk]:
    async with desk_in(databases[request.param]) as desk:
        yield desk


@pytest.fixture(params=STATISTICS)
async def foreign_desk(
    request: pytest.FixtureRequest, foreign_databases: dict[str, str]
) -> AsyncIterator[Desk]:
    async with desk_in(foreign_databases[request.param]) as desk:
        yield desk


async def held(desk: Desk, **options: Any) -> Sequence[Any]:
    return await get_held_jobs(desk.explaining, desk.schema, tasks=desk.tasks, limit=BATCH, **options)


async def test_a_held_fetch_reads_little_besides_its_jobs(desk: Desk, backlog: Backlog) -> None:
    rows = await held(desk)
    assert len(rows) == (0 if backlog.queues_may_be_next else BATCH)
    assert_bounded(desk.explaining.plans[-1], allowance(backlog, BATCH))


async def test_a_held_fetch_above_watermarks_passes_jobs_of_other_tasks(foreign_desk: Desk) -> None:
    desk = foreign_desk
    since = await desk.connection.fetchval("select date_part('epoch', now() - interval '30 minutes')")
    rows = await held(desk, ranges=ranges({BETTER: since, 0: FROM_START}))
    assert len(rows) == BATCH
    assert [row[ID] for row in rows] == sorted(row[ID] for row in rows)
    assert_bounded(desk.explaining.plans[-1], 12 * BATCH + 200)
