"""Jobs that were added together have the same run_at: batches go on by id, unless another job is next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.statements.fetch import Ranges, ranges, ranges_up_to
from graphile_worker.database.statements.held_batches import (
    ID,
    RUN_AT,
    CursorPosition,
    get_held_jobs,
    get_tied_jobs,
    ties_of,
)
from plans.explaining import ExplainingConnection, tune
from queries.statements import Statements
from support.working import SCHEMA, Jobs

COUNT = 3000
BATCH = 500
FUTURE = "now() + interval '1 hour'"


@pytest.fixture(params=[False, True], ids=["alone", "among others"])
def among_others(request: pytest.FixtureRequest) -> bool:
    """Which of the two statements is sent."""
    return bool(request.param)


@pytest.fixture
async def other(database_url: str, statements: Statements) -> AsyncIterator[Any]:
    """A session of another batch."""
    connection = await asyncpg.connect(database_url)
    await tune(connection, statements.schema)
    yield connection
    await connection.close()


@pytest.fixture
async def tied(statements: Statements) -> Statements:
    await statements.add_together(COUNT)
    await tune(statements.connection, statements.schema)
    return statements


async def held(statements: Statements, connection: Any = None, limit: int = BATCH) -> Sequence[Any]:
    return await get_held_jobs(
        connection or statements.connection, statements.schema, tasks=statements.tasks, limit=limit
    )


async def go_on(
    statements: Statements,
    ties: CursorPosition | None,
    connection: Any = None,
    within: Ranges | None = None,
    *,
    among_others: bool = False,
    limit: int = BATCH,
) -> list[int]:
    assert ties is not None
    rows = await get_tied_jobs(
        connection or statements.connection,
        statements.schema,
        ties=ties,
        ranges=ranges_up_to(ties.priority, within),
        tasks=statements.tasks,
        limit=limit,
        among_others=among_others,
    )
    return [row[ID] for row in rows]


async def test_a_batch_goes_on_after_the_last_one_and_reads_none_of_its_rows(
    tied: Statements, other: Any, among_others: bool
) -> None:
    async with other.transaction():
        rows = await held(tied, other)
        ties = ties_of(rows)
        explaining = ExplainingConnection(tied.connection)
        async with tied.connection.transaction():
            found = await go_on(tied, ties, explaining, among_others=among_others)
    assert found == list(range(rows[-1][ID] + 1, rows[-1][ID] + 1 + BATCH))
    assert explaining.plans[0].touched <= BATCH + 10, explaining.plans[0].describe()
    assert "Seq Scan" not in explaining.plans[0].kinds_of_scans


async def test_what_other_workers_have_taken_since_is_passed(tied: Statements, other: Any) -> None:
    """Whether their batch is still running or has ended."""
    ties = ties_of(await held(tied, limit=BATCH))
    assert ties is not None
    await other.execute(
        f"delete from {SCHEMA}._private_jobs where id > $1 and id <= $1 + $2::integer", ties.last_id, BATCH
    )
    async with other.transaction():
        taken = await go_on(tied, CursorPosition(ties.priority, ties.run_at, ties.last_id + BATCH), other)
        explaining = ExplainingConnection(tied.connection)
        async with tied.connection.transaction():
            found = await go_on(tied, ties, explaining)
    assert len(found) == BATCH
    assert found[0] == taken[-1] + 1
    assert explaining.plans[0].touched <= 1.4 * BATCH, explaining.plans[0].describe()


async def test_jobs_between_those_of_others_are_found(tied: Statements, other: Any) -> None:
    ties = ties_of(await held(tied))
    assert ties is not None
    async with other.transaction():
        await go_on(tied, ties, other)
        await go_on(tied, CursorPosition(ties.priority, ties.run_at, ties.last_id + 2 * BATCH), other)
        found = await go_on(tied, ties)
    between = range(ties.last_id + BATCH + 1, ties.last_id + 2 * BATCH + 1)
    assert found == list(between)


async def test_where_others_are_right_ahead_it_goes_on_far_behind_them(
    tied: Statements, other: Any, among_others: bool
) -> None:
    """So that the two do not meet again with the next batch; COUNT is 60 batches."""
    ties = ties_of(await held(tied, limit=50))
    assert ties is not None
    await tied.connection.execute("select setseed(0.5)")
    explaining = ExplainingConnection(tied.connection)
    async with other.transaction():
        taken = await go_on(tied, ties, other, limit=300)
        async with tied.connection.transaction():
            found = await go_on(tied, ties, explaining, limit=50, among_others=among_others)
    assert len(found) == 50
    assert found[0] > taken[-1] + 50
    assert explaining.plans[0].touched <= 500, explaining.plans[0].describe()


async def test_the_rows_are_locked_and_unchanged(tied: Statements, other: Any) -> None:
    ties = ties_of(await held(tied))
    async with tied.connection.transaction():
        found = await go_on(tied, ties)
        free = await other.fetch(
            f"select id from {SCHEMA}._private_jobs where id = any ($1) for update skip locked", found
        )
        assert free == []
    untouched = await tied.connection.fetchval(
        f"select count(*) from {SCHEMA}._private_jobs where locked_at is null and attempts = 0"
    )
    assert untouched == COUNT


@pytest.mark.parametrize(
    "change",
    [
        pytest.param("set priority = -1", id="better priority"),
        pytest.param("set run_at = run_at - interval '1 second'", id="earlier"),
    ],
)
async def test_a_job_that_comes_first_ends_it(tied: Statements, change: str, among_others: bool) -> None:
    rows = await held(tied)
    late = rows[-1][ID] + 1000
    await tied.connection.execute(f"update {SCHEMA}._private_jobs {change} where id = $1", late)
    assert await go_on(tied, ties_of(rows), among_others=among_others) == []
    assert (await held(tied))[0][ID] == late


@pytest.mark.parametrize("is_above", [True, False])
async def test_a_job_that_comes_first_counts_above_a_watermark_only(tied: Statements, is_above: bool) -> None:
    rows = await held(tied)
    await tied.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at - interval '10 seconds' where id = $1",
        rows[-1][ID] + 1000,
    )
    since = rows[0][RUN_AT] - (20 if is_above else 5)
    found = await go_on(tied, ties_of(rows), within=ranges({0: since}))
    assert len(found) == (0 if is_above else BATCH)


async def test_dead_rows_below_a_watermark_are_not_read(tied: Statements, other: Any) -> None:
    """A long transaction keeps them."""
    async with other.transaction(isolation="repeatable_read"):
        await other.fetchval(f"select count(*) from {SCHEMA}._private_jobs")
        await tied.connection.execute(
            f"insert into {SCHEMA}._private_jobs (task_id, run_at) select $1, now() - interval '1 hour' "
            "from generate_series(1, 20000)",
            next(iter(tied.tasks)),
        )
        await tied.connection.execute(
            f"delete from {SCHEMA}._private_jobs where run_at < now() - interval '30 minutes'"
        )
        rows = await held(tied)
        explaining = ExplainingConnection(tied.connection)
        ties = ties_of(rows)
        async with tied.connection.transaction():
            assert len(await go_on(tied, ties, explaining, ranges({0: rows[0][RUN_AT] - 1}))) == BATCH
        async with tied.connection.transaction():
            assert len(await go_on(tied, ties, explaining)) == BATCH
    above, all_of_them = (plan.pages for plan in explaining.plans)
    assert above < all_of_them / 4


async def test_a_named_queue_that_may_be_next_ends_it(
    tied: Statements, jobs: Jobs, among_others: bool
) -> None:
    ties = ties_of(await held(tied))
    await jobs.add("hello", queue="named")
    assert await go_on(tied, ties, among_others=among_others) == []


@pytest.mark.parametrize("column", ["job_queue_id", "key"])
async def test_a_job_that_cannot_be_next_ends_it_unless_it_is_looked_at(
    tied: Statements, column: str, among_others: bool
) -> None:
    ties = ties_of(await held(tied))
    value = f"(select id from {SCHEMA}._private_job_queues)" if column == "job_queue_id" else "'key'"
    await tied.connection.execute(f"insert into {SCHEMA}._private_job_queues (queue_name) values ('named')")
    await tied.connection.execute(
        f"update {SCHEMA}._private_jobs set {column} = {value}, run_at = {FUTURE} "
        f"where id = (select max(id) from {SCHEMA}._private_jobs)"
    )
    explaining = ExplainingConnection(tied.connection)
    async with tied.connection.transaction():
        assert len(await go_on(tied, ties, explaining, among_others=among_others)) == among_others * BATCH
    assert "Seq Scan" not in explaining.plans[0].kinds_of_scans


async def test_only_jobs_with_the_same_run_at_are_taken(tied: Statements) -> None:
    rows = await held(tied)
    last = rows[-1][ID]
    await tied.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at + interval '1 microsecond' where id > $1",
        last + 10,
    )
    assert await go_on(tied, ties_of(rows)) == list(range(last + 1, last + 11))


async def test_rows_that_are_alike_and_at_last_close_together_are_ties(tied: Statements) -> None:
    rows = await held(tied, limit=32)
    last, run_at = rows[-1][ID], rows[-1][RUN_AT]
    assert ties_of(rows) == CursorPosition(0, run_at, last)
    after_a_gap: list[Any] = [*rows[:20], *((row[ID] + 1000, None, 0, run_at) for row in rows[20:])]
    assert ties_of(after_a_gap) == CursorPosition(0, run_at, last + 1000)
    other_priority = [*rows[:-1], (last, None, 1, run_at)]
    other_time = [*rows[:-1], (last, None, 0, run_at + 1)]
    far_away = [*rows[:-1], (last + 100, None, 0, run_at)]
    backwards = rows[::-1]
    assert [ties_of(each) for each in (other_priority, other_time, far_away, backwards)] == [None] * 4
