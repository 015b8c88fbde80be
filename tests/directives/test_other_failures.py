"""Handlers of permanent failures are told of those that other runtimes write, and of those by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker import Snooze, WorkerUtils, make_worker_utils, task
from graphile_worker.options import JobFilter
from graphile_worker.recovery.cancelled_jobs import NO_ERROR, NotifyFailureHandlers
from graphile_worker.values.outcome import FailureHandler
from graphile_worker.values.schema_name import SchemaName
from support.working import SCHEMA, Jobs, Workers, headline, until

HANDLERS = {"charge": FailureHandler("alert", {"max_attempts": 3})}
TOLD = f"{SCHEMA}._private_py_told_failures"
FOLLOWED = f"{SCHEMA}._private_py_failure_handlers"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


@pytest.fixture
async def notifier(jobs: Jobs) -> NotifyFailureHandlers:
    """It has run once, so that failures count from now on."""
    notifier = NotifyFailureHandlers(SchemaName(), HANDLERS)
    assert await notifier.run(jobs.connection) is False
    return notifier


async def fail_as_node_does(jobs: Jobs, job_id: int, error: str = "node failed") -> None:
    """Node's statements: lock the job, then write the failure of the attempt."""
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set locked_by = 'node', locked_at = now(), attempts = attempts + 1 "
        "where id = $1",
        job_id,
    )
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set last_error = $2, "
        "run_at = greatest(now(), run_at) + (exp(least(attempts, 10)) * interval '1 second'), "
        "locked_by = null, locked_at = null where id = $1 and locked_by = 'node'",
        job_id,
        error,
    )


async def alerts(jobs: Jobs) -> list[Any]:
    """The payloads of the handler's jobs, which are deleted."""
    rows = await jobs.connection.fetch(
        f"delete from {SCHEMA}._private_jobs job using {SCHEMA}._private_tasks task "
        "where task.id = job.task_id and task.identifier = 'alert' returning job.payload, job.max_attempts"
    )
    assert all(row["max_attempts"] == 3 for row in rows)
    return sorted((json.loads(row["payload"]) for row in rows), key=lambda payload: payload["job_id"])


async def test_a_failure_that_node_wrote_is_told_once(jobs: Jobs, notifier: NotifyFailureHandlers) -> None:
    retried = await jobs.add("charge", {"n": 1})
    final = await jobs.add("charge", {"n": 2}, key="k", max_attempts=1)
    other = await jobs.add("another task", max_attempts=1)
    for job_id in (retried, final, other):
        await fail_as_node_does(jobs, job_id)
    assert await notifier.run(jobs.connection) is False
    (told,) = await alerts(jobs)
    assert (told["job_id"], told["task_identifier"], told["payload"]) == (final, "charge", {"n": 2})
    assert (told["error"], told["attempts"], told["max_attempts"]) == ("node failed", 1, 1)
    assert told["key"] == "k"
    await notifier.run(jobs.connection)
    assert await alerts(jobs) == []


async def test_a_job_that_was_cancelled_while_node_ran_it_has_not_failed(
    jobs: Jobs, notifier: NotifyFailureHandlers
) -> None:
    job_id = await jobs.add("charge", max_attempts=1)
    await jobs.connection.execute(f"insert into {SCHEMA}._private_py_cancels (job_id) values ($1)", job_id)
    await fail_as_node_does(jobs, job_id)
    await notifier.run(jobs.connection)
    assert await alerts(jobs) == []


async def test_a_job_that_is_failed_by_hand(
    jobs: Jobs, utils: WorkerUtils, notifier: NotifyFailureHandlers
) -> None:
    reason, none = [await jobs.add("charge") for _ in range(2)]
    await utils.permanently_fail_jobs([reason], "wrong input")
    await utils.permanently_fail_jobs([none])
    await jobs.connection.execute(f"update {SCHEMA}._private_jobs set last_error = null where id = $1", none)
    await notifier.run(jobs.connection)
    assert [(told["job_id"], told["error"]) for told in await alerts(jobs)] == [
        (reason, "wrong input"),
        (none, NO_ERROR),
    ]


async def test_a_retried_job_that_fails_again_is_told_again(
    jobs: Jobs, utils: WorkerUtils, notifier: NotifyFailureHandlers
) -> None:
    job_id = await jobs.add("charge", max_attempts=1)
    for _ in range(2):
        await fail_as_node_does(jobs, job_id)
        await notifier.run(jobs.connection)
        assert [told["job_id"] for told in await alerts(jobs)] == [job_id]
        assert (await utils.jobs.retry("charge")).changed == 1
    await notifier.run(jobs.connection)
    assert await alerts(jobs) == []
    assert await jobs.connection.fetchval(f"select count(*) from {TOLD}") == 0  # it may run again


async def test_failures_before_there_was_a_handler_are_not_told(jobs: Jobs) -> None:
    job_id = await jobs.add("charge", max_attempts=1)
    await fail_as_node_does(jobs, job_id)
    notifier = NotifyFailureHandlers(SchemaName(), HANDLERS)
    await notifier.run(jobs.connection)
    await notifier.run(jobs.connection)
    assert await alerts(jobs) == []
    # A task without a handler for more than a week begins again.
    since = "now() - interval '9 days'"
    await jobs.connection.execute(f"update {FOLLOWED} set since = {since}, checked_at = {since}")
    await notifier.run(jobs.connection)
    assert await alerts(jobs) == []
    await jobs.connection.execute(f"update {FOLLOWED} set since = {since}")
    await notifier.run(jobs.connection)
    assert [told["job_id"] for told in await alerts(jobs)] == [job_id]


async def test_what_a_worker_told_is_not_told_again(
    jobs: Jobs, workers: Workers, utils: WorkerUtils, notifier: NotifyFailureHandlers
) -> None:
    @task(on_failure="alert")
    async def charge(payload: dict[str, str], helpers: Any) -> object:
        if payload["how"] == "snooze":  # and cannot run again
            await helpers.add_job("nothing_runs_this", {}, job_key="k")
            return Snooze(6000)
        raise ValueError("no")

    for _ in range(2):
        failed = await jobs.add("charge", {"how": "fail"}, max_attempts=1)
        await jobs.add("charge", {"how": "snooze"}, key="k")
        await workers.once([charge])
        assert [row["identifier"] for row in await jobs.all()].count("alert") == 1
        await notifier.run(jobs.connection)
        rows = [row for row in await jobs.all() if row["identifier"] == "alert"]
        assert [json.loads(row["payload"])["job_id"] for row in rows] == [failed]
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")


async def test_two_pools_at_the_same_time_tell_once(
    jobs: Jobs, database_url: str, notifier: NotifyFailureHandlers
) -> None:
    """The second one has read the failure before the first one commits."""
    job_id = await jobs.add("charge", max_attempts=1)
    await fail_as_node_does(jobs, job_id)
    other = await asyncpg.connect(database_url)
    try:
        first = jobs.connection.transaction()
        await first.start()
        await notifier.run(jobs.connection)
        second = asyncio.ensure_future(NotifyFailureHandlers(SchemaName(), HANDLERS).run(other))

        async def is_waiting() -> bool:
            return bool(
                await jobs.connection.fetchval(
                    "select exists (select from pg_locks where pid = $1 and not granted)",
                    other.get_server_pid(),
                )
            )

        await until(is_waiting)
        await first.commit()
        await second
    finally:
        await other.close()
    assert [told["job_id"] for told in await alerts(jobs)] == [job_id]


async def test_many_failures_take_several_steps(
    jobs: Jobs, utils: WorkerUtils, notifier: NotifyFailureHandlers
) -> None:
    await jobs.add_many("charge", 250)
    await utils.permanently_fail_jobs(filter=JobFilter(task_identifier="charge"))
    assert await notifier.run(jobs.connection) is True
    assert await notifier.run(jobs.connection) is False
    assert len(await alerts(jobs)) == 250


async def test_a_running_worker_does_it(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    @task(on_failure="alert")
    async def charge() -> None: ...

    @task
    async def alert(payload: dict[str, Any]) -> None:
        ran.append(payload["job_id"])

    await jobs.connection.execute(
        f"insert into {FOLLOWED} (task, since) values ('charge', now() - interval '1 hour')"
    )
    job_id = await jobs.add("charge", max_attempts=1)
    await fail_as_node_does(jobs, job_id)
    await workers.start([charge, alert])
    await until(lambda: ran == [job_id])


async def test_a_worker_without_handlers_looks_for_nothing(jobs: Jobs, workers: Workers) -> None:
    @task
    async def charge() -> None: ...

    runner = await workers.start([charge])
    assert not any("failures" in notifier.name for notifier in runner._recovery._maintenance_tasks)  # type: ignore[union-attr]


async def test_without_the_tables_workers_still_tell(jobs: Jobs, workers: Workers) -> None:
    @task(on_failure="alert")
    async def charge() -> None:
        raise ValueError("no")

    await jobs.add("charge", max_attempts=1)
    hooked = asyncio.Event()

    @task
    async def drop() -> None:
        await jobs.connection.execute(f"drop table {TOLD}, {FOLLOWED}")
        hooked.set()

    await jobs.add("drop", max_attempts=1, priority=-1)
    await workers.once([charge, drop], concurrency=1)
    assert hooked.is_set()
    rows = {row["identifier"]: row for row in await jobs.all()}
    assert set(rows) == {"charge", "alert"}
    assert headline(rows["charge"]) == "ValueError: no"
