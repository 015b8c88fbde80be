"""A worker process of a benchmark: `python -m graphile_worker.cli.bench.worker_main`.

It reads its orders as a line of JSON from standard input (arguments, with the connection string, would be
visible to all users of the machine), sends "ready", starts at the next line, and sends its result as a line
of JSON. It exits at the end of its input, so that it cannot outlive the benchmark.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ...client import make_worker_utils
from ...process.run_worker import fast_loop
from ...runner import run, run_once
from ...values.options import WorkerOptions
from .scratch import LOAD, PROBE, TASK

KILOBYTES_PER_MAXRSS = 1024 if sys.platform == "darwin" else 1
REPORT_INTERVAL = 0.002  # seconds between progress reports of a worker that stays

Begin = Callable[[], Awaitable[asyncio.Event]]
"""Reports "ready" and waits for the start; the event is set when another line arrives."""


def send(value: Any) -> None:
    """Send a line to the benchmark."""
    os.write(1, msgspec.json.encode(value) + b"\n")


class BenchMeter:
    """Counts executions and records the time of the first."""

    def __init__(self) -> None:
        self.executed = 0
        self.first = 0.0

    def hit(self) -> None:
        if not self.executed:
            self.first = time.monotonic()
        self.executed += 1


def _task(kind: str, meter: BenchMeter) -> Callable[[Any], Any]:
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


def _arguments(kind: str, meter: BenchMeter) -> dict[str, Any]:
    """The task, and hooks that count its jobs if it runs elsewhere."""
    if kind in ("coroutine", "function", "failing"):
        return {"task_list": {TASK: _task(kind, meter)}}
    from ...hooks import Hooks
    from .heavy import TASKS

    hooks = Hooks()
    hooks.after_run(lambda job, outcome: meter.hit())
    return {"task_list": [TASKS[kind]], "hooks": hooks}


async def drain(options: WorkerOptions, orders: dict[str, Any], begin: Begin) -> None:
    """Run all ready jobs, then report."""
    meter = BenchMeter()
    await begin()
    before = resource.getrusage(resource.RUSAGE_SELF)
    await run_once(options=options, **_arguments(orders["task"], meter))
    _report(meter, before)


async def stay(options: WorkerOptions, orders: dict[str, Any], begin: Begin) -> None:
    """Run jobs and report progress until stopped; only the benchmark knows when all jobs are done."""
    meter = BenchMeter()
    stop = await begin()
    before = resource.getrusage(resource.RUSAGE_SELF)
    async with run(options=options, **_arguments(orders["task"], meter)):
        sent = 0
        while not stop.is_set():
            if meter.executed != sent:
                sent = meter.executed
                send(sent)
            await asyncio.sleep(REPORT_INTERVAL)
    _report(meter, before)


def _report(meter: BenchMeter, before: resource.struct_rusage) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    send(
        {
            "executed": meter.executed,
            "first": meter.first,
            "ended": time.monotonic(),
            "cpu": usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
            "peak_memory_mb": usage.ru_maxrss / KILOBYTES_PER_MAXRSS / 1024,
        }
    )


async def answer(options: WorkerOptions, orders: dict[str, Any], begin: Begin) -> None:
    """Run a worker that reports the time of each probe, on the clock that all processes share."""

    async def probe(payload: Any) -> None:
        send(time.monotonic())

    async def load(payload: Any) -> None:
        pass

    async with run(options=options, task_list={PROBE: probe, LOAD: load}) as runner:
        await begin()
        await runner.wait()


async def add_steadily(options: WorkerOptions, orders: dict[str, Any], begin: Begin) -> None:
    """Add jobs one by one at a constant rate, until the benchmark ends the process."""
    async with make_worker_utils(options=options) as utils:
        await begin()
        interval = 1 / orders["per_second"]
        due = time.monotonic()
        while True:
            await utils.add_job(LOAD)
            due += interval
            await asyncio.sleep(due - time.monotonic())


DUTIES: dict[str, Callable[..., Awaitable[None]]] = {
    "drain": drain,
    "stay": stay,
    "answer": answer,
    "add_steadily": add_steadily,
}


async def work(orders: dict[str, Any]) -> None:
    """Carry out the orders."""

    async def begin() -> asyncio.Event:
        send("ready")
        if not await asyncio.to_thread(sys.stdin.readline):
            os._exit(0)
        received, loop = asyncio.Event(), asyncio.get_running_loop()

        def listen() -> None:
            while sys.stdin.readline():
                loop.call_soon_threadsafe(received.set)
            os._exit(0)

        threading.Thread(target=listen, daemon=True).start()
        return received

    # No log: some jobs fail on purpose.
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    await DUTIES[orders["duty"]](WorkerOptions.from_mapping(orders["options"]), orders, begin)


def main() -> None:
    """Run one worker process."""
    orders = msgspec.json.decode(sys.stdin.readline())
    gc.freeze()  # as the command does before it starts work
    with asyncio.Runner(loop_factory=fast_loop()) as loop:
        loop.run(work(orders))


if __name__ == "__main__":
    main()
