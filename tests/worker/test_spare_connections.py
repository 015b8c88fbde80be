"""Held batches use connections that tasks do not need, and leave them to the tasks that do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from graphile_worker.recovery.lease import Lease
from graphile_worker.runner.lending import Lending
from graphile_worker.schema_name import SchemaName
from graphile_worker.worker.seats import SEATS, Seats
from graphile_worker.worker.session import Sessions
from support.held_load import Holding
from support.working import Gate, Jobs, until

FOR_TASKS = 8  # connections


@pytest.fixture
async def lending(database_url: str) -> AsyncIterator[Lending]:
    async with asyncpg.create_pool(database_url, min_size=0, max_size=FOR_TASKS + 3) as pool:
        lending = Lending(pool, reserved=0)
        assert pool.get_max_size() - lending.kept == FOR_TASKS
        yield lending


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
        await holding.add_load(9000)
        await jobs.add_many("borrow", 100)
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


async def test_connections_are_wanted_only_while_a_task_waits(lending: Lending) -> None:
    wanted: list[bool] = []
    lending.on_wanted = lambda: wanted.append(lending.are_wanted)

    async def borrow() -> None:
        async with lending.to_task():
            pass

    assert lending.take()
    async with AsyncExitStack() as stack:
        for _ in range(FOR_TASKS - 1):
            await stack.enter_async_context(lending.to_task())
        assert not wanted  # all are in use, and no one waits
        assert not lending.are_wanted
        for is_cancelled in (True, False):
            task = asyncio.create_task(borrow())
            await until(lambda: lending.are_wanted)
            task.cancel() if is_cancelled else lending.put_back()
            await asyncio.wait((task,))
            assert not lending.are_wanted
        assert wanted == [True, True]


async def test_sessions_that_were_not_opened_in_time_are_left_to_tasks(lending: Lending) -> None:
    sessions = Sessions(lending.database, SchemaName(), "pool-a", Lease(), prepared_statements=True)
    seats = Seats(sessions, lending, SchemaName(), on_short=lambda: None)
    seats.open_all()
    await until(lambda: all(seat.is_reserved for seat in seats.all))
    await seats.close()  # nothing has connected
    assert [lending.take() for _ in range(FOR_TASKS)].count(True) == FOR_TASKS // 2
    assert len(seats.all) == SEATS
    await sessions.close()
