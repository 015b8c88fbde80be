"""Roles that may not use the tables of pauses, and databases without them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import WorkerUtils, make_worker_utils, run_once
from graphile_worker.errors import GraphileWorkerError, PermissionDeniedError
from graphile_worker.hooks.events import JobSucceeded
from graphile_worker.testing.results import EventRecorder
from support.server import DatabaseServer
from support.working import SCHEMA, Jobs, Workers, until

TABLES = (
    "_private_jobs", "_private_job_queues", "_private_tasks", "_private_known_crontabs",
    "_private_py_workers", "_private_py_recoveries", "_private_py_migrations",
)  # fmt: skip


async def passing() -> None:
    pass


@pytest.fixture
async def role(server: DatabaseServer, connection: Any) -> AsyncIterator[str]:
    """A role that may use the shared tables, and not those of pauses."""
    name = f"{server.prefix}porter"
    await connection.execute(
        f'create role "{name}" login; grant usage on schema {SCHEMA} to "{name}"; '
        f'grant usage on all sequences in schema {SCHEMA} to "{name}"; '
        f'grant select on {SCHEMA}.migrations to "{name}"'
    )
    for table in TABLES:
        await connection.execute(
            f'grant all on {SCHEMA}.{table} to "{name}"; '
            f'create policy porter on {SCHEMA}.{table} to "{name}" using (true) with check (true)'
        )
    try:
        yield name
    finally:
        await connection.execute(f'drop owned by "{name}"; drop role "{name}"')


@pytest.fixture
async def limited(database_url: str, role: str) -> AsyncIterator[Any]:
    async with asyncpg.create_pool(
        database_url, server_settings={"role": role}, min_size=0, max_size=8
    ) as pool:
        yield pool


async def refusals(utils: WorkerUtils) -> set[str]:
    """What the client says to each attempt."""
    said = set()
    for attempt in (
        utils.queues.pause("q"), utils.pause(task="a"), utils.pause(all=True), utils.queues.resume("q"),
        utils.resume(task="a"), utils.resume(all=True), utils.queues.list_pauses(),
    ):  # fmt: skip
        with pytest.raises(GraphileWorkerError) as caught:
            await attempt
        said.add(str(caught.value))
    return said


async def test_a_role_without_rights_runs_jobs_and_is_told_once(
    utils: WorkerUtils,
    limited: Any,
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await utils.pause(task="a")
    await utils.queues.pause("q")
    held = await jobs.add("a", queue="q")
    with caplog.at_level(logging.WARNING, "graphile_worker"):
        await workers.start({"a": passing}, pg_pool=limited, events=recorder.events)
        await jobs.add("a")
        await recorder.wait_for(JobSucceeded)
    await jobs.until_left(held)  # a paused queue is held for every role
    lines = [record.getMessage() for record in caplog.records if "pauses" in record.getMessage()]
    assert len(lines) == 1
    assert "cannot see pauses and cancelled jobs" in lines[0]


async def test_a_role_that_may_not_even_see_which_tables_exist_is_told_too(
    utils: WorkerUtils, limited: Any, role: str, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await jobs.connection.execute(f'revoke all on {SCHEMA}._private_py_migrations from "{role}"')
    await utils.pause(task="a")
    await jobs.add("a")
    with caplog.at_level(logging.WARNING, "graphile_worker"):
        await run_once(task_list={"a": passing}, pg_pool=limited)
    await jobs.until_gone()
    lines = [line for line in caplog.messages if "pauses" in line]
    assert len(lines) == 1
    assert "The package works without them, but workers cannot see pauses of tasks and cancelled" in lines[0]


async def test_a_role_that_may_only_read_pauses_obeys_them_and_says_that_it_cannot_end_them(
    utils: WorkerUtils,
    limited: Any,
    role: str,
    jobs: Jobs,
    workers: Workers,
    recorder: EventRecorder,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for table in ("_private_py_pauses", "_private_py_queue_holds", "_private_py_cancels"):
        await jobs.connection.execute(
            f'grant select on {SCHEMA}.{table} to "{role}"; '
            f'create policy porter on {SCHEMA}.{table} to "{role}" using (true)'
        )
    await jobs.connection.execute(f'grant select on {SCHEMA}._private_py_tracks to "{role}"')
    await utils.pause(task="a")
    await utils.queues.pause("q", until=timedelta(milliseconds=1))
    held, paused = await jobs.add("b", queue="q"), await jobs.add("a")

    def said() -> list[str]:
        return [line for line in caplog.messages if "cannot be resumed" in line]

    with caplog.at_level(logging.WARNING, "graphile_worker"):
        await workers.start({"a": passing, "b": passing}, pg_pool=limited, events=recorder.events)
        await jobs.add("b")
        await recorder.wait_for(JobSucceeded)
        await until(lambda: bool(said()))
    assert len(said()) == 1
    assert "permission denied" in said()[0]
    assert sorted(row["id"] for row in await jobs.all() if row["locked_at"] is None) == [held, paused]


async def test_a_role_without_rights_is_refused_with_advice_and_still_gets_counts(
    utils: WorkerUtils, limited: Any
) -> None:
    await utils.queues.pause("q")
    async with make_worker_utils(pg_pool=limited) as clerk:
        for message in await refusals(clerk):
            assert message.startswith("this role may not pause or resume (permission denied for table")
            assert message.endswith("; connect as the owner of the schema")
        with pytest.raises(PermissionDeniedError, match="may not set the concurrency of queues"):
            await clerk.queues.set_concurrency("q", 2)
        with pytest.raises(PermissionDeniedError, match="may not pause"):
            await clerk.queues.pause("q")
        assert (await clerk.statistics.jobs()).pauses == []
        (queue,) = await clerk.queues.list()
        assert queue.pause is not None
        assert queue.pause.paused_at is None
        async with limited.acquire() as session, session.transaction():
            assert (await clerk.statistics.jobs(connection=session)).pauses == []
            assert await clerk.queues.list(connection=session) == [queue]


async def test_without_the_tables_the_client_says_how_to_create_them(
    utils: WorkerUtils, jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await jobs.connection.execute(
        f"drop table {SCHEMA}._private_py_pauses, {SCHEMA}._private_py_queue_holds, "
        f"{SCHEMA}._private_py_cancels"
    )
    assert await refusals(utils) == {
        "the tables for pauses are missing; to create them, run as the owner of the schema: "
        "graphile-worker migrate"
    }
    assert (await utils.statistics.jobs()).pauses == []
    await workers.start({"a": passing}, events=recorder.events)
    await jobs.add("a")
    await recorder.wait_for(JobSucceeded)
