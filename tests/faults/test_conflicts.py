"""Transactions in each other's way: a deadlock, and a database that is serializable by default."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import asyncpg
import pytest

from faults.scene import BRIEF, PATIENCE, Log, Ran
from graphile_worker import make_worker_utils
from graphile_worker.hooks.events import WorkerGetJobError
from graphile_worker.testing.results import EventRecorder
from support.working import MODES, SCHEMA, Gate, Jobs, Workers, terminate_workers, until

JOBS = f"{SCHEMA}._private_jobs"


async def test_an_outcome_that_is_the_victim_of_a_deadlock_is_written_again(
    workers: Workers, jobs: Jobs, database_url: str, log: Log
) -> None:
    gate = Gate()
    first, second = await jobs.add("wait", 1), await jobs.add("wait", 2)
    await workers.start({"wait": gate}, concurrency=2, complete_job_batch_delay=0.3, **BRIEF)
    await gate.until_inside(2, timeout=PATIENCE)
    foreign = await asyncpg.connect(database_url)
    await foreign.execute("set deadlock_timeout = '1min'")  # the other side gives way
    transaction = foreign.transaction()
    await transaction.start()
    await foreign.execute(f"select from {JOBS} where id = $1 for update", second)
    while gate.inside:
        gate.open()
    await until(lambda: is_waiting(jobs), timeout=PATIENCE)  # it holds the first and wants the second
    await foreign.execute(f"select from {JOBS} where id = $1 for update", first)
    await log.says("outcomes could not be written and are kept: deadlock detected")
    await transaction.rollback()
    await foreign.close()
    await jobs.until_gone(timeout=PATIENCE)
    await log.says("outcomes are written again")
    assert len(gate.started) == 2
    assert log.count("deadlock detected") == 1


async def is_waiting(jobs: Jobs) -> bool:
    return await jobs.connection.fetchval(
        "select count(*) > 0 from pg_stat_activity where datname = current_database() "
        "and application_name = 'graphile_worker' and wait_event_type = 'Lock'"
    )


# -- serializable --------------------------------------------------------------------------------------------


@pytest.fixture
async def serializable(database_url: str, connection: Any) -> str:
    """A database whose sessions are serializable unless they say otherwise."""
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database \"{name}\" set default_transaction_isolation = 'serializable'")
    return database_url


@pytest.mark.parametrize("mode", list(MODES))
async def test_several_workers_and_adders_get_along_in_a_serializable_database(
    serializable: str, workers: Workers, jobs: Jobs, recorder: EventRecorder, ran: Ran, log: Log, mode: str
) -> None:
    keyed: Counter[str] = Counter()
    last: dict[str, int] = {}

    async def note_keyed(payload: Any) -> None:
        keyed[payload["key"]] += 1
        last[payload["key"]] = max(
            payload["version"], last.get(payload["key"], 0)
        )  # an older one may be locked

    tasks = {"note": ran, "keyed": note_keyed}
    await asyncio.gather(
        *(
            workers.start(tasks, concurrency=4, poll_interval=0.2, events=recorder.events, **MODES[mode])
            for _ in range(3)
        )
    )
    async with make_worker_utils(connection_string=serializable, max_pool_size=4) as utils:

        async def surely(task: str, payload: Any, **options: Any) -> None:
            """As everybody must do who works with serializable transactions."""
            while True:
                try:
                    await utils.add_job(task, payload, **options)
                    return
                except (asyncpg.SerializationError, asyncpg.DeadlockDetectedError):
                    await asyncio.sleep(0.01)

        async def add(adder: int) -> None:
            for number in range(adder * 20, adder * 20 + 20):
                queue = f"queue {number % 3}" if number % 2 else None
                await surely("note", {"n": number}, queue_name=queue)
                key = f"key {adder}"
                await surely("keyed", {"key": key, "version": number}, job_key=key)

        await asyncio.gather(*(add(adder) for adder in range(4)))
    await jobs.until_gone(timeout=PATIENCE)
    ran.assert_each_once(80)
    assert last == {f"key {adder}": adder * 20 + 19 for adder in range(4)}
    assert recorder.count(WorkerGetJobError) == 0, log.lines
    assert log.count("could not serialize") == 0, log.lines
    assert await jobs.locked() == 0


async def test_the_sessions_of_a_worker_do_not_take_over_what_the_database_sets(
    serializable: str, workers: Workers, jobs: Jobs, log: Log
) -> None:
    """A session that tasks use does: it is theirs."""
    seen: list[str] = []

    async def look(payload: Any, helpers: Any) -> None:
        (row,) = await helpers.query("show transaction_isolation")
        seen.append(row[0])

    await workers.start({"look": look}, **BRIEF)
    await terminate_workers(jobs.connection)
    await jobs.add("look")
    await until(lambda: seen == ["serializable"], timeout=PATIENCE)
