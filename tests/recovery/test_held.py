"""Held batches of workers that hang: suspended ones lose their jobs, blocked ones keep them."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from graphile_worker import JobHelpers
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from recovery.holding import HELD, HOLD_LONG
from support.held_load import never_slow
from support.worker_process import Start, WorkerProcess, recorded
from support.working import SCHEMA, Jobs, Workers, until

TASKS = Path(__file__).with_name("short_tasks.py")
QUIET = ("--log-level", "warning")
LONG = {"GRAPHILE_WORKER_HOLD": "30"}
"""Longer than a test waits, so that a batch is held when the process is stopped."""
LOCKED = f"select count(locked_at) from {SCHEMA}._private_jobs"
NEVER_POLL = {"GRAPHILE_WORKER_POLL_INTERVAL": "600"}


async def until_holding(jobs: Jobs) -> None:
    """Add short jobs until a worker holds some."""

    async def is_holding() -> bool:
        if await jobs.count() < 1_000:
            await jobs.add_many("short", 2_000)
        return bool(await jobs.connection.fetchval(HELD))

    await until(is_holding)


async def held_jobs(jobs: Jobs) -> set[int]:
    """Jobs whose rows a transaction has locked."""
    rows = await jobs.connection.fetch(
        f"select id from {SCHEMA}._private_jobs except "
        f"select id from (select id from {SCHEMA}._private_jobs for update skip locked) free"
    )
    return {row["id"] for row in rows}


async def suspend_while_holding(worker: WorkerProcess, jobs: Jobs) -> set[int]:
    """Suspend a worker while all its jobs are in held batches; return these jobs."""
    held: set[int] = set()

    async def is_suspended() -> bool:
        nonlocal held
        await until_holding(jobs)
        worker.send(signal.SIGSTOP)
        held = await held_jobs(jobs)
        await jobs.connection.execute("select pg_sleep(0.2)")  # the server may have been sent a commit
        if held and held == await held_jobs(jobs) and not await jobs.connection.fetchval(LOCKED):
            return True
        worker.send(signal.SIGCONT)
        return False

    await until(is_suspended)
    return held


ADD_WITH_KEYS = f"""
select from {SCHEMA}.add_jobs(array(
    select json_populate_record(null::{SCHEMA}.job_spec, json_build_object(
        'identifier', 'short', 'job_key', case when n % 20 = 0 then $1 || n end,
        'run_at', now() - interval '1 day' + n * interval '1 ms'
    )) from generate_series(1, 2000) n
))
"""
KEYED = (
    f"select id, key from {SCHEMA}._private_jobs where key is not null and locked_at is null order by run_at"
)
ROUNDS = 3
COUNT, LOOK_EVERY = 3_000, 100  # jobs


async def test_nobody_waits_for_a_key_beside_a_suspended_worker(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    """Its batches stay open with jobs before, between and after those that have a key."""
    worker = start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **LONG)
    await until_holding(jobs)
    await jobs.until_gone()
    await jobs.connection.execute("set lock_timeout = '10s'")  # long for a busy machine
    held: set[int] = set()
    loads = 0

    async def is_suspended() -> bool:
        nonlocal held, loads
        if await jobs.count() < 1_000:
            loads += 1
            await jobs.connection.execute(ADD_WITH_KEYS, f"{loads} ")
        if not await jobs.connection.fetchval(HELD):
            return False
        worker.send(signal.SIGSTOP)
        held = await held_jobs(jobs)
        if held:
            return True
        worker.send(signal.SIGCONT)
        return False

    for _ in range(ROUNDS):
        await until(is_suspended)
        waiting = await jobs.connection.fetch(KEYED)
        assert held.isdisjoint(row["id"] for row in waiting)
        for row in waiting[:5]:
            await jobs.add("short", key=row["key"])
        worker.send(signal.SIGCONT)
    await jobs.until_gone()


async def test_the_jobs_of_a_suspended_worker_run_elsewhere_after_its_grace(
    start: Start, database_url: str, jobs: Jobs, graveyard: Graveyard, folder: Path
) -> None:
    first = start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **LONG)
    await until_holding(jobs)
    await graveyard.holding()
    await suspend_while_holding(first, jobs)
    # While the server keeps its lock the worker counts as alive, as one that is busy does.
    await jobs.connection.execute(
        f"select pg_terminate_backend(backend_pid) from {SCHEMA}._private_py_workers where pid = $1",
        first.pid,
    )
    second = start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **LONG, **NEVER_POLL)
    second.wait_for("is dead")
    await jobs.until_gone()
    assert not await jobs.connection.fetchval(HELD)
    first.send(signal.SIGCONT)

    async def is_back() -> bool:
        return {row["pid"] for row in (await graveyard.workers()).values()} == {first.pid, second.pid}

    await until(is_back)
    more = await jobs.add_many("short", 100)
    await jobs.until_gone()
    assert set(more) <= set(recorded(folder))
    first.send(signal.SIGTERM)
    assert first.ended() == 143


async def test_idle_workers_take_the_held_jobs_of_a_killed_one_without_a_poll(
    start: Start, database_url: str, jobs: Jobs
) -> None:
    first = start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **LONG)
    held = await suspend_while_holding(first, jobs)
    start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **LONG, **NEVER_POLL)

    async def are_others_gone() -> bool:
        return await jobs.count() == len(held)

    await until(are_others_gone)
    await jobs.connection.execute(
        "select pg_sleep(0.5)"
    )  # the other worker fetches once more, and finds nothing
    first.send(signal.SIGKILL)
    await jobs.until_gone()


async def test_a_blocked_event_loop_loses_no_job_and_none_runs_twice(
    start: Start, database_url: str, jobs: Jobs, folder: Path
) -> None:
    # The server would end the transaction after a second.
    database = await jobs.connection.fetchval("select current_database()")
    await jobs.connection.execute(
        f"alter role current_user in database {database} set idle_in_transaction_session_timeout = '1s'"
    )
    first = start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **HOLD_LONG)
    start(*QUIET, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT, **HOLD_LONG)
    await until_holding(jobs)
    blocking = await jobs.add("block", {"seconds": 4}, priority=-1)
    ids = await jobs.add_many("short", 3_000)
    await jobs.until_gone()
    done = recorded(folder)
    assert {blocking, *ids} <= set(done)
    assert len(done) == len(set(done))
    assert first.process.poll() is None


@pytest.mark.parametrize("is_registered", [False, True])
async def test_nothing_is_held_without_recovery(
    workers: Workers, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    locked: list[bool] = []

    async def look(payload: Any, helpers: JobHelpers) -> None:
        if payload["n"] % LOOK_EVERY == 0:
            (row,) = await helpers.query(
                f"select locked_by from {SCHEMA}._private_jobs where id = $1", helpers.job.id
            )
            locked.append(row["locked_by"] == helpers.job.locked_by)

    never_slow(monkeypatch)
    await jobs.add_many("look", COUNT)
    if is_registered:
        await jobs.connection.execute(f"drop table {SCHEMA}._private_py_last_death cascade")
    await workers.start({"look": look}, hold=1, recovery=is_registered, **QUICK)
    await jobs.until_gone()
    assert locked == [True] * (COUNT // LOOK_EVERY)
