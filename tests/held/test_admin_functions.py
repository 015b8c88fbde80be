"""Administration beside held batches: bounded waits, right answers, and no job runs twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import itemgetter
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobSpec, WorkerUtils
from graphile_worker.database.statements import manage_jobs
from graphile_worker.database.statements.cleanup import CleanupTask
from graphile_worker.database.statements.job_filter import JobFilter
from support.holding import TASK, HoldingWorker
from support.working import PATIENCE, SCHEMA, Jobs, until

HOLD = 3.0  # seconds; on a busy machine, a test needs some of it to see that jobs are held
LONG = 300.0  # seconds; no test waits for it

Call = Callable[[Any, list[int]], Awaitable[list[int]]]


def function(text: str) -> Call:
    """A function of the shared schema, as any client may call it; returns the ids in its answer."""

    async def call(connection: Any, ids: list[int]) -> list[int]:
        rows = await connection.fetch(f"select id from {SCHEMA}.{text}", ids)
        return sorted(row["id"] for row in rows)

    return call


FUNCTIONS: dict[str, Call] = {
    "complete_jobs": function("complete_jobs($1)"),
    "permanently_fail_jobs": function("permanently_fail_jobs($1, 'no')"),
    "reschedule_jobs": function("reschedule_jobs($1, run_at => now() + interval '1 day')"),
}


@pytest.fixture(params=FUNCTIONS)
def call(request: pytest.FixtureRequest) -> Call:
    return FUNCTIONS[request.param]


@asynccontextmanager
async def another(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    try:
        yield connection
    finally:
        await connection.close(timeout=PATIENCE)


async def until_waiting(jobs: Jobs, pids: list[int]) -> None:
    """Wait until each of these sessions waits for a lock."""

    async def are_waiting() -> bool:
        found = await jobs.connection.fetchval(
            "select count(*) from pg_stat_activity where pid = any ($1) and wait_event_type = 'Lock'", pids
        )
        return bool(found == len(pids))

    await until(are_waiting)


# -- functions of the shared schema ------------------------------------------------------------------------


async def test_a_running_job_is_found_locked_after_the_hold(
    call: Call, holding: HoldingWorker, jobs: Jobs
) -> None:
    """The job ends only when the test says so: the wait is that for the batch, not for the job."""
    await holding.start(hold=HOLD)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        assert await call(jobs.connection, ids) == []
    rows = [row for row in await jobs.all() if row["id"] in ids]
    assert [row["locked_by"] for row in rows] == [holding.runner.pool_id] * len(ids)
    assert [row["attempts"] for row in rows] == [1] * len(ids)
    await holding.let_end()
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids


async def test_a_job_that_completes_meanwhile_is_found_gone(
    call: Call, holding: HoldingWorker, jobs: Jobs, database_url: str
) -> None:
    await holding.start(hold=LONG)
    ids = await holding.hold()
    async with another(database_url) as session, asyncio.timeout(PATIENCE):
        answer = asyncio.ensure_future(call(session, ids))
        await until_waiting(jobs, [session.get_server_pid()])
        await holding.let_end()
        assert await answer == []
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids


async def test_a_released_job_is_changed_or_runs_but_not_both(holding: HoldingWorker, jobs: Jobs) -> None:
    """Some jobs of the batch have not started when it ends: they are free for everyone again."""
    await holding.start(hold=HOLD, concurrency=5)
    ids = await holding.hold(8, started=5)
    async with asyncio.timeout(PATIENCE):
        removed = await FUNCTIONS["complete_jobs"](jobs.connection, ids)
    await holding.let_end()
    await jobs.until_gone()
    ran = [id for id in holding.ran if id in ids]
    assert sorted(removed + ran) == ids


async def test_functions_at_once_and_in_any_order_do_not_block_each_other(
    holding: HoldingWorker, jobs: Jobs, database_url: str
) -> None:
    """A batch locks all its rows when it begins, so its end waits for no one."""
    await holding.start(hold=LONG)
    ids = await holding.hold(10)
    async with (
        another(database_url) as first,
        another(database_url) as second,
        another(database_url) as third,
        asyncio.timeout(PATIENCE),
    ):
        sessions = [first, second, third]
        orders = [ids, ids[::-1], ids[5:] + ids[:5]]
        calls = zip(FUNCTIONS.values(), sessions, orders, strict=True)
        answers = asyncio.gather(*(call(session, order) for call, session, order in calls))
        await until_waiting(jobs, [session.get_server_pid() for session in sessions])
        await holding.let_end()
        assert await answers == [[], [], []]
    await jobs.until_gone()
    assert Counter(id for id in holding.ran if id in ids) == Counter(ids)


async def test_force_unlock_workers_leaves_held_jobs_alone(holding: HoldingWorker, jobs: Jobs) -> None:
    """They are not locked yet; it does not wait for them either."""
    await holding.start(hold=LONG)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        await jobs.connection.execute(f"select {SCHEMA}.force_unlock_workers($1)", [holding.runner.pool_id])
    assert await holding.held(ids) == ids
    await holding.let_end()
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids


# -- adding ------------------------------------------------------------------------------------------------


async def test_jobs_are_added_beside_a_held_batch(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    await holding.start(hold=LONG)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        keyed = await utils.add_job("other", {}, job_key="new")
        again = await utils.add_job("other", {"n": 2}, job_key="new")
        many = await utils.add_jobs([JobSpec("other"), JobSpec("other")])
    assert keyed.id == again.id
    assert len(many) == 2
    assert await holding.held(ids) == ids
    await holding.let_end()


async def test_a_job_with_a_key_is_never_held(holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs) -> None:
    """So that who replaces or removes it does not wait. The running one loses its key, as with any worker."""
    await holding.start(hold=LONG)
    await holding.hold(1)
    await holding.let_end()
    await jobs.until_gone()
    async with jobs.connection.transaction():
        await jobs.add_many(TASK, 2_000)
        first = await jobs.add(TASK, {"wait": True}, key="k")
    await holding.gate.until_inside(1)
    async with asyncio.timeout(PATIENCE):
        second = await utils.add_job(TASK, {"wait": True}, job_key="k")
        assert second.id != first
        assert (await utils.remove_job("k")) is not None
    row = next(row for row in await jobs.all() if row["id"] == first)
    assert (row["locked_by"], row["key"]) == (holding.runner.pool_id, None)
    await holding.let_end()


# -- our own client ----------------------------------------------------------------------------------------


async def test_a_cancelled_job_ends_although_it_was_held(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    """Within the hold and the time that a request to a worker takes; the task would run on otherwise."""
    await holding.start(hold=HOLD)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        report = await utils.cancel_jobs(ids, reason="the user left")
        assert sorted(job.id for job in report.asked) == ids
        await jobs.until_gone()
    assert not holding.gate.ended or not set(holding.gate.ended) & set(ids)
    assert sorted(id for id in holding.ran if id in ids) == ids


async def test_a_change_by_filter_does_not_wait_and_counts_what_it_skipped(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    await holding.start(hold=LONG)
    ids = await holding.hold()
    only = JobFilter(task_identifier=TASK, id_from=ids[0], id_to=ids[-1])
    async with asyncio.timeout(PATIENCE):
        for report in (
            await utils.complete_jobs(filter=only),
            await utils.permanently_fail_jobs(filter=only),
            await utils.reschedule_jobs(filter=only, priority=7),
            await utils.cancel_jobs(filter=replace(only, state="ready")),
        ):
            assert (report.changed, report.skipped, report.is_complete) == (0, len(ids), True)
    assert await holding.held(ids) == ids
    await holding.let_end()
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids


async def test_a_cancel_by_filter_comes_back_for_held_jobs(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    """It promises to cancel running jobs, and these run."""
    await holding.start(hold=HOLD)
    ids = await holding.hold()
    waiting = await jobs.add("other", flags=["py:keep"])
    only = JobFilter(id_from=ids[0], id_to=waiting)
    changed: list[int] = []
    async with asyncio.timeout(PATIENCE):
        report = await utils.cancel_jobs(filter=only, on_step=lambda _, ids: changed.extend(ids))
        await jobs.until_gone()
    assert (report.changed, report.asked, report.skipped) == (len(ids) + 1, len(ids), 0)
    assert report.tasks == {TASK: len(ids), "other": 1}
    assert changed == [*ids, waiting]
    assert not set(holding.gate.ended) & set(ids)


async def test_a_cancel_by_filter_leaves_jobs_that_stay_held(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manage_jobs, "MOST", "200ms")
    await holding.start(hold=LONG)
    ids = await holding.hold()
    async with asyncio.timeout(PATIENCE):
        report = await utils.cancel_jobs(filter=JobFilter(id_from=ids[0], id_to=ids[-1]))
    assert (report.changed, report.skipped, report.is_complete) == (0, len(ids), True)
    await holding.let_end()
    await jobs.until_gone()


async def test_cleanup_leaves_held_jobs_and_what_they_need(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    """The transaction has read the queues: they are cleaned up when it has ended."""
    await holding.start(hold=LONG)
    ids = await holding.hold()
    unused = await jobs.add("unused", queue="unused")
    failed = await jobs.add("broken")
    await utils.permanently_fail_jobs([failed])
    await utils.complete_jobs([unused])
    every: tuple[CleanupTask, ...] = ("DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES")
    async with asyncio.timeout(PATIENCE):
        report = await utils.cleanup(every)
    assert report.permafailed_jobs == 1
    assert report.job_queues == 0
    assert await holding.held(ids) == ids
    await holding.let_end()
    await jobs.until_gone()
    await until_idle(jobs)
    assert (await utils.cleanup(every)).job_queues == 1
    assert sorted(id for id in holding.ran if id in ids) == ids


async def until_idle(jobs: Jobs) -> None:
    """Wait until no session has a transaction that others would have to wait for."""

    async def are_idle() -> bool:
        return not await jobs.connection.fetchval(
            "select exists (select from pg_locks where pid <> pg_backend_pid() and relation = "
            f"'{SCHEMA}._private_job_queues'::regclass)"
        )

    await until(are_idle)


# -- pauses ------------------------------------------------------------------------------------------------


async def test_held_jobs_of_a_paused_task_that_have_not_started_are_released(
    holding: HoldingWorker, utils: WorkerUtils, jobs: Jobs
) -> None:
    await holding.start(hold=HOLD, concurrency=5)
    ids = await holding.hold(8, started=5)
    started = [id for id in holding.ran if id in ids]
    waiting = sorted(set(ids) - set(started))
    await utils.pause(task=TASK)

    async def rows() -> list[Any]:
        """Without quick jobs that a batch has released, which wait for a slot."""
        return sorted((row for row in await jobs.all() if row["id"] in ids), key=itemgetter("id"))

    async def are_free() -> bool:
        return [row["id"] for row in await rows() if row["locked_at"] is None] == waiting

    await until(are_free)
    while holding.gate.inside:
        holding.gate.open()

    async def are_left() -> bool:
        return [row["id"] for row in await rows()] == waiting

    await until(are_left)
    assert [row["attempts"] for row in await rows()] == [0] * len(waiting)
    await utils.resume(task=TASK)
    await holding.let_end()
    await jobs.until_gone()
    assert sorted(id for id in holding.ran if id in ids) == ids
