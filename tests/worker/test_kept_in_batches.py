"""Kept jobs that are held: the end of the batch moves them to the history, as the sink would."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import WorkerUtils, task
from graphile_worker.errors import WorkerStoppedError
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import JobCompleted, JobOutcomeDiscarded, JobSucceeded, PoolEvicted
from graphile_worker.worker.write import outcome_writer
from support.held_load import Holding
from support.working import SCHEMA, Gate, Jobs, Workers, until
from worker.lost_scene import LONG, lost_scene

HISTORY = f"{SCHEMA}._private_py_history"
ENDS = f"select * from {HISTORY} where job_id = any ($1::bigint[]) order by job_id"
LOG_UPDATES = f"""
create table {SCHEMA}.updates (job_id bigint);
create function {SCHEMA}.note() returns trigger language plpgsql as $$
begin
  insert into {SCHEMA}.updates values (new.id);
  return new;
end $$;
create trigger note before update on {SCHEMA}._private_jobs for each row execute function {SCHEMA}.note();
"""
UPDATED = f"select count(*) from {SCHEMA}.updates where job_id = any ($1::bigint[])"
REFUSE = f"""
create function {SCHEMA}.refuse() returns trigger language plpgsql
as $$ begin raise exception 'not this one'; end $$;
create trigger refuse before insert on {HISTORY} for each row
when (new.result::text = '"bad"') execute function {SCHEMA}.refuse()
"""
WAIT = f"""
create function {SCHEMA}.wait() returns trigger language plpgsql
as $$ begin perform pg_advisory_xact_lock(1); return null; end $$;
create trigger wait after insert on {HISTORY} for each row execute function {SCHEMA}.wait()
"""
OTHERS = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
WAITS = f"select exists (select {OTHERS} and wait_event = 'advisory' and query ~ '_private_py_history')"
ARE_GONE = f"select not exists (select {OTHERS} and application_name = 'graphile_worker')"
SPECIAL = f"py:keep={int(timedelta(days=3650).total_seconds())}"
"""Kept for so long that there is no partition for it."""


@task(keep=timedelta(days=2), keep_payload=True)
async def double(payload: Any) -> int:
    return 2 * payload["n"]


@task(keep=True)
async def said(payload: Any) -> str:
    return str(payload["says"])


@task(keep=True)
async def said_again(payload: Any) -> str:
    return "again"


async def ends_of(jobs: Jobs, ids: list[int]) -> list[Any]:
    return await jobs.connection.fetch(ENDS, ids)


@pytest.mark.parametrize("hold", [None, 0.0], ids=["held", "not held"])
async def test_what_is_kept_does_not_depend_on_the_batch(
    holding: Holding, jobs: Jobs, connection: Any, hold: float | None
) -> None:
    await connection.execute(LOG_UPDATES)
    hooks = Hooks(events=holding.recorder.events)
    hooks.redact(
        lambda kind, identifier, value: {**value, "secret": "hidden"}
        if kind == "payload" and "secret" in value else value
    )  # fmt: skip
    options: dict[str, Any] = {} if hold is None else {"hold": hold, "prefetch": 0.0}
    gate = Gate()

    @task(keep=True)
    async def quiet(payload: Any) -> None:
        await gate()

    tasks = {"double": double, "said": said, "quiet": quiet}
    runner = await holding.start(
        tasks, is_warm=hold is None, concurrency=10, hooks=hooks, events=None, **options
    )

    async def add() -> list[int]:
        return [
            await jobs.add("double", {"n": 21}),
            await jobs.add("double", {"n": 4, "secret": "open"}, max_attempts=3),
            await jobs.add("said", {"says": "hm"}, flags=["py:keep", "other"]),
            await jobs.add("quiet"),
        ]

    async with jobs.connection.transaction():
        ids = await (holding.add(add) if hold is None else add())
    await gate.until_inside(1)
    gate.open_all()
    await jobs.until_gone()
    await until(lambda: sorted(holding.of(JobSucceeded, ids)) == ids)
    assert await connection.fetchval(UPDATED, ids) == (0 if hold is None else len(ids))
    rows = await ends_of(jobs, ids)
    found = [
        (row["state"], row["attempts"], row["max_attempts"], row["payload"], row["result"], row["flags"])
        for row in rows
    ]
    assert found == [
        ("completed", 1, 25, '{"n":21}', "42", None),
        ("completed", 1, 3, '{"n":4,"secret":"hidden"}', "8", None),
        ("completed", 1, 25, None, '"hm"', '{"other": true, "py:keep": true}'),
        ("completed", 1, 25, None, None, None),
    ]
    for row in rows:
        assert row["created_at"] <= row["started_at"] <= row["finished_at"]
        assert row["pool_id"] == runner.pool_id
    assert rows[3]["finished_at"] - rows[3]["started_at"] == timedelta(seconds=rows[3]["duration"])


async def test_many_kept_jobs_do_not_end_holding(holding: Holding, jobs: Jobs, connection: Any) -> None:
    await holding.start({"said": said}, concurrency=10, history="all")
    before = len(holding.held_fetches)
    await holding.add_load(2_000)
    await jobs.until_gone()
    assert sum(holding.held_fetches[before:]) > 1_000
    count = f"select count(distinct job_id) from {HISTORY}"
    await until(lambda: holding.recorder.count(JobCompleted) >= 2_000)
    completed = Counter(event.job.id for event in holding.recorder.of(JobCompleted))
    assert await connection.fetchval(count) == len(completed) == completed.total()


@pytest.mark.parametrize("answer", [b"SELECT 1\0", b"COMMIT\0"], ids=["before the commit", "after it"])
async def test_a_batch_whose_end_was_not_answered_keeps_each_job_once(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str, answer: bytes
) -> None:
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        await scene.start(LONG)
        waiting = await scene.hold(keep=True)
        await scene.cut_at(answer)
        scene.gate.open_one(waiting)
        assert await utils.wait_for(waiting, timeout=60) == "done"
        await scene.until_completed()
        assert scene.proxy.cuts == 1
        scene.assert_each_completed_once()
        assert [row["attempts"] for row in await ends_of(jobs, [waiting])] == [1]
        assert scene.recorder.count(JobOutcomeDiscarded) == scene.recorder.count(PoolEvicted) == 0


async def test_a_worker_that_dies_while_its_batch_ends_leaves_no_record(
    holding: Holding, jobs: Jobs, workers: Workers, connection: Any
) -> None:
    """The rows are deleted and inserted, and not committed, when the sockets of the worker close."""
    await connection.execute(WAIT)
    gate = Gate()
    runner = await holding.start({"said": task(keep=True)(gate.__call__)}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("said", 3))
    await gate.until_inside(3)
    await connection.execute("select pg_advisory_lock(1)")
    gate.open_all()
    await until(lambda: connection.fetchval(WAITS))
    with suppress(WorkerStoppedError):
        await runner.kill()
    await connection.execute("select pg_advisory_unlock(1)")
    await until(lambda: connection.fetchval(ARE_GONE))
    assert await ends_of(jobs, ids) == []
    rows = await holding.rows("said")
    assert [(row["id"], row["attempts"], row["locked_at"]) for row in rows] == [(id, 0, None) for id in ids]
    await workers.once({"said": said_again})
    assert [row["result"] for row in await ends_of(jobs, ids)] == ['"again"'] * 3
    assert await holding.rows("said") == []


async def test_a_missing_partition_is_made_and_holding_goes_on(
    holding: Holding, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await holding.start({"said": said}, concurrency=10)

        async def add() -> list[int]:
            return [await jobs.add("said", {"says": n}, flags=[SPECIAL]) for n in range(3)]

        for _ in range(2):
            ids = await holding.add(add)
            await jobs.until_gone()
            assert [row["result"] for row in await ends_of(jobs, ids)] == ['"0"', '"1"', '"2"']
            await until(lambda ids=ids: sorted(holding.of(JobSucceeded, ids)) == ids)  # type: ignore[misc]
            await holding.warm_up()
    assert [record.message for record in caplog.records] == []


async def test_one_result_that_the_database_refuses_is_isolated(
    holding: Holding, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await holding.start({"said": said}, concurrency=10)
        await connection.execute(REFUSE)
        ids = await holding.add(
            lambda: jobs.connection.fetchval(
                f"select array_agg(id) from {SCHEMA}.add_jobs(array(select json_populate_record("
                f"null::{SCHEMA}.job_spec, json_build_object('identifier', 'said', 'max_attempts', 1, "
                "'payload', json_build_object('says', says))) from unnest(array['a', 'bad', 'c']) says))"
            )
        )
        await jobs.until_left(ids[1])
        await until(lambda: sorted(holding.of(JobSucceeded, ids)) == [ids[0], ids[2]])
        assert [row["state"] for row in await ends_of(jobs, ids)] == ["completed", "failed", "completed"]
        await holding.warm_up()
    assert "held batches are off" not in caplog.text


async def test_results_that_are_too_large_together_are_left_to_the_sink(
    holding: Holding, jobs: Jobs, connection: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await connection.execute(LOG_UPDATES)
    monkeypatch.setattr("graphile_worker.worker.write.unwritten.MAX_WRITE_BYTES", 100)
    gate = Gate()

    @task(keep=True)
    async def long(payload: Any) -> str:
        await gate()
        return "x" * 60

    await holding.start({"long": long}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("long", 3))
    await gate.until_inside(3)
    gate.open_all()
    await jobs.until_gone()
    assert len(await ends_of(jobs, ids)) == 3
    assert await connection.fetchval(UPDATED, ids) == 2


async def test_a_worker_that_may_not_write_to_the_history_goes_on_without_it(
    holding: Holding, jobs: Jobs, connection: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        await holding.start({"double": double}, concurrency=10)
        await connection.execute(f"alter table {HISTORY} rename to gone")
        for _ in range(2):
            ids = await holding.add(lambda: jobs.add_many("double", 3))
            await jobs.until_gone()
            await until(lambda ids=ids: sorted(holding.of(JobSucceeded, ids)) == ids)  # type: ignore[misc]
        await holding.warm_up()
    assert len([record for record in caplog.records if "cannot write to the history" in record.message]) == 1
    assert "held batches are off" not in caplog.text
    assert outcome_writer.logger.name in {record.name for record in caplog.records}
