"""Deleting what is no longer needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from client.comparing import as_job
from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements import cleanup
from graphile_worker.database.statements.cleanup import CleanupReport
from graphile_worker.errors import InvalidArgumentError
from graphile_worker.values.spec import JobSpec
from support.working import SCHEMA, Workers


async def task_names(connection: Any) -> list[str]:
    rows = await connection.fetch("select identifier from graphile_worker._private_tasks order by 1")
    return [row[0] for row in rows]


@pytest.mark.compat("ADM-5")
async def test_permanently_failed_jobs_are_deleted(utils: WorkerUtils, selection: Any) -> None:
    await utils.permanently_fail_jobs(selection.four_ids)
    report = await utils.cleanup(["DELETE_PERMAFAILED_JOBS"])
    assert report == CleanupReport(permafailed_jobs=3)
    assert [as_job(job) for job in await utils.jobs.list()] == [selection.locked, selection.untouched]


async def test_many_failed_jobs_are_deleted_in_portions(
    utils: WorkerUtils, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "DELETE_BATCH", 100)
    jobs = await utils.add_jobs([JobSpec("job1", number) for number in range(700)])
    doomed = [job.id for job in jobs[::2]]
    await utils.permanently_fail_jobs(doomed)
    assert (await utils.cleanup(["DELETE_PERMAFAILED_JOBS"])).permafailed_jobs == 350
    assert (await utils.statistics.jobs()).jobs.total == 350


async def test_a_failed_job_that_is_locked_does_not_hold_up_the_cleanup(
    utils: WorkerUtils, connection: Any
) -> None:
    jobs = await utils.add_jobs([JobSpec("job1"), JobSpec("job1")])
    await utils.permanently_fail_jobs([job.id for job in jobs])
    async with connection.transaction():
        await connection.execute(
            "select from graphile_worker._private_jobs where id = $1 for update", jobs[0].id
        )
        assert (await utils.cleanup(["DELETE_PERMAFAILED_JOBS"])).permafailed_jobs == 1
    assert (await utils.cleanup(["DELETE_PERMAFAILED_JOBS"])).permafailed_jobs == 1


@pytest.mark.compat("ADM-6")
async def test_unused_queues_are_deleted(utils: WorkerUtils, connection: Any) -> None:
    jobs = []
    for number, queue in enumerate(["test", "test2", "test3"], start=1):
        jobs.append(await utils.add_job("job3", queue_name=queue))
        await connection.execute(
            "update graphile_worker._private_jobs set locked_at = now(), locked_by = $2 where id = $1",
            jobs[-1].id,
            f"pool-{number}",
        )
        await connection.execute(
            "update graphile_worker._private_job_queues set locked_at = now(), locked_by = $2 "
            "where queue_name = $1",
            queue,
            f"pool-{number}",
        )
    await utils.add_job("job3")
    await utils.force_unlock_workers(["pool-3"])
    await utils.complete_jobs([jobs[2].id])

    assert await utils.cleanup(["GC_JOB_QUEUES"]) == CleanupReport(job_queues=1)
    assert [queue.queue_name for queue in await utils.queues.list()] == ["test", "test2"]


@pytest.mark.compat("ADM-7")
async def test_unused_task_names_are_deleted_except_those_to_keep(
    utils: WorkerUtils, connection: Any
) -> None:
    names = ["job3", "test_job1", "test_job2", "test_job3", "test_job4"]
    jobs = await utils.add_jobs([JobSpec(name) for name in names])
    await utils.complete_jobs([jobs[2].id, jobs[4].id])
    report = await utils.cleanup(["GC_TASK_IDENTIFIERS"], task_identifiers_to_keep=["test_job4"])
    assert report == CleanupReport(task_identifiers=1)
    assert await task_names(connection) == ["job3", "test_job1", "test_job3", "test_job4"]


async def test_task_names_of_running_workers_are_kept(
    utils: WorkerUtils, connection: Any, workers: Workers
) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    await utils.add_jobs([JobSpec(name, run_at=later) for name in ("theirs", "nobodys")])
    runner = await workers.start({"theirs": lambda payload: None})
    await connection.execute(f"delete from {SCHEMA}._private_jobs")
    assert await utils.cleanup(["GC_TASK_IDENTIFIERS"]) == CleanupReport(task_identifiers=1)
    assert await task_names(connection) == ["theirs"]
    await runner.stop()
    assert await utils.cleanup(["GC_TASK_IDENTIFIERS"]) == CleanupReport(task_identifiers=1)


async def test_without_arguments_only_queues_are_cleaned(utils: WorkerUtils, connection: Any) -> None:
    job = await utils.add_job("job1", queue_name="q")
    await utils.complete_jobs([job.id])
    assert await utils.cleanup() == CleanupReport(job_queues=1)
    assert await task_names(connection) == ["job1"]


async def test_with_names_to_keep_alone_task_names_are_cleaned_too(
    utils: WorkerUtils, connection: Any
) -> None:
    jobs = await utils.add_jobs([JobSpec("job1", queue_name="q"), JobSpec("job2")])
    await utils.complete_jobs([job.id for job in jobs])
    report = await utils.cleanup(task_identifiers_to_keep=["job2"])
    assert report == CleanupReport(job_queues=1, task_identifiers=1)
    assert await task_names(connection) == ["job2"]


async def test_jobs_go_first_so_that_their_names_and_queues_go_too(utils: WorkerUtils) -> None:
    job = await utils.add_job("job1", queue_name="q")
    await utils.permanently_fail_jobs([job.id])
    report = await utils.cleanup(["GC_JOB_QUEUES", "GC_TASK_IDENTIFIERS", "DELETE_PERMAFAILED_JOBS"])
    assert report == CleanupReport(permafailed_jobs=1, task_identifiers=1, job_queues=1)


async def test_unknown_kinds_of_cleanup_are_refused(utils: WorkerUtils) -> None:
    message = "tasks: allowed are DELETE_PERMAFAILED_JOBS, GC_TASK_IDENTIFIERS, GC_JOB_QUEUES; got NOPE, nada"
    with pytest.raises(InvalidArgumentError, match=message):
        await utils.cleanup(["GC_JOB_QUEUES", "NOPE", "nada"])  # type: ignore[list-item]
    with pytest.raises(InvalidArgumentError, match="tasks: expected a list of names, got 'GC_JOB_QUEUES'"):
        await utils.cleanup("GC_JOB_QUEUES")  # type: ignore[arg-type]
