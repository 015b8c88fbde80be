"""Many processes that add jobs one by one while a worker runs them: what does the notification cost?

    python -m benchmarks.adders postgres:///scratch_database

Rounds take turns: nobody runs the jobs; a worker drains them; the same for adders that see another function
`pg_notify`, which does nothing (the worker polls quickly in both, so that it does the same work). A million
jobs in one call of `add_jobs`, and the memory which that takes, come last. Jobs of the task `benchmark` are
deleted before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
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
QUIET = """
create schema if not exists quiet;
create or replace function quiet.pg_notify(text, text) returns void language plpgsql as 'begin end';
create or replace function quiet.pg_try_advisory_xact_lock(bigint) returns boolean
  language sql as 'select true';
"""
LOUD = "drop schema if exists quiet cascade"


async def change(url: str, statement: str) -> None:
    async with make_worker_utils(connection_string=url) as utils, utils.with_pg_client() as connection:
        await connection.execute(statement)


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


def without_notifying(url: str) -> str:
    """The same database, where other functions come before those of PostgreSQL."""
    return f"{url}{'&' if '?' in url else '?'}search_path=quiet,pg_catalog"


def measure(url: str, adders: int, seconds: float, *, draining: bool, notified: bool) -> float:
    """Jobs per second of all adders together."""
    asyncio.run(change(url, CLEAR))
    context = multiprocessing.get_context("spawn")
    together, rates = context.Barrier(adders), context.SimpleQueue()
    worker = context.Process(target=work, args=(url,))
    if draining:
        worker.start()
    adders_url = url if notified else without_notifying(url)
    arguments = (adders_url, seconds, together, rates)
    processes = [context.Process(target=add, args=arguments) for _ in range(adders)]
    for process in processes:
        process.start()
    try:
        return float(sum(rates.get() for _ in processes))
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
    asyncio.run(change(url, QUIET))
    cases = {
        "nobody runs them": (False, True),
        "a worker runs them": (True, True),
        "... without notifying": (True, False),
    }
    results: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (draining, notified) in cases.items():
            rate = measure(url, adders, seconds, draining=draining, notified=notified)
            results[name].append(rate)
    for name, rates in results.items():
        print(f"{adders} processes adding, {name:<22} {statistics.median(rates):>9,.0f} jobs/s")
    asyncio.run(change(url, CLEAR + ";" + LOUD))
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
