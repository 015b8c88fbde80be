"""One run of the benchmark: the parts that were asked for, in their order, in a scratch schema."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

from ...options import WorkerOptions
from ...version import __version__
from ..support.run_worker import _fast_loop as fast_loop
from . import adding, growth, latency, throughput
from .progress import Bars
from .results import Report
from .scratch import Scratch, scratch_schema
from .workbench import Extent, Step, Workbench

Part = tuple[Callable[[Workbench], int], Callable[[Workbench, Step], Awaitable[Any]]]

PARTS: dict[str, Part] = {
    "throughput": (throughput.count_steps, throughput.measure_throughput),
    "latency": (latency.count_steps, latency.measure_latency),
    "adding": (adding.count_steps, adding.measure_adding),
    "growth": (growth.count_steps, growth.measure_growth),
}


async def measure(options: WorkerOptions, extent: Extent, parts: Collection[str], bars: Bars) -> Report:
    """Measure these parts on the database of `options`; of the other options only the connection's count."""
    async with scratch_schema(options) as scratch:
        kept = WorkerOptions(
            connection_string=options.connection_string,
            prepared_statements=options.prepared_statements,
            schema=scratch.schema.name,
        )
        bench = Workbench(scratch, kept, extent)
        report = Report(environment=await _environment(scratch))
        for name, (count_steps, measure_part) in PARTS.items():
            if name in parts:
                with bars.part(name, count_steps(bench)) as step:
                    report = replace(report, **{name: await measure_part(bench, step)})
        return report


async def _environment(scratch: Scratch) -> dict[str, Any]:
    return {
        "graphile_worker": __version__,
        "python": platform.python_version(),
        "event_loop": "uvloop" if fast_loop() is not None else "asyncio",
        "platform": f"{sys.platform} {platform.machine()}",
        "cpus": os.cpu_count(),
        "postgresql": await scratch.describe_server(),
    }
