"""A worker that is killed: its jobs run elsewhere soon, and nothing else is touched."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import asyncpg

from graphile_worker import JobHelpers
from graphile_worker.recovery.sweeper import JITTER
from graphile_worker.values.option_groups import RecoveryOptions
from recovery.dead import QUICK_ENVIRONMENT, Graveyard
from recovery.history import History
from support.server import DatabaseServer
from support.worker_process import Start, WorkerProcess
from support.working import SCHEMA, Jobs, Workers, until

TASKS = Path(__file__).with_name("tasks_to_lose.py")
LOCKED_AHEAD = {"GRAPHILE_WORKER_LOCAL_QUEUE_SIZE": "10"}


async def _killed(worker: WorkerProcess) -> None:
    worker.send(signal.SIGKILL)
    assert worker.ended() == 137


async def test_jobs_that_ran_or_were_locked_ahead_run_elsewhere_and_their_attempt_does_not_count(
    start: Start, database_url: str, jobs: Jobs, history: History, graveyard: Graveyard
) -> None:
    for queue in ("named", "named", None, None, None):
        await jobs.add("work", queue=queue)
    foreign = await jobs.add("unknown")
    await graveyard.give("pool-of-node", foreign)
    first = start(
        "-j", 2, url=database_url, tasks=TASKS, WAIT="1", **LOCKED_AHEAD, **QUICK_ENVIRONMENT
    ).wait_for("ready")
    await history.until_count("start", 2)
    assert await jobs.locked() == 4 + 1 + 1  # jobs ahead and running, the queue, the one of Node's
    second = start("-j", 2, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT).ready()
    await _killed(first)
    await jobs.until_left(foreign)
    assert {pid for event, pid in await history.events() if event == "end"} == {second.pid}
    assert await history.attempts() == {1}
    second.wait_for("its jobs will be recovered in 2.5 s").wait_for("is dead; returned 4 jobs to the queue")
    assert (await jobs.one())["locked_by"] == "pool-of-node"
    assert [row["pid"] for row in (await graveyard.workers()).values()] == [second.pid]


def test_with_the_default_settings_it_takes_at_most_half_a_minute() -> None:
    """From the last heartbeat that counts to the sweep that finds the worker dead."""
    options = RecoveryOptions()
    latest = 2 * options.heartbeat_interval + options.grace + (1 + JITTER) * options.sweep_interval
    assert latest <= 30


async def test_with_the_default_settings_jobs_of_a_killed_worker_run_elsewhere_after_the_grace(
    start: Start, database_url: str, jobs: Jobs, history: History, record_property: Any
) -> None:
    await jobs.add("work")
    first = start(url=database_url, tasks=TASKS, WAIT="1")
    await history.until_count("start", 1)
    start(url=database_url, tasks=TASKS).ready()
    await _killed(first)
    began = time.monotonic()
    await history.until_count("end", 1)
    took = time.monotonic() - began
    record_property("seconds from kill -9 to the end elsewhere", round(took, 1))
    assert took > 11.5  # the grace: it might have come back


async def test_a_run_that_should_end_by_itself_is_written_down_before_it_locks_a_job(
    start: Start, database_url: str, jobs: Jobs, history: History, graveyard: Graveyard
) -> None:
    await jobs.add("work")
    first = start("--once", url=database_url, tasks=TASKS, WAIT="1", **QUICK_ENVIRONMENT)
    await history.until_count("start", 1)
    await _killed(first)
    second = start(url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT)
    await history.until_count("end", 1)
    assert (await history.events())[-1] == ("end", second.pid)


async def test_the_first_job_finds_its_worker_written_down(
    workers: Workers, jobs: Jobs, database_url: str
) -> None:
    seen: list[Any] = []
    holds_lock: list[bool] = []

    async def look(payload: Any, helpers: JobHelpers) -> None:
        # Blocks the event loop while it asks, from a thread of its own.
        rows = DatabaseServer.run(
            database_url,
            lambda connection: connection.fetch(f"select id, backend_pid from {SCHEMA}._private_py_workers"),
        )
        seen.append((helpers.job.locked_by, [row["id"] for row in rows]))
        holds_lock.append(rows[0]["backend_pid"] is not None)

    await jobs.add("look")
    await workers.once({"look": look})
    runner = await workers.start({"look": look})
    await jobs.add("look")
    await jobs.until_gone()
    await workers.stop(runner)
    await jobs.add("look")
    async with asyncpg.create_pool(database_url, min_size=0, max_size=5) as pool:
        await workers.once({"look": look}, pg_pool=pool)
    assert holds_lock[-1]  # it could not take it any more on the loop that the job blocks
    assert len(seen) == 3
    for pool_id, registered in seen:
        assert registered == [pool_id]


async def test_a_job_that_kills_its_worker_is_given_up_and_those_locked_with_it_are_not(
    start: Start, database_url: str, jobs: Jobs, history: History, graveyard: Graveyard
) -> None:
    deadly = await jobs.add("die", priority=-1)
    for _ in range(3):
        await jobs.add("work")
    environment = QUICK_ENVIRONMENT | LOCKED_AHEAD | {"GRAPHILE_WORKER_MAX_RECOVERIES": "1"}
    for death in range(2):
        worker = start(url=database_url, tasks=TASKS, **environment)
        assert worker.ended() == 137
        assert (await graveyard.recoveries()).get(deadly, 0) == death
    last = start(url=database_url, tasks=TASKS, **environment)
    await jobs.until_left(deadly)
    assert sum(event == "end" for event, _ in await history.events()) == 3
    left = await jobs.one()
    assert left["attempts"] == left["max_attempts"]
    assert left["last_error"].startswith("Given up: the worker that ran this job died 2 times")
    assert f"graphile-worker reschedule {deadly} --attempts 0" in left["last_error"]
    assert await history.events(deadly) == [("start", pid) for _, pid in await history.events(deadly)]
    assert last.process.poll() is None
    await until(lambda: "failed 1 job" in last.output)


async def test_a_graceful_stop_leaves_no_row_behind(
    start: Start, database_url: str, graveyard: Graveyard
) -> None:
    worker = start(url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT).ready()
    assert [row["pid"] for row in (await graveyard.workers()).values()] == [worker.pid]
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert await graveyard.workers() == {}
