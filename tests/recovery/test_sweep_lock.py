"""The sweep lock: a worker that vanishes from the network or is suspended during a sweep does not keep it."""

from __future__ import annotations

import signal
import time
from typing import Any

import asyncpg
import pytest

from graphile_worker.recovery.orphaned_jobs import RECOVERED, sweep_lock
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import QUICK, QUICK_ENVIRONMENT, Graveyard
from support.worker_process import TASKS, Start
from support.working import PATIENCE, SCHEMA, Jobs, Workers, until

POOL = "pool-dead"


@pytest.mark.parametrize("state", ["between statements", "between the parts of a statement"])
async def test_others_can_sweep_some_seconds_after_one_fell_silent(
    connection: Any, database_url: str, state: str
) -> None:
    is_preparing = state == "between the parts of a statement"
    silent = await asyncpg.connect(database_url)
    if is_preparing and silent.get_server_version().major < 17:
        await silent.close()
        pytest.skip("this server has no transaction_timeout")
    try:
        await silent.execute("begin")
        assert await sweep_lock(silent, SchemaName(), within="3s" if is_preparing else "1h")
        began = time.monotonic()
        if is_preparing:
            await silent.prepare("select 1")  # the server waits for the command to execute it
        assert not await sweep_lock(connection, SchemaName())

        async def is_free() -> bool:
            return await sweep_lock(connection, SchemaName())

        await until(is_free, timeout=PATIENCE, every=0.1)
        assert time.monotonic() - began > 2  # a sweep that is merely slow is left alone
    finally:
        silent.terminate()


@pytest.mark.parametrize(
    "block",
    [
        # The execution of a statement waits for the row: when it goes on, the session is idle.
        f"select from {SCHEMA}._private_jobs for update",
        # The analysis of a statement waits for the table: when it goes on, the session waits for the rest.
        f"lock {SCHEMA}._private_py_recoveries in access exclusive mode",
    ],
    ids=["between statements", "between the parts of a statement"],
)
async def test_others_can_sweep_while_one_is_suspended_in_the_middle(
    block: str,
    jobs: Jobs,
    workers: Workers,
    graveyard: Graveyard,
    start: Start,
    database_url: str,
    connection: Any,
) -> None:
    job_id = await jobs.add("elsewhere")
    process = start("-j", 1, url=database_url, tasks=TASKS, **QUICK_ENVIRONMENT).ready()
    await graveyard.holding()
    await graveyard.give(POOL, job_id)
    other = await asyncpg.connect(database_url)
    try:
        await other.execute("begin")
        await other.execute(block)
        await graveyard.bury(POOL)
        await until(lambda: _is_sweep_waiting(connection))
        process.send(signal.SIGSTOP)
        assert not await sweep_lock(connection, SchemaName())
    finally:
        await other.close()
    await workers.start({"other": noop}, **QUICK)
    await until(lambda: _is_recovered(jobs))
    process.send(signal.SIGCONT)


async def _is_sweep_waiting(connection: Any) -> bool:
    return await connection.fetchval(
        "select exists (select from pg_locks held join pg_stat_activity activity using (pid) "
        "where held.locktype = 'advisory' and held.objid = 1398228304 and held.granted "
        "and activity.datname = current_database() and activity.wait_event_type = 'Lock')"
    )


async def _is_recovered(jobs: Jobs) -> bool:
    return (await jobs.one())["last_error"] == RECOVERED


async def noop(payload: Any) -> None:
    pass


async def test_the_limits_end_with_the_sweep(connection: Any) -> None:
    limits = ["idle_in_transaction_session_timeout", "transaction_timeout"]
    if connection.get_server_version().major < 17:
        limits.pop()
    async with connection.transaction():
        await sweep_lock(connection, SchemaName())
        assert {await connection.fetchval(f"show {name}") for name in limits} <= {"5s", "30s"}
    assert {await connection.fetchval(f"show {name}") for name in limits} == {"0"}
