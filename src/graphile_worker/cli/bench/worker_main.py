"""A worker process of a benchmark: `python -m graphile_worker.cli.benchmarks.worker_main`.

It reads what to do as one line of JSON from standard input (a connection string in the arguments would be
seen by every user of the machine), says "ready" when it could begin, begins when another line comes, and
writes its result as a line of JSON. It ends when its input does, so that none outlives the benchmark.
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
from ...options import WorkerOptions
from ...runner import run, run_once
from ..support.run_worker import _fast_loop as fast_loop
from .scratch import LOAD, PROBE, TASK

KILOBYTES_PER_MAXRSS = 1024 if sys.platform == "darwin" else 1
TELL_EVERY = 0.002  # seconds between two looks at how far a worker that stays has come

Told = asyncio.Event
"""Set when another line came from the benchmark."""


def say(value: Any) -> None:
    """One line to the benchmark."""
    os.write(1, msgspec.json.encode(value) + b"\n")


class Meter:
    """Counts executions and notes the first."""

    def __init__(self) -> None:
        self.executed = 0
        self.first = 0.0

    def hit(self) -> None:
        if not self.executed:
            self.first = time.monotonic()
        self.executed += 1


def _task(kind: str, meter: Meter) -> Callable[[Any], Any]:
    lock = threading.Lock()

    async def coroutine(payload: Any) -> None:
        meter.hit()

    def function(payload: Any) -> None:
        with lock:
            meter.hit()

    async def failing(payload: Any) -> None:
        meter.hit()
        raise RuntimeError("as asked")

    return {"coroutine": coroutine, "function": function, "failing": failing}[kind]


async def drain(options: WorkerOptions, orders: dict[str, Any], begin: Callable[[], Awaitable[Told]]) -> None:
    """Run everything that is ready, then tell how it went."""
    meter = Meter()
    await begin()
    before = resource.getrusage(resource.RUSAGE_SELF)
    await run_once(options=options, task_list={TASK: _task(orders["task"], meter)})
    _report(meter, before)


async def stay(options: WorkerOptions, orders: dict[str, Any], begin: Callable[[], Awaitable[Told]]) -> None:
    """Run what is ready, say how far it came, and stop when told: nobody else knows whether that was all."""
    meter = Meter()
    told = await begin()
    before = resource.getrusage(resource.RUSAGE_SELF)
    async with run(options=options, task_list={TASK: _task(orders["task"], meter)}):
        said = 0
        while not told.is_set():
            if meter.executed != said:
                said = meter.executed
                say(said)
            await asyncio.sleep(TELL_EVERY)
    _report(meter, before)


def _report(meter: Meter, before: resource.struct_rusage) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    say(
        {
            "executed": meter.executed,
            "first": meter.first,
            "ended": time.monotonic(),
            "cpu": usage.ru_utime + usage.ru_stime - before.ru_utime - before.ru_stime,
            "peak_memory_mb": usage.ru_maxrss / KILOBYTES_PER_MAXRSS / 1024,
        }
    )


async def answer(
    options: WorkerOptions, orders: dict[str, Any], begin: Callable[[], Awaitable[Told]]
) -> None:
    """Run a worker that tells when each probe runs, by the clock that all processes share."""

    async def probe(payload: Any) -> None:
        say(time.monotonic())

    async def load(payload: Any) -> None:
        pass

    async with run(options=options, task_list={PROBE: probe, LOAD: load}) as runner:
        await begin()
        await runner.wait()


async def add_steadily(
    options: WorkerOptions, orders: dict[str, Any], begin: Callable[[], Awaitable[Told]]
) -> None:
    """Add so many jobs per second, one by one, for as long as the benchmark lets us."""
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

    async def begin() -> Told:
        say("ready")
        if not await asyncio.to_thread(sys.stdin.readline):
            os._exit(0)
        told, loop = Told(), asyncio.get_running_loop()

        def listen() -> None:
            while sys.stdin.readline():
                loop.call_soon_threadsafe(told.set)
            os._exit(0)

        threading.Thread(target=listen, daemon=True).start()
        return told

    # What is logged about jobs that fail on purpose is not read by anybody.
    logger = logging.getLogger("graphile_worker")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    await DUTIES[orders["duty"]](WorkerOptions.from_mapping(orders["options"]), orders, begin)


def main() -> None:
    """Run one worker process."""
    orders = msgspec.json.decode(sys.stdin.readline())
    gc.freeze()  # as the command does before it begins to work
    with asyncio.Runner(loop_factory=fast_loop()) as loop:
        loop.run(work(orders))


if __name__ == "__main__":
    main()
