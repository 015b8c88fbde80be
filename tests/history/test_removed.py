"""A job that was added with `keep` has an end when a client removes it, and those who wait learn of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker import WorkerUtils, make_worker_utils, task
from graphile_worker.errors import InvalidArgumentError, JobCancelledError, JobFailedError, JobGoneError
from graphile_worker.hooks import Hooks
from graphile_worker.options import JobFilter
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until

HISTORY = f"{SCHEMA}._private_py_history"
LISTENING = "select count(*) from pg_stat_activity where query ~* '^listen' and datname = current_database()"


@pytest.fixture
async def utils(database_url: str) -> AsyncIterator[WorkerUtils]:
    async with make_worker_utils(connection_string=database_url) as utils:
        yield utils


async def ends(utils: WorkerUtils, job: Any) -> list[tuple[str, str | None]]:
    return [(end.state, end.error) for end in await utils.history.of_job(job)]


async def test_a_cancelled_job_says_so_to_those_who_wait(utils: WorkerUtils, jobs: Jobs) -> None:
    handle = await utils.add_job("work", {"n": 1}, keep=True, queue_name="serial", job_key="k", priority=3)
    waiting = asyncio.ensure_future(handle.result(timeout=PATIENCE))

    async def is_listening() -> bool:
        return bool(await jobs.connection.fetchval(LISTENING))

    await until(is_listening)
    assert await handle.cancel("not needed any more") is True
    with pytest.raises(JobCancelledError, match="was cancelled: not needed any more") as raised:
        await waiting
    assert raised.value.reason == "not needed any more"
    (end,) = await utils.history.of_job(handle)
    assert (end.task_identifier, end.state, end.queue_name, end.key) == ("work", "cancelled", "serial", "k")
    assert (end.priority, end.attempts, end.max_attempts, end.payload) == (3, 0, 25, None)
    assert (end.created_at, end.run_at) == (handle.created_at, handle.run_at)
    assert (end.started_at, end.pool_id, end.result) == (None, None, None)
    assert (await handle.status()).state == "cancelled"
    assert await handle.cancel() is False


async def test_the_end_is_announced_in_the_same_transaction(utils: WorkerUtils, jobs: Jobs) -> None:
    heard: list[str] = []
    await jobs.connection.add_listener("worker:ended", lambda *message: heard.append(message[3]))
    handle = await utils.add_job("work", keep=True)
    await handle.cancel()

    async def is_heard() -> bool:
        await jobs.connection.fetchval("select 1")
        return heard == [f'{{"schema" : "graphile_worker", "ids" : [{handle.id}]}}']

    await until(is_heard)


async def test_jobs_ended_by_hand(utils: WorkerUtils) -> None:
    completed = await utils.add_job("work", keep=True)
    removed = await utils.add_job("work", keep=True, job_key="k")
    failed = await utils.add_job("work", keep=True)
    await utils.complete_jobs([completed.id])
    await utils.remove_job("k")
    await utils.permanently_fail_jobs([failed.id], "wrong input")
    assert await completed.result(timeout=PATIENCE) is None
    with pytest.raises(JobCancelledError, match="removed by its job key"):
        await removed.result(timeout=PATIENCE)
    with pytest.raises(JobFailedError, match="wrong input"):
        await failed.result(timeout=PATIENCE)
    assert await ends(utils, completed) == [("completed", None)]
    assert await ends(utils, failed) == [("failed", "wrong input")]
    assert await utils.remove_job("k") is None


async def test_a_running_job_that_loses_its_key_has_not_ended(utils: WorkerUtils, workers: Workers) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @task
    async def work() -> str:
        started.set()
        await go_on.wait()
        return "done"

    handle = await utils.add_job(work, keep=True, job_key="k")
    await workers.start([work])
    await asyncio.wait_for(started.wait(), PATIENCE)
    assert await utils.remove_job("k") is not None
    assert await ends(utils, handle) == []
    go_on.set()
    assert await handle.result(timeout=PATIENCE) == "done"


@pytest.mark.parametrize(
    ("change", "state", "error"),
    [("cancel", "cancelled", "obsolete"), ("complete", "completed", None), ("fail", "failed", "obsolete")],
)
async def test_bulk_changes(
    utils: WorkerUtils, jobs: Jobs, change: str, state: str, error: str | None
) -> None:
    kept = [await utils.add_job("work", {"half": n}, keep=True, keep_payload=n == 1) for n in range(3)]
    # PostgreSQL's times are wider than Python's, and so is its JSON text.
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = 'infinity', payload = '{{\"half\": \"\\ud83d\"}}' "
        "where id = $1",
        kept[1].id,
    )
    await utils.add_job("work")
    await utils.add_job("other", keep=True)
    filter = JobFilter(task_identifier="work")
    if change == "cancel":
        report = await utils.cancel_jobs(filter=filter, reason="obsolete", step_size=2)
    elif change == "complete":
        report = await utils.complete_jobs(filter=filter, step_size=2)
    else:
        report = await utils.permanently_fail_jobs(filter=filter, reason="obsolete", step_size=2)
    assert report.changed == 4
    rows = await jobs.connection.fetch(f"select * from {HISTORY} order by job_id")
    assert [row["job_id"] for row in rows] == [job.id for job in kept]
    assert {(row["state"], row["error"]) for row in rows} == {(state, error)}
    assert [row["payload"] for row in rows] == [None, '{"half": "\\ud83d"}', None]
    (end,) = await utils.history.of_job(kept[1])
    assert end.run_at.year == 9999


async def test_a_job_that_is_not_kept_leaves_nothing(utils: WorkerUtils, jobs: Jobs) -> None:
    job = await utils.add_job("work", flags=["other"])
    await utils.cancel_jobs([job.id], reason="because")
    assert await jobs.connection.fetchval(f"select count(*) from {HISTORY}") == 0
    with pytest.raises(JobGoneError):
        await utils.wait_for(job, timeout=PATIENCE)


async def test_the_end_belongs_to_the_callers_transaction(utils: WorkerUtils, jobs: Jobs) -> None:
    first = await utils.add_job("work", keep=True)
    second = await utils.add_job("work", keep=True)
    connection = jobs.connection
    transaction = connection.transaction()
    await transaction.start()
    await utils.cancel_jobs([first.id], connection=connection)
    await utils.cancel_jobs(filter=JobFilter(task_identifier="work"), connection=connection)
    assert await connection.fetchval(f"select count(*) from {HISTORY}") == 2
    await transaction.rollback()
    assert await connection.fetchval(f"select count(*) from {HISTORY}") == 0
    assert await jobs.count() == 2
    assert (await first.status()).state == (await second.status()).state == "ready"


@pytest.mark.parametrize("by", ["id", "filter"])
async def test_a_job_whose_end_cannot_be_written_stays(utils: WorkerUtils, jobs: Jobs, by: str) -> None:
    """The deletion and the end are one transaction: without it, the job would be gone without a trace."""
    handle = await utils.add_job("work", keep=True)
    await jobs.connection.execute(
        f"create function {SCHEMA}.refuse() returns trigger language plpgsql as "
        "$$ begin raise exception 'disk full' using errcode = '53100'; end $$; "
        f"create trigger refuse after insert on {HISTORY} for each row execute function {SCHEMA}.refuse()"
    )
    filter = JobFilter(task_identifier="work")
    cancel: Any = handle.cancel() if by == "id" else utils.cancel_jobs(filter=filter)
    with pytest.raises(asyncpg.PostgresError, match="disk full"):
        await cancel
    assert await jobs.count() == 1


async def test_without_a_history_jobs_are_deleted_all_the_same(
    utils: WorkerUtils, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    handle = await utils.add_job("work", keep=True)
    await jobs.connection.execute(f"drop table {HISTORY}, {SCHEMA}._private_py_errors")
    with caplog.at_level(logging.WARNING, "graphile_worker.client"):
        assert await handle.cancel() is True
    assert await jobs.count() == 0
    assert f"not kept in the history: job {handle.id} (" in caplog.text


async def test_a_role_without_rights_on_the_history_can_still_delete(
    utils: WorkerUtils, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    connection = jobs.connection
    handles = [await utils.add_job("work", keep=True) for _ in range(2)]
    role = await connection.fetchval("select 'gw_client_' || md5(random()::text)")
    await connection.execute(
        f'create role "{role}"; grant usage on schema {SCHEMA} to "{role}"; '
        + "".join(
            f'grant all on {SCHEMA}.{table} to "{role}"; '
            f'create policy for_clients on {SCHEMA}.{table} to "{role}" using (true); '
            for table in ("_private_jobs", "_private_tasks", "_private_job_queues")
        )
    )
    try:
        async with connection.transaction():
            await connection.execute(f'set local role "{role}"')
            with caplog.at_level(logging.WARNING, "graphile_worker.client"):
                report = await utils.cancel_jobs([handles[0].id], connection=connection)
                bulk = await utils.cancel_jobs(
                    filter=JobFilter(task_identifier="work"), connection=connection
                )
        assert ([job.id for job in report.removed], bulk.changed) == ([handles[0].id], 1)
        assert await jobs.count() == 0
        assert f"not kept in the history: job {handles[0].id} (permission denied" in caplog.text
    finally:
        await connection.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_redactors_of_the_client_see_the_payload_and_the_reason(database_url: str) -> None:
    hooks = Hooks()

    @hooks.redact
    def hide(part: str, task_identifier: str, value: Any) -> Any:
        assert task_identifier == "work"
        return {**value, "card": "…"} if part == "payload" else value.replace("4242", "…")

    async with make_worker_utils(connection_string=database_url, hooks=hooks) as utils:
        handle = await utils.add_job("work", {"card": 4242, "n": 1}, keep=True, keep_payload=True)
        await handle.cancel("card 4242 expired")
        (end,) = await utils.history.of_job(handle)
    assert (end.payload, end.error) == ({"card": "…", "n": 1}, "card … expired")


async def test_a_reason_must_be_text(utils: WorkerUtils) -> None:
    wrong: Any = 5
    with pytest.raises(InvalidArgumentError, match="reason: expected text"):
        await utils.cancel_jobs([1], reason=wrong)
