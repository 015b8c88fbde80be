"""Sharing a database with the Rust port and with Node: heartbeats for the former, renewed locks for both."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pytest

from graphile_worker.client import WorkerUtils
from graphile_worker.recovery.stale_locks import reset_locked
from graphile_worker.schema_name import SchemaName
from graphile_worker.testing.fake_clock import FakeClock
from recovery.dead import QUICK, Graveyard
from support.working import SCHEMA, Gate, Jobs, Workers, until

RUST_TABLE = f"""
create table {SCHEMA}._private_workers (
  id text primary key, last_heartbeat_at timestamptz not null, started_at timestamptz not null default now(),
  metadata jsonb
)
"""


async def _rust_rows(connection: Any) -> dict[str, Any]:
    rows = await connection.fetch(f"select *, metadata ->> 'pid' as pid from {SCHEMA}._private_workers")
    return {row["id"]: row for row in rows}


async def _later(connection: Any) -> datetime:
    """A time at which locks of two hours ago are older than four hours."""
    return await connection.fetchval("select now() + interval '3 hours'")


@pytest.mark.parametrize("recovery", [True, False])
async def test_a_worker_shows_the_rust_port_that_it_lives_and_that_it_ends(
    workers: Workers, connection: Any, recovery: bool
) -> None:
    await connection.execute(RUST_TABLE)
    runner = await workers.start({"work": Gate()}, recovery=recovery, **QUICK)

    async def is_known() -> bool:
        return runner.pool_id in await _rust_rows(connection)

    await until(is_known)
    assert (await _rust_rows(connection))[runner.pool_id]["pid"] == str(os.getpid())
    await workers.stop(runner)
    assert await _rust_rows(connection) == {}


async def test_a_dead_worker_is_removed_from_the_rust_ports_table_too(
    utils: WorkerUtils, connection: Any, graveyard: Graveyard
) -> None:
    await connection.execute(RUST_TABLE)
    await connection.execute(
        f"insert into {SCHEMA}._private_workers values ('pool-dead', now()), ('graphile_worker_ab', now())"
    )
    await graveyard.bury("pool-dead")
    await utils.sweep_stale_workers()
    assert list(await _rust_rows(connection)) == ["graphile_worker_ab"]


async def test_a_job_that_runs_for_hours_renews_its_lock_and_that_of_its_queue(
    workers: Workers, jobs: Jobs, connection: Any, graveyard: Graveyard
) -> None:
    clock, gate = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Gate()
    await jobs.add("work", queue="named")
    runner = await workers.start({"work": gate}, clock=clock)
    await gate.until_inside(1)
    of_node = await jobs.add("other")
    await graveyard.give("pool-of-node", of_node)
    for table in ("jobs", "job_queues"):
        await connection.execute(
            f"update {SCHEMA}._private_{table} set locked_at = now() - interval '2 hours' "
            "where locked_at is not null"
        )
    await clock.advance(1800)

    async def is_renewed() -> bool:
        return await connection.fetchval(
            f"select count(*) = 2 from (select locked_at from {SCHEMA}._private_jobs where locked_by = $1 "
            f"union all select locked_at from {SCHEMA}._private_job_queues where locked_by = $1) locks "
            "where locked_at > now() - interval '1 minute'",
            runner.pool_id,
        )

    await until(is_renewed)
    assert await reset_locked(connection, SchemaName(), await _later(connection)) == (1, 0)
    assert {row["id"]: row["locked_by"] for row in await jobs.all()}[of_node] is None
    gate.open()
    await until(lambda: gate.inside == 0)


async def test_a_young_lock_is_left_alone(workers: Workers, jobs: Jobs) -> None:
    clock, gate = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Gate()
    await jobs.add("work")
    await workers.start({"work": gate}, clock=clock)
    await gate.until_inside(1)
    before = await jobs.one()
    await clock.advance(1800)
    await clock.advance(1800)
    assert (await jobs.one())["locked_at"] == before["locked_at"]
    gate.open()
