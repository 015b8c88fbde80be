"""How long it takes from the call that adds a job to the task running in another process."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from ...client import WorkerUtils, make_worker_utils
from .results import Latency
from .scratch import LOAD, PROBE, Jobs
from .workbench import Step, Workbench
from .worker_process import WorkerProcess, worker_process

WARM_UP = 20  # probes that do not count: connections, plans and code are cold
PAUSE = 0.002  # seconds between two probes, in which the last one is written back
STEADY = 500  # jobs per second of the load


def count_steps(bench: Workbench) -> int:
    """How many steps `measure_latency` will take."""
    return len(_cases(bench))


async def measure_latency(bench: Workbench, step: Step) -> list[Latency]:
    """One probe at a time: on an idle worker, beside a steady load, and beside jobs of later."""
    results = []
    for name, backlog, load in _cases(bench):
        step(name)
        await bench.scratch.clear()
        if backlog:
            await bench.scratch.fill(Jobs(task=LOAD, delay=86400.0), 1, backlog)
            await bench.scratch.settle()
        results.append(Latency.of(name, await _probe(bench, load=load)))
    return results


def _cases(bench: Workbench) -> list[tuple[str, int, int]]:
    cases = [("idle worker", 0, 0), (f"beside {STEADY} jobs per second", 0, STEADY)]
    if backlog := bench.extent.max_backlog:
        cases.append((f"beside {backlog:,} future jobs", backlog, 0))
    return cases


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
