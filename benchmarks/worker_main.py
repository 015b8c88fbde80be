"""The worker processes of these benchmarks; see `benchmarks.worker_process`."""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from benchmarks.scratch import LOAD, PROBE
from benchmarks.worker_process import TASK, Orders, begin, main, send

from graphile_worker import make_worker_utils, run, run_once
from graphile_worker.options import WorkerOptions

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


if __name__ == "__main__":
    main({"drain": drain, "stay": stay, "answer": answer, "add_steadily": add_steadily})
