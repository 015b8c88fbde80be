"""Waiting for the end of a job, following its progress."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import JobHandle, JobHelpers, WorkerUtils, make_worker_utils, task
from graphile_worker.client.job_status import read_current_states
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.errors import GraphileWorkerError, InvalidArgumentError, JobFailedError, JobGoneError
from graphile_worker.values.schema_name import SchemaName
from support.pgbouncer import pgbouncer_to
from support.scratch import scratch_folder
from support.server import chosen_programs
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until, workers_of

LISTENING = "select count(*) from pg_stat_activity where query ~* '^listen' and datname = current_database()"


@task
async def double(payload: dict[str, int]) -> int:
    return payload["n"] * 2


@task
async def fail(payload: Any) -> None:
    raise ValueError("no")


@task(keep=True)
async def kept(payload: dict[str, int]) -> int:
    return payload["n"]


TASKS = [double, fail, kept]


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def test_a_handle_returns_the_result(utils: WorkerUtils, workers: Workers) -> None:
    handle = await utils.add_job(double, {"n": 21}, keep=True)
    assert (await handle.status()).state == "ready"
    await workers.start(TASKS)
    assert await handle.result(timeout=PATIENCE) == 42
    status = await handle.status()
    assert (status.state, status.has_ended, status.attempts) == ("completed", True, 1)


async def test_a_job_that_ended_before_the_wait_began(utils: WorkerUtils, workers: Workers) -> None:
    handle = await utils.add_job(double, {"n": 1}, keep=True)
    await workers.once(TASKS)
    assert await handle.result(timeout=PATIENCE) == 2
    assert await utils.wait_for(handle.id, timeout=PATIENCE) == 2


async def test_many_waiters_share_one_connection(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    added = [await utils.add_job(double, {"n": n}, keep=True) for n in range(500)]
    waiting = asyncio.gather(*(handle.result(timeout=PATIENCE) for handle in added))

    async def is_listening() -> bool:
        return bool(await jobs.connection.fetchval(LISTENING))

    await until(is_listening)
    assert await jobs.connection.fetchval(LISTENING) == 1
    await workers.start(TASKS, concurrency=10)
    assert await waiting == [2 * n for n in range(500)]


async def test_a_failure_is_raised(utils: WorkerUtils, workers: Workers) -> None:
    handle = await utils.add_job(fail, keep=True, max_attempts=1)
    await workers.start(TASKS)
    with pytest.raises(
        JobFailedError, match="failed permanently, its only attempt used: ValueError: no"
    ) as raised:
        await handle.result(timeout=PATIENCE)
    assert raised.value.job_id == handle.id


async def test_a_retried_failure_is_not_the_end(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    is_broken = True

    @task
    async def step() -> str:
        if is_broken:
            raise ValueError("no")
        return "mended"

    handle = await utils.add_job(step, keep=True)
    await workers.once([step])
    waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
    is_broken = False
    await jobs.make_due()
    await workers.once([step])
    assert await waiting == "mended"


async def test_a_failed_job_that_was_retried_by_hand(utils: WorkerUtils, workers: Workers) -> None:
    is_broken = True

    @task
    async def step() -> str:
        if is_broken:
            raise ValueError("no")
        return "mended"

    handle = await utils.add_job(step, keep=True, max_attempts=1)
    await workers.once([step])
    with pytest.raises(JobFailedError):
        await handle.result(timeout=PATIENCE)
    is_broken = False
    await utils.reschedule_jobs([handle.id], attempts=0, run_at=timedelta())
    await workers.once([step])
    assert await handle.result(timeout=PATIENCE) == "mended"
    assert [end.state for end in await utils.history.of_job(handle)] == ["completed", "failed"]
    assert [error.attempt for error in await utils.history.errors_of_job(handle)] == [1]


async def test_a_job_that_is_not_kept_is_gone(utils: WorkerUtils, workers: Workers) -> None:
    job = await utils.add_job(double, {"n": 1})
    await workers.once(TASKS)
    with pytest.raises(JobGoneError, match=f"job {job.id} does not exist any more.* keep=True"):
        await utils.wait_for(job, timeout=PATIENCE)
    assert (await utils.jobs.get_status(job)).state == "gone"


async def test_a_task_that_is_kept_is_found_by_looking(
    utils: WorkerUtils, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its end is not announced, so it is looked up more often than a job that was added with `keep`."""
    monkeypatch.setattr("graphile_worker.client.job_waiter.POLL_INTERVAL", 10 * PATIENCE)
    job = await utils.add_job(kept, {"n": 5})
    waiting = [
        asyncio.ensure_future(utils.wait_for(each, timeout=PATIENCE))
        for each in (job, job.id, utils.jobs.handle(job.id))
    ]
    await until(lambda: _has_heard(utils))
    await workers.start(TASKS)
    assert await asyncio.gather(*waiting) == [5, 5, 5]
    assert utils._connections.job_waiter._unannounced == set()


async def _has_heard(utils: WorkerUtils) -> bool:
    return utils._connections.job_waiter._hears


async def test_two_connections_are_enough(database_url: str, workers: Workers) -> None:
    """One listens, and the client keeps the other one idle between its calls."""
    async with make_worker_utils(connection_string=database_url, max_pool_size=2) as utils:
        handle = await utils.add_job(double, {"n": 4}, keep=True)
        waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
        assert (await handle.status()).state == "ready"
        await workers.start(TASKS)
        assert await waiting == 8


async def test_a_record_has_all_that_is_known(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    handle = await utils.add_job(fail, keep=True, max_attempts=1)
    record = await utils.jobs.get_record(handle)
    assert (record.state, record.is_known, record.history, record.errors) == ("ready", True, [], [])
    await workers.once(TASKS)
    record = await utils.jobs.get_record(handle.id)
    assert (record.state, len(record.history), len(record.errors)) == ("failed", 1, 1)
    await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")
    record = await utils.jobs.get_record(handle.id)
    assert (record.job, record.state, record.problem) == (None, "failed", None)
    unknown = await utils.jobs.get_record(999)
    assert (unknown.state, unknown.is_known) == ("gone", False)


async def test_a_status_where_there_is_no_history(utils: WorkerUtils, jobs: Jobs) -> None:
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_history, {SCHEMA}._private_py_progress")
    job = await utils.add_job(double, {"n": 1})
    assert (await utils.jobs.get_status(job)).state == "ready"
    async with jobs.connection.transaction():  # which goes on
        record = await utils.jobs.get_record(999, connection=jobs.connection)
        assert await jobs.count() == 1
    assert "_private_py_history" in str(record.problem)
    assert (await utils.jobs.get_status(999)).state == "gone"


async def test_a_timeout(utils: WorkerUtils) -> None:
    handle = await utils.add_job(double, {"n": 1}, keep=True)
    with pytest.raises(TimeoutError):
        await handle.result(timeout=0.05)
    assert not utils._connections.job_waiter._waiting


async def test_a_lost_listener_is_replaced(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    handle = await utils.add_job(double, {"n": 1}, keep=True)
    waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))

    async def was_ended() -> bool:
        return bool(
            await jobs.connection.fetchval(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where query ~* '^listen' and datname = current_database()"
            )
        )

    await until(was_ended)
    await workers.start(TASKS)
    assert await waiting == 2


async def test_releasing_the_client_ends_the_wait(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url) as utils:
        handle = await utils.add_job(double, {"n": 1}, keep=True)
        waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
        await asyncio.sleep(0)
    with pytest.raises(GraphileWorkerError, match="the client was released"):
        await waiting


async def test_one_connection_is_enough(database_url: str, workers: Workers) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        handle = await utils.add_job(double, {"n": 1}, keep=True)
        await workers.start(TASKS)
        assert await handle.result(timeout=PATIENCE) == 2


async def test_behind_a_pooler_in_transaction_mode(database_url: str, workers: Workers) -> None:
    with pgbouncer_to(database_url) as url:
        async with make_worker_utils(connection_string=url, prepared_statements=False) as utils:
            handle = await utils.add_job(double, {"n": 1}, keep=True)
            waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
            await workers.start(TASKS)
            assert await waiting == 2


async def test_where_there_is_no_history(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    handle = await utils.add_job(fail, keep=True, max_attempts=1)
    await workers.once(TASKS)
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_history")
    with pytest.raises(JobFailedError):
        await handle.result(timeout=PATIENCE)


async def test_in_a_transaction_where_there_is_no_history(jobs: Jobs) -> None:
    """A failed statement must not end the transaction of the caller."""
    job_id = await jobs.add("double")
    await jobs.connection.execute(f"drop table {SCHEMA}._private_py_history")
    async with jobs.connection.transaction():
        (standing,) = await read_current_states(jobs.connection, SchemaName(), [job_id])
        assert standing.state == "pending"
        assert await jobs.count() == 1


async def test_progress_is_followed_until_the_end(utils: WorkerUtils, workers: Workers, jobs: Jobs) -> None:
    gate = asyncio.Event()

    @task
    async def step(payload: Any, helpers: Any) -> None:
        await helpers.progress(0.25, "page 1 of 4", data={"page": 1})
        await gate.wait()

    handle = await utils.add_job(step, {}, keep=True)
    await workers.start([step])
    seen = []
    async for progress in handle.watch():
        seen.append((progress.share, progress.note, progress.data))
        status = await handle.status()
        assert status.state == "running"
        assert status.progress is not None
        gate.set()
    assert seen == [(0.25, "page 1 of 4", {"page": 1})]

    async def is_deleted() -> bool:
        return not await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_py_progress")

    await until(is_deleted)


async def test_progress_from_a_thread(utils: WorkerUtils, workers: Workers) -> None:
    end = threading.Event()

    @task
    def step(payload: Any, helpers: Any) -> None:
        helpers.sync.progress(note="half-way")
        end.wait(PATIENCE)

    handle = await utils.add_job(step, {}, keep=True)
    await workers.start([step])
    async for progress in handle.watch():
        assert (progress.share, progress.note) == (None, "half-way")
        end.set()


async def test_a_report_that_makes_no_sense_is_refused(jobs: Jobs, workers: Workers) -> None:
    reports: list[tuple[Any, ...]] = [("half",), (float("nan"),), (0.5, 7)]

    @task
    async def step(payload: Any, helpers: Any) -> None:
        await helpers.progress(*reports[payload["n"]])

    await jobs.add_many("step", len(reports), max_attempts=1)
    await workers.once([step])
    errors = [row["last_error"] for row in await jobs.all()]
    assert ["share: expected a number from 0 to 1" in error for error in errors] == [True, True, False]
    assert "note: expected text, got 7" in errors[2]


async def test_waiters_survive_a_restart_of_the_server() -> None:
    """Each waiter gets its result, also that of a job that ended before the restart."""
    with scratch_folder() as folder, EmbeddedPostgres(folder, **chosen_programs()) as embedded:
        async with make_worker_utils(connection_string=embedded.url()) as utils:
            await utils.migrate()
            handles = [await utils.add_job(double, {"n": n}, keep=True) for n in range(20)]
            waiting = asyncio.gather(*(handle.result(timeout=2 * PATIENCE) for handle in handles))
            await until(lambda: len(utils._connections.job_waiter._waiting) == 20)
            await asyncio.to_thread(embedded.stop)
            await asyncio.to_thread(embedded.start)
            async for workers in workers_of(embedded.url()):
                await workers.start(TASKS)
                assert await waiting == [2 * n for n in range(20)]


async def test_waiters_that_are_cancelled_in_bulk_leave_nothing_behind(
    utils: WorkerUtils, workers: Workers
) -> None:
    handles = [await utils.add_job(double, {"n": n}, keep=True) for n in range(300)]
    waiting = [asyncio.ensure_future(handle.result(timeout=PATIENCE)) for handle in handles for _ in range(3)]
    await until(lambda: len(utils._connections.job_waiter._waiting) == 300)
    for position, waiter in enumerate(waiting):
        if position % 3:
            waiter.cancel()
    outcomes = await asyncio.gather(*waiting[1::3], *waiting[2::3], return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {asyncio.CancelledError}
    await workers.start(TASKS, concurrency=10)
    assert await asyncio.gather(*waiting[::3]) == [2 * n for n in range(300)]
    assert not utils._connections.job_waiter._waiting


def test_a_client_that_is_used_in_a_second_event_loop_says_so(database_url: str) -> None:
    async def begin() -> tuple[WorkerUtils, int]:
        utils = await make_worker_utils(connection_string=database_url)
        handle = await utils.add_job(double, {"n": 1}, keep=True)
        with pytest.raises(TimeoutError):
            await handle.result(timeout=0.05)
        return utils, handle.id

    async def go_on() -> None:
        for call in (
            utils.wait_for(job_id, timeout=PATIENCE),
            utils.add_job(double, {"n": 1}),
            utils.jobs.get(job_id),
            anext(aiter(utils.jobs.watch(job_id))),
            utils.release(),
        ):
            with pytest.raises(GraphileWorkerError, match="belongs to another event loop"):
                await call
        with pytest.raises(GraphileWorkerError, match="belongs to another event loop"):
            utils.with_pg_client()

    with asyncio.Runner() as first:
        utils, job_id = first.run(begin())
        asyncio.run(go_on())
        first.run(utils.release())


async def test_another_thread_cannot_disturb_those_who_wait(
    utils: WorkerUtils, workers: Workers, jobs: Jobs
) -> None:
    """Its event loop gets an error; the connections still work for the first one."""
    handle = await utils.add_job(double, {"n": 1}, keep=True)
    waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))
    await until(lambda: len(utils._connections.job_waiter._waiting) == 1)

    async def use() -> None:
        for _ in range(3):
            for call in (utils.wait_for(handle, timeout=PATIENCE), utils.jobs.get(handle.id)):
                with pytest.raises(GraphileWorkerError, match="make one client for each event loop"):
                    await call

    await asyncio.to_thread(asyncio.run, use())
    assert list(utils._connections.job_waiter._waiting) == [handle.id]
    await workers.start(TASKS)
    assert await waiting == 2


async def test_handles_are_made_from_jobs_handles_and_ids(utils: WorkerUtils, workers: Workers) -> None:
    first = await utils.add_job(double, {"n": 1}, keep=True)
    assert utils.jobs.handle(first) == first
    details = await utils.jobs.get(first.id)
    assert details is not None
    assert "_client" not in repr(first)
    by_id = utils.jobs.handle(first.id)
    assert repr(by_id) == f"JobReference(id={first.id})"
    assert (await by_id.status()).state == "ready"
    await workers.once(TASKS)
    for handle in (utils.jobs.handle(first), utils.jobs.handle(details), by_id):
        assert handle.id == first.id
        assert await handle.result(timeout=PATIENCE) == 2
        assert await handle.cancel() is False
        assert [progress async for progress in handle.watch()] == []
    wrong: Any
    for wrong in ("1", True, None, 1.5):
        with pytest.raises(InvalidArgumentError, match="job: expected a job or its id, got"):
            utils.jobs.handle(wrong)


async def test_a_job_is_looked_up_once_before_the_wait(utils: WorkerUtils, workers: Workers) -> None:
    looked: list[list[int]] = []
    waiter = utils._connections.job_waiter
    look = waiter._look

    async def counted(job_ids: Any) -> Any:
        looked.append(list(job_ids))
        return await look(job_ids)

    waiter._look = counted
    handle = await utils.add_job(double, {"n": 1}, keep=True)
    await workers.once(TASKS)
    await handle.result(timeout=PATIENCE)
    assert looked == [[handle.id]]


@pytest.mark.parametrize("connections", [2, 3, 4, 10])
async def test_a_task_waits_for_another_job(workers: Workers, jobs: Jobs, connections: int) -> None:
    """With the worker's own connections, of which it must not lose any to the one that listens."""
    results: list[int] = []

    @task
    async def parent(payload: Any, helpers: JobHelpers) -> None:
        child = await helpers.add_job(double, {"n": 4}, keep=True)
        assert isinstance(child, JobHandle)
        results.append(await child.result(timeout=PATIENCE / 2))

    await jobs.add("parent", max_attempts=1)
    await workers.start([parent, double], concurrency=4, max_pool_size=connections, poll_interval=0.1)

    async def has_ended() -> bool:
        return all(row["last_error"] is not None for row in await jobs.all())

    await until(has_ended)
    assert results == [8]
    assert await jobs.count() == 0
