"""The statements of series: which queues they lock, which jobs they return, and how a batch ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.statements.held_batches import (
    RowsKeptError,
    TakenQueues,
    end_series,
    get_series,
    held_jobs,
    settle_series,
    take_queues,
)
from graphile_worker.values.flags import NO_RULES, FlagRules
from graphile_worker.values.job import Job
from plans.explaining import tune
from queries.statements import Statements
from support.working import SCHEMA

RECOVERED = "recovered by a test"
FOREIGN = "(select max(id) from {schema}._private_tasks)"


@pytest.fixture
async def session(database_url: str, statements: Statements) -> AsyncIterator[Any]:
    """A second session, tuned as those of batches are."""
    connection = await asyncpg.connect(database_url)
    await tune(connection, statements.schema)
    yield connection
    await connection.close()


async def add(statements: Statements, queue: str | None, count: int = 1, changes: str = "") -> list[int]:
    """Due jobs, each later than all before; `changes`: what else to set."""
    connection = statements.connection
    await connection.execute(
        f"insert into {SCHEMA}._private_job_queues (queue_name) select $1::text where $1 is not null "
        "on conflict do nothing",
        queue,
    )
    rows = await connection.fetch(
        f"""
        with last as (select count(*) as jobs from {SCHEMA}._private_jobs)
        insert into {SCHEMA}._private_jobs (task_id, job_queue_id, run_at)
        select $1, (select id from {SCHEMA}._private_job_queues where queue_name = $2),
          now() - interval '1 hour' + (last.jobs + number) * interval '1 second'
        from last, generate_series(1, $3::integer) number
        returning id
        """,
        next(iter(statements.tasks)),
        queue,
        count,
    )
    ids = [row["id"] for row in rows]
    if changes:
        await connection.execute(
            f"update {SCHEMA}._private_jobs set {changes.format(schema=SCHEMA)} where id = any($1::bigint[])",
            ids,
        )
    return ids


async def take(statements: Statements, limit: int = 10, **terms: Any) -> TakenQueues | None:
    return await take_queues(
        statements.connection,
        statements.schema,
        pool_id=statements.pool_id,
        tasks=statements.tasks,
        limit=limit,
        recovered=RECOVERED,
        **terms,
    )


async def names(statements: Statements, taken: TakenQueues | None) -> list[str]:
    """Of the queues, in their order."""
    found = await statements.connection.fetch(f"select id, queue_name from {SCHEMA}._private_job_queues")
    by_id = {row["id"]: row["queue_name"] for row in found}
    return [by_id[queue_id] for queue_id in taken.ids] if taken else []


async def take_names(statements: Statements, limit: int = 10, **terms: Any) -> list[str]:
    return await names(statements, await take(statements, limit, **terms))


async def series(
    statements: Statements,
    session: Any,
    taken: TakenQueues,
    *,
    limit: int = 100,
    longest: int = 100,
    flags: FlagRules = NO_RULES,
) -> Sequence[Job]:
    rows = await get_series(
        session,
        statements.schema,
        taken,
        tasks=statements.tasks,
        limit=limit,
        longest=longest,
        recovered=RECOVERED,
        flags=flags,
    )
    return held_jobs(rows, statements.pool_id, statements.tasks)


async def locked_queues(statements: Statements) -> dict[str, str | None]:
    rows = await statements.connection.fetch(
        f"select queue_name, locked_by from {SCHEMA}._private_job_queues order by queue_name"
    )
    return {row["queue_name"]: row["locked_by"] for row in rows}


# -- which queues ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [10, 2], ids=["few queues", "many queues"])
async def test_queues_come_in_the_order_of_their_first_jobs(statements: Statements, limit: int) -> None:
    """Few: the first job of each queue is looked at. Many: jobs are read in run order."""
    for queue in ("c", "a", "b"):
        await add(statements, queue, 3)
    await add(statements, "d", 1, "priority = -1")
    taken = await take(statements, limit)
    assert await names(statements, taken) == ["d", "c", "a", "b"][:limit]
    assert taken is not None
    assert taken.priorities == [-1, 0, 0, 0][:limit]
    owner = statements.pool_id
    locked = dict.fromkeys("abcd") | dict.fromkeys(["d", "c", "a", "b"][:limit], owner)
    assert await locked_queues(statements) == locked
    assert taken.are_all is (limit == 10)


@pytest.mark.parametrize("limit", [10, 1], ids=["few queues", "many queues"])
async def test_jobs_without_a_queue_come_first_if_they_are_next(statements: Statements, limit: int) -> None:
    await add(statements, "before", 2)
    await add(statements, None)
    await add(statements, "after", 2)
    taken = await take(statements, limit)
    assert await names(statements, taken) == ["before"]
    assert taken is not None
    assert not taken.are_all


@pytest.mark.parametrize("limit", [10, 1], ids=["few queues", "many queues"])
@pytest.mark.parametrize(
    "changes", ["key = 'k'", f"last_error = '{RECOVERED}', attempts = 1"], ids=["a key", "recovered"]
)
async def test_nothing_is_taken_past_a_queue_whose_next_job_must_not_be_held(
    statements: Statements, limit: int, changes: str
) -> None:
    await add(statements, "before")
    await add(statements, "special", 1, changes)
    await add(statements, "after")
    taken = await take(statements, limit)
    assert await names(statements, taken) == ["before"]
    assert taken is not None
    assert not taken.are_all
    assert await take_names(statements, limit) == []


CANNOT_RUN = {
    "of another worker": f"task_id = {FOREIGN}",
    "later": "run_at = now() + interval '1 hour'",
    "used up": "attempts = max_attempts",
    "locked": "locked_at = now(), locked_by = 'another pool'",
    "refused": """flags = '{{"no": true}}'""",
}


@pytest.mark.parametrize("changes", CANNOT_RUN.values(), ids=list(CANNOT_RUN))
async def test_queues_without_a_job_that_can_run_are_left_alone(statements: Statements, changes: str) -> None:
    await statements.connection.execute(
        f"insert into {SCHEMA}._private_tasks (identifier) values ('a task of another worker')"
    )
    await add(statements, "cannot run", 3, changes)
    await add(statements, "can run")
    assert await take_names(statements, flags=FlagRules(("no",))) == ["can run"]


async def test_a_queue_of_another_pool_is_passed(statements: Statements, session: Any) -> None:
    """Whether it is locked, or about to be."""
    for queue in ("locked", "about to be", "free"):
        await add(statements, queue)
    await statements.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_by = 'another pool', locked_at = now() "
        "where queue_name = 'locked'"
    )
    async with session.transaction():
        await session.execute(
            f"select from {SCHEMA}._private_job_queues where queue_name = 'about to be' for update"
        )
        taken = await take(statements)
        assert await names(statements, taken) == ["free"]


async def test_a_queue_is_taken_once(statements: Statements, session: Any) -> None:
    await add(statements, "a", 3)
    assert await take_names(statements) == ["a"]
    assert await take(statements.of("another pool", session)) is None
    assert await take(statements) is None


# -- which jobs --------------------------------------------------------------------------------------------


async def test_a_series_has_the_next_jobs_of_each_queue_in_run_order(
    statements: Statements, session: Any
) -> None:
    first, second = await add(statements, "a", 4), await add(statements, "b", 4)
    taken = await take(statements)
    assert taken is not None
    async with session.transaction():
        jobs = await series(statements, session, taken, longest=3, limit=5)
        assert [job.id for job in jobs] == [*first[:3], *second[:2]]
        assert {(job.attempts, job.locked_by) for job in jobs} == {(1, statements.pool_id)}
        rows = await statements.connection.fetch(f"select locked_at from {SCHEMA}._private_jobs")
        assert {row["locked_at"] for row in rows} == {None}
        free = await statements.connection.fetch(
            f"select id from {SCHEMA}._private_jobs order by id for update skip locked"
        )
        assert [row["id"] for row in free] == [*first[3:], *second[2:]]


async def test_a_series_has_jobs_of_one_priority(statements: Statements, session: Any) -> None:
    urgent, later = await add(statements, "a", 2, "priority = -1"), await add(statements, "a", 2)
    for expected in (urgent, later):
        taken = await take(statements)
        assert taken is not None
        async with session.transaction():
            jobs = await series(statements, session, taken)
            assert [job.id for job in jobs] == expected
            await end_series(
                session, statements.schema, statements.pool_id, completed=expected, queues=taken.ids
            )


@pytest.mark.parametrize(
    "changes", ["key = 'k'", f"last_error = '{RECOVERED}', attempts = 1"], ids=["a key", "recovered"]
)
async def test_a_series_ends_before_a_job_that_must_not_be_held(
    statements: Statements, session: Any, changes: str
) -> None:
    before = await add(statements, "a", 2)
    await add(statements, "a", 1, changes)
    await add(statements, "a", 2)
    taken = await take(statements)
    assert taken is not None
    async with session.transaction():
        assert [job.id for job in await series(statements, session, taken)] == before


async def test_a_series_passes_jobs_that_its_flags_refuse(statements: Statements, session: Any) -> None:
    rules = FlagRules(("no",))
    (first,) = await add(statements, "a")
    await add(statements, "a", 2, """flags = '{{"no": true}}'""")
    (last,) = await add(statements, "a")
    taken = await take(statements, flags=rules)
    assert taken is not None
    async with session.transaction():
        assert [job.id for job in await series(statements, session, taken, flags=rules)] == [first, last]


# -- the end -----------------------------------------------------------------------------------------------


async def test_the_end_deletes_jobs_and_unlocks_queues_together(statements: Statements, session: Any) -> None:
    done, _ = await add(statements, "a", 2)
    kept = await add(statements, "b", 2)
    taken = await take(statements)
    assert taken is not None
    async with session.transaction():
        await series(statements, session, taken)
        await end_series(
            session, statements.schema, statements.pool_id, completed=[done, kept[0]], queues=taken.ids[:1]
        )
        assert set((await locked_queues(statements)).values()) == {statements.pool_id}
    assert await locked_queues(statements) == {"a": None, "b": statements.pool_id}
    left = await statements.connection.fetch(f"select id from {SCHEMA}._private_jobs order by id")
    assert done not in {row["id"] for row in left}


async def test_the_end_tells_if_a_job_is_gone(statements: Statements, session: Any) -> None:
    (gone,) = await add(statements, "a")
    taken = await take(statements)
    assert taken is not None
    await statements.connection.execute(f"delete from {SCHEMA}._private_jobs where id = $1", gone)
    with pytest.raises(RowsKeptError):
        async with session.transaction():
            await end_series(
                session, statements.schema, statements.pool_id, completed=[gone], queues=taken.ids
            )
    assert await locked_queues(statements) == {"a": statements.pool_id}


async def test_the_end_leaves_a_queue_that_another_pool_has_by_now(
    statements: Statements, session: Any
) -> None:
    await add(statements, "a")
    taken = await take(statements)
    assert taken is not None
    await statements.connection.execute(f"update {SCHEMA}._private_job_queues set locked_by = 'another pool'")
    await end_series(session, statements.schema, statements.pool_id, completed=[], queues=taken.ids)
    assert await locked_queues(statements) == {"a": "another pool"}


async def test_a_lost_batch_is_settled_by_the_locks_of_its_queues(
    statements: Statements, session: Any
) -> None:
    """A job is deleted if its queue was never unlocked; one that is locked now is asked about again later."""
    (deleted,), (lost,), (busy,), (gone,) = [await add(statements, queue) for queue in "abcd"]
    taken = await take(statements)
    assert taken is not None
    async with session.transaction():
        jobs = await series(statements, session, taken)
    await statements.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_at = now() where queue_name = 'b'"
    )
    await statements.connection.execute(f"delete from {SCHEMA}._private_jobs where id = $1", gone)
    async with session.transaction():
        await session.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", busy)
        settled = await settle_series(
            statements.connection, statements.schema, statements.pool_id, taken.at, jobs
        )
    assert settled == {deleted: True, lost: None, busy: False}
    rows = await statements.connection.fetch(f"select id from {SCHEMA}._private_jobs order by id")
    assert [row["id"] for row in rows] == [lost, busy]
