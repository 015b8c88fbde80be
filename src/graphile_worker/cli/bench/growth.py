"""How the rate of ready jobs depends on others in the table that cannot run now."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from .results import Growth, Rate
from .scratch import BETTER, FOREIGN, Jobs
from .throughput import run_ready_jobs
from .workbench import Step, Workbench

DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """Jobs that cannot run now, and why."""

    name: str
    jobs: Jobs
    busy_queue: bool = False
    """Their queue is held by another worker."""
    dead: bool = False
    """The jobs are deleted, but a long transaction keeps their rows."""


BACKLOGS = (
    Backlog(name="future jobs", jobs=Jobs(delay=DAY)),
    Backlog(name="future jobs, 100 priorities", jobs=Jobs(delay=DAY, lowest_priority=-50, priorities=100)),
    Backlog(name="jobs of other workers", jobs=Jobs(task=FOREIGN, lowest_priority=BETTER)),
    Backlog(name="permanently failed jobs", jobs=Jobs(attempts=25)),
    Backlog(name="jobs of a busy queue", jobs=Jobs(lowest_priority=BETTER, queues=1), busy_queue=True),
    Backlog(name="dead rows", jobs=Jobs(delay=-DAY), dead=True),
)


def count_steps(bench: Workbench) -> int:
    """How many steps `measure_growth` will take."""
    return len(BACKLOGS) * (1 + len(bench.extent.backlogs))


async def measure_growth(bench: Workbench, step: Step) -> list[Growth]:
    """The rate beside each backlog while it grows, and without any before each of them."""
    count = bench.extent.ready_jobs
    alone: list[float] = []
    beside: list[tuple[str, int, Rate]] = []
    for backlog in BACKLOGS:
        step(f"none, before {backlog.name}")
        await bench.scratch.clear()
        alone.append(await _rate(bench))
        await bench.scratch.clear()
        if backlog.busy_queue:
            await bench.scratch.make_queues(1, held_by="another pool")
        async with bench.scratch.long_transaction() if backlog.dead else nullcontext():
            present = 0
            for size in bench.extent.backlogs:
                step(f"{size:,} {backlog.name}")
                await bench.scratch.fill(backlog.jobs, present + 1, size)
                if backlog.dead:
                    await bench.scratch.delete_jobs()
                present = size
                rates = [await _rate(bench) for _ in range(bench.extent.rounds)]
                beside.append((backlog.name, size, Rate.of(count, rates)))
    without = Rate.of(count, alone)
    return [Growth(backlog="none", size=0, rate=without, share=1.0)] + [
        Growth(backlog=name, size=size, rate=rate, share=rate.per_second / without.per_second)
        for name, size, rate in beside
    ]


async def _rate(bench: Workbench) -> float:
    # A worker that ends when nothing is left reads past the whole backlog once more to be sure of that, which
    # would be measured with the 5,000 jobs; those in production stay.
    return (await run_ready_jobs(bench, bench.extent.ready_jobs, Jobs(), stay=True)).rate
