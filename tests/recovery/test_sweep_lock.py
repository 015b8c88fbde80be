"""The sweep lock: a worker that vanishes from the network during a sweep does not keep it."""

from __future__ import annotations

import time
from typing import Any

import asyncpg
import pytest

from graphile_worker.recovery.orphaned_jobs import sweep_lock
from graphile_worker.schema_name import SchemaName
from support.working import PATIENCE, until


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


async def test_the_limits_end_with_the_sweep(connection: Any) -> None:
    limits = ["idle_in_transaction_session_timeout", "transaction_timeout"]
    if connection.get_server_version().major < 17:
        limits.pop()
    async with connection.transaction():
        await sweep_lock(connection, SchemaName())
        assert {await connection.fetchval(f"show {name}") for name in limits} <= {"5s", "30s"}
    assert {await connection.fetchval(f"show {name}") for name in limits} == {"0"}
