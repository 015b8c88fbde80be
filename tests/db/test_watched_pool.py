"""A watched pool tells when its callers wait for a connection, and only then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from graphile_worker.database.connections.watched_pool import WatchedPool
from support.working import SELDOM, until

SIZE = 2


@pytest.fixture
async def pool(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WatchedPool]:
    monkeypatch.setattr("graphile_worker.database.connections.watched_pool.LONG", 0.02)
    async with asyncpg.create_pool(database_url, min_size=0, max_size=SIZE) as own:
        yield WatchedPool(own)


@pytest.mark.parametrize("is_block", [True, False], ids=["async with", "await"])
async def test_a_caller_that_waits_is_noticed_until_it_has_a_connection(
    pool: WatchedPool, is_block: bool
) -> None:
    seen: list[bool] = []
    pool.on_starved = lambda: seen.append(pool.is_starved)
    connections = [await pool.acquire() for _ in range(SIZE)]

    async def use() -> Any:
        if is_block:
            async with pool.acquire() as connection:
                return await connection.fetchval("select 1")
        connection = await pool.acquire()
        try:
            return await connection.fetchval("select 1")
        finally:
            await pool.release(connection)

    task = asyncio.create_task(use())
    await until(lambda: len(seen) >= 2)
    assert all(seen)
    await pool.release(connections.pop())
    assert await task == 1
    assert not pool.is_starved
    await pool.release(connections.pop())
    assert pool.get_idle_size() == pool.get_size() == SIZE


async def test_a_caller_that_gives_up_waits_no_longer(pool: WatchedPool) -> None:
    pool.on_starved = lambda: None
    connections = [await pool.acquire() for _ in range(SIZE)]
    task = asyncio.create_task(pool.acquire(timeout=60).__aenter__())
    await until(lambda: pool.is_starved)
    task.cancel()
    await asyncio.wait((task,))
    assert not pool.is_starved
    for connection in connections:
        await pool.release(connection)


async def test_callers_that_take_turns_do_not_wait_for_long(
    pool: WatchedPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool looks when all connections are in use and others wait, but one has just become free."""
    monkeypatch.setattr("graphile_worker.database.connections.watched_pool.LONG", SELDOM)
    looks = 0

    def starved() -> None:
        raise AssertionError("a connection became free since the last look")

    pool.on_starved = starved

    async def use() -> None:
        for _ in range(20):
            async with pool.acquire():
                nonlocal looks
                looks += 1
                pool._look()

    await asyncio.gather(*(use() for _ in range(2 * SIZE)))
    assert looks == 2 * SIZE * 20
    assert not pool.is_starved


async def test_a_pool_that_no_one_watches_hands_out_its_own_contexts(pool: WatchedPool) -> None:
    context = pool.acquire()
    assert type(context).__module__.startswith("asyncpg")
    async with context as connection:
        assert await connection.fetchval("select 1") == 1
    assert pool._timer is None
    assert pool.get_min_size() == 0  # what is not of the protocol is there too
