"""The rate of running ready jobs, from the first start until all outcomes are written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...errors import GraphileWorkerError
from .results import Rate, Throughput
from .scratch import Jobs
from .workbench import Step, Workbench
from .worker_process import drain, run_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of jobs and worker."""

    name: str
    task: str = "coroutine"
    jobs: Jobs = field(default_factory=Jobs)
    options: dict[str, Any] = field(default_factory=dict)
    divisor: int = 1
    """Runs a fraction of the jobs, for cases in which each waits for a commit of its own."""


NO_PREFETCH = {"concurrency": 10, "prefetch": 0.0}
CASES = (
    Case(name="default settings"),
    Case(name="def tasks in threads", task="function", options={"concurrency": 24}),
    Case(name="no prefetch", options=NO_PREFETCH, divisor=2),
    Case(name="no prefetch, 10,000 queues", options=NO_PREFETCH, jobs=Jobs(queues=10_000), divisor=2),
    Case(name="failing jobs", task="failing", jobs=Jobs(max_attempts=1)),
    Case(name="1,000 named queues", jobs=Jobs(queues=1000)),
    Case(name="one named queue", jobs=Jobs(queues=1), divisor=10),
)


PROCESSES = {"executors": {"process.processes": 2}}
EXECUTOR_CASES = {
    "process": (
        Case(name="short tasks in 2 processes", task="process", options={"concurrency": 48, **PROCESSES}),
        Case(name="10 ms in 2 threads", task="computing function", options={"concurrency": 2}, divisor=20),
        Case(
            name="10 ms in 2 processes",
            task="computing process",
            options={"concurrency": 4, **PROCESSES},
            divisor=20,
        ),
    )
}
"""More cases for each executor that can be measured."""


def _cases(bench: Workbench) -> tuple[Case, ...]:
    return (*CASES, *EXECUTOR_CASES.get(bench.scale.executor or "", ()))


def count_steps(bench: Workbench) -> int:
    """The number of steps of `measure_throughput`."""
    return len(_cases(bench)) * bench.scale.rounds


async def measure_throughput(bench: Workbench, step: Step) -> list[Throughput]:
    """Measure every case, in alternating rounds, so that other load on the machine affects them equally."""
    cases = _cases(bench)
    runs: dict[str, list[Run]] = {case.name: [] for case in cases}
    for number in range(1, bench.scale.rounds + 1):
        for case in cases:
            step(f"{case.name}, round {number} of {bench.scale.rounds}")
            await bench.scratch.clear()
            if case.jobs.queues:
                await bench.scratch.make_queues(case.jobs.queues)
            runs[case.name].append(
                await run_ready_jobs(bench, _count(bench, case), case.jobs, task=case.task, **case.options)
            )
    return [_result(bench, case, runs[case.name]) for case in cases]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of worker processes until all outcomes were written."""

    rate: float
    cpu_seconds: float
    peak_memory_mb: float


async def run_ready_jobs(
    bench: Workbench, count: int, jobs: Jobs, *, task: str = "coroutine", stay: bool = False, **options: Any
) -> Run:
    """Add ready jobs to the table and run them; `stay` uses workers that do not exit when done."""
    await bench.scratch.fill(jobs, 1, count)
    await bench.scratch.settle()
    chosen, processes = bench.worker_options(**options), bench.scale.processes
    if stay:
        reports = await run_until(chosen, count, task=task, processes=processes)
    else:
        reports = await drain(chosen, task=task, processes=processes)
    executed = sum(report["executed"] for report in reports)
    if executed != count:
        raise GraphileWorkerError(f"workers ran {executed:,} of {count:,} jobs; the result would be wrong")
    busy = [report for report in reports if report["executed"]]
    seconds = max(report["ended"] for report in busy) - min(report["first"] for report in busy)
    return Run(
        rate=count / seconds,
        cpu_seconds=sum(report["cpu"] for report in reports),
        peak_memory_mb=max(report["peak_memory_mb"] for report in reports),
    )


def _count(bench: Workbench, case: Case) -> int:
    return max(10, bench.scale.jobs // case.divisor)


def _result(bench: Workbench, case: Case, runs: list[Run]) -> Throughput:
    jobs = _count(bench, case)
    return Throughput(
        name=case.name,
        options=case.options,
        processes=bench.scale.processes,
        rate=Rate.of(jobs, [run.rate for run in runs]),
        cpu_microseconds_per_job=min(run.cpu_seconds for run in runs) / jobs * 1e6,
        peak_memory_mb=max(run.peak_memory_mb for run in runs),
    )
