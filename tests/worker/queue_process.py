"""One worker process of test_many_processes: runs jobs until SIGTERM, then writes down when each ran.

Arguments: the database's URL, the mode, a seed. Times are of the machine's monotonic clock, which all
processes share.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import time
from typing import Any

import asyncpg

from graphile_worker import JobHelpers, run
from support.working import MODES


async def main(url: str, mode: str, seed: int) -> None:
    dice = random.Random(seed)
    history: list[tuple[int, int, int, int, float, float, bool]] = []

    async def step(payload: Any, helpers: JobHelpers) -> None:
        began = time.monotonic()
        if dice.random() < 0.3:
            await asyncio.sleep(dice.random() * 0.01)
        fails = helpers.job.attempts == 1 and dice.random() < 0.02
        job = helpers.job
        history.append(
            (os.getpid(), job.id, job.job_queue_id or 0, job.attempts, began, time.monotonic(), fails)
        )
        if fails:
            raise RuntimeError("by chance")

    async with run(connection_string=url, task_list=[step], concurrency=10, **MODES[mode]) as runner:
        print("ready", flush=True)
        await runner.wait()
    connection = await asyncpg.connect(url)
    try:
        await connection.copy_records_to_table("history", records=history)
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
