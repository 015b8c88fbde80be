"""Changes of all rows of a wide queue, beside workers that lock the same rows in another order."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
import pytest

from graphile_worker.client import WorkerUtils
from support.working import PATIENCE, SCHEMA, until

LOCK = f"select id from {SCHEMA}._private_job_queues where queue_name = $1 for update"
WAITING = """
    select exists (
        select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
    )
"""
PATIENT = {"deadlock_timeout": "10min"}  # so that PostgreSQL would end the other transaction


@pytest.mark.parametrize("change", ["pause", "resume", "narrow"])
async def test_a_change_of_a_wide_queue_gives_way_to_a_write(
    utils: WorkerUtils, connection: Any, database_url: str, change: str
) -> None:
    await utils.queues.set_concurrency("q", 2)
    if change == "resume":
        await utils.queues.pause("q")
    writer = await asyncpg.connect(database_url)
    session = await asyncpg.connect(database_url, server_settings=PATIENT)

    async def is_waiting() -> bool:
        found: bool = await connection.fetchval(WAITING)
        return found

    async def act() -> None:
        async with session.transaction():
            if change == "pause":
                await utils.queues.pause("q", connection=session)
            elif change == "resume":
                assert await utils.queues.resume("q", connection=session)
            else:
                await utils.queues.set_concurrency("q", 1, connection=session)
            assert await session.fetchval("show lock_timeout") == "0"

    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group, writer.transaction():
            await writer.fetch(LOCK, "q [2]")
            group.create_task(act())
            await until(is_waiting)
            await writer.fetch(LOCK, "q")  # a deadlock, if the change kept its locks
    finally:
        writer.terminate()
        session.terminate()
    (pauses, (queue,)) = await utils.queues.list_pauses(), await utils.queues.list()
    assert [pause.queue_name for pause in pauses] == (["q"] if change == "pause" else [])
    assert queue.concurrency == (1 if change == "narrow" else 2)
