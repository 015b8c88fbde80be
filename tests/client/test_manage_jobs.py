"""Completing, failing, rescheduling, removing and unlocking jobs by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from client.comparing import as_job
from graphile_worker.client import WorkerUtils
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.values.spec import JobSpec
from support.cases import looped


async def current(utils: WorkerUtils, job: Any) -> Any:
    details = await utils.jobs.get(job.id)
    return None if details is None else as_job(details)


@pytest.mark.compat("ADM-1")
async def test_complete_jobs_deletes_what_is_not_locked(utils: WorkerUtils, selection: Any) -> None:
    completed = await utils.complete_jobs(selection.four_ids)
    assert completed == [selection.failed, selection.regular_1, selection.regular_2]
    assert [as_job(job) for job in await utils.jobs.list()] == [selection.locked, selection.untouched]


@pytest.mark.compat("ADM-2")
async def test_permanently_fail_jobs_gives_up_what_is_not_locked(utils: WorkerUtils, selection: Any) -> None:
    failed = await utils.permanently_fail_jobs(selection.four_ids, "TESTING!")
    assert [job.id for job in failed] == [selection.failed.id, selection.regular_1.id, selection.regular_2.id]
    for job in failed:
        assert job.last_error == "TESTING!"
        assert job.attempts == job.max_attempts > 0
        assert await current(utils, job) == job
    assert await current(utils, selection.locked) == selection.locked
    assert await current(utils, selection.untouched) == selection.untouched


@pytest.mark.compat("ADM-3")
async def test_reschedule_jobs_changes_what_is_not_locked(utils: WorkerUtils, selection: Any) -> None:
    run_at = (datetime.now(UTC) + timedelta(seconds=60)).replace(microsecond=5)
    changed = await utils.reschedule_jobs(selection.four_ids, run_at=run_at, attempts=1)
    assert [job.id for job in changed] == [
        selection.failed.id,
        selection.regular_1.id,
        selection.regular_2.id,
    ]
    assert [(job.attempts, job.run_at) for job in changed] == [(1, run_at)] * 3
    assert [job.last_error for job in changed] == ["Failed forever", None, None]
    assert await current(utils, selection.locked) == selection.locked
    assert await current(utils, selection.untouched) == selection.untouched


async def test_reschedule_jobs_passes_zeros_through(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", priority=5)
    await utils.reschedule_jobs([job.id], attempts=3)
    [changed] = await utils.reschedule_jobs([job.id], priority=0, attempts=0, max_attempts=1)
    assert (changed.priority, changed.attempts, changed.max_attempts) == (0, 0, 1)
    assert changed.run_at == job.run_at


async def test_reschedule_jobs_takes_a_timedelta(utils: WorkerUtils) -> None:
    job = await utils.add_job("job1")
    [changed] = await utils.reschedule_jobs([job.id], run_at=timedelta(hours=2))
    assert changed.run_at - changed.updated_at == timedelta(hours=2)


@pytest.mark.parametrize("reason", [None, ""])
async def test_without_a_reason_a_standard_text_is_stored(utils: WorkerUtils, reason: str | None) -> None:
    job = await utils.add_job("job1")
    [failed] = await utils.permanently_fail_jobs([job.id], reason)
    assert failed.last_error == "Manually marked as failed"


@pytest.mark.compat("ONE-10")
async def test_remove_job_deletes_a_waiting_job(utils: WorkerUtils) -> None:
    job = await utils.add_job("job1", {"a": 1}, job_key="K")
    assert await utils.remove_job("K") == job
    assert await utils.jobs.list() == []


@pytest.mark.compat("EXT-7")
async def test_remove_job_of_an_unknown_key_is_none(utils: WorkerUtils) -> None:
    assert await utils.remove_job("unknown") is None


async def test_remove_job_cuts_a_running_job_off_from_its_key(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", job_key="K", max_attempts=4)
    await connection.execute("update graphile_worker._private_jobs set locked_by = 'pool', locked_at = now()")
    removed = await utils.remove_job("K")
    assert removed is not None
    assert (removed.id, removed.key, removed.attempts, removed.locked_by) == (job.id, None, 4, "pool")


@pytest.mark.compat("ADM-4")
async def test_force_unlock_workers_unlocks_only_the_given_pools(utils: WorkerUtils, connection: Any) -> None:
    plan = [
        (None, None), ("test", "pool-1"), ("test2", "pool-2"), ("test3", "pool-3"), (None, None),
        (None, "pool-1"), (None, "pool-2"), (None, "pool-3"), (None, "pool-2"), (None, "pool-1"),
    ]  # fmt: skip
    jobs = await utils.add_jobs(
        [JobSpec("job3", number, queue_name=queue) for number, (queue, _) in enumerate(plan)]
    )
    for job, (queue, pool) in zip(jobs, plan, strict=True):
        if pool is not None:
            await connection.execute(
                "update graphile_worker._private_jobs set locked_at = now(), locked_by = $2 where id = $1",
                job.id,
                pool,
            )
            await connection.execute(
                "update graphile_worker._private_job_queues set locked_at = now(), locked_by = $2 "
                "where queue_name = $1",
                queue,
                pool,
            )
    await utils.force_unlock_workers(["pool-2", "pool-3"])

    for job, (_, pool) in zip(jobs, plan, strict=True):
        assert (await current(utils, job)).locked_by == ("pool-1" if pool == "pool-1" else None)
    holders = {queue.queue_name: queue.locked_by for queue in await utils.queues.list()}
    assert holders == {"test": "pool-1", "test2": None, "test3": None}


async def test_managing_inside_a_transaction_is_undone_with_it(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", job_key="K", queue_name="Q")
    transaction = connection.transaction()
    await transaction.start()
    await utils.reschedule_jobs([job.id], priority=9, connection=connection)
    await utils.permanently_fail_jobs([job.id], connection=connection)
    await utils.remove_job("K", connection=connection)
    await utils.complete_jobs([job.id], connection=connection)
    await utils.force_unlock_workers(["pool"], connection=connection)
    await utils.cleanup(connection=connection)
    assert await utils.queues.list(connection=connection) == []
    await transaction.rollback()
    assert await current(utils, job) == job
    assert len(await utils.queues.list()) == 1


async def test_ids_that_no_job_has_change_nothing(utils: WorkerUtils) -> None:
    assert await utils.complete_jobs([]) == []
    assert await utils.complete_jobs([12345, 2**63 - 1]) == []
    assert await utils.jobs.get(12345) is None


@looped(
    ("call", "message"),
    [
        (lambda utils: utils.complete_jobs(5), "job_ids: expected a list of job ids, got 5"),
        (lambda utils: utils.complete_jobs("12"), "job_ids: expected a list of job ids, got '12'"),
        (lambda utils: utils.complete_jobs(["1"]), "job_ids: every id must be a whole number, got '1'"),
        (lambda utils: utils.complete_jobs([True]), "job_ids: every id must be a whole number, got True"),
        (lambda utils: utils.jobs.get(2**63), "job_ids: no job has an id beyond"),
        (lambda utils: utils.reschedule_jobs([1], max_attempts=0), "max_attempts: must be from 1 to 32767"),
        (lambda utils: utils.reschedule_jobs([1], attempts=-1), "attempts: must be from 0 to 32767"),
        (lambda utils: utils.reschedule_jobs([1], priority=2**15), "priority: must be from -32768 to 32767"),
        (
            lambda utils: utils.reschedule_jobs([1], run_at=datetime(2020, 1, 1)),
            "run_at: .* has no time zone",
        ),
        (lambda utils: utils.permanently_fail_jobs([1], "a\0b"), "reason: contains a NUL byte"),
        (lambda utils: utils.permanently_fail_jobs([1], 5), "reason: expected text, got 5"),
        (lambda utils: utils.remove_job(""), "job_key: must not be empty"),
        (lambda utils: utils.remove_job("k" * 513), "job_key: has 513 characters; at most 512 are allowed"),
        (lambda utils: utils.force_unlock_workers("pool-1"), "worker_ids: expected a list of names"),
        (lambda utils: utils.force_unlock_workers([1]), "worker_ids: every name must be text, got 1"),
    ],
)
async def test_bad_arguments_are_named(utils: WorkerUtils, call: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        await call(utils)
