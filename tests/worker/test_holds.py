"""Held batches: short jobs run inside the transaction that fetched them, and nothing shows but the speed.

The batches of most tests here are held for as long as the test likes; see `support.held_load`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from graphile_worker import JobHelpers, Snooze, WorkerUtils, task
from graphile_worker.database.sql import load
from graphile_worker.database.statements.held_batches import get_keyed_jobs
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import (
    JobCompleted,
    JobErrored,
    JobExpired,
    JobFailed,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    PoolJobsFetched,
    PoolOutcomesWritten,
)
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.testing.results import EventRecorder
from graphile_worker.values.schema_name import SchemaName
from graphile_worker.worker.fetch import fetcher
from graphile_worker.worker.fetch import plan as watermarks
from graphile_worker.worker.held import cursor
from support.held_load import LOAD, ROUNDS, Holding
from support.working import PATIENCE, SCHEMA, SELDOM, Gate, Jobs, Workers, headline, until

ROWS = (
    "select id, xmin::text, ctid::text, locked_by, attempts "
    f"from {SCHEMA}._private_jobs where id = any($1::bigint[])"
)
ADD_TOGETHER = f"""
select from {SCHEMA}.add_jobs(array(
    select json_populate_record(null::{SCHEMA}.job_spec, '{{"identifier": "step"}}')
    from generate_series(1, 5000)
))"""
SHARED = 8000  # jobs: more than the first fetches of three workers, which hold none, take
SHORTLY = 2.0  # seconds: jobs of a loaded machine are still short enough to be held
BRIEFLY = 2.0  # seconds to hold a batch


async def test_a_held_job_has_a_locked_row_in_which_nothing_is_written(
    holding: Holding, jobs: Jobs, connection: Any, gate: Gate
) -> None:
    await holding.start({"step": gate.__call__}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("step", 5))
    before = await connection.fetch(ROWS, ids)
    await gate.until_inside(5)
    assert await connection.fetch(ROWS, ids) == before
    assert {(row["locked_by"], row["attempts"]) for row in before} == {(None, 0)}
    assert await holding.row_locked(ids) == ids
    gate.open_all()
    await jobs.until_gone()


async def test_nothing_of_a_batch_is_written_or_announced_before_its_commit(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    async def step(payload: Any) -> None:
        if payload["n"] == 4:
            await gate(payload)

    await holding.start({"step": step}, concurrency=1)
    ids = await holding.add(lambda: jobs.add_many("step", 5))
    await gate.until_inside(1)
    assert [row["id"] for row in await holding.rows("step")] == ids
    assert holding.of(JobStarted, ids) == ids
    assert holding.of(JobSucceeded, ids) == holding.of(JobCompleted, ids) == []
    gate.open_all()
    await jobs.until_gone()
    await until(lambda: holding.of(JobSucceeded, ids) == holding.of(JobCompleted, ids) == ids)


async def test_a_job_that_outlasts_the_batch_is_locked_and_its_outcome_is_written_once(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=10, hold=SHORTLY)
    ids = await holding.add(lambda: jobs.add_many("step", 5))
    await gate.until_inside(5)
    assert holding.last_fetch == "held"
    await until(lambda: holding.are_locked("step", 5))
    rows = await holding.rows("step")
    assert {(row["locked_by"], row["attempts"]) for row in rows} == {(runner.pool_id, 1)}
    assert await holding.row_locked(ids) == []
    gate.open()
    gate.open(RuntimeError("late"))
    await until(lambda: holding.are_locked("step", 3))
    (failed,) = [row for row in await holding.rows("step") if row["locked_by"] is None]
    assert (failed["attempts"], headline(failed)) == (1, "RuntimeError: late")
    gate.open_all()
    await jobs.until_left(failed["id"])
    assert len(gate.started) == 5
    await until(lambda: len(holding.of(JobCompleted, ids)) == 5)


async def test_jobs_that_have_not_started_when_the_batch_ends_are_free_for_others(
    holding: Holding, jobs: Jobs, workers: Workers, gate: Gate
) -> None:
    attempts: list[int] = []

    async def step(payload: Any, helpers: Any) -> None:
        attempts.append(helpers.job.attempts)
        await gate(payload)

    async def elsewhere(payload: Any, helpers: Any) -> None:
        attempts.append(helpers.job.attempts)

    await holding.start({"step": step}, concurrency=2, hold=SHORTLY, prefetch=1.0)
    ids = await holding.add(lambda: jobs.add_many("step", 60))
    await gate.until_inside(2)
    assert holding.last_fetch == "held"
    await until(lambda: holding.are_locked("step", 2))  # after the batch, and after ordinary prefetches
    await workers.start({"step": elsewhere}, poll_interval=0.1)
    await until(lambda: len(attempts) == 60)
    gate.open_all()
    await jobs.until_gone()
    assert attempts == [1] * 60
    assert len(gate.started) == 2
    assert len(ids) == 60


async def test_a_batch_is_held_longer_if_the_process_had_no_time_to_start_its_jobs(
    holding: Holding, jobs: Jobs
) -> None:
    """Released jobs would be fetched again, which costs a busy machine even more."""
    is_armed, waits = False, 1.5 * BRIEFLY

    def stall(event: PoolJobsFetched) -> None:
        nonlocal is_armed
        if is_armed and event.kind == "held" and event.count == event.limit:
            is_armed = False
            time.sleep(waits)  # timing: the time of the batch is up before one of its jobs starts

    holding.recorder.events.on(PoolJobsFetched, stall)
    await holding.start({}, concurrency=10, hold=BRIEFLY)
    before, is_armed = holding.fetched, True
    await holding.add_load(LOAD)
    await jobs.until_gone()
    assert not is_armed
    await until(lambda: holding.fetched - before >= LOAD)
    assert holding.fetched - before == LOAD


async def test_jobs_stuck_behind_a_slow_one_are_released_before_the_batch_ends(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    await holding.start({"step": gate.__call__}, concurrency=2, prefetch=0.5)
    ids = await holding.add(lambda: jobs.add_many("step", 60))
    await gate.until_inside(2)
    assert holding.last_fetch == "held"

    await until(lambda: holding.are_locked("step", 2))  # the end of the batch has locked what runs
    free = [row for row in await holding.rows("step") if row["locked_by"] is None]
    assert [row["attempts"] for row in free] == [0] * 58
    assert await holding.row_locked(ids) == []
    await holding.open_until_gone(gate)
    assert len(gate.started) == 60


async def test_every_other_outcome_is_that_of_an_ordinary_job(holding: Holding, jobs: Jobs) -> None:
    async def fail() -> None:
        raise RuntimeError("no")

    async def snooze() -> Snooze:
        return Snooze(6000)

    async def item(number: int) -> None:
        if number % 2:
            raise RuntimeError("odd")

    async def some(payload: list[int]) -> list[Any]:
        return [item(number) for number in payload]

    @task(timeout=0.05)
    async def too_long() -> None:
        await asyncio.sleep(SELDOM)

    recorder = holding.recorder
    tasks = {"fail": fail, "snooze": snooze, "some": some, "too_long": too_long}
    await holding.start(tasks, concurrency=10)

    async def add() -> list[int]:
        return [
            await jobs.add("fail"),
            await jobs.add("fail", max_attempts=1),
            await jobs.add("snooze"),
            await jobs.add("some", [1, 2, 3, 4]),
            await jobs.add("too_long"),
        ]

    ids = await holding.add(add)
    await recorder.wait_for(JobSnoozed)
    await until(lambda: len(holding.of(JobErrored, ids)) == 4)
    assert holding.last_fetch == "held"
    rows = {row["id"]: row for row in await jobs.all()}
    assert rows.keys() == set(ids)
    assert {row["locked_by"] for row in rows.values()} == {None}
    failed, last, snoozed, partly, timed_out = (rows[job_id] for job_id in ids)
    assert (failed["attempts"], headline(failed)) == (1, "RuntimeError: no")
    assert (last["attempts"], last["max_attempts"]) == (1, 1)
    assert holding.of(JobFailed, ids) == [ids[1]]
    assert (snoozed["attempts"], snoozed["last_error"]) == (0, None)
    assert (partly["attempts"], partly["payload"]) == (1, "[1,3]")
    assert timed_out["attempts"] == 1
    assert "0.05" in headline(timed_out)


async def test_a_job_past_its_deadline_expires(holding: Holding, jobs: Jobs) -> None:
    async def never() -> None:
        raise AssertionError

    await holding.start({"never": never}, concurrency=10)
    job_id = await holding.add(lambda: jobs.add("never", flags=["py:expires=1000000000"]))
    await until(lambda: holding.of(JobExpired, [job_id]) == [job_id])
    assert holding.last_fetch == "held"
    await jobs.until_gone()


async def test_the_ends_of_kept_jobs_are_in_the_history(
    holding: Holding, jobs: Jobs, utils: WorkerUtils
) -> None:
    @task(keep=True)
    async def double(payload: Any) -> int:
        return 2 * payload["n"]

    await holding.start({"double": double}, concurrency=10)
    ids = await holding.add(lambda: jobs.add_many("double", 5))
    await until(lambda: holding.of(JobSucceeded, ids) == ids)
    assert holding.last_fetch == "held"
    await jobs.until_gone()
    ends = [end for job_id in ids for end in await utils.history.of_job(job_id)]
    assert [(end.raw_result, end.attempts) for end in ends] == [(str(2 * n), 1) for n in range(5)]


async def test_a_task_sees_its_job_as_if_it_were_locked(holding: Holding, jobs: Jobs) -> None:
    seen: list[Any] = []

    async def look(payload: Any, helpers: Any) -> None:
        seen.append(helpers.job)

    runner = await holding.start({"look": look}, concurrency=1)
    await holding.add(lambda: jobs.add_many("look", 3))
    await jobs.until_gone()
    assert holding.last_fetch == "held"
    assert [(job.attempts, job.locked_by) for job in seen] == [(1, runner.pool_id)] * 3
    assert all(job.locked_at is not None and job.locked_at > job.run_at for job in seen)


async def test_a_keyed_job_is_locked_beside_the_batch_and_in_its_place(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    runner = await holding.start({"step": gate.__call__}, concurrency=100)

    async def add() -> None:
        for n in range(9):
            await jobs.add("step", {"n": n}, priority=n % 3, key="key" if n == 4 else None)

    await holding.add(add)
    await gate.until_inside(9)
    assert holding.last_fetch == "held"
    rows = await holding.rows("step")
    (keyed,) = (row for row in rows if row["key"])
    assert (keyed["locked_by"], keyed["attempts"]) == (runner.pool_id, 1)
    others = [row for row in rows if not row["key"]]
    assert {(row["locked_by"], row["attempts"]) for row in others} == {(None, 0)}
    ids = [row["id"] for row in others]
    assert await holding.row_locked([*ids, keyed["id"]]) == ids
    assert [payload["n"] for payload in gate.started] == [0, 3, 6, 1, 4, 7, 2, 5, 8]
    # Others need not wait to replace it.
    await jobs.add("step", {"n": "other"}, key="key")
    await gate.until_inside(10)
    gate.open_all()
    await jobs.until_gone()
    assert holding.of(JobSucceeded, [row["id"] for row in rows])


async def test_jobs_of_a_batch_whose_fetch_is_cancelled_beside_a_keyed_job_run(
    holding: Holding, jobs: Jobs, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    cancelled: list[Any] = []

    async def be_cancelled(*arguments: Any, **options: Any) -> Any:
        current = asyncio.current_task()
        if not cancelled and current is not None:
            cancelled.append(current)
            current.cancel()
        return await get_keyed_jobs(*arguments, **options)

    await holding.start({"step": gate.__call__}, concurrency=100)
    monkeypatch.setattr(fetcher, "get_keyed_jobs", be_cancelled)

    async def add() -> None:
        for n in range(9):
            await jobs.add("step", {"n": n}, key="key" if n == 4 else None)

    await holding.add(add)
    await gate.until_inside(9)
    assert cancelled
    gate.open_all()
    await jobs.until_gone()


async def test_held_jobs_start_by_priority_and_time(holding: Holding, jobs: Jobs) -> None:
    order: list[int] = []

    async def step(payload: Any) -> None:
        order.append(payload["n"])

    await holding.start({"step": step}, concurrency=1)

    async def add() -> None:
        for n in range(90):
            await jobs.add("step", {"n": n}, priority=n % 3)

    await holding.add(add)
    await jobs.until_gone()
    assert holding.last_fetch == "held"
    assert order == sorted(range(90), key=lambda n: (n % 3, n))


async def test_jobs_of_queues_that_this_worker_cannot_take_do_not_end_holding(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    await holding.start({"step": gate.__call__})
    await jobs.add("unknown", queue="q")
    await jobs.add("step", queue="p", run_at=datetime.now(UTC) + timedelta(hours=1))
    for _ in range(3):
        await holding.warm_up()
    assert await jobs.count() == 2


async def test_jobs_of_named_queues_are_run_in_between(holding: Holding, jobs: Jobs, gate: Gate) -> None:
    async def step(payload: Any) -> None:
        await gate(payload)

    await holding.start({"step": step}, concurrency=1)

    async def add() -> None:
        for n in range(3):
            await jobs.add("step", {"n": n}, queue="serial", priority=-1)

    await holding.add(add)
    for n in range(3):  # each before all short jobs that wait, although these are held while they run
        await gate.until_inside(1)
        assert gate.open()["n"] == n
    await jobs.until_gone()


async def test_jobs_with_forbidden_flags_are_not_held(holding: Holding, jobs: Jobs, gate: Gate) -> None:
    await holding.start({"step": gate.__call__}, concurrency=10, forbidden_flags=["no"])

    async def add() -> list[int]:
        return [await jobs.add("step", {}, flags=flags) for flags in (None, ["no"], ["yes"], ["yes", "no"])]

    ids = await holding.add(add)
    await gate.until_inside(2)
    assert holding.last_fetch == "held"
    assert await holding.row_locked(ids) == [ids[0], ids[2]]
    gate.open_all()
    await until(lambda: holding.of(JobSucceeded, ids) == [ids[0], ids[2]])
    assert await jobs.locked() == 0


async def test_a_workers_own_time_decides_what_is_due(
    holding: Holding, jobs: Jobs, gate: Gate, connection: Any
) -> None:
    ahead = await connection.fetchval("select now() + interval '3 days'")
    clock = FakeClock(ahead)
    options: dict[str, Any] = {"use_local_time": True, "clock": clock, "hold": SHORTLY}
    await holding.start({"step": gate.__call__}, concurrency=10, **options)

    async def add() -> list[int]:
        return [
            await jobs.add("step", {}, run_at=ahead - timedelta(hours=1)),
            await jobs.add("step", {}, run_at=ahead + timedelta(hours=1)),
        ]

    due, not_due = await holding.add(add)
    await gate.until_inside(1)
    assert holding.last_fetch == "held"
    await until(lambda: holding.are_locked("step", 1))
    rows = {row["id"]: row for row in await holding.rows("step")}
    assert abs(rows[due]["locked_at"] - ahead) < timedelta(hours=1)
    assert rows[not_due]["locked_at"] is None
    gate.open_all()
    await jobs.until_left(not_due)


async def test_plain_functions_run_in_threads_while_their_jobs_are_held(holding: Holding, jobs: Jobs) -> None:
    seen: list[int] = []

    def work(payload: Any) -> None:
        seen.append(payload["n"])

    await holding.start({"work": work}, concurrency=4)
    await holding.add(lambda: jobs.add_many("work", 100))
    await jobs.until_gone()
    assert holding.last_fetch == "held"
    assert sorted(seen) == list(range(100))


async def test_hooks_see_a_held_job_like_any_other(never_slow: None, jobs: Jobs, workers: Workers) -> None:
    hooks = Hooks()
    around: list[int] = []

    @hooks.around_run
    async def watch(job: Any, call_next: Any) -> Any:
        outcome = await call_next()
        if job.task_identifier == "step":
            around.append(job.id)
        return outcome

    async def step() -> None:
        pass

    holding = Holding(jobs, workers, EventRecorder(hooks.events))
    await holding.start({"step": step}, concurrency=1, hooks=hooks, events=None)
    ids = await holding.add(lambda: jobs.add_many("step", 5))
    await jobs.until_gone()
    assert holding.last_fetch == "held"
    assert around == ids
    await until(lambda: holding.of(JobSucceeded, ids) == ids)


async def test_statistics_and_events_count_each_job_once(
    holding: Holding, jobs: Jobs, connection: Any
) -> None:
    async def odd(payload: Any) -> None:
        if payload["n"] % 20 == 1:
            raise RuntimeError("odd")

    runner = await holding.start({"odd": odd}, concurrency=10, hold=0.2)
    ids = await holding.add(lambda: jobs.add_many("odd", 200, max_attempts=1))
    await until(lambda: len(holding.of(JobCompleted, ids)) == 200)
    assert Counter(holding.of(JobCompleted, ids)) == Counter(ids)
    assert len(holding.of(JobFailed, ids)) == 10
    succeeded = holding.recorder.count(JobSucceeded)
    written = holding.recorder.of(PoolOutcomesWritten)
    assert sum(event.completed for event in written) == succeeded
    assert sum(event.failed for event in written) == 10
    await runner.stop()
    counted = await connection.fetch(
        "select task, sum(completed) as completed, sum(failed + permanently_failed) as failed "
        f"from {SCHEMA}._private_py_minutes group by task"
    )
    by_task = {row["task"]: (row["completed"], row["failed"]) for row in counted}
    assert by_task["odd"] == (190, 10)
    assert by_task["quick"][0] == succeeded - 190


async def test_two_lanes_hold_jobs_at_the_same_time(holding: Holding, jobs: Jobs, gate: Gate) -> None:
    @task(lane="side")
    async def side_quick() -> None:
        pass

    tasks = {"main": gate.__call__, "side_quick": side_quick}
    await holding.start(tasks, concurrency=10, lanes={"side": 10})
    job_id = await holding.add(lambda: jobs.add("main"))
    await gate.until_inside(1)
    assert await holding.row_locked([job_id]) == [job_id]
    await holding.warm_up(task="side_quick")
    assert await holding.row_locked([job_id]) == [job_id]
    gate.open_all()
    await jobs.until_gone()


async def test_several_workers_share_a_load_and_run_each_job_once(
    jobs: Jobs, workers: Workers, recorder: EventRecorder
) -> None:
    runs: Counter[int] = Counter()

    async def count(payload: Any) -> None:
        runs[payload["n"]] += 1

    holding, rounds = Holding(jobs, workers, recorder), 0
    for _ in range(3):
        await workers.start({"count": count}, concurrency=10, events=recorder.events, hold=SHORTLY)
    while rounds < 2 or not holding.held_fetches:
        rounds += 1
        await jobs.add_many("count", SHARED)
        await jobs.until_gone()
        assert runs == Counter(dict.fromkeys(range(SHARED), rounds))
        assert rounds < ROUNDS
    await until(lambda: recorder.count(JobSucceeded) == rounds * SHARED)


async def test_a_fetch_by_id_that_reads_not_all_ids_leaves_no_job_below_a_watermark(
    jobs: Jobs, workers: Workers, recorder: EventRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the first jobs, each ninth is ours; a fetch reads four ids for each one that it wants."""
    monkeypatch.setattr(watermarks, "SLOW", -SELDOM)  # each full fetch sets them ...
    monkeypatch.setattr(watermarks, "FULL_FETCH_AFTER", 1e9)  # ... and is the last one
    monkeypatch.setattr(watermarks, "FULL_FETCH_WITHIN", 1e9)

    async def step(payload: Any) -> None:
        pass

    async def is_drained() -> bool:
        return not await jobs.connection.fetchval(
            f"select count(*) from {SCHEMA}._private_jobs where task_id = $1", task_ids[0]
        )

    task_ids = await jobs.connection.fetchval(
        f"with task as (insert into {SCHEMA}._private_tasks (identifier) values ('step'), ('other') "
        "returning id) select array_agg(id order by id) from task"
    )
    await jobs.connection.execute(
        f"insert into {SCHEMA}._private_jobs (task_id, run_at) "
        "select case when n < 3000 or n % 9 = 0 then $1::integer else $2 end, now() - interval '1 minute' "
        "from generate_series(1, 20000) n",
        *task_ids,
    )
    await workers.start({"step": step}, concurrency=10, hold=SHORTLY, events=recorder.events)
    await until(is_drained)
    assert Holding(jobs, workers, recorder).held_fetches


LIMIT, LAST_ID = 0, 6  # arguments of a fetch by id


async def test_after_jobs_were_released_a_fetch_goes_back_to_them(
    never_slow: None, jobs: Jobs, workers: Workers, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait behind a slow job are free when its batch ends; a fetch by id would pass them."""
    monkeypatch.setattr(cursor, "FROM_START_AFTER", SELDOM)
    names = {load(f"held/{name}", SchemaName()): name for name in ("get_held_jobs", "get_tied_jobs")}
    sent: list[tuple[str, Any]] = []
    slow: list[int] = []
    entered, opened = asyncio.Event(), asyncio.Event()

    def log(query: Any) -> None:
        if query.query in names and query.args[LIMIT] > 0:  # not to make a plan
            sent.append((names[query.query], query.args))

    async def watch(connection: Any) -> None:
        connection.add_query_logger(log)

    async def step(payload: Any, helpers: JobHelpers) -> None:
        if sum(name == "get_tied_jobs" for name, _ in sent) > 2 and not slow:
            slow.append(helpers.job.id)
            entered.set()
            await opened.wait()

    async def are_all_free() -> bool:
        return not await jobs.connection.fetchval(
            f"select (select count(*) from {SCHEMA}._private_jobs) - count(*) "
            f"from (select from {SCHEMA}._private_jobs for update skip locked) free"
        )

    async with asyncpg.create_pool(database_url, min_size=1, max_size=20, init=watch) as pool:
        runner = await workers.start({"step": step}, pg_pool=pool, concurrency=1, hold=SHORTLY)
        await jobs.connection.execute(ADD_TOGETHER)
        async with asyncio.timeout(PATIENCE):
            await entered.wait()
            await until(are_all_free)
            mark = len(sent)
            opened.set()
            await jobs.until_gone()
            while not sent[mark:]:  # the slow job counts for a while
                await jobs.connection.execute(ADD_TOGETHER)
                await jobs.until_gone()
        await runner.stop()
    name, arguments = sent[mark]
    assert name == "get_held_jobs" or arguments[LAST_ID] == slow[0]  # the former reads from the start
