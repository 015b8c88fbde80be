"""Many processes that add jobs one by one while a worker runs them: what does the notification cost?

    python benchmarks/adders.py postgres:///scratch_database

Rounds take turns: nobody runs the jobs; a worker drains them; the same with functions that do not notify
(the worker polls quickly in both, so that it does the same work). A million jobs in one call of `add_jobs`,
and the memory which that takes, come last. Jobs of the task `benchmark` are deleted before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import re
import resource
import statistics
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

from graphile_worker import JobSpec, make_worker_utils, run

TASK = "benchmark"
JOBS_TABLE = "graphile_worker._private_jobs"
CLEAR = f"""
delete from {JOBS_TABLE}
where task_id = (select id from graphile_worker._private_tasks where identifier = '{TASK}')
"""
BODIES = """
select string_agg(pg_get_functiondef(oid), ';') from pg_proc
where pronamespace = 'graphile_worker'::regnamespace and proname in ('add_job', '_private_py_add_plain_job')
"""


async def change(url: str, statement: str) -> None:
    async with make_worker_utils(connection_string=url) as utils, utils.with_pg_client() as connection:
        await connection.execute(statement)


async def read_bodies(url: str) -> str:
    async with make_worker_utils(connection_string=url) as utils, utils.with_pg_client() as connection:
        return str(await connection.fetchval(BODIES))


def add(url: str, seconds: float, together: Barrier, rates: multiprocessing.SimpleQueue[float]) -> None:
    """One process that adds jobs for so many seconds."""

    async def main() -> None:
        async with make_worker_utils(connection_string=url, max_pool_size=1) as utils:
            await utils.add_job(TASK)
            together.wait()
            began, added = time.monotonic(), 0
            while time.monotonic() - began < seconds:
                await utils.add_job(TASK, {"number": added})
                added += 1
            rates.put(added / (time.monotonic() - began))

    asyncio.run(main())


def work(url: str) -> None:
    """A worker that polls quickly, so that it runs the same jobs with and without notifications."""

    async def benchmark(payload: object) -> None:
        pass

    async def main() -> None:
        async with run(connection_string=url, task_list={TASK: benchmark}, poll_interval=0.05) as runner:
            await runner.wait()

    asyncio.run(main())


def measure(url: str, adders: int, seconds: float, *, draining: bool) -> float:
    """Jobs per second of all adders together."""
    asyncio.run(change(url, CLEAR))
    context = multiprocessing.get_context("spawn")
    together, rates = context.Barrier(adders), context.SimpleQueue()
    worker = context.Process(target=work, args=(url,))
    if draining:
        worker.start()
    processes = [context.Process(target=add, args=(url, seconds, together, rates)) for _ in range(adders)]
    for process in processes:
        process.start()
    try:
        return sum(rates.get() for _ in processes)
    finally:
        for process in processes:
            process.join()
        if draining:
            worker.terminate()
            worker.join()


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def add_many(url: str, count: int) -> None:
    """Everything in one call; the specs come from a generator, so only the chunk in hand is in memory."""

    def specs() -> Iterator[JobSpec]:
        return (JobSpec(TASK, {"number": number}) for number in range(count))

    async with make_worker_utils(connection_string=url) as utils:
        await utils.add_jobs([JobSpec(TASK)])
        before, began = peak_megabytes(), time.monotonic()
        await utils.add_jobs(specs(), return_jobs=False)
        seconds = time.monotonic() - began
    print(f"add_jobs, {count:,} in one call: {count / seconds:,.0f} jobs/s; ", end="")
    print(f"peak memory {before:.0f} MB before, {peak_megabytes():.0f} MB after")


def main(url: str, adders: int, seconds: float, rounds: int, many: int) -> None:
    async def prepare() -> None:
        async with make_worker_utils(connection_string=url) as utils:
            await utils.migrate()

    asyncio.run(prepare())
    notifying = asyncio.run(read_bodies(url))
    silent = re.sub(r"perform pg_notify\(.*\);", "null;", notifying)
    cases = {
        "nobody runs them": (False, True),
        "a worker runs them": (True, True),
        "... without notifying": (True, False),
    }
    results: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (draining, notified) in cases.items():
            asyncio.run(change(url, notifying if notified else silent))
            try:
                results[name].append(measure(url, adders, seconds, draining=draining))
            finally:
                asyncio.run(change(url, notifying))
    for name, rates in results.items():
        print(f"{adders} processes adding, {name:<22} {statistics.median(rates):>9,.0f} jobs/s")
    asyncio.run(change(url, CLEAR))
    if many:
        asyncio.run(add_many(url, many))
        asyncio.run(change(url, CLEAR))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--adders", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--many", type=int, default=1_000_000)
    options = parser.parse_args()
    main(options.url, options.adders, options.seconds, options.rounds, options.many)
