"""What held batches change for jobs of several durations, and for short jobs with a few others among them.

    python -m benchmarks.durations postgres:///scratch_database --rounds 5 --only "20 ms" "5 % slow"

For each workload and concurrency, workers with and without `hold` take turns. The rate is that between the
first start and the last end of a job. The ratio is the median of those of the rounds; HELD is the share of
jobs in held batches.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.scratch import Scratch, scratch

from graphile_worker import JobSpec, make_worker_utils, run_once
from graphile_worker.hooks import Events
from graphile_worker.options import WorkerOptions

MOST_JOBS = 30_000


def plain(milliseconds: float) -> Callable[[int], JobSpec]:
    return lambda number: JobSpec("work", {"pause": milliseconds})


def slow(one_in: int, milliseconds: float) -> Callable[[int], JobSpec]:
    return lambda number: JobSpec("work", {"pause": milliseconds if number % one_in == 0 else 0})


def keyed(number: int) -> JobSpec:
    return JobSpec("work", {}, job_key=f"key {number}" if number % 100 == 0 else None)


def failing(number: int) -> JobSpec:
    return JobSpec("work", {"fail": number % 100 == 0}, max_attempts=1)


@dataclass(frozen=True)
class Workload:
    """Jobs to run."""

    spec: Callable[[int], JobSpec]
    milliseconds: float
    """How long a job sleeps on average."""

    def count(self, concurrency: int, seconds: float) -> int:
        """How many jobs take about this long."""
        if not self.milliseconds:
            return MOST_JOBS
        return min(MOST_JOBS, int(seconds * concurrency * 1000 / self.milliseconds))


WORKLOADS = {
    **{f"{each} ms": Workload(plain(each), each) for each in (0, 1, 5, 20, 49, 51, 200)},
    "5 % slow": Workload(slow(20, 200), 10),
    "1 % slow": Workload(slow(100, 100), 1),
    "1 % slower": Workload(slow(100, 1000), 10),
    "1 % keyed": Workload(keyed, 0),
    "1 % failing": Workload(failing, 0),
}


class Watch:
    """The task, which notes when the first job began and the last one ended, and how many were held."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.held = self.ran = 0
        self.events = Events()
        self.events.on("pool:fetch", self._fetched)

    async def work(self, payload: Any) -> None:
        self.began = self.began or time.perf_counter()
        if pause := payload.get("pause"):
            await asyncio.sleep(pause / 1000)
        self.ran += 1
        self.ended = time.perf_counter()
        if payload.get("fail"):
            raise RuntimeError

    def _fetched(self, event: Any) -> None:
        if event.kind == "held":
            self.held += event.count


async def measure(
    place: Scratch, options: WorkerOptions, workload: Workload, count: int
) -> tuple[float, float]:
    """The rate and the share of held jobs of one run."""
    await place.clear()
    async with make_worker_utils(options=options) as utils:
        for first in range(0, count, 5_000):
            await utils.add_jobs(
                [workload.spec(number) for number in range(first, min(first + 5_000, count))]
            )
    await place.settle()
    watch = Watch()
    await run_once(options=options, task_list={"work": watch.work}, events=watch.events)
    if watch.ran != count:
        raise RuntimeError(f"{watch.ran} of {count} jobs ran")
    return count / (watch.ended - watch.began), watch.held / count


async def main(url: str, only: list[str], concurrencies: list[int], rounds: int, seconds: float) -> None:
    async with scratch(url) as place:
        print(
            f"{'WORKLOAD':<12} {'SLOTS':>5} {'JOBS':>7} {'HELD':>5} {'WITH':>9} {'WITHOUT':>9} {'RATIO':>6}"
        )
        for name in only or WORKLOADS:
            for concurrency in concurrencies:
                count = WORKLOADS[name].count(concurrency, seconds)
                options = place.options.with_values(concurrency=concurrency)
                rates: dict[float, list[float]] = {0.05: [], 0.0: []}
                shares = []
                for number in range(rounds):
                    for hold in sorted(rates, reverse=bool(number % 2)):
                        chosen = options.with_values(hold=hold)
                        rate, share = await measure(place, chosen, WORKLOADS[name], count)
                        rates[hold].append(rate)
                        shares += [share] if hold else []
                ratio = statistics.median(a / b for a, b in zip(*rates.values(), strict=True))
                with_hold, without, share = map(statistics.median, (*rates.values(), shares))
                print(
                    f"{name:<12} {concurrency:>5} {count:>7,} {share:>5.0%} "
                    f"{with_hold:>9,.0f} {without:>9,.0f} {ratio:>6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--only", nargs="+", default=[], choices=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--concurrency", nargs="+", type=int, default=[10, 100])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3, help="that a run takes, about")
    chosen = parser.parse_args()
    logging.disable(logging.ERROR)  # jobs that fail, as they should
    asyncio.run(main(chosen.url, chosen.only, chosen.concurrency, chosen.rounds, chosen.seconds))
