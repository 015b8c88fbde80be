"""Fills a database with lively data."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import asyncpg

from graphile_worker import make_worker_utils

from .audit import write_audit
from .jobs import write_jobs
from .past import write_past
from .schedules import write_schedules
from .workers import write_pools

SEED = 17
DATE_PAUSE = """
update _private_py_queue_holds
set held_at = (select at from _private_py_audit where action = 'pause_queue' order by at desc limit 1)
"""


async def fill(url: str, *, schema: str = "graphile_worker", seed: int = SEED) -> None:
    """Install the schema and write the past and the present of the shop; once for each database."""
    async with make_worker_utils(connection_string=url, schema=schema) as utils:
        await utils.migrate()
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    try:
        await _write(connection, random.Random(seed))
        async with make_worker_utils(connection_string=url, schema=schema) as utils:
            await utils.queues.pause("invoices", until=timedelta(hours=3), reason="the bank is down")
        await connection.execute(DATE_PAUSE)
    finally:
        await connection.close()


async def _write(connection: Any, rng: random.Random) -> None:
    now = await connection.fetchval("select now()")
    async with connection.transaction():
        await write_past(connection, now, rng)
        await write_jobs(connection, now, rng)
        await write_schedules(connection, now, rng)
        await write_pools(connection, now)
        await write_audit(connection, now)
    await connection.execute("vacuum (analyze) _private_jobs")
