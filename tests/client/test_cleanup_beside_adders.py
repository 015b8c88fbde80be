"""Cleaning up while jobs are added: a name that an open transaction has used is not deleted under its job."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements import cleanup
from graphile_worker.database.statements.cleanup import CleanupReport
from support.working import SCHEMA, Jobs, Workers


async def done(payload: Any) -> None:
    pass


async def test_a_queue_survives_whose_next_job_is_not_committed_yet(
    utils: WorkerUtils, connection: Any, jobs: Jobs, workers: Workers
) -> None:
    await jobs.add("done", queue="used")
    await workers.once({"done": done})
    async with connection.transaction():
        await jobs.add("done", queue="used")
        assert await utils.cleanup(["GC_JOB_QUEUES"]) == CleanupReport()
    await workers.once({"done": done})
    assert await jobs.count() == 0
    assert await utils.cleanup(["GC_JOB_QUEUES"]) == CleanupReport(job_queues=1)


async def test_a_task_name_survives_whose_next_job_is_not_committed_yet(
    utils: WorkerUtils, connection: Any, jobs: Jobs, workers: Workers
) -> None:
    await jobs.add("done")
    await workers.once({"done": done})
    async with connection.transaction():
        await jobs.add("done")
        assert await utils.cleanup(["GC_TASK_IDENTIFIERS"]) == CleanupReport()
    await workers.once({"done": done})
    assert await jobs.count() == 0
    assert await utils.cleanup(["GC_TASK_IDENTIFIERS"]) == CleanupReport(task_identifiers=1)


async def test_giving_up_is_said_and_leaves_no_setting_behind(
    utils: WorkerUtils, database_url: str, connection: Any, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.add("done", queue="unused")
    await connection.execute(f"delete from {SCHEMA}._private_jobs")
    holder = await asyncpg.connect(database_url)
    try:
        async with holder.transaction():
            await holder.execute(f"select from {SCHEMA}._private_job_queues")
            async with connection.transaction():
                assert await utils.cleanup(["GC_JOB_QUEUES"], connection=connection) == CleanupReport()
                assert await connection.fetchval("show lock_timeout") == "0"
    finally:
        await holder.close()
    assert "unused queues were not deleted" in caplog.text


async def test_no_job_is_lost_when_many_add_while_queues_are_cleaned_up(
    utils: WorkerUtils, database_url: str, jobs: Jobs, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "PAUSE", 0.0)
    ran: set[int] = set()

    async def note(payload: int) -> None:
        ran.add(payload)

    await workers.start({"note": note}, concurrency=4)
    added = iter(range(600))

    async def add_some() -> None:
        for number in added:
            await utils.add_job("note", number, queue_name=f"queue-{number % 3}")

    async def clean_up() -> None:
        while len(ran) < 600:
            await utils.cleanup(["GC_JOB_QUEUES"])

    async with asyncio.timeout(120):
        await asyncio.gather(*(add_some() for _ in range(4)), clean_up())
    await jobs.until_gone(timeout=60)
