"""One worker process of test_processes: records in the database when each job of a wide queue ran.

Arguments: the database's URL, the mode, the concurrency.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from typing import Any

from graphile_worker import JobHelpers, run, task
from recovery.dead import QUICK
from support.working import MODES

START = "insert into runs (pid, job_id, queue) values ($1, $2, $3) returning id"
END = "update runs set ended = clock_timestamp() where id = $1"


async def main(url: str, mode: str, concurrency: int) -> None:
    @task("step", queue_concurrency=concurrency)
    async def step(payload: dict[str, Any], helpers: JobHelpers) -> None:
        (row,) = await helpers.query(START, os.getpid(), helpers.job.id, await helpers.get_queue_name())
        try:
            await asyncio.sleep(random.random() * 0.01)
            if helpers.job.attempts == 1 and random.random() < 0.05:
                raise RuntimeError("by chance")
        finally:
            await helpers.query(END, row["id"])

    async with run(
        connection_string=url, task_list=[step], concurrency=8, **{**QUICK, **MODES[mode]}
    ) as runner:
        print("ready", flush=True)
        await runner.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
