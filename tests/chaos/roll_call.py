"""The roll call: when all is quiet, jobs are added until every pool has taken one."""

from __future__ import annotations

import asyncio
import time

from chaos.adders import note_jobs
from chaos.fleet import Fleet
from graphile_worker import JobSpec, make_worker_utils

JOBS = 60  # at once: more than there are slots
SECONDS = 0.1  # for each job: long enough that one pool does not take them all


async def roll_call(fleet: Fleet, url: str, *, within: float) -> None:
    """Add jobs for so long at most; the checker says which pool has taken none."""
    began = time.monotonic()
    count = 0
    async with make_worker_utils(connection_string=url, max_pool_size=1) as utils:
        while not fleet.is_complete_since(began) and time.monotonic() < began + within:
            specs = []
            for _ in range(JOBS):
                count += 1
                payload = {"token": f"call-{count}", "queue": None, "fails": "never", "seconds": SECONDS}
                specs.append(JobSpec("work", payload))
            async with utils.with_pg_client() as connection, connection.transaction():
                await note_jobs(connection, specs, await utils.add_jobs(specs, connection=connection))
            await asyncio.sleep(JOBS * SECONDS / 20)
