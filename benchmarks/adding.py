"""How fast jobs are added: one at a time, and in batches, over one connection.

    python -m benchmarks.adding postgres:///scratch_database

The schema is installed if it is missing; jobs of the task `benchmark` are deleted before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable

from graphile_worker.client import WorkerUtils, make_worker_utils
from graphile_worker.values.spec import JobSpec

TASK = "benchmark"
CLEAR = """
delete from graphile_worker._private_jobs
where task_id = (select id from graphile_worker._private_tasks where identifier = $1)
"""


async def rate(jobs: int, work: Callable[[], Awaitable[None]]) -> float:
    began = time.perf_counter()
    await work()
    return jobs / (time.perf_counter() - began)


async def clear(utils: WorkerUtils) -> None:
    async with utils.with_pg_client() as connection:
        await connection.execute(CLEAR, TASK)


async def main(url: str, singles: int, batches: int, batch_size: int) -> None:
    async with make_worker_utils(connection_string=url, max_pool_size=1) as utils:
        await utils.migrate()
        await clear(utils)

        async def one_at_a_time() -> None:
            for number in range(singles):
                await utils.add_job(TASK, {"number": number, "to": "someone@example.com"})

        async def in_batches() -> None:
            for _ in range(batches):
                await utils.add_jobs(
                    [
                        JobSpec(TASK, {"number": number, "to": "someone@example.com"})
                        for number in range(batch_size)
                    ]
                )

        async def all_at_once() -> None:
            await utils.add_jobs(
                JobSpec(TASK, {"number": number, "to": "someone@example.com"})
                for number in range(batches * batch_size)
            )

        await utils.add_jobs([JobSpec(TASK)])  # connections, statements and plans are warm from here on
        many = batches * batch_size
        print(f"add_job, one at a time:      {await rate(singles, one_at_a_time):>9,.0f} jobs/s")
        print(f"add_jobs, {batch_size:,} per call:     {await rate(many, in_batches):>9,.0f} jobs/s")
        print(f"add_jobs, {many:,} in one call: {await rate(many, all_at_once):>9,.0f} jobs/s")
        await clear(utils)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--singles", type=int, default=2000)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1000)
    options = parser.parse_args()
    asyncio.run(main(options.url, options.singles, options.batches, options.batch_size))
