"""How many ready jobs run per second, by their kind and by the options of the worker.

    python -m benchmarks.throughput postgres:///scratch_database --jobs 20000 --rounds 3

A scratch schema is made and removed. Each worker is a process. The rate is that from the first start until
all outcomes are written, the median of the rounds; the processor time is that of the worker after its start.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.scratch import Jobs, Scratch, scratch
from benchmarks.worker_process import BenchProcess, worker_process

from graphile_worker.options import WorkerOptions

MODULE = "benchmarks.worker_main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of jobs and worker."""

    name: str
    task: str = "coroutine"
    jobs: Jobs = field(default_factory=Jobs)
    options: dict[str, Any] = field(default_factory=dict)
    divisor: int = 1
    """Runs a fraction of the jobs, for cases in which each waits for a commit of its own."""


NO_PREFETCH = {"concurrency": 10, "prefetch": 0.0}
CASES = (
    Case(name="default settings"),
    Case(name="def tasks in threads", task="function", options={"concurrency": 24}),
    Case(name="no prefetch", options=NO_PREFETCH, divisor=2),
    Case(name="no prefetch, 10,000 queues", options=NO_PREFETCH, jobs=Jobs(queues=10_000), divisor=2),
    Case(name="failing jobs", task="failing", jobs=Jobs(max_attempts=1)),
    Case(name="1,000 named queues", jobs=Jobs(queues=1000)),
    Case(name="one named queue", jobs=Jobs(queues=1), divisor=10),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of worker processes."""

    rate: float
    cpu_seconds: float
    peak_memory_mb: float


async def run_ready(
    place: Scratch,
    count: int,
    jobs: Jobs,
    options: WorkerOptions,
    *,
    duty: str = "drain",
    processes: int = 1,
    **orders: Any,
) -> Run:
    """Add ready jobs to the table and run them in worker processes."""
    await place.fill(jobs, 1, count)
    await place.settle()
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(
                worker_process(duty, options, module=MODULE, count=count, **orders)
            )
            for _ in range(processes)
        ]
        for step in (BenchProcess.receive, BenchProcess.begin, BenchProcess.receive):
            reports = await asyncio.gather(*(step(worker) for worker in workers))
    executed = sum(report["executed"] for report in reports)
    if executed != count:
        raise RuntimeError(f"{executed:,} of {count:,} jobs ran")
    busy = [report for report in reports if report["executed"]]
    seconds = max(report["ended"] for report in busy) - min(report["first"] for report in busy)
    return Run(
        count / seconds,
        sum(report["cpu"] for report in reports),
        max(report["peak_memory_mb"] for report in reports),
    )


async def main(url: str, jobs: int, rounds: int, processes: int) -> None:
    counts = {case.name: max(10, jobs // case.divisor) for case in CASES}
    runs: dict[str, list[Run]] = {case.name: [] for case in CASES}
    async with scratch(url) as place:
        for _ in range(rounds):  # alternating, so that other load on the machine affects all cases equally
            for case in CASES:
                await place.clear(queues=case.jobs.queues)
                options = place.options.with_values(**case.options)
                count = counts[case.name]
                runs[case.name].append(
                    await run_ready(place, count, case.jobs, options, processes=processes, task=case.task)
                )
    print(f"{'CASE':<28} {'JOBS':>7} {'JOBS/S':>8} {'LOWEST':>8} {'HIGHEST':>8} {'CPU US/JOB':>10} {'MB':>6}")
    for case in CASES:
        count, found = counts[case.name], runs[case.name]
        rates = [run.rate for run in found]
        cpu = min(run.cpu_seconds for run in found) / count * 1e6
        memory = max(run.peak_memory_mb for run in found)
        print(
            f"{case.name:<28} {count:>7,} {median(rates):>8,.0f} {min(rates):>8,.0f} {max(rates):>8,.0f} "
            f"{cpu:>10.1f} {memory:>6.1f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.jobs, chosen.rounds, chosen.processes))
