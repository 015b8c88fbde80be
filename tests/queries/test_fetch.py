"""Fetching: which jobs are locked, in which order, and what that does to the rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.values.flags import FlagRules
from queries.statements import Statements
from support.working import SCHEMA, Jobs


@pytest.mark.compat("GJ1")
async def test_jobs_that_cannot_run_now_are_not_fetched(jobs: Jobs, statements: Statements) -> None:
    ready = await jobs.add("hello")
    locked = await jobs.add("hello")
    failed = await jobs.add("hello")
    await jobs.add("hello", run_at=datetime.now(UTC) + timedelta(hours=1))
    await jobs.add("not ours")
    in_busy_queue = await jobs.add("hello", queue="busy")
    in_free_queue = await jobs.add("hello", queue="free")
    change = jobs.connection.execute
    await change(f"update {SCHEMA}._private_jobs set locked_at = now() where id = $1", locked)
    await change(f"update {SCHEMA}._private_jobs set attempts = max_attempts where id = $1", failed)
    await change(f"update {SCHEMA}._private_job_queues set locked_at = now() where queue_name = 'busy'")
    fetched = await statements.fetch(100)
    assert sorted(job.id for job in fetched) == [ready, in_free_queue]
    assert in_busy_queue not in [job.id for job in fetched]


@pytest.mark.compat("GJ2")
async def test_any_forbidden_flag_keeps_a_job_back_whatever_its_value(
    jobs: Jobs, statements: Statements
) -> None:
    without = await jobs.add("hello")
    allowed = await jobs.add("hello", flags=["a", "b"])
    forbidden = await jobs.add("hello", flags=["c", "d"], queue="queue")
    false_flag = await jobs.add("hello", flags=["d"])
    await jobs.connection.execute(
        f"""update {SCHEMA}._private_jobs set flags = '{{"d": false}}' where id = $1""", false_flag
    )
    fetched = await statements.fetch(100, flags=FlagRules(("d", "z")))
    assert sorted(job.id for job in fetched) == [without, allowed]
    fetched = await statements.fetch(100, flags=FlagRules())  # no filter
    assert sorted(job.id for job in fetched) == [forbidden, false_flag]


@pytest.mark.compat("GJ3")
async def test_jobs_come_by_priority_and_then_by_run_at(jobs: Jobs, statements: Statements) -> None:
    now = datetime.now(UTC)
    wanted = []
    for priority in (5, -3, 0):
        for minutes in (1, 30, 10):
            for queue in (None, f"queue {priority} {minutes}"):
                run_at = now - timedelta(minutes=minutes, seconds=1 if queue else 0)
                job_id = await jobs.add("hello", priority=priority, run_at=run_at, queue=queue)
                wanted.append((priority, run_at, job_id))
    wanted.sort()
    one_by_one = [(await statements.fetch(1))[0].id for _ in range(4)]
    rest = [job.id for job in await statements.fetch(100)]
    assert [*one_by_one, *rest] == [job_id for _, _, job_id in wanted]


@pytest.mark.compat("GJ4")
async def test_no_more_than_the_limit_is_taken_and_rows_locked_by_others_are_skipped(
    jobs: Jobs, statements: Statements, database_url: str
) -> None:
    ids = [await jobs.add("hello", priority=n) for n in range(6)]
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", ids[1])
            fetched = await statements.fetch(3)
    finally:
        await other.close()
    assert [job.id for job in fetched] == [ids[0], ids[2], ids[3]]
    assert [row["locked_by"] for row in await jobs.all()] == [
        "pool-1",
        None,
        "pool-1",
        "pool-1",
        None,
        None,
    ]


@pytest.mark.compat("GJ5", "EXT-9")
async def test_a_batch_takes_one_job_of_a_queue_and_all_that_have_none(
    jobs: Jobs, statements: Statements
) -> None:
    first = await jobs.add("hello", queue="queue", priority=1)
    second = await jobs.add("hello", queue="queue", priority=2)
    plain = [await jobs.add("hello", priority=n) for n in (3, 4)]
    fetched = await statements.fetch(4)
    assert [job.id for job in fetched] == [first, *plain]
    row = next(row for row in await jobs.all() if row["id"] == second)
    assert (row["locked_by"], row["locked_at"], row["attempts"]) == (None, None, 0)
    assert await statements.fetch(4) == []


@pytest.mark.parametrize("ranges", [None, ([0], [0], [float("-inf")])], ids=["all", "above watermarks"])
async def test_rows_that_another_transaction_has_locked_are_skipped_only_while_it_lasts(
    jobs: Jobs, statements: Statements, database_url: str, ranges: Any
) -> None:
    first, second, third = [await jobs.add("hello") for _ in range(3)]
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", first)
            assert [job.id for job in await statements.fetch_plain(1, ranges=ranges)] == [second]
    finally:
        await other.close()
    assert [job.id for job in await statements.fetch_plain(2, ranges=ranges)] == [first, third]


async def test_the_plain_fetch_takes_jobs_beside_busy_queues_but_not_past_a_free_one(
    jobs: Jobs, statements: Statements
) -> None:
    plain = [await jobs.add("hello", priority=n) for n in (1, 2, 3)]
    for number in range(10):
        await jobs.add("hello", queue=f"queue {number}", priority=0)
    change = jobs.connection.execute
    await change(f"update {SCHEMA}._private_job_queues set locked_at = now()")
    assert [job.id for job in await statements.fetch_plain(1)] == plain[:1]
    everything = ([-32768], [32767], [float("-inf")])
    assert [job.id for job in await statements.fetch_plain(1, ranges=everything)] == plain[1:2]
    await change(f"update {SCHEMA}._private_job_queues set locked_at = null where queue_name = 'queue 9'")
    assert await statements.fetch_plain(1) == []
    assert await statements.fetch_plain(1, ranges=everything) == []
    (queued,) = await statements.fetch(1)
    assert queued.job_queue_id is not None
    assert [job.id for job in await statements.fetch_plain(1)] == plain[2:]


async def test_a_large_fetch_leaves_queues_that_come_later_to_the_next_one(
    jobs: Jobs, statements: Statements
) -> None:
    """Locking a queue takes long, and jobs that come first do not wait for it. The order is the same."""
    plain = await jobs.add_many("hello", 100)
    earlier = await jobs.add("hello", queue="first", priority=-1)
    later = [await jobs.add("hello", queue=f"queue {n}") for n in range(20)]
    assert {job.id for job in await statements.fetch(400)} == {earlier, *plain}
    assert {job.id for job in await statements.fetch(400)} == set(later)


async def test_a_small_fetch_takes_all_that_fits(jobs: Jobs, statements: Statements) -> None:
    plain = await jobs.add_many("hello", 50)
    later = [await jobs.add("hello", queue=f"queue {n}") for n in range(20)]
    assert {job.id for job in await statements.fetch(99)} == {*plain, *later}


async def test_the_announced_fetch_takes_what_the_whole_one_would(jobs: Jobs, statements: Statements) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    ids = await jobs.add_many("hello", 5)
    await jobs.add("hello", flags=["slow"])
    await jobs.add("hello", run_at=later)
    await jobs.add("unknown")
    options = {"flags": FlagRules(("slow",))}
    first = await statements.fetch_announced(2, **options)
    assert [job.id for job in first] == ids[:2]
    assert [job.id for job in await statements.of("pool-2").fetch_announced(9, **options)] == ids[2:]
    assert await statements.fetch_announced(9, **options) == []
    assert {row["locked_by"] for row in await jobs.all()} == {"pool-1", "pool-2", None}
    assert [job.id for job in await statements.fetch_announced(9, now=later, **options)] == [ids[-1] + 2]


@pytest.mark.parametrize("other", [{"priority": -1}, {"priority": 1}, {"queue": "a"}])
@pytest.mark.parametrize("later", [False, True], ids=["ready", "due later"])
async def test_the_announced_fetch_takes_nothing_beside_another_priority_or_a_queue(
    jobs: Jobs, statements: Statements, other: dict[str, Any], later: bool
) -> None:
    """The whole fetch then decides the order."""
    ids = await jobs.add_many("hello", 2)
    run_at = datetime.now(UTC) + timedelta(hours=1) if later else None
    stranger = await jobs.add("hello", run_at=run_at, **other)
    assert await statements.fetch_announced(9) == []
    assert {job.id for job in await statements.fetch(9)} == {*ids, *([] if later else [stranger])}


async def test_the_announced_fetch_skips_rows_that_others_hold(
    jobs: Jobs, statements: Statements, database_url: str
) -> None:
    first, second = await jobs.add_many("hello", 2)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(f"select from {SCHEMA}._private_jobs where id = $1 for update", first)
            assert [job.id for job in await statements.fetch_announced(9)] == [second]
        assert [job.id for job in await statements.fetch_announced(9)] == [first]
    finally:
        await other.close(timeout=30)


async def test_the_plain_fetch_takes_nothing_if_jobs_wait_for_too_many_queues(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add("hello")
    for number in range(11):
        await jobs.add("hello", queue=f"queue {number}")
    await jobs.connection.execute(f"update {SCHEMA}._private_job_queues set locked_at = now()")
    assert await statements.fetch_plain(1) == []
    assert len(await statements.fetch(1)) == 1


@pytest.mark.compat("GJ6", "GJ7")
async def test_a_fetched_job_and_its_queue_are_locked_by_the_pool(jobs: Jobs, statements: Statements) -> None:
    job_id = await jobs.add(
        "hello", {"a": [1, "ü"]}, queue="queue", key="k", priority=3, max_attempts=7, flags=["x"]
    )
    before = await jobs.one()
    (job,) = await statements.fetch(10)
    row = await jobs.one()
    (queue,) = await jobs.queues()
    assert (row["attempts"], row["locked_by"], row["is_available"]) == (1, "pool-1", False)
    assert (queue["locked_by"], queue["is_available"]) == ("pool-1", False)
    assert row["locked_at"] == queue["locked_at"]
    assert abs(row["locked_at"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert row["updated_at"] == before["updated_at"]
    assert (job.id, job.task_identifier, job.payload, job.key) == (job_id, "hello", {"a": [1, "ü"]}, "k")
    assert (job.priority, job.attempts, job.max_attempts) == (3, 1, 7)
    assert (job.flags, job.last_error, job.locked_by) == ({"x": True}, None, "pool-1")
    assert (job.run_at, job.created_at, job.updated_at) == (
        row["run_at"],
        row["created_at"],
        row["updated_at"],
    )
    assert (job.locked_at, job.job_queue_id, job.task_id) == (row["locked_at"], queue["id"], row["task_id"])


@pytest.mark.compat("GJ6")
async def test_with_a_time_of_its_own_a_pool_goes_by_that(jobs: Jobs, statements: Statements) -> None:
    moment = datetime(2021, 1, 1, 3, tzinfo=UTC)
    await jobs.add("hello", run_at=moment, queue="queue")
    assert await statements.fetch(1, now=moment - timedelta(seconds=1)) == []
    assert len(await statements.fetch(1, now=moment + timedelta(seconds=1))) == 1
    assert (await jobs.one())["locked_at"] == moment + timedelta(seconds=1)
    assert (await jobs.queues())[0]["locked_at"] == moment + timedelta(seconds=1)


@pytest.mark.compat("EXT-16")
async def test_a_queue_locked_in_another_transaction_hides_only_its_own_jobs(
    jobs: Jobs, statements: Statements, database_url: str
) -> None:
    await jobs.add("hello", queue="held", priority=-1)
    visible = [await jobs.add("hello", queue="free"), await jobs.add("hello")]
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.execute(
                f"select from {SCHEMA}._private_job_queues where queue_name = 'held' for update"
            )
            fetched = await statements.fetch(10)
    finally:
        await other.close()
    assert sorted(job.id for job in fetched) == visible
    assert [job.id for job in await statements.fetch(10)] != []


async def test_a_long_line_of_jobs_in_busy_queues_does_not_hide_a_free_queue(
    jobs: Jobs, statements: Statements
) -> None:
    await jobs.add_many("hello", 1000, queue="busy")
    free = [await jobs.add("hello", {"n": n}, queue=f"free {n}", priority=9) for n in range(3)]
    await jobs.connection.execute(
        f"update {SCHEMA}._private_job_queues set locked_at = now(), locked_by = 'x' "
        "where queue_name = 'busy'"
    )
    fetched = await statements.fetch(2)
    assert len(fetched) == 2
    assert {job.id for job in fetched} < set(free)
    assert len(await statements.fetch(2)) == 1


async def test_each_job_goes_to_one_pool_only(jobs: Jobs, statements: Statements) -> None:
    await jobs.add_many("hello", 50)
    taken = [job.id for n in range(5) for job in await statements.of(f"pool-{n}").fetch(15)]
    assert len(taken) == len(set(taken)) == 50
    assert json.loads((await jobs.all())[0]["payload"]) == {"n": 0}
