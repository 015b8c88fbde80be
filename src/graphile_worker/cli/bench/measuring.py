"""Runs the chosen parts of the benchmark in a scratch schema."""

from __future__ import annotations

import itertools
import os
import platform
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...process.run_worker import fast_loop
from ...values import __version__
from ...values.options import WorkerOptions
from ..support.bulk_change import progress_bar
from . import adding, growth, latency, throughput
from .results import BenchReport
from .scratch import Scratch, scratch_schema
from .workbench import Scale, Step, Workbench

Part = tuple[Callable[[Workbench], int], Callable[[Workbench, Step], Awaitable[Any]]]

PARTS: dict[str, Part] = {
    "throughput": (throughput.count_steps, throughput.measure_throughput),
    "latency": (latency.count_steps, latency.measure_latency),
    "adding": (adding.count_steps, adding.measure_adding),
    "growth": (growth.count_steps, growth.measure_growth),
}


async def measure(options: WorkerOptions, scale: Scale, parts: Collection[str]) -> BenchReport:
    """Measure these parts on the database of `options`; the other options have no effect."""
    async with scratch_schema(options) as scratch:
        defaults = WorkerOptions(
            connection_string=options.connection_string,
            prepared_statements=options.prepared_statements,
            schema=scratch.schema.name,
        )
        bench = Workbench(scratch, defaults, scale)
        report = BenchReport(environment=await _environment(scratch))
        for name, (count_steps, measure_part) in PARTS.items():
            if name in parts:
                with _steps(name, count_steps(bench)) as step:
                    report = replace(report, **{name: await measure_part(bench, step)})
        return report


@contextmanager
def _steps(name: str, total: int) -> Iterator[Step]:
    """A progress bar for one part; the function is called at the start of each step."""
    numbers = itertools.count()
    with progress_bar(f"{name:<10}", total=total) as bar:
        yield lambda description: bar.show(description, done=next(numbers))


async def _environment(scratch: Scratch) -> dict[str, Any]:
    return {
        "graphile_worker": __version__,
        "python": platform.python_version(),
        "event_loop": "uvloop" if fast_loop() is not None else "asyncio",
        "platform": f"{sys.platform} {platform.machine()}",
        "cpus": os.cpu_count(),
        "postgresql": await scratch.describe_server(),
    }
