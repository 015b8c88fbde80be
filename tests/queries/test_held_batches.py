"""The statements of held batches: what they lock, write and find out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from graphile_worker.database.statements.fetch import may_queues_be_next
from graphile_worker.database.statements.held_batches import (
    BACKLOG,
    ID,
    RowsKeptError,
    begin_batch,
    end_batch,
    get_held_jobs,
    held_jobs,
    may_have_backlog,
    settle_jobs,
    warm_up,
)
from graphile_worker.database.statements.write_plan import Failure
from graphile_worker.values.flags import FlagRules
from graphile_worker.values.job import Job
from plans.explaining import tune
from queries.statements import Statements
from support.working import SCHEMA, Jobs

POOL = "pool under test"
ROWS = f"select id, attempts, locked_by, locked_at from {SCHEMA}._private_jobs order by id"


@pytest.fixture
async def session(database_url: str, statements: Statements) -> AsyncIterator[Any]:
    """A session with a transaction, like that of a batch."""
    connection = await asyncpg.connect(database_url)
    await tune(connection, statements.schema)
    await warm_up(connection, statements.schema)
    await begin_batch(connection, statements.schema)
    yield connection
    await connection.close()


async def add(statements: Statements, count: int, changes: str = "") -> list[int]:
    """Jobs that were due before the transaction began; `changes`: what else to set."""
    rows = await statements.connection.fetch(
        f"insert into {SCHEMA}._private_jobs (task_id, run_at) "
        "select $1, now() - interval '1 hour' from generate_series(1, $2::integer) returning id",
        next(iter(statements.tasks)),
        count,
    )
    ids = [row["id"] for row in rows]
    if changes:
        await statements.connection.execute(
            f"update {SCHEMA}._private_jobs set {changes} where id = any($1::bigint[])", ids
        )
    return ids


async def held(statements: Statements, session: Any, limit: int = 100, **terms: Any) -> Sequence[Any]:
    return await get_held_jobs(session, statements.schema, tasks=statements.tasks, limit=limit, **terms)


def jobs_of(statements: Statements, rows: Sequence[Any]) -> Sequence[Job]:
    return held_jobs(rows, POOL, statements.tasks)


async def test_rows_are_locked_and_come_as_if_they_were_written(statements: Statements, session: Any) -> None:
    ids = await add(statements, 5)
    rows = await held(statements, session)
    jobs = jobs_of(statements, rows)
    assert [(job.id, job.attempts, job.locked_by) for job in jobs] == [(id_, 1, POOL) for id_ in ids]
    assert {tuple(row)[1:] for row in await statements.connection.fetch(ROWS)} == {(0, None, None)}
    assert await held(statements, statements.connection) == []  # another worker skips them


async def test_what_must_not_run_is_not_held(statements: Statements, session: Any) -> None:
    await add(statements, 1, "run_at = now() + interval '1 hour'")
    await add(statements, 1, "attempts = 25")
    await add(statements, 1, "locked_at = now(), locked_by = 'other'")
    await add(statements, 1, """flags = '{"no": true}'""")
    (free,) = await add(statements, 1)
    rows = await held(statements, session, flags=FlagRules(("no",)))
    assert [row[ID] for row in rows] == [free]


async def test_a_job_that_was_added_after_the_transaction_began_is_held(
    statements: Statements, session: Any
) -> None:
    """Otherwise an urgent job would wait for a batch that was fetched after it was added."""
    await add(statements, 5)
    (urgent,) = await add(statements, 1, "priority = -1, run_at = now()")
    rows = await held(statements, session)
    assert rows[0][ID] == urgent
    known, gap = await add(statements, 2, "run_at = now(), priority = -4 - id % 2")
    rows = await held(statements, session, ranges=([-5, -4], [-5, 0], [0.0, 0.0]))
    assert {row[ID] for row in rows[:2]} == {known, gap}


async def test_nothing_is_held_if_a_named_queue_may_be_next(
    statements: Statements, session: Any, connection: Any
) -> None:
    await add(statements, 5)
    await Jobs(connection).add(next(iter(statements.tasks.values())), queue="q", priority=-1)
    assert await held(statements, session) == []


OTHERS = {
    "of an unknown task": "task_id = (select max(id) from {schema}._private_tasks)",
    "later": "run_at = now() + interval '1 hour'",
    "held back": """flags = '{{"no": true}}'""",
}


@pytest.mark.parametrize("change", OTHERS)
async def test_jobs_of_queues_that_this_worker_cannot_take_now_do_not_count(
    statements: Statements, session: Any, connection: Any, change: str
) -> None:
    ids = await add(statements, 5)
    await connection.execute(f"insert into {SCHEMA}._private_tasks (identifier) values ('unknown')")
    task = next(iter(statements.tasks.values()))
    for n in range(98):
        await Jobs(connection).add(task, queue="q" if n % 2 else "p", priority=-1)
    changes = OTHERS[change].format(schema=SCHEMA)
    await connection.execute(f"update {SCHEMA}._private_jobs set {changes} where job_queue_id is not null")
    terms: dict[str, Any] = {"tasks": statements.tasks, "flags": FlagRules(("no",))}
    assert not await may_queues_be_next(connection, statements.schema, **terms)
    rows = await held(statements, session, flags=FlagRules(("no",)))
    assert [row[ID] for row in rows] == ids
    await Jobs(connection).add(task, queue="q")
    assert await may_queues_be_next(connection, statements.schema, **terms)
    assert await statements.fetch_plain(limit=5, flags=FlagRules(("no",))) == []


async def test_a_queue_with_many_jobs_is_not_read_to_its_end(statements: Statements, connection: Any) -> None:
    task = next(iter(statements.tasks.values()))
    await Jobs(connection).add(task, queue="q")
    await connection.execute(
        f"insert into {SCHEMA}._private_jobs (task_id, job_queue_id, run_at) "
        f"select task_id, job_queue_id, now() + interval '1 hour' from {SCHEMA}._private_jobs, "
        "generate_series(1, 99)"
    )
    await connection.execute(f"update {SCHEMA}._private_jobs set run_at = now() + interval '1 hour'")
    assert await may_queues_be_next(connection, statements.schema, tasks=statements.tasks)
    await connection.execute(
        f"delete from {SCHEMA}._private_jobs where id = (select min(id) from {SCHEMA}._private_jobs)"
    )
    assert not await may_queues_be_next(connection, statements.schema, tasks=statements.tasks)


async def test_the_end_deletes_and_locks(statements: Statements, session: Any) -> None:
    ids = await add(statements, 300)
    await held(statements, session, limit=299)
    await end_batch(session, statements.schema, POOL, completed=ids[:250], outlasting=ids[250:260])
    await session.execute("commit")
    rows = await statements.connection.fetch(ROWS)
    assert [row["id"] for row in rows] == ids[250:]
    assert [(row["attempts"], row["locked_by"]) for row in rows[:10]] == [(1, POOL)] * 10
    assert [(row["attempts"], row["locked_by"]) for row in rows[10:]] == [(0, None)] * 40
    assert all(row["locked_at"] is not None for row in rows[:10])


@pytest.mark.parametrize("event", ["delete", "update"])
async def test_a_row_that_stays_is_noticed(statements: Statements, session: Any, event: str) -> None:
    ids = await add(statements, 3)
    await held(statements, session)
    await session.execute(
        f"create function {SCHEMA}.keep() returns trigger language plpgsql as $$ begin return null; end $$; "
        f"create trigger keep before {event} on {SCHEMA}._private_jobs for each row "
        f"when (old.id = {ids[1]}) execute function {SCHEMA}.keep()"
    )
    completed, outlasting = (ids, []) if event == "delete" else ([], ids)
    with pytest.raises(RowsKeptError):
        await end_batch(session, statements.schema, POOL, completed=completed, outlasting=outlasting)


async def test_a_lost_job_is_locked_only_if_it_is_still_as_the_batch_found_it(
    statements: Statements, session: Any
) -> None:
    connection = statements.connection
    ids = await add(statements, 6)
    free, gone, taken, failed, ours, busy = jobs_of(statements, await held(statements, session))
    await session.execute("rollback")
    update = f"update {SCHEMA}._private_jobs set"
    await connection.execute(f"delete from {SCHEMA}._private_jobs where id = $1", gone.id)
    await connection.execute(f"{update} locked_at = now(), locked_by = 'other' where id = $1", taken.id)
    await connection.execute(f"{update} attempts = 1 where id = $1", failed.id)
    await connection.execute(
        f"{update} locked_at = now(), locked_by = $2, attempts = 1 where id = $1", ours.id, POOL
    )
    await session.execute("begin")
    await session.execute(f"select from {SCHEMA}._private_jobs where id = {busy.id} for update")
    lost = [free, gone, taken, failed, ours, busy]
    found = (await settle_jobs(connection, statements.schema, POOL, lost, retries={})).is_ours
    assert found == {free.id: True, ours.id: True, busy.id: False, taken.id: None, failed.id: None}
    rows = {row["id"]: row for row in await connection.fetch(ROWS)}
    assert (rows[free.id]["attempts"], rows[free.id]["locked_by"]) == (1, POOL)
    assert rows[ours.id]["attempts"] == 1  # and not a second one
    await session.execute("rollback")
    found = (await settle_jobs(connection, statements.schema, POOL, lost, retries={})).is_ours
    assert found == {free.id: True, ours.id: True, busy.id: True, taken.id: None, failed.id: None}
    assert ids == [job.id for job in lost]


async def test_a_lost_job_with_other_attempts_is_not_ours(statements: Statements, session: Any) -> None:
    await add(statements, 1)
    (job,) = jobs_of(statements, await held(statements, session))
    await session.execute("rollback")
    found = await settle_jobs(
        statements.connection, statements.schema, POOL, [replace(job, attempts=2)], retries={}
    )
    assert found.is_ours == {job.id: None}


async def test_a_lost_job_whose_row_does_not_change_is_let_go(statements: Statements, session: Any) -> None:
    ids = await add(statements, 2)
    jobs = jobs_of(statements, await held(statements, session))
    await session.execute("rollback")
    await statements.connection.execute(
        f"create function {SCHEMA}.keep() returns trigger language plpgsql as $$ begin return null; end $$; "
        f"create trigger keep before update on {SCHEMA}._private_jobs for each row "
        f"when (old.id = {ids[1]}) execute function {SCHEMA}.keep()"
    )
    found = await settle_jobs(statements.connection, statements.schema, POOL, jobs, retries={})
    assert found.is_ours == {
        ids[0]: True,
        ids[1]: None,
    }


async def test_a_failure_is_that_of_the_lost_batch_if_the_job_runs_again_when_the_batch_said(
    statements: Statements, session: Any
) -> None:
    connection = statements.connection
    await add(statements, 3)
    jobs = ours, theirs, completed = jobs_of(statements, await held(statements, session))
    failures = [Failure(ours.id, "ours"), Failure(theirs.id, "ours")]
    retries = await end_batch(
        session, statements.schema, POOL, completed=[completed.id], outlasting=(), failed=failures
    )
    await session.execute("commit")
    rows = {row["id"]: row for row in await connection.fetch(f"select * from {SCHEMA}._private_jobs")}
    assert retries == {job_id: row["run_at"] for job_id, row in rows.items()}
    await connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at + interval '1 microsecond' where id = $1",
        theirs.id,
    )
    found = await settle_jobs(connection, statements.schema, POOL, jobs, retries=retries)
    assert (found.is_ours, found.failed) == ({ours.id: None, theirs.id: None}, {ours.id})


async def test_a_backlog_is_many_jobs_that_are_ready(statements: Statements) -> None:
    connection, schema = statements.connection, statements.schema
    (job_id, *_) = await add(statements, BACKLOG)
    assert await may_have_backlog(connection, schema)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = now() + interval '1 hour' where id = $1", job_id
    )
    assert not await may_have_backlog(connection, schema)


async def test_the_look_for_a_backlog_ends_soon(statements: Statements, session: Any) -> None:
    await session.execute(f"lock table {SCHEMA}._private_jobs")
    assert await may_have_backlog(statements.connection, statements.schema)
    await session.execute("rollback")
    assert not await may_have_backlog(statements.connection, statements.schema)


class SlowToRollBack(asyncpg.Connection):  # type: ignore[misc]
    """As on a busy machine, where the bound of the statements ends the first ROLLBACK as well."""

    refused = 0

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        if query == "ROLLBACK;" and not self.refused:
            self.refused += 1
            raise asyncpg.QueryCanceledError("canceling statement due to statement timeout")
        return await super().execute(query, *args, **options)


async def test_after_a_look_that_was_ended_the_session_can_be_used(
    database_url: str, statements: Statements, session: Any
) -> None:
    """A worker could not start: `current transaction is aborted`."""
    await session.execute(f"lock table {SCHEMA}._private_jobs")
    connection = await asyncpg.connect(database_url, connection_class=SlowToRollBack)
    try:
        assert await may_have_backlog(connection, statements.schema)
        assert connection.refused
        assert await connection.fetchval("select 1") == 1
    finally:
        await connection.close()
