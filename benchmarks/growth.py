"""How many ready jobs run per second beside a growing backlog of jobs that cannot run.

    python -m benchmarks.growth postgres:///scratch_database --size 1000000

A scratch schema is made and removed. The share is that of the rate without a backlog, which is measured
before each kind of backlog.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median

from benchmarks.scratch import BACKLOGS, Jobs, Scratch, scratch
from benchmarks.throughput import run_ready


async def rate(place: Scratch, jobs: int) -> float:
    return (await run_ready(place, jobs, Jobs(), place.options, duty="stay")).rate


async def main(url: str, jobs: int, size: int, rounds: int) -> None:
    sizes = [each for each in (10_000, 100_000, 1_000_000) if each < size] + [size]
    alone: list[float] = []
    beside: list[tuple[str, int, float]] = []
    async with scratch(url) as place:
        for backlog in BACKLOGS:
            await place.clear()
            alone.append(await rate(place, jobs))
            async with place.beside(backlog):
                for present, grown in zip([0, *sizes], sizes, strict=False):
                    await place.grow(backlog, present, grown)
                    rates = [await rate(place, jobs) for _ in range(rounds)]
                    beside.append((backlog.name, grown, median(rates)))
    without = median(alone)
    print(f"{'BACKLOG':<28} {'SIZE':>9} {'JOBS/S':>8} {'SHARE':>5}")
    for name, grown, found in [("none", 0, without), *beside]:
        print(f"{name:<28} {grown:>9,} {found:>8,.0f} {found / without:>5.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument("--size", type=int, default=100_000, help="of the largest backlog")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    asyncio.run(main(chosen.url, chosen.jobs, chosen.size, chosen.rounds))
