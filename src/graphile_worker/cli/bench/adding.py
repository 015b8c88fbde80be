"""The rate of adding jobs over one connection, one by one and in batches, with no worker running."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ...client import WorkerUtils, make_worker_utils
from ...values.spec import JobSpec
from .results import Adding, Rate
from .scratch import TASK
from .workbench import Step, Workbench

BATCH = 1000


def count_steps(bench: Workbench) -> int:
    """The number of steps of `measure_adding`."""
    return 2 * bench.scale.rounds


async def measure_adding(bench: Workbench, step: Step) -> list[Adding]:
    """Measure single adds, then batches."""
    methods: list[tuple[str, int, Callable[[WorkerUtils, int], Awaitable[None]]]] = [
        ("one by one", bench.scale.single_adds, _one_by_one),
        (f"in batches of {BATCH:,}", bench.scale.jobs, _in_batches),
    ]
    results = []
    async with make_worker_utils(options=bench.options) as utils:
        for name, count, add in methods:
            rates = []
            for number in range(1, bench.scale.rounds + 1):
                step(f"{name}, round {number} of {bench.scale.rounds}")
                await bench.scratch.clear()
                await add(utils, 10)  # warms up the connection and the plans
                began = time.monotonic()
                await add(utils, count)
                rates.append(count / (time.monotonic() - began))
            results.append(Adding(name=name, rate=Rate.of(count, rates)))
    return results


async def _one_by_one(utils: WorkerUtils, count: int) -> None:
    for number in range(count):
        await utils.add_job(TASK, {"id": number})


async def _in_batches(utils: WorkerUtils, count: int) -> None:
    for first in range(0, count, BATCH):
        await utils.add_jobs(
            [JobSpec(TASK, {"id": number}) for number in range(first, min(first + BATCH, count))]
        )
