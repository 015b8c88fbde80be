"""What many recurring jobs cost at start-up: reading them, and making up for a week without a worker.

    python -m benchmarks.crontab postgres:///scratch_database --items 1000

The schema is installed if it is missing. Jobs and recurring jobs of the benchmark, whose names begin with
"benchmark_", are deleted before and after.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

from graphile_worker import make_worker_utils, parse_crontab, run

PREFIX = "benchmark_"
CLEAR = (
    """
    delete from graphile_worker._private_jobs
    where task_id in (
        select id from graphile_worker._private_tasks where starts_with(identifier, $1)
    )
    """,
    "delete from graphile_worker._private_known_crontabs where starts_with(identifier, $1)",
    "delete from graphile_worker._private_tasks where starts_with(identifier, $1)",
)
KNOWN = """
insert into graphile_worker._private_known_crontabs (identifier, known_since, last_execution)
select $1::text || number, now() - interval '2 weeks', now() - interval '1 week'
from generate_series(0, $2::integer - 1) as number
"""
COUNT = """
select count(*) from graphile_worker._private_jobs
where task_id in (select id from graphile_worker._private_tasks where starts_with(identifier, $1))
"""


def crontab(items: int) -> str:
    return "\n".join(
        f"{number % 60} {number % 24} * * * {PREFIX}{number % 50} ?id={PREFIX}{number}&fill=1w"
        for number in range(items)
    )


async def start(url: str, text: str, until: Callable[[], Awaitable[bool]]) -> tuple[float, float]:
    """Seconds until the worker has started, and until everything that was missed is added."""
    began = time.perf_counter()
    runner = await run(connection_string=url, task_list={"other": _nothing}, crontab=text)
    started = time.perf_counter() - began
    async with asyncio.timeout(120):
        while not await until():
            await asyncio.sleep(0.01)
    done = time.perf_counter() - began
    await runner.stop()
    return started, done


async def _at_once() -> bool:
    return True


async def _nothing(payload: Any) -> None:
    pass


async def main(url: str, items: int) -> None:
    text = crontab(items)
    began = time.perf_counter()
    parse_crontab(text)
    print(f"reading {items:,} items:              {time.perf_counter() - began:8.3f} s")
    async with make_worker_utils(connection_string=url) as utils:
        await utils.migrate()
        async with utils.with_pg_client() as connection:

            async def clear() -> None:
                for statement in CLEAR:
                    await connection.execute(statement, PREFIX)

            async def added() -> bool:
                return bool(await connection.fetchval(COUNT, PREFIX) >= 7 * items)

            await clear()
            try:
                started, _ = await start(url, text, _at_once)
                print(f"start, no item known before:       {started:8.3f} s")
                started, _ = await start(url, text, _at_once)
                print(f"start, all known, nothing missed:  {started:8.3f} s")
                await clear()
                await connection.execute(KNOWN, PREFIX, items)
                started, done = await start(url, text, added)
                print(f"start after a week without:        {started:8.3f} s")
                print(f"    until {7 * items:,} jobs are added:     {done:8.3f} s")
            finally:
                await clear()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--items", type=int, default=1000)
    options = parser.parse_args()
    logging.getLogger("graphile_worker").setLevel("ERROR")  # it would say of each item that no task is here
    asyncio.run(main(options.url, options.items))
