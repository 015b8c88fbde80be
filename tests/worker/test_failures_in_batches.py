"""Failures of held jobs: the end of the batch writes them as the sink would, in one update for each."""

from __future__ import annotations

import logging
import math
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from graphile_worker import GiveUp, Retry, RetryIn, Snooze, WorkerUtils, task
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import (
    JobCompleted,
    JobErrored,
    JobFailed,
    JobOutcomeDiscarded,
    PoolEvicted,
    PoolOutcomesWritten,
)
from graphile_worker.worker.write import recorder
from support.held_load import Holding
from support.working import SCHEMA, Gate, Jobs, Workers, headline, until
from worker.lost_scene import LONG, lost_scene

LOG_UPDATES = f"""
create table {SCHEMA}.updates (job_id bigint, locked_by text, attempts integer);
create function {SCHEMA}.note() returns trigger language plpgsql as $$
begin
  insert into {SCHEMA}.updates values (new.id, new.locked_by, new.attempts);
  return new;
end $$;
create trigger note before update on {SCHEMA}._private_jobs for each row execute function {SCHEMA}.note();
"""
UPDATES = f"select * from {SCHEMA}.updates where job_id = any ($1::bigint[])"
BEFORE = 9
"""Attempts of a job that has failed so often: it does not run again in the time of a test."""
BACK_OFF = math.exp(10)
DAY = 86_400


@pytest.fixture
async def updates(connection: Any) -> None:
    """Every update of a job is noted."""
    await connection.execute(LOG_UPDATES)


async def add_failed(jobs: Jobs, count: int) -> list[int]:
    """Jobs with earlier attempts; their ids."""
    ids = await jobs.add_many("step", count)
    await jobs.connection.execute(
        f"update {SCHEMA}._private_jobs set attempts = $2::integer where id = any ($1::bigint[])", ids, BEFORE
    )
    await jobs.connection.execute(f"delete from {SCHEMA}.updates")
    return ids


async def all_failed(holding: Holding, name: str, count: int) -> list[Any]:
    """The rows of this task's jobs, once all have failed and nothing is locked."""

    async def are_written() -> bool:
        rows = await holding.rows(name)
        return sum(row["last_error"] is not None and row["locked_at"] is None for row in rows) == count

    await until(are_written)
    return sorted(await holding.rows(name), key=lambda row: row["id"])


async def test_a_failure_is_written_in_one_update_and_looks_like_any_other(
    holding: Holding, jobs: Jobs, connection: Any, updates: None
) -> None:
    gate = Gate()
    await holding.start({"step": gate.__call__}, concurrency=10, error_retention=0)
    ids = await holding.add(lambda: add_failed(jobs, 5))
    await gate.until_inside(5)
    begin = datetime.now(UTC)
    for number in range(5):
        gate.open(ValueError(f"no {number}"))
    rows = await all_failed(holding, "step", 5)
    after = timedelta(seconds=BACK_OFF)
    for number, row in enumerate(rows):
        assert (row["attempts"], row["max_attempts"], row["locked_by"]) == (BEFORE + 1, 25, None)
        assert headline(row) == f"ValueError: no {number}"
        assert "support/working.py, line" in row["last_error"]
        assert begin + after <= row["run_at"] <= datetime.now(UTC) + after  # not from the begin of the batch
    found = [tuple(row) for row in await connection.fetch(UPDATES, ids)]
    assert sorted(found) == [(job_id, None, BEFORE + 1) for job_id in ids]
    await until(lambda: len(holding.of(JobCompleted, ids)) == 5)
    errored = [event for event in holding.recorder.of(JobErrored) if event.job.id in ids]
    assert [(event.will_retry, event.retry_in) for event in errored] == [(True, BACK_OFF)] * 5
    assert all("Traceback" in event.traceback for event in errored)
    assert holding.of(JobFailed, ids) == []
    (written,) = [event for event in holding.recorder.of(PoolOutcomesWritten) if event.failed]
    assert written.failed == 5


DELAYED = datetime.now(UTC) + timedelta(days=2)


@pytest.mark.parametrize("hold", [None, 0.0], ids=["held", "not held"])
async def test_what_a_failure_leaves_does_not_depend_on_the_batch(
    holding: Holding, jobs: Jobs, workers: Workers, hold: float | None
) -> None:
    """One table for both ways."""
    gate = Gate()
    how: dict[str, BaseException] = {
        "plain": ValueError("no"),
        "delayed": RetryIn(60, "later"),
        "until": RetryIn(until=DELAYED),
        "given up": GiveUp("never"),
        "snoozed": Snooze(60),
    }

    async def step(payload: Any) -> None:
        await gate(payload["how"])
        raise how[payload["how"]]

    @task(max_attempts=7, retry=Retry.fixed(30))
    async def strict(payload: Any) -> None:
        await gate("strict")
        raise ValueError("strict")

    options: dict[str, Any] = {} if hold is None else {"hold": hold, "prefetch": 0.0}
    await holding.start(
        {"step": step, "strict": strict}, is_warm=hold is None, concurrency=20, error_retention=0, **options
    )

    async def add() -> None:
        for name in how:
            await jobs.add("step", {"how": name})
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set attempts = {BEFORE} where task_id = "
            f"(select id from {SCHEMA}._private_tasks where identifier = 'step')"
        )
        await jobs.add("step", {"how": "plain"}, max_attempts=1)
        await jobs.add("strict")

    async with jobs.connection.transaction():
        await (holding.add(add) if hold is None else add())
    await gate.until_inside(7)
    begin = datetime.now(UTC)
    gate.open_all()

    async def is_written() -> bool:
        rows = [*await holding.rows("step"), *await holding.rows("strict")]
        return all(row["locked_at"] is None and row["run_at"] > begin for row in rows)

    await until(is_written)
    rows = [*await holding.rows("step"), *await holding.rows("strict")]
    found = [
        (
            row["identifier"], row["attempts"], row["max_attempts"], row["is_available"],
            row["last_error"] and headline(row),
            round((row["run_at"] - begin).total_seconds() / 30),
        )
        for row in sorted(rows, key=lambda row: row["id"])
    ]  # fmt: skip
    ids = [row["id"] for row in sorted(rows, key=lambda row: row["id"])]
    await until(lambda: len(holding.of(JobErrored, ids)) == 6)
    assert sorted(holding.of(JobFailed, ids)) == [ids[3], ids[5]]
    later, never = round(BACK_OFF / 30), found[3][5]
    assert found == [
        ("step", BEFORE + 1, 25, True, "ValueError: no", later),
        ("step", BEFORE + 1, 25, True, "RetryIn: later", 2),
        ("step", BEFORE + 1, 25, True, found[2][4], round((DELAYED - begin).total_seconds() / 30)),
        ("step", 25, 25, False, "GiveUp: never", never),
        ("step", BEFORE, 25, True, None, 2),
        ("step", 1, 1, False, "ValueError: no", 0),
        ("strict", 1, 7, True, "ValueError: strict", 1),
    ]


async def test_errors_are_kept_up_to_the_limit_and_all_are_counted(
    holding: Holding, jobs: Jobs, connection: Any, updates: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_ERRORS", 3)
    gate = Gate()

    async def step(payload: Any) -> None:
        await gate()
        raise ValueError(f"no {payload['n']}")

    runner = await holding.start({"step": step}, concurrency=10)
    ids = await holding.add(lambda: add_failed(jobs, 8))
    await gate.until_inside(8)
    gate.open_all()
    await all_failed(holding, "step", 8)
    count = f"select count(*) from {SCHEMA}._private_py_errors"
    assert await connection.fetchval(count) == 3
    often = Counter(row["job_id"] for row in await connection.fetch(UPDATES, ids))
    assert sorted(often.values()) == [1] * 5 + [2] * 3  # those whose error is kept were locked first
    await runner.stop()
    (group,) = await connection.fetch(f"select * from {SCHEMA}._private_py_error_groups")
    assert (group["errors"], group["permanent"]) == (8, 0)
    counted = f"select sum(failed)::integer from {SCHEMA}._private_py_minutes"
    assert await connection.fetchval(counted) == 8


async def test_many_failures_do_not_end_holding(holding: Holding, jobs: Jobs) -> None:
    async def step() -> None:
        raise ValueError("no")

    await holding.start({"step": step}, concurrency=10, error_retention=0)
    before = len(holding.held_fetches)
    await holding.add_load(2_000, task="step")
    await all_failed(holding, "step", 2_000)
    assert sum(holding.held_fetches[before:]) > 1_000


async def test_what_is_written_is_redacted(holding: Holding, jobs: Jobs, updates: None) -> None:
    hooks, gate = Hooks(events=holding.recorder.events), Gate()
    hooks.redact(lambda kind, identifier, value: "hidden" if kind == "error" else value)
    await holding.start({"step": gate.__call__}, concurrency=10, error_retention=0, hooks=hooks, events=None)
    await holding.add(lambda: add_failed(jobs, 2))
    await gate.until_inside(2)
    gate.open(ValueError("secret"))
    gate.open(ValueError("secret"))
    rows = await all_failed(holding, "step", 2)
    assert [row["last_error"] for row in rows] == ["hidden"] * 2


async def test_a_failure_that_the_database_refuses_ends_holding_and_is_isolated(
    holding: Holding, jobs: Jobs, connection: Any, updates: None, caplog: pytest.LogCaptureFixture
) -> None:
    await connection.execute(
        f"create function {SCHEMA}.refuse() returns trigger language plpgsql "
        "as $$ begin raise exception 'refused'; end $$; "
        f"create trigger refuse before update on {SCHEMA}._private_jobs for each row "
        f"when (new.last_error like 'ValueError: bad%') execute function {SCHEMA}.refuse()"
    )
    gate = Gate()
    with caplog.at_level(logging.WARNING):
        await holding.start({"step": gate.__call__}, concurrency=10, error_retention=0)
        await holding.add(lambda: add_failed(jobs, 3))
        await gate.until_inside(3)
        gate.open(ValueError("good"))
        gate.open(ValueError("bad"))
        gate.open(ValueError("good too"))
        rows = await all_failed(holding, "step", 3)
    assert [headline(row) for row in rows][::2] == ["ValueError: good", "ValueError: good too"]
    assert headline(rows[1]).startswith("Its outcome could not be written: refused")
    assert [row["attempts"] for row in rows] == [BEFORE + 1] * 3
    assert caplog.text.count("held batches are off") == 1


@pytest.mark.parametrize("answer", [b"UPDATE ", b"COMMIT\0"], ids=["before the commit", "after the commit"])
async def test_a_failure_in_a_batch_whose_end_was_not_answered_counts_once(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str, answer: bytes
) -> None:
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        await scene.start(LONG, error_retention=0)
        waiting = await scene.hold()
        await scene.cut_at(answer)
        scene.gate.open_one(waiting, RetryIn(DAY))

        async def is_written() -> bool:
            (row,) = [row for row in await jobs.all() if row["id"] == waiting]
            return row["last_error"] is not None and row["locked_at"] is None

        await until(is_written)
        assert scene.proxy.cuts == 1
        await until(lambda: scene.recorder.count(JobErrored) == 1)
        (row,) = [row for row in await jobs.all() if row["id"] == waiting]
        assert (row["attempts"], headline(row)) == (1, "RetryIn: retry requested in 24 h")
        await until(lambda: scene.recorder.count(JobCompleted) == len(scene.times))
        scene.assert_each_completed_once()
        assert scene.recorder.count(JobOutcomeDiscarded) == scene.recorder.count(PoolEvicted) == 0


async def test_a_failure_of_a_lost_batch_whose_job_another_worker_has_failed_is_discarded(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str
) -> None:
    """The row is as the end of the batch would have left it, but that was never sent."""
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        await scene.start(LONG, error_retention=0)
        waiting = await scene.hold()
        await scene.end_sessions(is_hidden=True)
        await scene.take(waiting)
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null, last_error = 'theirs', "
            "run_at = now() + interval '1 day' where id = $1",
            waiting,
        )
        scene.gate.open_one(waiting, ValueError("no"))
        await until(lambda: scene.recorder.count(JobOutcomeDiscarded) == 1)
        (row,) = [row for row in await jobs.all() if row["id"] == waiting]
        assert (row["attempts"], row["last_error"]) == (1, "theirs")
        assert scene.recorder.count(JobErrored) == 0


async def test_a_failure_whose_commit_was_lost_is_told_from_one_of_another_worker(
    never_slow: None, workers: Workers, jobs: Jobs, utils: WorkerUtils, database_url: str
) -> None:
    """The row is as the end of the batch would have left it, but runs again at another time."""
    async with lost_scene(workers, jobs, utils, database_url) as scene:
        runner = await scene.start(LONG, error_retention=0)
        waiting = await scene.hold()
        (batch,) = await scene.open_sessions()
        fetching = scene.fetch_session(runner)
        scene.proxy.link(fetching).is_silent = True  # until the other worker has failed it
        scene.proxy.link(batch).needle_asked = b"commit\0"
        scene.gate.open_one(waiting, RetryIn(DAY))
        await until(lambda: scene.proxy.cuts == 1)
        await until(lambda: scene.has_ended(batch))
        await scene.take(waiting)
        await jobs.connection.execute(
            f"update {SCHEMA}._private_jobs set locked_at = null, locked_by = null, last_error = 'theirs', "
            "run_at = now() + interval '1 day' where id = $1",
            waiting,
        )
        await scene.end_session(fetching)
        await until(lambda: scene.recorder.count(JobOutcomeDiscarded) == 1)
        (row,) = [row for row in await jobs.all() if row["id"] == waiting]
        assert (row["attempts"], row["last_error"]) == (1, "theirs")
        assert scene.recorder.count(JobErrored) == 0
