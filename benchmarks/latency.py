"""How long it takes from the call that adds a job to its task running in another process.

    python -m benchmarks.latency postgres:///scratch_database --size 1000000

A scratch schema is made and removed. One job at a time, on an idle worker, on a busy one, and beside jobs
that cannot run.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import fmean, quantiles

from benchmarks.scratch import BETTER, DAY, FOREIGN, LOAD, PROBE, Jobs, Scratch, scratch
from benchmarks.throughput import MODULE
from benchmarks.worker_process import BenchProcess, worker_process

from graphile_worker import WorkerUtils, make_worker_utils

WARM_UP = 20  # probes that are not counted, while connections, plans and code are cold
PAUSE = 0.002  # seconds between two probes, for the outcome of the last one to be written
LOAD_RATE = 500  # jobs per second


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The other jobs in the table, and the load, while latency is measured."""

    name: str
    load: int = 0
    """Jobs per second that are added and run in the background."""
    jobs: Jobs = field(default_factory=Jobs)
    count: int = 0
    busy_queue: bool = False


def scenarios(before: int, size: int) -> list[Scenario]:
    foreign = Jobs(task=FOREIGN, lowest_priority=BETTER)
    queued = Jobs(task=LOAD, lowest_priority=BETTER, queues=1)
    return [
        Scenario(name="idle worker"),
        Scenario(name=f"beside {LOAD_RATE} jobs per second", load=LOAD_RATE),
        # These are older than the first probe, so they run before it.
        Scenario(name=f"after {before:,} jobs", jobs=Jobs(task=LOAD, delay=-DAY), count=before),
        Scenario(name=f"beside {size:,} future jobs", jobs=Jobs(task=LOAD, delay=DAY), count=size),
        Scenario(name=f"beside {size // 5:,} jobs of other workers", jobs=foreign, count=size // 5),
        Scenario(
            name=f"beside {size // 10:,} jobs of a busy queue",
            jobs=queued,
            count=size // 10,
            busy_queue=True,
        ),
    ]


async def measure(place: Scratch, load: int, samples: int) -> list[float]:
    """The latency of each probe in milliseconds."""
    async with AsyncExitStack() as stack:
        duties = {"answer": 0, "add_steadily": load} if load else {"answer": 0}
        processes = []
        for duty, per_second in duties.items():
            started = worker_process(duty, place.options, module=MODULE, per_second=per_second)
            processes.append(await stack.enter_async_context(started))
        for process in processes:
            await process.receive()
            await process.begin()
        utils = await stack.enter_async_context(make_worker_utils(options=place.options))
        return [await probe(utils, processes[0]) for _ in range(WARM_UP + samples)][WARM_UP:]


async def probe(utils: WorkerUtils, worker: BenchProcess) -> float:
    began = time.monotonic()
    await utils.add_job(PROBE)
    ran_at: float = await worker.receive()
    await asyncio.sleep(PAUSE)
    return 1000 * (ran_at - began)


async def main(url: str, before: int, size: int, samples: int) -> None:
    print(f"{'MILLISECONDS':<40} {'AVERAGE':>8} {'P50':>8} {'P99':>8} {'MAX':>8}")
    async with scratch(url) as place:
        for scenario in scenarios(before, size):
            await place.clear(queues=int(scenario.busy_queue), held_by="another pool")
            await place.fill(scenario.jobs, 1, scenario.count)
            await place.settle()
            found = await measure(place, scenario.load, samples)
            shares = quantiles(found, n=100, method="inclusive")
            columns = (fmean(found), shares[49], shares[98], max(found))
            print(f"{scenario.name:<40}", *(f"{value:>8.2f}" for value in columns), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--before", type=int, default=20_000, help="jobs that have just run")
    parser.add_argument("--size", type=int, default=100_000, help="of the largest backlog")
    parser.add_argument("--samples", type=int, default=1_000)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.before, chosen.size, chosen.samples))
