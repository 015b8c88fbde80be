"""A job that was replaced or removed by its key while it was locked neither comes back nor stays.

A worker gives it back without having started it, a worker that had it died, or its lock is four hours old. A
job that a worker has started and not completed stays as failed: that is its outcome.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from graphile_worker.client import WorkerUtils
from graphile_worker.database.statements.write import return_jobs, write
from graphile_worker.database.statements.write_plan import Outcomes, WritePlanner
from graphile_worker.hooks import FailJob, Hooks
from graphile_worker.recovery.cancelled_jobs import end_leftover_jobs
from graphile_worker.recovery.orphaned_jobs import reclaim_jobs, renew_locks
from graphile_worker.recovery.sweep import Sweep
from graphile_worker.recovery.sweeper import reset_locked
from graphile_worker.values.retention import Retention, RetentionPolicy
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import SCHEMA, Gate, Jobs, Workers, until

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
    report = await utils.sweep_stale_workers()
    assert [row["is_available"] for row in await jobs.all()] == ([True] if how is _replaced else [])
    assert old not in [row["id"] for row in await jobs.all()]
    assert (report.recovered[0].cancelled, report.recovered[0].failed) == ([old], [])


async def test_the_end_of_a_kept_one_is_that_of_a_cancelled_job(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    job_id = await jobs.add("work", key="k", flags=["py:keep"])
    await graveyard.bury(POOL)
    await graveyard.give(POOL, job_id)
    await _removed(utils, jobs)
    await utils.sweep_stale_workers()
    (end,) = await utils.history.of_job(job_id)
    assert (end.state, end.error) == ("cancelled", "its key was removed or used again")
    assert await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_py_cancels") == 0


@pytest.mark.parametrize("how", [_replaced, _removed], ids=["replaced", "removed"])
async def test_it_stays_as_failed_if_on_recovery_says_so(
    how: Callable[..., Awaitable[None]], jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard
) -> None:
    old = await jobs.add("work", {"payload": "old"}, key="k")
    await graveyard.bury(POOL)
    await graveyard.give(POOL, old)
    await how(utils, jobs)
    hooks = Hooks()
    hooks.on_recovery(lambda job: FailJob("its worker died"))
    sweep = Sweep(lambda work: work(jobs.connection), SchemaName(), hooks)
    await sweep()
    row = (await jobs.all())[0]
    assert (row["id"], row["locked_by"], row["is_available"]) == (old, None, False)
    assert row["last_error"] == "Not run again: its worker died after its key had been used again or removed"


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
    assert [(row["id"], row["is_available"]) for row in await jobs.all()] == [(last, True)]


# -- prefetched ----------------------------------------------------------------------------------------------


class Prefetch:
    """A worker whose only slot is busy while it has a keyed job locked that it has not started."""

    def __init__(self, jobs: Jobs, workers: Workers) -> None:
        self.jobs = jobs
        self.workers = workers
        self.gate = Gate()
        self.ran: list[str] = []

    async def start(self, mode: str, **job: Any) -> Any:
        async def work(payload: Any) -> None:
            self.ran.append(payload["name"])
            if payload["name"] == "first":
                await self.gate(payload)

        runner = await self.workers.start({"work": work, "other": work}, concurrency=1, **_MODES[mode])
        async with self.jobs.connection.transaction():
            for number in range(SHORT if mode == "prefetch" else 0):  # jobs are short, as it seems
                await self.jobs.add("work", {"name": f"short {number}"}, priority=-1)
            await self.jobs.add("work", {"name": "first"})
            await self.jobs.add("work", {"name": "old"}, key="k", priority=1, **job)
        await self.gate.until_inside(1)
        await until(self.is_locked)
        return runner

    async def is_locked(self) -> bool:
        return {row["payload"]: row["locked_by"] for row in await self.jobs.all()}.get(
            '{"name": "old"}'
        ) is not None


SHORT = 40
_MODES: dict[str, dict[str, Any]] = {
    # So long that nothing overstays while the test looks.
    "prefetch": {"prefetch": 30.0, "hold": 0, "grace": 0},
    "local queue": {"local_queue": {"size": 5, "ttl": 3600}, "grace": 0},
}


@pytest.fixture
def prefetch(jobs: Jobs, workers: Workers) -> Prefetch:
    return Prefetch(jobs, workers)


@pytest.mark.parametrize("queue", [None, "named"])
@pytest.mark.parametrize("how", [_replaced, _removed], ids=["replaced", "removed"])
@pytest.mark.parametrize("mode", _MODES)
async def test_a_worker_that_stops_deletes_what_it_has_not_started(
    mode: str,
    how: Callable[..., Awaitable[None]],
    queue: str | None,
    jobs: Jobs,
    utils: WorkerUtils,
    workers: Workers,
    prefetch: Prefetch,
) -> None:
    runner = await prefetch.start(mode, queue=queue)
    await how(utils, jobs)
    await workers.stop(runner)
    left = [(row["payload"], row["is_available"]) for row in await jobs.all()]
    expected = [('{"name": "first"}', True), ('{"payload": "new"}', True)]
    assert left == expected[: 2 if how is _replaced else 1]
    assert "old" not in prefetch.ran
    assert await jobs.locked() == 0


async def test_a_pause_deletes_what_its_worker_has_not_started(
    jobs: Jobs, utils: WorkerUtils, prefetch: Prefetch
) -> None:
    await prefetch.start("prefetch")
    await _removed(utils, jobs)
    await utils.pause(task="work")
    await until(lambda: _is_left(jobs, '{"name": "first"}'))


async def _is_left(jobs: Jobs, payload: str) -> bool:
    return [row["payload"] for row in await jobs.all()] == [payload]


async def test_a_cancelled_job_that_is_returned_ends_as_cancelled(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    """Its columns look the same, and a pool that looks for what is left over keeps its end."""
    job = await utils.add_job("work", job_key="k")
    await graveyard.give(POOL, job.id)
    await utils.cancel_jobs([job.id])
    await return_jobs(connection, SchemaName(), POOL, [replace(job, locked_by=POOL)])
    assert [row["id"] for row in await jobs.all()] == [job.id]
    await end_leftover_jobs(connection, SchemaName(), RetentionPolicy("all", default=Retention(60.0)))
    assert await jobs.count() == 0
    assert await connection.fetchval(f"select state from {SCHEMA}._private_py_history") == "cancelled"


async def test_without_rights_on_cancelled_jobs_it_is_deleted(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job = await utils.add_job("work", job_key="k")
    await graveyard.give(POOL, job.id)
    await _removed(utils, jobs)
    await connection.execute(f"drop table {SCHEMA}._private_py_cancels")
    await return_jobs(connection, SchemaName(), POOL, [replace(job, locked_by=POOL)])
    assert await jobs.count() == 0


@pytest.mark.parametrize("payload", [[{"n": 1}], {"n": 1}], ids=["batch", "other"])
async def test_items_of_a_batch_are_never_deleted(
    payload: Any, jobs: Jobs, graveyard: Graveyard, connection: Any
) -> None:
    """Where Node installed the functions, a new batch takes the key without the items of the other."""
    job_id = await jobs.add("work", payload)
    await graveyard.give(POOL, job_id)
    await connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = max_attempts, updated_at = clock_timestamp()"
    )
    await reclaim_jobs(connection, SchemaName(), POOL, [])
    assert await jobs.count() == isinstance(payload, list)


# -- four hours ----------------------------------------------------------------------------------------------


async def _age(connection: Any, job_id: int, hours: float) -> None:
    await connection.execute(
        f"update {SCHEMA}._private_jobs set locked_at = locked_at - $2::interval, "
        "updated_at = updated_at - $2::interval, created_at = created_at - $2::interval where id = $1",
        job_id,
        timedelta(hours=hours),
    )


async def test_a_stale_lock_leaves_nothing_of_it_either(
    jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    old, other = await jobs.add("work", key="k"), await jobs.add("work")
    await graveyard.give("pool-foreign", old, other)
    await _removed(utils, jobs)
    for job_id in (old, other):
        await _age(connection, job_id, 5)
    assert await reset_locked(connection, SchemaName()) == (2, 0)
    assert [(row["id"], row["is_available"]) for row in await jobs.all()] == [(other, True)]


@pytest.mark.parametrize("how", ["reset", "sweep"])
async def test_a_job_with_a_stale_lock_that_was_given_up_by_hand_stays(
    how: str, jobs: Jobs, utils: WorkerUtils, graveyard: Graveyard, connection: Any
) -> None:
    job_id = await jobs.add("work")
    await graveyard.bury(POOL)
    await graveyard.give(POOL, job_id)
    await _age(connection, job_id, 5)
    await utils.permanently_fail_jobs([job_id], reason="enough")
    if how == "reset":
        await reset_locked(connection, SchemaName())
        assert (await jobs.one())["last_error"] == "enough"
    else:
        await utils.sweep_stale_workers()
    assert ((await jobs.one())["is_available"], await jobs.locked()) == (False, 0)


# -- renewed, late, old transactions -------------------------------------------------------------------------


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
    assert await jobs.count() == 0


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
    assert old not in [row["id"] for row in await jobs.all()]
