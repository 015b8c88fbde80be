"""Held batches use connections that tasks do not need, and leave them to the tasks that do."""

from __future__ import annotations

from typing import Any

import asyncpg

from support.held_load import LOAD, Holding
from support.working import Gate, Jobs, until


async def test_tasks_that_need_every_connection_get_the_sessions_of_batches(
    holding: Holding, jobs: Jobs, gate: Gate
) -> None:
    """No batch ends meanwhile, so nothing but the wait of a task can free them."""

    async def borrow(payload: Any, helpers: Any) -> None:
        async with helpers.with_pg_client() as connection:
            await connection.fetchval("select 1")
            await gate(payload)

    await holding.start({"borrow": borrow}, concurrency=20, max_pool_size=12)
    await jobs.add_many("borrow", 20)
    await gate.until_inside(7)
    await holding.open_until_gone(gate)
    assert len(gate.started) == 20
    await holding.warm_up()


async def test_a_callers_small_pool_holds_nothing_and_its_tasks_get_connections(
    holding: Holding, jobs: Jobs, database_url: str
) -> None:
    async def borrow(payload: Any, helpers: Any) -> None:
        await helpers.query("select 1")

    async with asyncpg.create_pool(database_url, min_size=1, max_size=6) as pool:
        runner = await holding.start({"borrow": borrow}, is_warm=False, pg_pool=pool, concurrency=10)
        await holding.add_load(2 * LOAD)
        await jobs.add_many("borrow", 50)
        await jobs.until_gone()
        assert holding.held_fetches == []
        await runner.stop()


async def test_all_connections_are_returned_at_the_end(
    holding: Holding, jobs: Jobs, database_url: str
) -> None:
    async with asyncpg.create_pool(database_url, min_size=1, max_size=12) as pool:
        runner = await holding.start({}, pg_pool=pool, concurrency=10)
        await runner.stop()
        await until(lambda: pool.get_idle_size() == pool.get_size())
