"""What a write does to jobs and queues: completed, failed, or returned."""

from __future__ import annotations

import asyncio
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.sql import load
from graphile_worker.database.statements.write import Written, return_jobs
from graphile_worker.database.statements.write_plan import NOTHING_KEPT, Continuation, ErrorRecord
from graphile_worker.recovery.sweeper import reset_locked
from graphile_worker.values.attempts import back_off
from graphile_worker.values.flags import FlagRules
from graphile_worker.values.schema_name import SchemaName
from queries.statements import Statements
from support.working import SCHEMA, Jobs


async def locks_of_queues(jobs: Jobs) -> dict[str, str | None]:
    return {queue["queue_name"]: queue["locked_by"] for queue in await jobs.queues()}


@pytest.mark.compat("CO1")
async def test_completed_jobs_are_deleted_and_their_queues_unlocked(
    jobs: Jobs, statements: Statements
) -> None:
    for queue in ("a", "b", None, None):
        await jobs.add("hello", queue=queue)
    fetched = await statements.fetch(10)
    in_a = next(job for job in fetched if job.job_queue_id == min(j.job_queue_id or 99 for j in fetched))
    plain = next(job for job in fetched if job.job_queue_id is None)
    await statements.write(completed=[in_a, plain])
    assert await jobs.count() == 2
    assert await locks_of_queues(jobs) == {"a": None, "b": "pool-1"}
    assert await jobs.locked() == 3


@pytest.mark.compat("CO2", "EXT-10")
async def test_completing_with_a_wrong_pool_id_deletes_but_leaves_the_queue_locked(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", queue="a")
    fetched = await statements.fetch(10)
    await statements.of("pool-2").write(completed=fetched)
    assert await jobs.count() == 0
    assert await locks_of_queues(jobs) == {"a": "pool-1"}


@pytest.mark.compat("CO2")
async def test_a_completed_job_that_was_unlocked_is_deleted_all_the_same(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello")
    fetched = await statements.fetch(10)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null")
    await statements.write(completed=fetched)
    assert await jobs.count() == 0


@pytest.mark.compat("CO1")
@pytest.mark.parametrize("step", [1, 2, 5])
async def test_of_many_jobs_only_the_completed_ones_are_deleted(
    jobs: Jobs, statements: Statements, step: int
) -> None:
    """The others run in this pool, in another one, or not at all."""
    ids = await jobs.add_many("hello", 1000)
    first = await statements.fetch(600)
    others = await statements.of("pool-2").fetch(200)
    done = [*first, *others][::step]
    await statements.write(completed=done)
    assert {row["id"] for row in await jobs.all()} == set(ids) - {job.id for job in done}


@pytest.mark.compat("CO2")
async def test_among_many_a_job_with_a_key_that_another_pool_holds_stays(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add_many("hello", 200)
    lost, _ = [await jobs.add("hello", key=key) for key in ("lost", "kept")]
    fetched = await statements.fetch(300)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'pool-2' where id = $1", lost
    )
    await statements.write(completed=fetched)
    assert [row["id"] for row in await jobs.all()] == [lost]


@pytest.mark.compat("CO3")
async def test_completing_twice_does_not_unlock_the_queue_under_its_next_job(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", queue="a", priority=1)
    await jobs.add("hello", queue="a", priority=2)
    first = await statements.fetch(10)
    await statements.write(completed=first)
    second = await statements.fetch(10)
    assert len(second) == 1
    await statements.write(completed=first)  # as after an answer that was lost
    assert await locks_of_queues(jobs) == {"a": "pool-1"}


@pytest.mark.compat("FA1")
async def test_a_failed_job_keeps_its_attempts_and_payload_and_is_unlocked(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", {"a": 1}, queue="a")
    before = await jobs.one()
    fetched = await statements.fetch(10)
    start = await jobs.connection.fetchval("select clock_timestamp()")
    await statements.write(failed=[(fetched[0], "it broke")])
    end = await jobs.connection.fetchval("select clock_timestamp()")
    row = await jobs.one()
    assert (row["attempts"], row["last_error"], row["locked_at"], row["locked_by"]) == (
        1,
        "it broke",
        None,
        None,
    )
    assert json.loads(row["payload"]) == {"a": 1}
    assert row["updated_at"] == before["updated_at"]
    assert start <= row["run_at"] - timedelta(seconds=math.e) <= end
    assert await locks_of_queues(jobs) == {"a": None}


@pytest.mark.compat("FA1")
async def test_the_back_off_counts_from_a_run_at_that_is_still_to_come(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello")
    fetched = await statements.fetch(10)
    later = datetime.now(UTC) + timedelta(hours=2)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set run_at = $1", later)
    await statements.write(failed=[(fetched[0], "no")])
    assert (await jobs.one())["run_at"] - later == pytest.approx(
        timedelta(seconds=math.e), abs=timedelta(seconds=0.001)
    )


@pytest.mark.compat("FA1")
async def test_what_is_left_of_a_batch_replaces_the_payload(jobs: Jobs, statements: Statements) -> None:
    for payload in ([1, 2, 3], [4]):
        await jobs.add("hello", payload)
    fetched = await statements.fetch(10)
    await statements.write(failed=[(fetched[0], "some", '[1, "\\u0000"]'), (fetched[1], "all")])
    payloads = {row["id"]: json.loads(row["payload"]) for row in await jobs.all()}
    assert payloads == {fetched[0].id: [1, "\0"], fetched[1].id: fetched[1].payload}


@pytest.mark.compat("FA1", "EXT-10")
async def test_failing_with_a_wrong_pool_id_changes_nothing(jobs: Jobs, statements: Statements) -> None:
    await jobs.add("hello", queue="a")
    fetched = await statements.fetch(10)
    before, queues = await jobs.one(), await jobs.queues()
    await statements.of("pool-2").write(failed=[(fetched[0], "no")])
    assert await jobs.one() == before
    assert await jobs.queues() == queues


@pytest.mark.compat("FA2")
@pytest.mark.parametrize(
    ("attempts", "seconds"),
    [
        (1, 2.72),
        (2, 7.39),
        (3, 20.09),
        (4, 54.60),
        (5, 148.41),
        (6, 403.43),
        (7, 1096.63),
        (8, 2980.96),
        (9, 8103.08),
        (10, 22026.47),
        (11, 22026.47),
        (24, 22026.47),
    ],
)
async def test_the_back_off_grows_with_the_attempts(
    jobs: Jobs, statements: Statements, attempts: int, seconds: float
) -> None:
    await jobs.add("hello", max_attempts=100)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set attempts = $1", attempts - 1)
    fetched = await statements.fetch(1)
    async with jobs.connection.transaction():  # now() stands still
        now = await jobs.connection.fetchval("select now()")
        await statements.write(failed=[(fetched[0], "no")])
        assert ((await jobs.one())["run_at"] - now).total_seconds() == pytest.approx(seconds, abs=0.01)


async def test_the_log_knows_the_back_off_of_the_database(connection: Any) -> None:
    attempts = list(range(1, 31))
    jobs = f"unnest($1::integer[]) as job (attempts) {load('parts/back_off', SchemaName())}"
    rows = await connection.fetch(f"select back_off.seconds from {jobs}", attempts)
    assert [row[0] for row in rows] == pytest.approx([back_off(number) for number in attempts])


@pytest.mark.parametrize("record", [None, NOTHING_KEPT], ids=["write_outcomes", "write_and_keep"])
@pytest.mark.parametrize(
    ("decision", "delay", "max_attempts", "expected"),
    [
        (None, None, 3, (1, True, math.e, "no")),
        (None, 50.0, 3, (1, True, 50.0, "no")),
        (None, 50.0, 1, (1, False, math.e, "no")),
        ("give_up", None, 3, (3, False, math.exp(3), "no")),
        ("give_up", 50.0, 25, (4, False, math.exp(4), "no")),
        ("snooze", 50.0, 1, (0, True, 50.0, None)),
        ("snooze", 0.0, 3, (0, True, 0.0, None)),
    ],
)
async def test_a_decision_says_what_becomes_of_the_job(
    jobs: Jobs,
    statements: Statements,
    record: ErrorRecord | None,
    decision: str | None,
    delay: float | None,
    max_attempts: int,
    expected: tuple[Any, ...],
) -> None:
    """Both statements write the same. The task has 4 attempts, which hold for the default of 25."""
    await jobs.add("hello", max_attempts=max_attempts)
    (job,) = await statements.fetch(1)
    async with jobs.connection.transaction():  # now() stands still
        now = await jobs.connection.fetchval("select now()")
        written = await statements.written(failed=[(job, "no", None, 4, record, decision, delay)])
        row = await jobs.one()
    wait = (row["run_at"] - now).total_seconds()
    assert (row["attempts"], row["is_available"], wait, row["last_error"]) == (
        *expected[:2], pytest.approx(expected[2], abs=0.01), expected[3],
    )  # fmt: skip
    assert list(written.final) == ([] if expected[1] else [job.id])


@pytest.mark.compat("FA3")
async def test_a_job_that_failed_for_the_last_time_stays_and_is_not_fetched(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", max_attempts=1)
    fetched = await statements.fetch(1)
    await statements.write(failed=[(fetched[0], "no")])
    await jobs.make_due()
    row = await jobs.one()
    assert (row["is_available"], row["locked_by"], row["last_error"]) == (False, None, "no")
    assert await statements.fetch(1) == []


async def test_completed_and_failed_jobs_are_written_together(jobs: Jobs, statements: Statements) -> None:
    for n in range(6):
        await jobs.add("hello", {"n": n}, queue=f"q{n}" if n % 2 else None)
    fetched = await statements.fetch(10)
    await statements.write(completed=fetched[:3], failed=[(job, f"error {job.id}") for job in fetched[3:]])
    assert {row["id"]: row["last_error"] for row in await jobs.all()} == {
        job.id: f"error {job.id}" for job in fetched[3:]
    }
    assert await jobs.locked() == 0


async def test_the_next_job_of_a_queue_is_locked_in_the_same_statement(
    jobs: Jobs, statements: Statements
) -> None:
    first, last, second = [await jobs.add("hello", queue="a", priority=n) for n in (1, 3, 2)]
    (job,) = await statements.fetch(10)
    assert job.id == first
    (job,) = await statements.write(completed=[job], continuation=Continuation(tasks=statements.tasks))
    assert (job.id, job.attempts, job.locked_by, job.task_identifier) == (second, 1, "pool-1", "hello")
    assert await locks_of_queues(jobs) == {"a": "pool-1"}
    (job,) = await statements.write(failed=[(job, "no")], continuation=Continuation(tasks=statements.tasks))
    assert job.id == last
    assert await statements.write(completed=[job], continuation=Continuation(tasks=statements.tasks)) == []
    assert await locks_of_queues(jobs) == {"a": None}
    assert await jobs.locked() == 0


async def test_the_next_job_of_a_queue_is_one_that_the_pool_may_run(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello", queue="a", priority=1)
    await jobs.add("not ours", queue="a", priority=2)
    await jobs.add("hello", queue="a", priority=3, flags=["no"])
    await jobs.add("hello", queue="a", priority=4, run_at=datetime.now(UTC) + timedelta(hours=1))
    (job,) = await statements.fetch(10)
    continuation = Continuation(tasks=statements.tasks, flags=FlagRules(("no",)))
    assert await statements.write(completed=[job], continuation=continuation) == []
    assert await locks_of_queues(jobs) == {"a": None}
    assert await jobs.locked() == 0


async def test_no_next_job_is_locked_in_a_queue_that_another_pool_holds(
    jobs: Jobs, statements: Statements
) -> None:
    for n in range(3):
        await jobs.add("hello", queue="a", priority=n)
    (job,) = await statements.fetch(10)
    await jobs.connection.execute(f"select {SCHEMA}.force_unlock_workers(array['pool-1'])")
    (stolen,) = await statements.of("pool-2").fetch(10)
    assert stolen.id == job.id
    assert await statements.write(completed=[job], continuation=Continuation(tasks=statements.tasks)) == []
    assert await locks_of_queues(jobs) == {"a": "pool-2"}


@pytest.mark.compat("RT1")
async def test_a_returned_job_is_as_if_it_had_not_been_fetched(jobs: Jobs, statements: Statements) -> None:
    await jobs.add("hello", {"a": 1}, queue="a")
    before, queues = await jobs.one(), await jobs.queues()
    fetched = await statements.fetch(10)
    assert await statements.return_jobs(fetched) == {fetched[0].id}
    assert await jobs.one() == before
    assert await jobs.queues() == queues


@pytest.mark.compat("RT1")
async def test_attempts_do_not_fall_below_zero_and_a_note_is_kept(jobs: Jobs, statements: Statements) -> None:
    await jobs.add("hello")
    fetched = await statements.fetch(10)
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set attempts = 0")
    await statements.return_jobs(fetched, note="Interrupted: because")
    row = await jobs.one()
    assert (row["attempts"], row["last_error"], row["locked_by"]) == (0, "Interrupted: because", None)


@pytest.mark.compat("RT1", "EXT-10")
async def test_returning_with_a_wrong_pool_id_changes_nothing(jobs: Jobs, statements: Statements) -> None:
    await jobs.add("hello", queue="a")
    fetched = await statements.fetch(10)
    before, queues = await jobs.one(), await jobs.queues()
    assert await statements.of("pool-2").return_jobs(fetched) == set()
    assert await jobs.one() == before
    assert await jobs.queues() == queues


async def test_returning_notifies_other_workers(
    jobs: Jobs, statements: Statements, database_url: str
) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    listening = await asyncpg.connect(database_url)
    try:
        await jobs.add_many("hello", 3)
        fetched = await statements.fetch(3)
        await listening.add_listener("jobs:insert", lambda *arguments: received.put_nowait(arguments[3]))
        await statements.return_jobs(fetched)
        async with asyncio.timeout(60):
            assert json.loads(await received.get())["count"] == 3
    finally:
        await listening.close()


@pytest.mark.compat("RL1")
@pytest.mark.parametrize("with_our_clock", [False, True])
async def test_locks_older_than_four_hours_are_cleared_and_no_others(
    jobs: Jobs, with_our_clock: bool
) -> None:
    now = datetime(2031, 5, 6, tzinfo=UTC) if with_our_clock else datetime.now(UTC)
    ages = {"young": timedelta(hours=3, minutes=59), "old": timedelta(hours=4, minutes=1)}
    later = now + timedelta(hours=7)
    for name, age in ages.items():
        for run_at in (now - timedelta(days=1), later):
            await jobs.add(name, run_at=run_at, queue=name)
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs job set locked_at = $1, locked_by = 'dead', attempts = 3 "
            f"from {SCHEMA}._private_tasks task where task.id = job.task_id and task.identifier = $2",
            now - age,
            name,
        )
        await jobs.connection.execute(
            f"update {SCHEMA}._private_job_queues set locked_at = $1, locked_by = 'dead' "
            "where queue_name = $2",
            now - age,
            name,
        )
    freed = await reset_locked(jobs.connection, SchemaName(), now if with_our_clock else None)
    assert freed == (2, 1)
    rows = await jobs.all()
    assert [(row["identifier"], row["locked_by"], row["attempts"]) for row in rows] == [
        ("young", "dead", 3),
        ("young", "dead", 3),
        ("old", None, 3),
        ("old", None, 3),
    ]
    assert rows[0]["run_at"] == now - timedelta(days=1)
    assert abs(rows[2]["run_at"] - now) < timedelta(seconds=30)
    assert rows[3]["run_at"] == later
    assert await locks_of_queues(jobs) == {"old": None, "young": "dead"}


@pytest.mark.parametrize("count", [3, 200, 600])
@pytest.mark.parametrize("queue", [None, "a"])
async def test_a_write_reports_missing_jobs(
    jobs: Jobs, statements: Statements, count: int, queue: str | None
) -> None:
    """For each of the statements that delete."""
    await jobs.add_many("hello", count - 1)
    await jobs.add("hello", queue=queue, priority=-1)
    fetched = await statements.fetch(1000)
    assert len(fetched) == count
    gone = [job.id for job in fetched[1:3]]
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs where id = any ($1)", gone)
    written = await statements.written(completed=fetched)
    assert sorted(written.missing) == sorted(gone)
    assert await jobs.count() == 0


@pytest.mark.parametrize("count", [3, 200, 600])
async def test_a_complete_write_reports_nothing(jobs: Jobs, statements: Statements, count: int) -> None:
    await jobs.add_many("hello", count)
    assert await statements.written(completed=await statements.fetch(1000)) == Written()


async def test_a_failure_of_a_job_that_another_pool_holds_is_missing(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add_many("hello", 3)
    kept, taken, done = await statements.fetch(10)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'pool-2' where id = $1", taken.id
    )
    written = await statements.written(completed=[done], failed=[(kept, "no"), (taken, "no")])
    assert (list(written.missing), list(written.final)) == ([taken.id], [])


async def test_a_failure_that_is_not_retried_is_final(jobs: Jobs, statements: Statements) -> None:
    removed = await jobs.add("hello", key="k")
    last = await jobs.add("hello", max_attempts=1)
    await jobs.add("hello")
    fetched = await statements.fetch(10)
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('k')")
    written = await statements.written(failed=[(job, "no") for job in fetched])
    assert sorted(written.final) == [removed, last]


async def test_a_removed_job_is_deleted_when_it_is_returned(jobs: Jobs, statements: Statements) -> None:
    removed, other = await jobs.add("hello", key="k"), await jobs.add("hello")
    fetched = await statements.fetch(10)
    await jobs.connection.execute(f"select {SCHEMA}.remove_job('k')")
    returned = await return_jobs(statements.connection, statements.schema, statements.pool_id, fetched)
    assert returned == Written(missing=[], final=frozenset({removed}), retired=frozenset({removed}))
    assert [row["id"] for row in await jobs.all()] == [other]
