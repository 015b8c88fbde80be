"""How fast jobs are added over one connection, one by one and in batches; nobody runs them meanwhile."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ...client import WorkerUtils, make_worker_utils
from ...spec import JobSpec
from .results import Adding, Rate
from .scratch import TASK
from .workbench import Step, Workbench

BATCH = 1000


def count_steps(bench: Workbench) -> int:
    """How many steps `measure_adding` will take."""
    return 2 * bench.extent.rounds


async def measure_adding(bench: Workbench, step: Step) -> list[Adding]:
    """Single adds, then batches."""
    ways: list[tuple[str, int, Callable[[WorkerUtils, int], Awaitable[None]]]] = [
        ("one by one", bench.extent.single_adds, _one_by_one),
        (f"in batches of {BATCH:,}", bench.extent.jobs, _in_batches),
    ]
    results = []
    async with make_worker_utils(options=bench.options) as utils:
        for name, count, add in ways:
            rates = []
            for number in range(1, bench.extent.rounds + 1):
                step(f"{name}, round {number} of {bench.extent.rounds}")
                await bench.scratch.clear()
                await add(utils, 10)  # the connection and the plans are warm from here on
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
