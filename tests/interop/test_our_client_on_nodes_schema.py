"""Our migrations and our client on the schema that Node installed: it stays Node's, and ours work."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec, add_job_adhoc, make_worker_utils, run_migrations
from interop import catalogue
from interop.conftest import SharedDatabase
from support.working import PATIENCE

pytestmark = pytest.mark.interop

LOCKED = """
    UPDATE graphile_worker._private_jobs SET locked_at = now(), locked_by = 'pool-x', attempts = attempts + 1
"""
SOMEBODY_WAITS_FOR_US = """
    EXISTS (SELECT FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid)))
"""


async def test_migrating_adds_our_own_objects_and_touches_none_of_nodes(
    node_database: SharedDatabase,
) -> None:
    before = await shared_objects(node_database)
    await run_migrations(connection_string=node_database.url)
    assert await shared_objects(node_database) == before
    assert await node_database.connection.fetchval(
        "SELECT count(*) > 0 FROM graphile_worker._private_py_migrations"
    )
    ended = await node_database.node.command("--schema-only")
    assert (ended.status, ended.output) == (0, "Schema updated\n")
    assert await shared_objects(node_database) == before


async def shared_objects(database: SharedDatabase) -> tuple[Any, ...]:
    return (
        await catalogue.read(database.connection),
        await catalogue.function_bodies(database.connection),
        await database.connection.fetch("SELECT * FROM graphile_worker.migrations ORDER BY id"),
    )


async def test_our_client_works_where_our_own_objects_are_missing(node_database: SharedDatabase) -> None:
    async with make_worker_utils(connection_string=node_database.url) as utils:
        job = await utils.add_job("echo", {"n": 1})
        (listed,) = await utils.complete_jobs([job.id])
    assert listed.id == job.id
    assert (
        await node_database.connection.fetchval(
            "SELECT to_regclass('graphile_worker._private_py_migrations')"
        )
        is None
    )


async def test_jobs_our_client_adds_run_in_node(node_database: SharedDatabase) -> None:
    specs = [
        JobSpec("echo", {"n": n}, queue_name=f"q{n % 3}" if n % 2 else None, priority=n % 4)
        for n in range(40)
    ]
    async with make_worker_utils(connection_string=node_database.url) as utils:
        jobs = await utils.add_jobs(specs)
    assert [(job.payload, job.priority) for job in jobs] == [(spec.payload, spec.priority) for spec in specs]
    adhoc = await add_job_adhoc("other", {"n": "adhoc"}, connection_string=node_database.url)
    assert (adhoc.task_identifier, adhoc.payload) == ("other", {"n": "adhoc"})
    async with node_database.node.worker("echo", "other", concurrency=4, pollInterval=50):
        await node_database.runs.wait_until_idle()
    runs = await node_database.runs.all()
    assert {run.job_id: run.payload["n"] for run in runs} == {
        job.id: job.payload["n"] for job in [*jobs, adhoc]
    }
    assert {run.job_id: run.queue for run in runs} == {
        job.id: spec.queue_name for job, spec in zip(jobs, specs, strict=True)
    } | {adhoc.id: None}
    assert await node_database.runs.overlaps() == []


async def test_mixed_batches_come_back_in_order_under_their_right_names(
    node_database: SharedDatabase,
) -> None:
    specs = [JobSpec(f"task-{n % 5}", {"n": n}, job_key=f"key-{n}" if n % 3 else None) for n in range(50)]
    async with make_worker_utils(connection_string=node_database.url) as utils:
        jobs = await utils.add_jobs(specs)
    assert [(job.task_identifier, job.payload, job.key) for job in jobs] == [
        (spec.task_identifier, spec.payload, spec.job_key) for spec in specs
    ]


async def test_keys_replace_preserve_deduplicate_and_merge(node_database: SharedDatabase) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    later = soon + timedelta(hours=1)
    async with make_worker_utils(connection_string=node_database.url) as utils:
        first = await utils.add_job("echo", {"n": 1}, job_key="k", run_at=soon)
        replaced = await utils.add_job("echo", {"n": 2}, job_key="k", run_at=later, priority=3)
        preserved = await utils.add_job(
            "echo", {"n": 3}, job_key="k", run_at=soon, job_key_mode="preserve_run_at"
        )
        same = await utils.add_job("echo", {"n": 4}, job_key="k", job_key_mode="unsafe_dedupe")
        listed = await utils.add_job("echo", [{"n": 5}], job_key="k")
        merged = await utils.add_job("echo", [{"n": 6}], job_key="k")
    rows = [first, replaced, preserved, same, listed, merged]
    assert [row.id for row in rows] == [first.id] * 6
    assert [row.revision for row in rows] == list(range(6))
    assert [row.payload for row in rows][:4] == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 3}]
    assert merged.payload == [{"n": 5}, {"n": 6}]
    assert (replaced.run_at, preserved.run_at, preserved.priority) == (later, later, 0)
    async with node_database.node.worker("echo"):
        await node_database.runs.wait_until_idle()
    assert [run.payload for run in await node_database.runs.all()] == [[{"n": 5}, {"n": 6}]]


async def test_jobs_our_client_managed_run_or_rest_in_node_as_told(node_database: SharedDatabase) -> None:
    async with make_worker_utils(connection_string=node_database.url) as utils:
        names = ["removed", "completed", "failed", "revived", "postponed", "untouched"]
        jobs = {name: await utils.add_job("echo", {"n": name}, job_key=name) for name in names}
        removed = await utils.remove_job("removed")
        assert removed is not None
        assert removed.id == jobs["removed"].id
        assert await utils.remove_job("never added") is None
        await utils.complete_jobs([jobs["completed"].id])
        (failed,) = await utils.permanently_fail_jobs([jobs["failed"].id], "enough")
        assert (failed.last_error, failed.attempts) == ("enough", 25)
        await utils.permanently_fail_jobs([jobs["revived"].id])
        await utils.reschedule_jobs([jobs["revived"].id], attempts=0)
        await utils.reschedule_jobs([jobs["postponed"].id], run_at=datetime.now(UTC) + timedelta(days=1))
    async with node_database.node.worker("echo"):
        await node_database.runs.wait_until_idle()
    assert {run.payload["n"] for run in await node_database.runs.all()} == {"revived", "untouched"}
    left = await node_database.connection.fetch("SELECT key FROM graphile_worker.jobs ORDER BY id")
    assert [row["key"] for row in left] == ["failed", "postponed"]


async def test_what_a_dead_node_worker_left_locked_can_be_unlocked_and_cleaned_up(
    node_database: SharedDatabase,
) -> None:
    async with make_worker_utils(connection_string=node_database.url) as utils:
        await utils.add_job("echo", {"n": 1}, queue_name="q")
        await node_database.connection.execute(LOCKED)
        await node_database.connection.execute(
            "UPDATE graphile_worker._private_job_queues SET locked_at = now(), locked_by = 'pool-x'"
        )
        await utils.force_unlock_workers(["pool-x"])
        async with node_database.node.worker("echo"):
            await node_database.runs.wait_until(
                "count(*) = 1 FROM public.interop_runs WHERE ended IS NOT NULL"
            )
            await node_database.runs.wait_until_idle()
        await utils.cleanup(["GC_JOB_QUEUES", "GC_TASK_IDENTIFIERS", "DELETE_PERMAFAILED_JOBS"])
    assert (
        await node_database.connection.fetchval(
            "SELECT (SELECT count(*) FROM graphile_worker._private_job_queues)"
            " + (SELECT count(*) FROM graphile_worker._private_tasks)"
        )
        == 0
    )


@pytest.mark.compat("EXT-15")
@pytest.mark.parametrize("many", [False, True], ids=["add_job", "add_jobs"])
async def test_a_keyed_add_that_nodes_function_loses_is_tried_again(
    node_database: SharedDatabase, many: bool
) -> None:
    """The job is being locked by a worker in the very moment in which it is replaced."""
    async with make_worker_utils(connection_string=node_database.url) as utils:
        running = await utils.add_job("echo", {"n": "running"}, job_key="k")

        async def add() -> Any:
            if not many:
                return await utils.add_job("echo", {"n": "new"}, job_key="k")
            before, added, after = await utils.add_jobs(
                [JobSpec("echo", {"n": "a"}), JobSpec("echo", {"n": "new"}, job_key="k"), JobSpec("echo")]
            )
            assert before.id < after.id
            return added

        async with node_database.connection.transaction():
            await node_database.connection.execute(LOCKED)
            adding = asyncio.create_task(add())
            await node_database.runs.wait_until(SOMEBODY_WAITS_FOR_US)
        added = await asyncio.wait_for(adding, PATIENCE)

    assert (added.payload, added.key) == ({"n": "new"}, "k")
    assert added.id != running.id
    assert (
        await node_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 2 + 2 * many
    )
    old = await node_database.connection.fetchrow(
        "SELECT key, attempts = max_attempts AS last FROM graphile_worker.jobs WHERE id = $1", running.id
    )
    assert tuple(old) == (None, True)


async def test_the_race_is_real_in_plain_sql_on_nodes_schema(node_database: SharedDatabase) -> None:
    """Why our client has to look twice: the function itself gives back an empty row and keeps nothing."""
    await node_database.connection.execute("SELECT graphile_worker.add_job('echo', job_key := 'k')")
    other = await asyncpg.connect(node_database.url)
    try:
        async with node_database.connection.transaction():
            await node_database.connection.execute(LOCKED)
            adding = asyncio.create_task(
                other.fetchval("SELECT id FROM graphile_worker.add_job('echo', job_key := 'k')")
            )
            await node_database.runs.wait_until(SOMEBODY_WAITS_FOR_US)
        assert await asyncio.wait_for(adding, PATIENCE) is None
    finally:
        await other.close()
    assert await node_database.connection.fetchval("SELECT count(*) FROM graphile_worker.jobs") == 1
