"""How long it takes from the call that adds a job to the task running in another process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from ...client import WorkerUtils, make_worker_utils
from .results import Latency
from .scratch import BETTER, FOREIGN, LOAD, PROBE, Jobs
from .workbench import Step, Workbench
from .worker_process import WorkerProcess, worker_process

WARM_UP = 20  # probes that do not count: connections, plans and code are cold
PAUSE = 0.002  # seconds between two probes, in which the last one is written back
STEADY = 500  # jobs per second of the load
HOUR = 3600.0


def count_steps(bench: Workbench) -> int:
    """How many steps `measure_latency` will take."""
    return len(_surroundings(bench))


async def measure_latency(bench: Workbench, step: Step) -> list[Latency]:
    """One probe at a time, in different surroundings."""
    results = []
    for around in _surroundings(bench):
        step(around.name)
        await bench.scratch.clear()
        if around.busy_queue:
            await bench.scratch.make_queues(1, held_by="another pool")
        if around.count:
            await bench.scratch.fill(around.jobs, 1, around.count)
            await bench.scratch.settle()
        results.append(Latency.of(around.name, await _probe(bench, load=around.load)))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What else is in the table, or happens, while the latency is measured."""

    name: str
    load: int = 0
    """Jobs per second that are added and run meanwhile."""
    jobs: Jobs = field(default_factory=Jobs)
    count: int = 0
    busy_queue: bool = False


def _surroundings(bench: Workbench) -> list[Surroundings]:
    most = bench.extent.max_backlog
    after = bench.extent.jobs
    always = [
        Surroundings(name="idle worker"),
        Surroundings(name=f"beside {STEADY} jobs per second", load=STEADY),
        # The first probe is taken when these are done, since they have waited for longer.
        Surroundings(name=f"after {after:,} jobs", jobs=Jobs(task=LOAD, delay=-HOUR), count=after),
    ]
    backlogs = [
        Surroundings(name=f"beside {most:,} future jobs", jobs=Jobs(task=LOAD, delay=24 * HOUR), count=most),
        Surroundings(
            name=f"beside {most // 5:,} jobs of other workers",
            jobs=Jobs(task=FOREIGN, lowest_priority=BETTER),
            count=most // 5,
        ),
        Surroundings(
            name=f"beside {most // 10:,} jobs of a busy queue",
            jobs=Jobs(task=LOAD, lowest_priority=BETTER, queues=1),
            count=most // 10,
            busy_queue=True,
        ),
    ]
    return [*always, *(around for around in backlogs if around.count)]


async def _probe(bench: Workbench, *, load: int) -> list[float]:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(worker_process("answer", bench.options))
        processes = [worker]
        if load:
            adder = worker_process("add_steadily", bench.options, per_second=load)
            processes.append(await stack.enter_async_context(adder))
        for process in processes:
            await process.ready()
            await process.begin()
        utils = await stack.enter_async_context(make_worker_utils(options=bench.options))
        for _ in range(WARM_UP):
            await _one(utils, worker)
        return [await _one(utils, worker) for _ in range(bench.extent.samples)]


async def _one(utils: WorkerUtils, worker: WorkerProcess) -> float:
    began = time.monotonic()
    await utils.add_job(PROBE)
    ran_at: float = await worker.hear()
    await asyncio.sleep(PAUSE)
    return ran_at - began
