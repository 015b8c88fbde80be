"""The time from the call that adds a job to its task running in another process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from ...client import WorkerUtils, make_worker_utils
from .results import Latency
from .scratch import BETTER, FOREIGN, LOAD, PROBE, Jobs
from .workbench import Step, Workbench
from .worker_process import BenchProcess, bench_process

WARM_UP = 20  # probes that are not counted, while connections, plans and code are cold
PAUSE = 0.002  # seconds between two probes, for the outcome of the last one to be written
LOAD_RATE = 500  # jobs per second
HOUR = 3600.0


def count_steps(bench: Workbench) -> int:
    """The number of steps of `measure_latency`."""
    return len(_scenarios(bench))


async def measure_latency(bench: Workbench, step: Step) -> list[Latency]:
    """Measure one probe at a time in each scenario."""
    results = []
    for scenario in _scenarios(bench):
        step(scenario.name)
        await bench.scratch.clear()
        if scenario.busy_queue:
            await bench.scratch.make_queues(1, held_by="another pool")
        if scenario.count:
            await bench.scratch.fill(scenario.jobs, 1, scenario.count)
            await bench.scratch.settle()
        results.append(Latency.of(scenario.name, await _probe(bench, load=scenario.load)))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The other jobs in the table, and the load, while latency is measured."""

    name: str
    load: int = 0
    """Jobs per second that are added and run in the background."""
    jobs: Jobs = field(default_factory=Jobs)
    count: int = 0
    busy_queue: bool = False


def _scenarios(bench: Workbench) -> list[Scenario]:
    most = bench.scale.max_backlog
    after = bench.scale.jobs
    always = [
        Scenario(name="idle worker"),
        Scenario(name=f"beside {LOAD_RATE} jobs per second", load=LOAD_RATE),
        # These are older than the first probe, so they run before it.
        Scenario(name=f"after {after:,} jobs", jobs=Jobs(task=LOAD, delay=-HOUR), count=after),
    ]
    backlogs = [
        Scenario(name=f"beside {most:,} future jobs", jobs=Jobs(task=LOAD, delay=24 * HOUR), count=most),
        Scenario(
            name=f"beside {most // 5:,} jobs of other workers",
            jobs=Jobs(task=FOREIGN, lowest_priority=BETTER),
            count=most // 5,
        ),
        Scenario(
            name=f"beside {most // 10:,} jobs of a busy queue",
            jobs=Jobs(task=LOAD, lowest_priority=BETTER, queues=1),
            count=most // 10,
            busy_queue=True,
        ),
    ]
    return [*always, *(scenario for scenario in backlogs if scenario.count)]


async def _probe(bench: Workbench, *, load: int) -> list[float]:
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(bench_process("answer", bench.options))
        processes = [worker]
        if load:
            adder = bench_process("add_steadily", bench.options, per_second=load)
            processes.append(await stack.enter_async_context(adder))
        for process in processes:
            await process.ready()
            await process.begin()
        utils = await stack.enter_async_context(make_worker_utils(options=bench.options))
        for _ in range(WARM_UP):
            await _one(utils, worker)
        return [await _one(utils, worker) for _ in range(bench.scale.samples)]


async def _one(utils: WorkerUtils, worker: BenchProcess) -> float:
    began = time.monotonic()
    await utils.add_job(PROBE)
    ran_at: float = await worker.receive()
    await asyncio.sleep(PAUSE)
    return ran_at - began
