"""Rows that Python's directives leave are ordinary jobs to Node, and what Node fails reaches our handlers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import FailedJob, GiveUp, RetryIn, Snooze, make_worker_utils, run_once, task
from graphile_worker.recovery.cancelled_jobs import NotifyFailureHandlers
from graphile_worker.values.outcome import FailureHandler
from graphile_worker.values.schema_name import SchemaName
from interop.conftest import SharedDatabase

pytestmark = pytest.mark.interop

LATER = 6000.0  # seconds, so that nothing comes due by itself
ENDED = "count(*) >= $1 FROM public.interop_runs WHERE ended IS NOT NULL"
JOBS = "graphile_worker._private_jobs"


@task
async def echo(payload: dict[str, Any]) -> None:
    match payload.get("how"):
        case "snooze":
            raise Snooze(LATER)
        case "retry_in":
            raise RetryIn(LATER, "busy")
        case "give_up":
            raise GiveUp("no way")


async def test_node_runs_what_was_snoozed_and_retried_and_not_what_was_given_up(
    either_database: SharedDatabase,
) -> None:
    database = either_database
    async with make_worker_utils(connection_string=database.url) as utils:
        added = {
            (how, shape): await utils.add_job(
                "echo",
                {"how": how},
                queue_name=f"queue of {how}" if shape == "queue" else None,
                job_key=f"key of {how}" if shape == "key" else None,
            )
            for how in ("snooze", "retry_in", "give_up")
            for shape in ("plain", "queue", "key")
        }
        await run_once(connection_string=database.url, task_list=[echo])
        behind = [
            await utils.add_job("echo", {"behind": how}, queue_name=f"queue of {how}")
            for how in ("snooze", "retry_in", "give_up")
        ]
        ids = {case: job.id for case, job in added.items()}
        again = {job_id for (how, _), job_id in ids.items() if how != "give_up"}
        given_up = set(ids.values()) - again
        async with database.node.worker("echo", concurrency=4, pollInterval=50):
            await database.runs.wait_until(ENDED, len(behind))  # the queues are free
            await database.runs.wait_until_idle()
            assert {run.job_id for run in await database.runs.all()} == {job.id for job in behind}
            await database.connection.execute(f"UPDATE {JOBS} SET run_at = now()")
            await database.runs.wait_until(ENDED, len(behind) + len(again))
            await database.runs.wait_until_idle()
            runs = {run.job_id: run for run in await database.runs.all()}
            assert runs.keys() == {job.id for job in behind} | again
            for (how, _), job_id in ids.items():
                if job_id in again:
                    assert (runs[job_id].worker, runs[job_id].attempt) == (
                        "node",
                        1 if how == "snooze" else 2,
                    )
            left = await database.connection.fetch(f"SELECT * FROM {JOBS}")
            assert {row["id"] for row in left} == given_up
            assert {row["attempts"] for row in left} == {25}
            assert (await utils.jobs.retry("echo")).changed == len(given_up)
            await database.runs.wait_until(ENDED, len(behind) + len(added))
            await database.runs.wait_until_idle()
        assert await database.connection.fetchval(f"SELECT count(*) FROM {JOBS}") == 0


async def test_a_failure_that_node_writes_reaches_our_handler(either_database: SharedDatabase) -> None:
    database = either_database
    told: list[FailedJob] = []

    @task
    async def alert(failed: FailedJob) -> None:
        told.append(failed)

    await run_once(connection_string=database.url, task_list=[alert])  # installs our tables
    notifier = NotifyFailureHandlers(SchemaName(), {"echo": FailureHandler("alert", {})})
    await notifier.run(database.connection)
    async with make_worker_utils(connection_string=database.url) as utils:
        failed = await utils.add_job("echo", {"fail": "no"}, max_attempts=1, job_key="k")
        await utils.add_job("echo", {"fail": "no"})
        async with database.node.worker("echo", pollInterval=50):
            await database.runs.wait_until(ENDED, 2)
            await database.runs.wait_until_idle()
        await notifier.run(database.connection)
        await run_once(connection_string=database.url, task_list=[alert])
        await notifier.run(database.connection)
        await run_once(connection_string=database.url, task_list=[alert])
    assert [(each.job_id, each.task_identifier, each.key) for each in told] == [(failed.id, "echo", "k")]
    assert told[0].payload == {"fail": "no"}
    assert "no" in told[0].error


async def test_node_ignores_that_a_job_has_expired(either_database: SharedDatabase) -> None:
    database = either_database
    async with make_worker_utils(connection_string=database.url) as utils:
        job = await utils.add_job("echo", {"n": 1}, expires=timedelta(milliseconds=1), keep=True)
        async with database.node.worker("echo", pollInterval=50):
            await database.runs.wait_until(ENDED, 1)
            await database.runs.wait_until_idle()
    (run,) = await database.runs.all()
    assert (run.worker, run.job_id) == ("node", job.id)
