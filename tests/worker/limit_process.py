"""One worker process of test_limit_processes: runs limited jobs until a signal, and keeps a journal.

Arguments: the database's URL, the journal's path, then the bounds of the limit: concurrency or 0, starts per
second or 0, and the burst. A journal has a line per start and per end: the job's id, the attempt, and the
time by the machine's monotonic clock, which all processes share. A start also has the time of the lock by the
server's clock. Lines are written at once, so that they survive a kill.

Three more arguments may follow: the slots, the seconds that a job takes, and those of a held batch.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from graphile_worker import JobHelpers, Limit, run, task

RUN_TIME = 0.02  # seconds
QUICK: dict[str, Any] = {"heartbeat_interval": 0.5, "recovery_grace": 2.0, "sweep_interval": 0.5}


async def main(
    url: str,
    path: str,
    concurrency: int,
    starts: int,
    burst: int,
    slots: int = 10,
    seconds: float = RUN_TIME,
    hold: float = 0.05,
) -> None:
    journal = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    limits = []
    if concurrency:
        limits.append(Limit("at once", concurrency=concurrency))
    if starts:
        limits.append(Limit("per second", rate=(starts, 1), burst=burst))

    @task("step", limit=limits)
    async def step(helpers: JobHelpers) -> None:
        job = helpers.job
        locked_at = job.locked_at.timestamp() if job.locked_at is not None else 0.0
        os.write(journal, f"start {job.id} {job.attempts} {time.monotonic()} {locked_at}\n".encode())
        await asyncio.sleep(seconds)
        os.write(journal, f"end {job.id} {job.attempts} {time.monotonic()} 0\n".encode())

    options = {"concurrency": slots, "hold": hold, "poll_interval": 0.5, **QUICK}
    async with run(connection_string=url, task_list=[step], **options) as runner:
        print("ready", flush=True)
        await runner.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7]), *map(float, sys.argv[7:])))
