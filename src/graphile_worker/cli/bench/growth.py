"""The rate of ready jobs beside a growing backlog of jobs that cannot run."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from .results import Growth, Rate
from .scratch import BETTER, FOREIGN, Jobs
from .throughput import run_ready_jobs
from .workbench import Step, Workbench

DAY = 86400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchBacklog:
    """A kind of jobs that cannot run."""

    name: str
    jobs: Jobs
    busy_queue: bool = False
    """Their queue is locked by another worker."""
    dead: bool = False
    """The jobs are deleted, but a long transaction keeps their dead rows."""


BACKLOGS = (
    BenchBacklog(name="future jobs", jobs=Jobs(delay=DAY)),
    BenchBacklog(
        name="future jobs, 100 priorities", jobs=Jobs(delay=DAY, lowest_priority=-50, priorities=100)
    ),
    BenchBacklog(name="jobs of other workers", jobs=Jobs(task=FOREIGN, lowest_priority=BETTER)),
    BenchBacklog(name="permanently failed jobs", jobs=Jobs(attempts=25)),
    BenchBacklog(name="jobs of a busy queue", jobs=Jobs(lowest_priority=BETTER, queues=1), busy_queue=True),
    BenchBacklog(name="dead rows", jobs=Jobs(delay=-DAY), dead=True),
)


def count_steps(bench: Workbench) -> int:
    """The number of steps of `measure_growth`."""
    return len(BACKLOGS) * (1 + len(bench.scale.backlogs))


async def measure_growth(bench: Workbench, step: Step) -> list[Growth]:
    """Measure the rate beside each backlog as it grows, and without a backlog before each of them."""
    count = bench.scale.ready_jobs
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
            for size in bench.scale.backlogs:
                step(f"{size:,} {backlog.name}")
                await bench.scratch.fill(backlog.jobs, present + 1, size)
                if backlog.dead:
                    await bench.scratch.delete_jobs()
                present = size
                rates = [await _rate(bench) for _ in range(bench.scale.rounds)]
                beside.append((backlog.name, size, Rate.of(count, rates)))
    without = Rate.of(count, alone)
    return [Growth(backlog="none", size=0, rate=without, share=1.0)] + [
        Growth(backlog=name, size=size, rate=rate, share=rate.per_second / without.per_second)
        for name, size, rate in beside
    ]


async def _rate(bench: Workbench) -> float:
    # A worker that drains the queue scans the whole backlog once more before it exits. That would count here,
    # but does not happen in production, where workers stay.
    return (await run_ready_jobs(bench, bench.scale.ready_jobs, Jobs(), stay=True)).rate
