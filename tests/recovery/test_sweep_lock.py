"""The sweep lock: a worker that vanishes from the network during a sweep does not keep it."""

from __future__ import annotations

import time
from typing import Any

import asyncpg

from graphile_worker.recovery.orphaned_jobs import sweep_lock
from graphile_worker.schema_name import SchemaName
from support.working import until


async def test_others_can_sweep_some_seconds_after_one_fell_silent(
    connection: Any, database_url: str
) -> None:
    silent = await asyncpg.connect(database_url)
    try:
        await silent.execute("begin")
        assert await sweep_lock(silent, SchemaName())
        assert not await sweep_lock(connection, SchemaName())
        began = time.monotonic()

        async def is_free() -> bool:
            return await sweep_lock(connection, SchemaName())

        await until(is_free, timeout=60, every=0.1)
        assert time.monotonic() - began > 2  # a sweep that is merely slow is left alone
    finally:
        silent.terminate()


async def test_the_limit_ends_with_the_sweep(connection: Any) -> None:
    async with connection.transaction():
        await sweep_lock(connection, SchemaName())
    assert await connection.fetchval("show idle_in_transaction_session_timeout") == "0"
