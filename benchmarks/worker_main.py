"""The worker processes of these benchmarks; see `benchmarks.worker_process`."""

from __future__ import annotations

import asyncio
import math
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.scratch import LOAD, PROBE
from benchmarks.worker_process import TASK, Orders, begin, main, send

from graphile_worker import JobSpec, make_worker_utils, run, run_once
from graphile_worker.options import WorkerOptions

PACE = 0.01  # seconds between two calls that add jobs
MOST_AT_ONCE = 5000
BUCKET = math.log(1.05)
KILOBYTES_PER_MAXRSS = 1024 if sys.platform == "darwin" else 1


class Meter:
    """Counts executions and records the time of the first."""

    def __init__(self) -> None:
        self.executed = 0
        self.first = 0.0
        self._before = resource.getrusage(resource.RUSAGE_SELF)

    def hit(self) -> None:
        if not self.executed:
            self.first = time.monotonic()
        self.executed += 1

    def report(self) -> None:
        """Send what was counted and used."""
        before, usage = self._before, resource.getrusage(resource.RUSAGE_SELF)
        send(
            {
                "executed": self.executed,
                "first": self.first,
                "ended": time.monotonic(),
                "cpu": usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
                "peak_memory_mb": usage.ru_maxrss / KILOBYTES_PER_MAXRSS / 1024,
            }
        )


def task_of(kind: str, meter: Meter) -> Callable[[Any], Any]:
    lock = threading.Lock()

    async def coroutine(payload: Any) -> None:
        meter.hit()

    def function(payload: Any) -> None:
        with lock:
            meter.hit()

    async def failing(payload: Any) -> None:
        meter.hit()
        raise RuntimeError("fails on purpose")

    return {"coroutine": coroutine, "function": function, "failing": failing}[kind]


async def drain(options: WorkerOptions, orders: Orders) -> None:
    """Run all ready jobs, then report."""
    await begin()
    meter = Meter()
    await run_once(options=options, task_list={TASK: task_of(orders["task"], meter)})
    meter.report()


async def stay(options: WorkerOptions, orders: Orders) -> None:
    """Run so many jobs in a worker that stays, then report.

    A worker that drains the queue scans the whole backlog once more before it exits, which does not happen in
    production.
    """
    await begin()
    meter = Meter()
    async with run(options=options, task_list={TASK: task_of("coroutine", meter)}):
        while meter.executed < orders["count"]:
            await asyncio.sleep(0.002)
    meter.report()


async def answer(options: WorkerOptions, orders: Orders) -> None:
    """Run a worker that reports the time of each probe, on the clock that all processes share."""

    async def probe(payload: Any) -> None:
        send(time.monotonic())

    async def load(payload: Any) -> None:
        pass

    async with run(options=options, task_list={PROBE: probe, LOAD: load}) as runner:
        await begin()
        await runner.wait()


async def add_steadily(options: WorkerOptions, orders: Orders) -> None:
    """Add jobs one by one at a constant rate, until the benchmark ends the process."""
    async with make_worker_utils(options=options) as utils:
        await begin()
        due = time.monotonic()
        while True:
            await utils.add_job(LOAD)
            due += 1 / orders["per_second"]
            await asyncio.sleep(due - time.monotonic())


async def add_paced(options: WorkerOptions, orders: Orders) -> None:
    """Add what is due at a rate, many at a time, and report regularly; a late adder catches up."""
    async with make_worker_utils(options=options) as utils:
        await begin()
        began = time.monotonic()
        added, late, reports = 0, 0.0, 1
        while True:
            now = time.monotonic()
            if due := int((now - began) * orders["per_second"]) - added:
                late = max(late, due / orders["per_second"])
                due = min(due, MOST_AT_ONCE)
                await utils.add_jobs([JobSpec(LOAD, {"at": now})] * due, return_jobs=False)
                added += due
            if time.monotonic() - began >= reports * orders["every"]:
                send({"added": added, "late": late})
                late, reports = 0.0, reports + 1
            await asyncio.sleep(PACE - (time.monotonic() - now))


async def run_steadily(options: WorkerOptions, orders: Orders) -> None:
    """Run jobs and report regularly how many have started, and how long they waited since they were added."""
    waits: Counter[int] = Counter()
    started = 0

    async def load(payload: dict[str, float]) -> None:
        nonlocal started
        started += 1
        waits[bucket_of(time.monotonic() - payload["at"])] += 1

    async with run(options=options, task_list={LOAD: load}):
        await begin()
        began, reports = time.monotonic(), 1
        while True:
            await asyncio.sleep(began + reports * orders["every"] - time.monotonic())
            send({"started": started, "waits": dict(waits)})
            waits.clear()
            reports += 1


def bucket_of(seconds: float) -> int:
    """The number of a bucket; each begins 5 % above the one before."""
    return int(math.log(max(seconds, 1e-6) * 1e6) / BUCKET)


def seconds_of(bucket: int) -> float:
    """The middle of a bucket."""
    return math.exp((bucket + 0.5) * BUCKET) / 1e6


DUTIES = {
    "drain": drain,
    "stay": stay,
    "answer": answer,
    "add_steadily": add_steadily,
    "add_paced": add_paced,
    "run_steadily": run_steadily,
}

if __name__ == "__main__":
    main(DUTIES)
