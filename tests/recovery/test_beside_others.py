"""Sharing a database with Node and the Rust port: locks of long jobs are renewed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from graphile_worker.recovery.sweeper import reset_locked
from graphile_worker.testing.fake_clock import FakeClock
from graphile_worker.values.schema_name import SchemaName
from recovery.dead import Graveyard
from support.working import SCHEMA, Gate, Jobs, Workers, until


async def _later(connection: Any) -> datetime:
    """A time at which locks of two hours ago are older than four hours."""
    return await connection.fetchval("select now() + interval '3 hours'")


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
