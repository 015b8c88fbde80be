"""A job that was replaced or removed by its key while it was locked does not come back from a dead worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.queries.write import write
from graphile_worker.queries.write_plan import Outcomes, WritePlanner
from graphile_worker.recovery.orphaned_jobs import renew_locks
from graphile_worker.recovery.reclaim import reclaim_jobs
from graphile_worker.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import SCHEMA, Gate, Jobs, Workers

POOL = "pool-dead"


async def _removed(utils: WorkerUtils, jobs: Jobs) -> None:
    await utils.remove_job("k")


async def _replaced(utils: WorkerUtils, jobs: Jobs) -> None:
    await jobs.add("work", {"payload": "new"}, key="k")


@pytest.mark.parametrize("how", [_replaced, _removed], ids=["replaced", "removed"])
async def test_a_sweep_does_not_bring_it_back(
    how: Callable[..., Awaitable[None]], jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    old = await jobs.add("work", {"payload": "old"}, key="k")
    await graveyard.bury(POOL)
    await graveyard.give(POOL, old)
    await how(utils, jobs)
    await utils.sweep_stale_workers()
    row = (await jobs.all())[0]
    assert (row["id"], row["locked_by"], row["attempts"]) == (old, None, row["max_attempts"])
    assert row["last_error"] == "Not run again: its worker died after its key had been used again or removed"
    assert [each["is_available"] for each in await jobs.all()] == [False, True][: await jobs.count()]


async def test_an_older_payload_does_not_run_after_the_newer_one(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, workers: Workers
) -> None:
    ran: list[Any] = []

    async def work(payload: Any) -> None:
        ran.append(payload["payload"])

    old = await jobs.add("work", {"payload": "old"}, key="k")
    await graveyard.bury(POOL)
    await graveyard.give(POOL, old)
    await _replaced(utils, jobs)
    await workers.once({"work": work})
    await utils.sweep_stale_workers()
    await workers.once({"work": work})
    assert ran == ["new"]


async def test_the_last_attempt_of_a_job_that_was_not_replaced_comes_back(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    plain = await jobs.add("work", max_attempts=1)
    keyed = await jobs.add("work", key="k", max_attempts=1)
    await jobs.add("work", key="k", max_attempts=1)  # changed while it waits
    await graveyard.bury(POOL)
    await graveyard.give(POOL, plain, keyed)
    await utils.sweep_stale_workers()
    assert [(row["attempts"], row["is_available"]) for row in await jobs.all()] == [(0, True), (0, True)]


async def test_a_worker_that_stops_does_not_give_it_back(
    jobs: Jobs, utils: WorkerUtils, workers: Workers
) -> None:
    gate = Gate()
    old = await jobs.add("work", key="k")
    runner = await workers.start({"work": gate}, grace=0)
    await gate.until_inside(1)
    await _removed(utils, jobs)
    await workers.stop(runner)
    row = await jobs.one()
    assert (row["id"], row["locked_by"], row["is_available"]) == (old, None, False)
    assert row["last_error"].startswith("Interrupted")


async def test_what_a_pool_locked_without_knowing_it_does_not_come_back_either(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    old = await jobs.add("work", key="k")
    last = await jobs.add("work", max_attempts=1)
    await graveyard.give(POOL, old, last)
    await _removed(utils, jobs)
    assert sorted(await reclaim_jobs(connection, SchemaName(), POOL, [])) == [old, last]
    assert [(row["id"], row["is_available"]) for row in await jobs.all()] == [(old, False), (last, True)]


async def test_a_lock_that_was_renewed_since_makes_no_difference(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    old = await jobs.add("work", key="k")
    await graveyard.bury(POOL)
    await graveyard.give(POOL, old)
    await _removed(utils, jobs)
    later = await connection.fetchval("select now() + $1::interval", timedelta(hours=2))
    assert await renew_locks(connection, SchemaName(), POOL, [old], later) == 1
    await utils.sweep_stale_workers()
    assert (await jobs.one())["is_available"] is False


@pytest.mark.parametrize("queue", [None, "named"])
async def test_a_completion_that_the_network_kept_back_does_not_delete_the_payload_that_came_since(
    queue: str | None, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work", {"payload": "old"}, key="k", queue=queue)
    await graveyard.bury(POOL)
    await graveyard.give(POOL, job_id)
    await utils.sweep_stale_workers()
    assert await jobs.add("work", {"payload": "new"}, key="k", queue=queue) == job_id
    queues = [row["id"] for row in await jobs.queues()]
    plan = WritePlanner(POOL).plan(Outcomes(completed=[job_id], queues=queues))
    await write(connection, SchemaName(), plan)
    assert (await jobs.one())["payload"] == '{"payload": "new"}'


@pytest.mark.parametrize("queue", [None, "named"])
async def test_a_late_completion_still_counts_where_nothing_can_have_been_replaced(
    queue: str | None, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work", queue=queue)
    await graveyard.bury(POOL)
    await graveyard.give(POOL, job_id)
    await utils.sweep_stale_workers()
    queues = [row["id"] for row in await jobs.queues()]
    plan = WritePlanner(POOL).plan(Outcomes(completed=[job_id], queues=queues))
    await write(connection, SchemaName(), plan)
    assert await jobs.count() == 0


@pytest.mark.parametrize(
    "statement",
    [
        f"select {SCHEMA}.add_job('work', job_key => 'k')",
        f"select {SCHEMA}.add_jobs(array[row('work', null, null, null, null, 'k', null, null)"
        f"::{SCHEMA}.job_spec])",
        f"select {SCHEMA}.remove_job('k')",
    ],
    ids=["add_job", "add_jobs", "remove_job"],
)
async def test_it_makes_no_difference_that_the_transaction_that_replaced_it_is_older_than_the_lock(
    statement: str,
    jobs: Jobs,
    utils: WorkerUtils,
    graveyard: Graveyard,
    database_url: str,
) -> None:
    old = await jobs.add("work", key="k")
    await graveyard.bury(POOL)
    other = await asyncpg.connect(database_url)
    try:
        async with other.transaction():
            await other.fetchval("select now()")  # from here on it is always this moment there
            await graveyard.give(POOL, old)
            await other.execute(statement)
    finally:
        await other.close()
    await utils.sweep_stale_workers()
    row = (await jobs.all())[0]
    assert (row["id"], row["locked_by"], row["is_available"]) == (old, None, False)
