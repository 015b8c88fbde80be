"""Ends of jobs and errors of attempts are written with the outcome, by the same statement."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from functools import partial
from typing import Any

import asyncpg
import pytest

from graphile_worker import task
from graphile_worker.history.upkeep import drop_expired, history_maintenance, move_failed
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobFailed
from graphile_worker.options import WorkerOptions
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.retention import Retention, RetentionPolicy
from graphile_worker.values.schema_name import SchemaName
from support.working import MODES, SCHEMA, Jobs, Workers, headline, until

HISTORY, ERRORS = f"{SCHEMA}._private_py_history", f"{SCHEMA}._private_py_errors"
KEEP = ["py:keep"]


@task(keep=timedelta(days=2), keep_payload=True)
async def double(payload: dict[str, int]) -> int:
    return payload["n"] * 2


@task
async def quiet(payload: Any) -> str:
    return "done"


@task
async def fail(payload: Any) -> None:
    raise ValueError(f"no {payload.get('n')}")


async def history(jobs: Jobs) -> Any:
    return await jobs.connection.fetch(
        f"select history.*, name.identifier from {HISTORY} history "
        f"left join {SCHEMA}._private_py_task_names name on name.id = history.task_id order by job_id"
    )


async def errors(jobs: Jobs) -> Any:
    return await jobs.connection.fetch(f"select * from {ERRORS} order by job_id, attempt")


async def test_the_end_of_a_kept_task_has_everything(jobs: Jobs, workers: Workers) -> None:
    job_id = await jobs.add("double", {"n": 21}, queue="serial", key="k", priority=3)
    await workers.once([double])
    (end,) = await history(jobs)
    assert (end["job_id"], end["identifier"], end["state"]) == (job_id, "double", "completed")
    assert (end["queue_name"], end["job_key"], end["priority"], end["attempts"]) == ("serial", "k", 3, 1)
    assert json.loads(end["payload"]) == {"n": 21}
    assert json.loads(end["result"]) == 42
    assert end["created_at"] <= end["started_at"] <= end["finished_at"]
    assert end["pool_id"].startswith("otpool-")
    assert (end["expires_on"] - end["finished_at"].date()).days in (2, 3)  # it may be midnight
    assert await jobs.count() == 0


@pytest.mark.parametrize("mode", list(MODES))
async def test_only_what_is_asked_for_is_kept(jobs: Jobs, workers: Workers, mode: str) -> None:
    await jobs.add_many("quiet", 5)
    await jobs.add_many("double", 5)
    asked = [await jobs.add("quiet", flags=KEEP), await jobs.add("quiet", flags=["py:keep=60"])]
    await workers.once([double, quiet], concurrency=4, **MODES[mode])
    ends = await history(jobs)
    assert [end["job_id"] for end in ends if end["identifier"] == "quiet"] == asked
    assert sum(end["identifier"] == "double" for end in ends) == 5
    assert [end["payload"] for end in ends if end["identifier"] == "quiet"] == [None, None]
    assert await jobs.count() == 0


async def test_a_worker_keeps_everything(jobs: Jobs, workers: Workers) -> None:
    await jobs.add_many("quiet", 600)
    await workers.once([quiet], concurrency=10, history="all")
    ends = await history(jobs)
    assert len(ends) == len({end["job_id"] for end in ends}) == 600
    assert {end["result"] for end in ends} == {'"done"'}


async def test_a_permanent_failure_is_kept_and_a_retried_one_only_its_error(
    jobs: Jobs, workers: Workers
) -> None:
    final = await jobs.add("fail", {"n": 1}, max_attempts=1)
    retried = await jobs.add("fail", {"n": 2})
    await workers.once([fail], app_version="2026.11")
    (end,) = await history(jobs)
    assert (end["job_id"], end["state"]) == (final, "failed")
    assert end["error"].startswith("ValueError: no 1")
    assert end["payload"] is None
    found = await errors(jobs)
    assert [(row["job_id"], row["is_final"], row["attempt"]) for row in found] == [
        (final, True, 1),
        (retried, False, 1),
    ]
    assert {row["error_type"] for row in found} == {"ValueError"}
    assert len({row["fingerprint"] for row in found}) == 1
    assert "in fail" in found[0]["traceback"]
    assert {row["version"] for row in found} == {"2026.11"}


async def test_every_attempt_leaves_its_error(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("fail", {"n": 1}, max_attempts=3)
    for _ in range(3):
        await workers.once([fail])
        await jobs.make_due()
    assert [(row["attempt"], row["is_final"]) for row in await errors(jobs)] == [
        (1, False),
        (2, False),
        (3, True),
    ]
    assert len(await history(jobs)) == 1


async def test_nothing_is_kept_where_nothing_is_wanted(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("fail", max_attempts=1)
    await workers.once([fail], history="none", error_retention=0)
    assert await history(jobs) == await errors(jobs) == []


async def test_a_storm_of_one_error_is_cut(jobs: Jobs, workers: Workers) -> None:
    await jobs.add_many("fail", 300, max_attempts=1)
    await workers.once([fail], concurrency=10)
    assert len(await errors(jobs)) == 100
    assert len(await history(jobs)) == 300


async def test_a_queue_goes_on_behind_kept_jobs_in_order(jobs: Jobs, workers: Workers) -> None:
    ran: list[int] = []

    @task(keep=True)
    async def step(payload: Any) -> Any:
        ran.append(payload["n"])
        if payload["n"] == 3:
            raise ValueError("no")
        return payload["n"]

    await jobs.add_many("step", 8, queue="serial", max_attempts=1)
    await workers.once([step], concurrency=4)
    assert ran == list(range(8))
    ends = await history(jobs)
    assert [end["state"] for end in ends] == ["completed"] * 3 + ["failed"] + ["completed"] * 4
    assert await jobs.locked() == 0


async def test_ends_of_different_retention_are_written_by_different_statements(
    jobs: Jobs, workers: Workers
) -> None:
    for hours in range(1, 20):
        await jobs.add("quiet", flags=[f"py:keep={hours * 86_400}"])
    await workers.once([quiet], concurrency=10)
    ends = await history(jobs)
    assert len({end["expires_on"] for end in ends}) >= 17
    assert len(ends) == 19


async def test_a_long_retention_ends_with_a_week_or_a_month(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("quiet", flags=[f"py:keep={40 * 86_400}"])
    await jobs.add("quiet", flags=[f"py:keep={400 * 86_400}"])
    await workers.once([quiet])
    week, month = (end["expires_on"] for end in await history(jobs))
    assert week.isoweekday() == 7
    assert (month + timedelta(days=1)).day == 1


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (object(), "the result of the task step cannot be kept"),
        ("x" * 70_000, "the result of the task step has 70,002 bytes of JSON; at most 65,536"),
        ("é" * 40_000, "the result of the task step has 80,002 bytes"),
    ],
)
async def test_a_result_that_cannot_be_kept_fails_the_job(
    jobs: Jobs, workers: Workers, result: Any, message: str
) -> None:
    @task(keep=True)
    async def step() -> Any:
        return result

    await jobs.add("step", max_attempts=1)
    await workers.once([step])
    assert (
        headline(await jobs.one())
        .removeprefix("ResultError: ")
        .startswith(message.removeprefix("ResultError: "))
    )
    (end,) = await history(jobs)
    assert end["state"] == "failed"


async def test_a_result_that_is_not_kept_may_be_anything(jobs: Jobs, workers: Workers) -> None:
    @task
    async def step() -> Any:
        return object()

    await jobs.add("step", flags=["other"])
    await workers.once([step])
    assert await jobs.count() == 0


async def test_interceptors_see_the_result_and_it_is_kept(jobs: Jobs, workers: Workers) -> None:
    seen: list[Any] = []
    hooks = Hooks()
    hooks.after_run(lambda job, outcome: seen.append(getattr(outcome, "result", None)))

    async def around(job: Any, call_next: Any) -> Any:
        return await call_next()

    await jobs.add("double", {"n": 1})
    await workers.once([double], hooks=hooks)
    hooks.around_run(around)
    await jobs.add("double", {"n": 2})
    await workers.once([double], hooks=hooks)
    assert seen == [2, 4]
    assert [end["result"] for end in await history(jobs)] == ["2", "4"]


async def test_a_job_whose_row_is_gone_leaves_no_end(jobs: Jobs, workers: Workers) -> None:
    @task(keep=True)
    async def step(payload: Any) -> None:
        await jobs.connection.execute(f"delete from {SCHEMA}._private_jobs")

    await jobs.add("step")
    await workers.once([step])
    assert await history(jobs) == []


async def test_a_replaced_job_ends_twice_because_it_ran_twice(jobs: Jobs, workers: Workers) -> None:
    replaced = asyncio.Event()

    @task(keep=True)
    async def step(payload: Any) -> Any:
        if not replaced.is_set():
            replaced.set()
            await jobs.add("step", {"n": 2}, key="k")
        return payload.get("n")

    await jobs.add("step", {"n": 1}, key="k")
    await workers.once([step])
    assert [end["result"] for end in await history(jobs)] == ["1", "2"]


async def test_the_write_makes_a_partition_that_is_missing(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    await workers.start([double, fail], events=recorder.events)
    names = await jobs.connection.fetch(
        "select inhrelid::regclass::text as name from pg_inherits "
        f"where inhparent in ('{HISTORY}'::regclass, '{ERRORS}'::regclass)"
    )
    assert names
    for row in names:
        await jobs.connection.execute(f"drop table {row['name']}")
    await jobs.add_many("double", 20)
    await jobs.add("fail", max_attempts=1)
    await recorder.wait_for(JobFailed)
    await until(lambda: _is_written(jobs))
    assert len(await history(jobs)) == 21
    assert len(await errors(jobs)) == 1


async def _is_written(jobs: Jobs) -> bool:
    return await jobs.count() == 1  # the failed one


async def test_expired_partitions_are_dropped(jobs: Jobs, workers: Workers) -> None:
    await jobs.add_many("double", 2)
    await workers.once([double])
    await jobs.connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, current_date - 2)"
    )
    assert await drop_expired(jobs.connection, SchemaName()) == 1
    assert len(await history(jobs)) == 2
    assert await drop_expired(jobs.connection, SchemaName()) == 0


async def test_names_outlive_the_rows_of_tasks(jobs: Jobs, workers: Workers) -> None:
    await jobs.add("double", {"n": 1})
    await workers.once([double])
    await jobs.connection.execute(f"delete from {SCHEMA}._private_tasks")
    assert [end["identifier"] for end in await history(jobs)] == ["double"]


async def test_failed_jobs_move_to_the_history_after_a_while(jobs: Jobs, workers: Workers) -> None:
    known = await jobs.add("fail", {"n": 1}, max_attempts=1)
    await workers.once([fail])
    foreign = await jobs.add("fail", {"n": 2}, max_attempts=1, queue="serial")  # as if Node had run it
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = 1, last_error = 'Node said no', "
        "run_at = now() + interval '2 seconds' where id = $1",
        foreign,
    )
    await jobs.add("quiet")
    running = await jobs.add("quiet", max_attempts=1)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = 1, locked_at = now(), locked_by = 'a' where id = $1",
        running,
    )
    move = partial(move_failed, jobs.connection, SchemaName(), after=3600.0, retention=86_400.0)
    assert not await move()
    assert await jobs.count() == 4
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set run_at = run_at - interval '2 hours', "
        "updated_at = updated_at - interval '2 hours', created_at = created_at - interval '2 hours'"
    )
    await move()
    assert await jobs.count() == 2
    ends = await history(jobs)
    assert [(end["job_id"], end["state"]) for end in ends] == [(known, "failed"), (foreign, "failed")]
    assert (ends[1]["error"], ends[1]["queue_name"]) == ("Node said no", "serial")


async def test_maintenance_keeps_the_history_in_order(jobs: Jobs, workers: Workers) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, current_date - 9)"
    )
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_py_progress (job_id, note, updated_at) values (1, 'x', '2020-01-01')"
    )
    retention_policy = RetentionPolicy("all", default=Retention(3 * 86_400.0))
    for maintenance_task in history_maintenance(WorkerOptions(), retention_policy):
        assert not await maintenance_task.run(jobs.connection)
    days = await jobs.connection.fetch(
        f"select inhrelid::regclass::text as name from pg_inherits where inhparent = '{HISTORY}'::regclass"
    )
    assert len(days) == 4
    assert not await jobs.connection.fetchval(f"select count(*) from {SCHEMA}._private_py_progress")


async def test_dropping_waits_for_no_reader(jobs: Jobs, database_url: str) -> None:
    await jobs.connection.execute(
        f"select {SCHEMA}._private_py_add_partition('{HISTORY}'::regclass, current_date - 9)"
    )
    reader = await asyncpg.connect(database_url)
    try:
        async with reader.transaction():
            await reader.fetch(f"select * from {HISTORY}")
            with pytest.raises(asyncpg.LockNotAvailableError):
                await drop_expired(jobs.connection, SchemaName())
        assert await drop_expired(jobs.connection, SchemaName()) == 1
    finally:
        await reader.close()
