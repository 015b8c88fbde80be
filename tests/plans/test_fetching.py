"""Plans of the statements on the hot path, beside backlogs that must not slow them down.

No timings: what counts is how many rows of the jobs table and how many pages a statement reads, compared to
the number of its jobs. Each runs with fresh statistics and with those of an empty table, which is all that
the planner has while a queue fills up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.statements.add import add_job
from graphile_worker.database.statements.add_many import add_jobs
from graphile_worker.database.statements.fetch import (
    MANY_PRIORITIES,
    Ranges,
    get_announced_jobs,
    get_fair_jobs,
    get_jobs,
    get_plain_jobs,
    get_wide_jobs,
    list_priorities,
    may_queues_be_next,
    ranges,
)
from graphile_worker.database.statements.held_batches import (
    ID,
    end_batch,
    end_series,
    get_held_jobs,
    get_series,
    take_queues,
)
from graphile_worker.database.statements.write import Written, return_jobs, write
from graphile_worker.database.statements.write_plan import Continuation, Failure, Outcomes, WritePlanner
from graphile_worker.values.flags import FlagRules
from graphile_worker.values.job import Job
from graphile_worker.values.spec import JobSpec
from graphile_worker.worker.fetch.plan import Watermarks, reach_of
from plans.backlogs import (
    BACKLOGS,
    BETTER,
    FOREIGN_JOBS,
    LATER,
    LOCK_FIRST_QUEUE,
    OURS,
    READY,
    REFUSED_JOBS,
    SIZE,
    Backlog,
    fill,
    jobs,
    prepare,
)
from plans.desks import STATISTICS, Desk, desk_in, filled_databases
from plans.explaining import Plan
from support.server import DatabaseServer

POOL = "pool under test"
BATCH = 100
QUEUE_PROBES = 24
"""Of the plain fetch before it takes nothing: ten queues, one more, and the next job of each."""
PAGES_BESIDES = 200
"""Index pages that may hold only marked entries of rows that earlier tests rolled back."""


@pytest.fixture(scope="module", params=BACKLOGS)
def backlog(request: pytest.FixtureRequest) -> Backlog:
    return BACKLOGS[request.param]


@pytest.fixture(scope="module")
def databases(server: DatabaseServer, template_database: str, backlog: Backlog) -> Iterator[dict[str, str]]:
    """Databases with one of the backlogs."""
    with filled_databases(server, template_database, backlog.statements) as found:
        yield found


@pytest.fixture(scope="module")
def foreign_databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    """The same with ready jobs of a task that our worker does not have, in front of those it has."""
    with filled_databases(server, template_database, FOREIGN_JOBS) as found:
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


@pytest.fixture(scope="module")
def refused_databases(server: DatabaseServer, template_database: str) -> Iterator[dict[str, str]]:
    """The same with ready jobs of our task whose flags our worker refuses."""
    with filled_databases(server, template_database, REFUSED_JOBS) as found:
        yield found


@pytest.fixture(params=STATISTICS)
async def refused_desk(
    request: pytest.FixtureRequest, refused_databases: dict[str, str]
) -> AsyncIterator[Desk]:
    async with desk_in(refused_databases[request.param]) as desk:
        yield desk


def assert_bounded(plan: Plan, rows: int, *, pages_per_row: int = 4) -> None:
    """It reads by index or ctid, and not more than this many rows."""
    assert "Seq Scan" not in plan.kinds_of_scans, plan.describe()
    assert "Bitmap Heap Scan" not in plan.kinds_of_scans, plan.describe()
    assert plan.touched <= rows, plan.describe()
    assert plan.pages <= PAGES_BESIDES + pages_per_row * rows, plan.describe()


def allowance(backlog: Backlog, limit: int) -> int:
    """Rows that a fetch may read: a bounded number per job, two per priority, three per hidden queue."""
    return 12 * limit + 200 + 4 * backlog.priorities + 3 * backlog.busy_queues_hide


async def fetch(desk: Desk, limit: int = BATCH) -> list[Job]:
    return await get_jobs(desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=limit)


async def fetch_above(desk: Desk, ranges: Ranges) -> list[Job]:
    return await get_jobs(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=BATCH, ranges=ranges
    )


async def fetch_plain(desk: Desk, limit: int = BATCH, *, ranges: Ranges | None = None) -> Sequence[Job]:
    return await get_plain_jobs(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=limit, ranges=ranges
    )


async def fetch_announced(desk: Desk, limit: int) -> Sequence[Job]:
    return await get_announced_jobs(desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=limit)


async def watermarks_at_the_end(desk: Desk) -> Ranges:
    """The watermarks of a worker that has just read all due jobs."""
    listing = await list_priorities(desk.connection, desk.schema, tasks=desk.tasks)
    seen = Watermarks(poll_interval=2.0)
    seen.set(listing.priorities, reach_of([], full=False), listing.now, cost=1.0)
    return seen.ranges()


# -- fetching ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [1, BATCH])
async def test_a_fetch_reads_no_more_than_its_batch(desk: Desk, backlog: Backlog, limit: int) -> None:
    await desk.make_ready()
    found = await fetch(desk, limit)
    assert len(found) == limit
    (plan,) = desk.explaining.plans
    assert_bounded(plan, allowance(backlog, limit))


async def test_a_wide_fetch_reads_no_more_than_its_batch(desk: Desk, backlog: Backlog) -> None:
    await desk.make_ready()
    found = await get_wide_jobs(desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=BATCH)
    assert len(found) == BATCH
    (plan,) = desk.explaining.plans
    assert_bounded(plan, allowance(backlog, BATCH))


@pytest.mark.parametrize("is_wide", [False, True])
async def test_a_fair_fetch_visits_a_bounded_number_of_queues(desk: Desk, is_wide: bool) -> None:
    await desk.make_ready()
    await get_fair_jobs(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=BATCH, after=0, is_wide=is_wide
    )
    (plan,) = desk.explaining.plans
    visits = 4 * BATCH
    assert_bounded(plan, 3 * visits + 12 * BATCH + 200)


async def test_wide_queues_go_on_by_a_few_probes_each(desk: Desk) -> None:
    """Twenty queues of concurrency 3, of which each has more jobs than one batch."""
    await desk.connection.execute(
        "insert into graphile_worker._private_job_queues (queue_name) "
        "select 'own ' || number from generate_series(0, 19) number"
    )
    first = await desk.connection.fetchval(
        "select id from graphile_worker._private_job_queues where queue_name = 'own 0'"
    )
    await desk.connection.execute(
        "select graphile_worker._private_py_set_tracks(array_agg(id), array_agg(3)) "
        "from graphile_worker._private_job_queues where queue_name like 'own %'"
    )
    await desk.connection.execute(jobs(4000, queue=f"{first} + number % 20", priority=-100))
    found = await get_wide_jobs(desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=60)
    outcomes = Outcomes(
        completed=[job.id for job in found],
        queues=[job.job_queue_id for job in found if job.job_queue_id is not None],
    )
    assert len(set(outcomes.queues)) == 60
    plan = WritePlanner(POOL).plan(outcomes, Continuation(tasks=desk.tasks, is_wide=True))
    following = await write(desk.explaining, desk.schema, plan)
    assert {job.job_queue_id for job in following.jobs} == set(outcomes.queues)
    assert_bounded(desk.explaining.plans[-1], 20 * 60)


async def test_a_fetch_that_finds_nothing_reads_next_to_nothing(desk: Desk, backlog: Backlog) -> None:
    """Beside what cannot run, and at worst once through the queues, if all of them are busy."""
    await desk.connection.execute("update graphile_worker._private_job_queues set locked_at = now()")
    queue_count = await desk.connection.fetchval("select count(*) from graphile_worker._private_job_queues")
    assert await fetch(desk, 1) == []
    (plan,) = desk.explaining.plans
    queue_rows = 2 * 42 + 2 * queue_count if queue_count else 0
    assert_bounded(plan, 4 * backlog.priorities + queue_rows)


@pytest.mark.parametrize("rules", [FlagRules(("slow",)), FlagRules(("slow",), (), ("any",))])
async def test_a_fetch_with_rules_for_flags_reads_no_more(
    desk: Desk, backlog: Backlog, rules: FlagRules
) -> None:
    await desk.make_ready()
    found = await get_jobs(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=BATCH, flags=rules
    )
    assert len(found) == BATCH
    (plan,) = desk.explaining.plans
    assert_bounded(plan, allowance(backlog, BATCH))


async def test_a_fetch_above_watermarks_reads_no_more_than_its_batch(desk: Desk, backlog: Backlog) -> None:
    ranges = await watermarks_at_the_end(desk)
    await desk.connection.execute(jobs(READY, run_at="now()"))
    found = await fetch_above(desk, ranges)
    assert len(found) == BATCH
    assert_bounded(desk.explaining.plans[-1], allowance(backlog, BATCH))


@pytest.mark.parametrize("limit", [1, BATCH])
async def test_the_plain_fetch_reads_no_more_than_its_batch(desk: Desk, backlog: Backlog, limit: int) -> None:
    await desk.make_ready()
    found = await fetch_plain(desk, limit)
    assert len(found) == (0 if backlog.queues_may_be_next else limit)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * limit + 4 * backlog.priorities + QUEUE_PROBES)


@pytest.mark.parametrize("limit", [1, BATCH])
async def test_the_announced_fetch_reads_no_more_than_its_batch(
    desk: Desk, backlog: Backlog, limit: int
) -> None:
    await desk.make_ready()
    found = await fetch_announced(desk, limit)
    assert len(found) == (limit if backlog.is_plain else 0)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * limit + 4)


async def test_a_held_fetch_reads_no_more_than_its_batch(desk: Desk, backlog: Backlog) -> None:
    await desk.make_ready()
    rows = await get_held_jobs(desk.explaining, desk.schema, tasks=desk.tasks, limit=BATCH)
    assert len(rows) == (0 if backlog.queues_may_be_next else BATCH)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * BATCH + 4 * backlog.priorities + QUEUE_PROBES)


async def test_a_held_fetch_above_watermarks_passes_jobs_of_other_tasks(foreign_desk: Desk) -> None:
    desk = foreign_desk
    ranges = await watermarks_at_the_end(desk)
    await desk.connection.execute(jobs(READY, run_at="now()"))
    rows = await get_held_jobs(desk.explaining, desk.schema, tasks=desk.tasks, limit=BATCH, ranges=ranges)
    assert len(rows) == BATCH
    assert_bounded(desk.explaining.plans[-1], 4 * BATCH + QUEUE_PROBES)


async def test_the_end_of_a_held_batch_reads_its_jobs_only(desk: Desk, backlog: Backlog) -> None:
    await desk.make_ready()
    rows = await get_held_jobs(desk.connection, desk.schema, tasks=desk.tasks, limit=BATCH)
    ids = [row[ID] for row in rows]
    await end_batch(desk.explaining, desk.schema, POOL, completed=ids[:-5], outlasting=ids[-5:])
    for plan in desk.explaining.plans:
        assert_bounded(plan, 4 * len(ids))


IN_SERIES, OF_EACH = 20, 10
"""Queues of series, and how many jobs of each."""
FIRST = 1_000_000
"""The id of the first of these queues."""
RECOVERED = "the last error of a recovered job"


async def make_queues_ready(desk: Desk) -> None:
    """Add queues with jobs that come before every backlog but the better ones."""
    await desk.connection.execute(
        "insert into graphile_worker._private_job_queues (id, queue_name) overriding system value "
        f"select {FIRST} + number, 'ready ' || number from generate_series(0, {IN_SERIES - 1}) number"
    )
    first = "now() - interval '2 hours' + number * interval '1 millisecond'"
    ready = jobs(IN_SERIES * OF_EACH, queue=f"{FIRST} + (number - 1) % {IN_SERIES}", run_at=first)
    await desk.connection.execute(ready)


async def test_series_read_no_more_than_their_batch(desk: Desk, backlog: Backlog) -> None:
    await make_queues_ready(desk)
    taken = await take_queues(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=IN_SERIES, recovered=RECOVERED
    )
    (plan,) = desk.explaining.plans
    probes = 100 + 4 * backlog.priorities + QUEUE_PROBES  # a hundred jobs without a queue at most
    assert_bounded(plan, 8 * IN_SERIES + probes + 4 * backlog.busy_queues_hide)
    if backlog.statements and LOCK_FIRST_QUEUE in backlog.statements:
        assert taken is None  # jobs of the busy queue come first: the ordinary fetch finds the others
        return
    assert taken is not None
    assert taken.ids == [FIRST + number for number in range(IN_SERIES)]
    terms: dict[str, Any] = {"tasks": desk.tasks, "limit": BATCH, "longest": OF_EACH, "recovered": RECOVERED}
    rows = await get_series(desk.explaining, desk.schema, taken, **terms)
    assert len(rows) == BATCH
    assert_bounded(desk.explaining.plans[-1], 4 * IN_SERIES * OF_EACH)
    ids = [row[ID] for row in rows]
    desk.explaining.plans.clear()
    await end_series(desk.explaining, desk.schema, POOL, completed=ids, queues=taken.ids)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 4 * len(ids))


async def test_series_are_looked_for_in_vain_at_a_bounded_cost(foreign_desk: Desk) -> None:
    """All ready jobs are for other workers, and have no queue."""
    desk = foreign_desk
    found = await take_queues(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=IN_SERIES, recovered=RECOVERED
    )
    assert found is None
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 100 + 4 * IN_SERIES + QUEUE_PROBES)


async def test_the_plain_fetch_above_watermarks_reads_no_more_than_its_batch(
    desk: Desk, backlog: Backlog
) -> None:
    ranges = await watermarks_at_the_end(desk)
    await desk.connection.execute(jobs(READY, run_at="now()"))
    found = await fetch_plain(desk, ranges=ranges)
    assert len(found) == (0 if backlog.queues_may_be_next else BATCH)
    assert_bounded(desk.explaining.plans[-1], 4 * BATCH + 4 * backlog.priorities + QUEUE_PROBES)


async def test_whether_queues_may_be_next_takes_a_few_probes(desk: Desk, backlog: Backlog) -> None:
    assert (
        await may_queues_be_next(desk.explaining, desk.schema, tasks=desk.tasks) is backlog.queues_may_be_next
    )
    (plan,) = desk.explaining.plans
    assert_bounded(plan, QUEUE_PROBES)


async def test_priorities_are_listed_by_one_probe_each(desk: Desk, backlog: Backlog) -> None:
    await desk.make_ready()
    await list_priorities(desk.explaining, desk.schema, tasks=desk.tasks)
    (plan,) = desk.explaining.plans
    assert_bounded(plan, 2 * backlog.priorities + 2)


async def test_what_a_fetch_costs_is_measured_by_reading_what_it_reads(desk: Desk, backlog: Backlog) -> None:
    await desk.make_ready()
    await list_priorities(desk.explaining, desk.schema, tasks=desk.tasks, limit=BATCH)
    measured = desk.explaining.plans[-1]
    await fetch_plain(desk)
    fetched = desk.explaining.plans[-1]
    assert measured.touched <= fetched.touched + 2 * backlog.priorities + BATCH, measured.describe()


# -- writing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 10])
async def test_completed_jobs_are_deleted_by_their_ids(desk: Desk, step: int) -> None:
    """Whether they lie side by side, with gaps, or far apart."""
    await desk.make_ready()
    found = [job for job in await fetch(desk, BATCH * step) if job.job_queue_id is None]
    done = sorted(job.id for job in found)[::step]
    await write(desk.explaining, desk.schema, WritePlanner(POOL).plan(Outcomes(completed=done)))
    assert_bounded(desk.explaining.plans[-1], 4 * len(done))


async def test_completed_jobs_of_queues_are_deleted_by_their_ids(desk: Desk) -> None:
    await desk.make_ready()
    found = await fetch(desk)
    outcomes = Outcomes(
        completed=[job.id for job in found],
        queues=[job.job_queue_id for job in found if job.job_queue_id is not None] or [1],
    )
    await write(desk.explaining, desk.schema, WritePlanner(POOL).plan(outcomes))
    assert_bounded(desk.explaining.plans[-1], 2 * len(found))


async def test_failed_jobs_are_found_by_their_ids(desk: Desk) -> None:
    await desk.make_ready()
    found = [job for job in await fetch(desk) if job.job_queue_id is None]
    half = len(found) // 2
    outcomes = Outcomes(
        completed=[job.id for job in found[:half]],
        failed=[Failure(job.id, "as asked") for job in found[half:]],
    )
    await write(desk.explaining, desk.schema, WritePlanner(POOL).plan(outcomes))
    assert_bounded(desk.explaining.plans[-1], 2 * len(found))


async def test_queues_go_on_by_one_probe_each(desk: Desk) -> None:
    """Beside the backlog, twenty queues of which each has more jobs than one batch."""
    await desk.connection.execute(
        "insert into graphile_worker._private_job_queues (queue_name) "
        "select 'own ' || number from generate_series(0, 19) number"
    )
    first = await desk.connection.fetchval(
        "select id from graphile_worker._private_job_queues where queue_name = 'own 0'"
    )
    await desk.connection.execute(jobs(4000, queue=f"{first} + number % 20", priority=-100))
    found = await fetch(desk, 20)
    outcomes = Outcomes(
        completed=[job.id for job in found],
        queues=[job.job_queue_id for job in found if job.job_queue_id is not None],
    )
    assert len(outcomes.queues) == 20
    plan = WritePlanner(POOL).plan(outcomes, Continuation(tasks=desk.tasks))
    following = await write(desk.explaining, desk.schema, plan)
    assert {job.job_queue_id for job in following.jobs} == set(outcomes.queues)
    assert_bounded(desk.explaining.plans[-1], 6 * 20)


async def test_returned_jobs_are_found_by_their_ids(desk: Desk) -> None:
    await desk.make_ready()
    found = await fetch(desk)
    returned = await return_jobs(desk.explaining, desk.schema, POOL, found)
    assert returned == Written(missing=[], final=frozenset())
    # Up to PostgreSQL 13, index entries of rows that other tests have rolled back stay for longer.
    assert_bounded(desk.explaining.plans[-1], 2 * len(found), pages_per_row=8)


# -- rows to read past -------------------------------------------------------------------------------------


async def test_rows_that_were_rolled_back_are_not_counted(database_url: str, connection: Any) -> None:
    """A fast run of this module interleaves those of many tests, so that each costs a page when first met."""
    await prepare(connection)
    for _ in range(20):
        undo = connection.transaction()
        await undo.start()
        await connection.execute(jobs(READY))
        await undo.rollback()
    async with desk_in(database_url) as desk:
        await desk.make_ready()
        assert len(await fetch_announced(desk, 1)) == 1
        assert_bounded(desk.explaining.plans[-1], 4 + 4)


async def test_above_watermarks_jobs_of_other_workers_are_not_read(foreign_desk: Desk) -> None:
    """The full fetch has to read past them, and sets watermarks; above these it is cheap."""
    ranges = await watermarks_at_the_end(foreign_desk)
    await foreign_desk.connection.execute(jobs(READY, run_at="now()"))
    found = await fetch_above(foreign_desk, ranges)
    assert len(found) == BATCH
    assert_bounded(foreign_desk.explaining.plans[-1], 4 * BATCH)


async def test_a_full_fetch_reads_jobs_of_other_workers_once(foreign_desk: Desk) -> None:
    await foreign_desk.make_ready()
    found = await fetch(foreign_desk)
    assert len(found) == BATCH
    (plan,) = foreign_desk.explaining.plans
    assert "Seq Scan" not in plan.kinds_of_scans
    assert SIZE <= plan.touched <= SIZE + 12 * BATCH, plan.describe()


REFUSING = {
    "forbidden": FlagRules(("no",)),
    "accepted": FlagRules((), ("yes", "maybe")),
    "allowlist": FlagRules((), (), ("yes", "maybe")),
    "all": FlagRules(("no",), ("yes",), ("yes",)),
}


@pytest.mark.parametrize("name", REFUSING)
async def test_above_watermarks_jobs_with_refused_flags_are_not_read(refused_desk: Desk, name: str) -> None:
    desk = refused_desk
    ranges = await watermarks_at_the_end(desk)
    await desk.connection.execute(jobs(READY, run_at="now()"))
    terms: dict[str, Any] = {
        "tasks": desk.tasks, "limit": BATCH, "ranges": ranges, "flags": REFUSING[name],
    }  # fmt: skip
    for held in (True, False):
        if held:
            found: Sequence[Any] = await get_held_jobs(desk.explaining, desk.schema, **terms)
        else:
            found = await get_jobs(desk.explaining, desk.schema, pool_id=POOL, **terms)
        assert len(found) == BATCH
        assert_bounded(desk.explaining.plans[-1], 4 * BATCH + QUEUE_PROBES)


@pytest.mark.parametrize("name", REFUSING)
async def test_a_full_fetch_reads_jobs_with_refused_flags_once(refused_desk: Desk, name: str) -> None:
    desk = refused_desk
    await desk.make_ready()
    found = await get_jobs(
        desk.explaining, desk.schema, pool_id=POOL, tasks=desk.tasks, limit=BATCH, flags=REFUSING[name]
    )
    assert len(found) == BATCH
    (plan,) = desk.explaining.plans
    assert "Seq Scan" not in plan.kinds_of_scans
    assert SIZE <= plan.touched <= SIZE + 12 * BATCH, plan.describe()


async def test_above_watermarks_dead_rows_are_not_read(database_url: str, connection: Any) -> None:
    """A long transaction keeps vacuum from removing deleted jobs from the table and its indexes."""
    await fill(connection, (jobs(SIZE, priority=BETTER), jobs(10, priority=BETTER, run_at="now()")))
    holder = await asyncpg.connect(database_url)
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetch("select from graphile_worker._private_jobs limit 1")  # takes the snapshot
            await connection.execute("delete from graphile_worker._private_jobs where id <= $1", SIZE)
            async with desk_in(database_url) as desk:
                await fetch(desk, 1)
                full = desk.explaining.plans[-1]
                assert full.pages > 1000, full.describe()  # otherwise there was nothing to read past
                ranges = await watermarks_at_the_end(desk)
                await desk.connection.execute(jobs(READY, run_at="now()", priority=BETTER))
                assert len(await fetch_above(desk, ranges)) == BATCH
                above = desk.explaining.plans[-1]
                assert_bounded(above, 4 * BATCH)
                assert above.pages < full.pages / 4, above.describe()
    finally:
        await holder.close(timeout=60)


async def test_among_very_many_priorities_the_index_is_read_from_end_to_end(
    database_url: str, connection: Any
) -> None:
    """A probe for each priority costs as much as reading a page full of them."""
    count = 20_000
    await fill(connection, (jobs(count, priority="number - 10000", run_at=LATER),))
    async with desk_in(database_url) as desk:
        assert await fetch_plain(desk, 1) == []
        one_by_one = desk.explaining.plans[-1]
        priorities = (await list_priorities(desk.connection, desk.schema, tasks=desk.tasks)).priorities
        assert len(priorities) == MANY_PRIORITIES
        await desk.connection.execute(jobs(1, priority=7))
        everything = ranges(dict.fromkeys(priorities, float("-inf")))
        assert len(await fetch_plain(desk, 1, ranges=everything)) == 1
        at_once = desk.explaining.plans[-1]
        assert at_once.pages < one_by_one.pages / 10, at_once.describe()


# -- adding ------------------------------------------------------------------------------------------------


ADDING: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "one job": lambda desk: add_job(desk.connection, desk.schema, JobSpec(OURS)),
    "one with a key": lambda desk: add_job(desk.connection, desk.schema, JobSpec(OURS, job_key="key")),
    "many": lambda desk: add_jobs(desk.connection, desk.schema, [JobSpec(OURS)] * BATCH),
    "many with keys": lambda desk: add_jobs(
        desk.connection, desk.schema, [JobSpec(OURS, job_key=f"key {n}") for n in range(BATCH)]
    ),
}
READS = (
    "select seq_scan, idx_tup_fetch from pg_stat_xact_user_tables where relid = "
    "'graphile_worker._private_jobs'::regclass"
)


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_adding_does_not_read_other_jobs(databases: dict[str, str], statistics: str) -> None:
    async with desk_in(databases[statistics], tuned=False) as desk:
        for name, add in ADDING.items():
            async with desk.connection.transaction():  # so that the server resets no count in between
                scans_before, rows_before = await desk.connection.fetchrow(READS)
                for _ in range(6):  # after five runs the server settles on a plan
                    await add(desk)
                scans, rows = await desk.connection.fetchrow(READS)
            assert scans == scans_before, name
            assert rows - rows_before <= 6 * 3 * BATCH, name
