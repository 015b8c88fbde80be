"""Whether a worker that prefetches leaves work to a second one that starts later.

    python -m benchmarks.sharing postgres:///scratch_database --rounds 5

The first worker has a backlog of slow jobs, and in some cases has just run thousands of trivial ones, so that
it prefetches many. When its first slow job runs, the second worker starts. FIRST and SECOND are the slow jobs
that each ran, FAIR is half of those that the first had not begun when the second was up. WORK is how long
after that the second had its first job, SECONDS how long all slow jobs took, IDEAL the same with a fair
split. The figures are those of the round with the median of SECONDS.
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import dataclass, field
from typing import Any

from benchmarks.scratch import Scratch, scratch
from benchmarks.worker_process import BenchProcess, worker_process

from graphile_worker import JobSpec, make_worker_utils

MODULE = "benchmarks.working_tasks"
SLOTS = 10
SLOW = 200  # jobs
DURATION = 0.2  # seconds that a slow job takes
QUICK = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What the first worker runs before the slow jobs, and its settings."""

    name: str
    quick: int = 0
    options: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(name="slow jobs alone"),
    Case(name="after quick jobs", quick=QUICK),
    Case(name="after quick jobs, no prefetch", quick=QUICK, options={"prefetch": 0.0}),
    Case(name="after quick jobs, local queue of 100", quick=QUICK, options={"local_queue": {"size": 100}}),
)


@dataclass(frozen=True, slots=True)
class Split:
    """How the slow jobs were shared."""

    first: int
    second: int
    fair: float
    until_work: float | None
    """Seconds from the moment when the second worker was up; None if it had no job."""
    seconds: float
    ideal: float


async def measure(place: Scratch, case: Case) -> Split:
    await place.clear()
    async with make_worker_utils(options=place.options) as utils:
        quick = [JobSpec("quick", None, priority=-1)] * case.quick
        await utils.add_jobs(quick, return_jobs=False)
        await utils.add_jobs([JobSpec("slow", {"seconds": DURATION})] * SLOW, return_jobs=False)
    await place.settle()
    options = place.options.with_values(concurrency=SLOTS, **case.options)
    async with (
        worker_process("share", options, module=MODULE) as first,
        worker_process("share", options, module=MODULE) as second,
    ):
        for worker in (first, second):
            await worker.receive()
        await first.begin()
        await first.receive()  # it is up
        starts: dict[str, list[float]] = {"first": [await first.receive()], "second": []}
        await second.begin()
        up = (await second.receive())["up"]
        await collect(starts, {"first": first, "second": second})
    return split(starts, up)


async def collect(starts: dict[str, list[float]], workers: dict[str, BenchProcess]) -> None:
    """Receive the starts until all slow jobs have started."""
    complete = asyncio.Event()

    async def read(name: str) -> None:
        while True:
            starts[name].append(await workers[name].receive())
            if sum(map(len, starts.values())) == SLOW:
                complete.set()

    readers = [asyncio.create_task(read(name)) for name in workers]
    waiter = asyncio.create_task(complete.wait())
    await asyncio.wait([*readers, waiter], return_when=asyncio.FIRST_COMPLETED)
    for task in (*readers, waiter):
        task.cancel()
    for result in await asyncio.gather(*readers, waiter, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def split(starts: dict[str, list[float]], up: float) -> Split:
    first, second = starts["first"], starts["second"]
    remaining = SLOW - sum(start < up for start in first)
    began = min(first)
    return Split(
        first=len(first),
        second=len(second),
        fair=remaining / 2,
        until_work=min(second) - up if second else None,
        seconds=max(*first, *second) + DURATION - began,
        ideal=up - began + remaining * DURATION / (2 * SLOTS),
    )


async def compare(place: Scratch, rounds: int) -> None:
    splits: dict[str, list[Split]] = {case.name: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            splits[case.name].append(await measure(place, case))
    print(
        f"\n{'THE FIRST WORKER RUNS':<38} {'FIRST':>5} {'SECOND':>6} {'FAIR':>5} {'WORK':>8} "
        f"{'SECONDS':>7} {'IDEAL':>6}"
    )
    for name, found in splits.items():
        middle = sorted(found, key=lambda each: each.seconds)[len(found) // 2]
        work = f"{middle.until_work * 1000:,.0f} ms" if middle.until_work is not None else "never"
        print(
            f"{name:<38} {middle.first:>5} {middle.second:>6} {middle.fair:>5.0f} {work:>8} "
            f"{middle.seconds:>7.2f} {middle.ideal:>6.2f}"
        )


async def main(url: str, rounds: int) -> None:
    async with scratch(url) as place:
        await compare(place, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.rounds))
