"""A client keeps idle connections for its next call, without starving others."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.database.connections.idle_connections import IdleConnections
from support.working import PATIENCE, until

SIZE = 4


@pytest.fixture
async def utils(database_url: str) -> Any:
    async with make_worker_utils(connection_string=database_url, max_pool_size=SIZE) as utils:
        utils._task_name_check = None  # its search for workers with the task takes a connection too
        yield utils


async def add_at_once(utils: WorkerUtils, count: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(utils.add_job("note", {"number": number}))


async def test_the_next_call_finds_the_connection_of_the_last(utils: WorkerUtils) -> None:
    for _ in range(4):
        await utils.add_job("note")
        assert (utils.pool.get_size(), utils.pool.get_idle_size()) == (1, 0)


async def test_half_of_the_pool_is_always_there_for_others(utils: WorkerUtils) -> None:
    await add_at_once(utils, 10 * SIZE)
    assert utils.pool.get_size() - utils.pool.get_idle_size() <= SIZE // 2
    async with asyncio.timeout(PATIENCE):
        async with utils.pool.acquire(), utils.pool.acquire():
            await add_at_once(utils, 10 * SIZE)


async def test_all_of_it_can_be_lent(utils: WorkerUtils) -> None:
    await add_at_once(utils, 10 * SIZE)
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        for _ in range(SIZE):
            await stack.enter_async_context(utils.with_pg_client())
    await utils.add_job("note")


async def test_a_waiting_caller_comes_before_the_next_call(utils: WorkerUtils) -> None:
    """With all but one connection in use, callers take turns."""
    await add_at_once(utils, 10 * SIZE)
    async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
        for _ in range(SIZE - 1):
            await stack.enter_async_context(utils.with_pg_client())
        await add_at_once(utils, 10 * SIZE)


async def test_a_pool_of_one_is_never_kept_from_others(database_url: str) -> None:
    async with make_worker_utils(connection_string=database_url, max_pool_size=1) as utils:
        await utils.add_job("note")
        async with asyncio.timeout(PATIENCE), utils.pool.acquire():
            pass


async def test_a_kept_connection_that_the_server_closed_is_not_used_again(
    utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("note")
    await connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )
    await until(lambda: utils.pool.get_size() == 0)
    await utils.add_job("note")
    assert await connection.fetchval("select count(*) from graphile_worker._private_jobs") == 2


async def test_after_an_error_the_connection_goes_back(utils: WorkerUtils, connection: Any) -> None:
    await utils.add_job("note")
    await connection.execute(
        "alter table graphile_worker._private_jobs add constraint few check (priority < 5)"
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await utils.add_job("note", priority=6)
    assert utils.pool.get_idle_size() == utils.pool.get_size() == 1
    await utils.add_job("note")


async def test_a_call_that_is_cancelled_leaves_no_half_read_answer(
    utils: WorkerUtils, connection: Any
) -> None:
    await utils.add_job("note")
    async with connection.transaction():
        await connection.execute("lock table graphile_worker._private_jobs in access exclusive mode")
        adding = asyncio.create_task(utils.add_job("note"))

        async def is_waiting() -> bool:
            return await connection.fetchval("select exists (select from pg_locks where not granted)")

        await until(is_waiting)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
    assert (await utils.add_job("note", {"number": 2})).payload == {"number": 2}


async def test_idle_connections_are_released_after_a_while(database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2 * SIZE) as pool:
        kept = IdleConnections(pool, keep_for=0.01)
        for connection in [await pool.acquire() for _ in range(SIZE)]:
            assert kept.keep(connection)
        used = kept.take()
        assert used is not None
        await until(lambda: pool.get_idle_size() == SIZE - 1)
        assert kept.keep(used)
        await until(lambda: pool.get_idle_size() == SIZE)
        assert kept.take() is None
        await kept.close()


async def test_after_the_end_nothing_is_kept(database_url: str) -> None:
    async with asyncpg.create_pool(database_url, min_size=0, max_size=2 * SIZE) as pool:
        kept = IdleConnections(pool)
        first, second = [await pool.acquire() for _ in range(2)]
        assert kept.keep(first)
        await kept.close()
        assert not kept.keep(second)
        await pool.release(second)
        assert pool.get_idle_size() == 2
