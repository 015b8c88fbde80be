"""Kept jobs that are held: the end of the batch moves them to the history, as the sink would."""

from __future__ import annotations

import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from graphile_worker import WorkerUtils, task
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
SPECIAL = f"py:keep={int(timedelta(days=3650).total_seconds())}"
"""Kept for so long that there is no partition for it."""


@task(keep=timedelta(days=2), keep_payload=True)
async def double(payload: Any) -> int:
    return 2 * payload["n"]


@task(keep=True)
async def said(payload: Any) -> str:
    return str(payload["says"])


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
    await holding.start(tasks, is_warm=hold is None, concurrency=10, hooks=hooks, events=None, **options)

    async def add() -> list[int]:
        return [
            await jobs.add("double", {"n": 21}, priority=1),
            await jobs.add("double", {"n": 4, "secret": "open"}, max_attempts=3, priority=1),
            await jobs.add("said", {"says": "hm"}, flags=["py:keep=60", "other"], priority=1),
            await jobs.add("quiet", priority=1),
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
        (
            row["state"], row["attempts"], row["max_attempts"], row["payload"], row["result"], row["flags"],
            (row["expires_on"] - row["finished_at"].date()).days > 1,
        )
        for row in rows
    ]  # fmt: skip
    assert found == [
        ("completed", 1, 25, '{"n":21}', "42", None, True),
        ("completed", 1, 3, '{"n":4,"secret":"hidden"}', "8", None, True),
        ("completed", 1, 25, None, '"hm"', '{"other": true, "py:keep=60": true}', False),
        ("completed", 1, 25, None, None, None, True),
    ]
    for row in rows:
        assert row["created_at"] <= row["started_at"] <= row["finished_at"]
        assert row["pool_id"].startswith("otpool-") or hold is None
    assert rows[3]["finished_at"] - rows[3]["started_at"] == timedelta(seconds=rows[3]["duration"])


async def test_many_kept_jobs_do_not_end_holding(holding: Holding, jobs: Jobs, connection: Any) -> None:
    await holding.start({"said": said}, concurrency=10, history="all")
    before = len(holding.held_fetches)
    await holding.add_load(2_000)
    await jobs.until_gone()
    assert sum(holding.held_fetches[before:]) > 1_000
    count = f"select count(*) from {HISTORY} where task_id = (select id from {SCHEMA}._private_tasks)"
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


async def test_a_worker_that_dies_leaves_no_record_of_what_it_held(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str
) -> None:
    """The statement was executed; the server rolls it back when the connection ends, as by kill -9."""
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        runner = await scene.start(LONG)
        waiting = await scene.hold(keep=True)
        (pid,) = await scene.open_sessions()
        scene.proxy.link(pid).needle = b"SELECT 1\0"
        scene.proxy.needle = b"\0"  # and no other connection gets through
        scene.gate.open_one(waiting)
        await until(lambda: scene.proxy.cuts > 0)
        await runner.kill()
        assert await ends_of(jobs, [waiting]) == []
        row = next(row for row in await jobs.all() if row["id"] == waiting)
        assert (row["attempts"], row["locked_at"]) == (0, None)


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
        await holding.start({"said": said}, concurrency=10)
        await connection.execute(f"alter table {HISTORY} rename to gone")
        for _ in range(2):
            ids = await holding.add(lambda: jobs.add_many("said", 3))
            await jobs.until_gone()
            await until(lambda ids=ids: sorted(holding.of(JobSucceeded, ids)) == ids)  # type: ignore[misc]
        await holding.warm_up()
    assert len([record for record in caplog.records if "cannot write to the history" in record.message]) == 1
    assert "held batches are off" not in caplog.text
    assert outcome_writer.logger.name in {record.name for record in caplog.records}
