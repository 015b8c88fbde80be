"""What each thing that a worker or a job can have costs, compared with plain jobs in the same run.

    python -m benchmarks.costs [--jobs 60000] [--rounds 7] [--only "a limit" "a timeout"]

Starts a server of its own. Each round drains the same number of jobs that do nothing, once for each case and
in turn, so that what else the machine does affects all of them alike. SHARE is the rate compared with that of
plain jobs in the same round, the median of the rounds. The second table is the cost of counting alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
from prometheus_client import CollectorRegistry

from graphile_worker import (
    JobSpec,
    Lane,
    Limit,
    Task,
    Unique,
    make_worker_utils,
    run_migrations,
    run_once,
    task,
)
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.hooks import Hooks, Plugin
from graphile_worker.hooks.events import PoolOutcomesWritten
from graphile_worker.logging import JsonFormatter, TextFormatter
from graphile_worker.metrics.catalogue import DURATION, WAIT
from graphile_worker.metrics.counts import WorkerCounts
from graphile_worker.metrics.prometheus import PrometheusPlugin
from graphile_worker.options import WorkerOptions
from graphile_worker.values.job import Job
from graphile_worker.values.outcome import COMPLETED, Finished

PLAIN = "plain"
NEVER_REACHED = 1_000_000
BATCH = 5000


async def nothing() -> None: ...


@task(limit=Limit("bench concurrency", concurrency=NEVER_REACHED))
async def limited() -> None: ...


@task(limit=Limit("bench rate", rate=(NEVER_REACHED, timedelta(seconds=1))))
async def rated() -> None: ...


@task(keep=timedelta(days=1))
async def kept() -> None: ...


@task(keep=timedelta(days=1), keep_payload=True)
async def kept_with_payload() -> str:
    return "done"


@task(timeout=60)
async def timed() -> None: ...


@task(unique=Unique(fields=("number",)))
async def unique(payload: dict[str, int]) -> None: ...


@contextmanager
def nothing_more() -> Iterator[list[Plugin]]:
    yield []


@contextmanager
def prometheus() -> Iterator[list[Plugin]]:
    yield [PrometheusPlugin(CollectorRegistry())]


@contextmanager
def opentelemetry() -> Iterator[list[Plugin]]:
    """Sampling 1 %, with the SDK's own exporter to nowhere."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.01)))
    yield [OpenTelemetryPlugin(tracer_provider=provider)]


@contextmanager
def lines(formatter: logging.Formatter | None) -> Iterator[list[Plugin]]:
    """The worker's own lines, one for each job, to nowhere."""
    logger = logging.getLogger("graphile_worker")
    with open(os.devnull, "w") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            yield []
        finally:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One kind of jobs and worker."""

    name: str
    task: Callable[..., Any] = nothing
    options: Callable[[], dict[str, Any]] = dict
    around: Callable[[], AbstractContextManager[list[Plugin]]] = nothing_more


CASES = (
    Case(name=PLAIN),
    Case(name="a limit of concurrency", task=limited),
    Case(name="a limit of rate", task=rated),
    Case(name="everything kept", task=kept),
    Case(name="kept with payload, result", task=kept_with_payload),
    Case(name="a timeout", task=timed),
    Case(name="unique jobs", task=unique),
    Case(name="two lanes", options=lambda: {"lanes": [Lane("other", tasks=["other"], concurrency=2)]}),
    Case(name="prometheus", around=prometheus),
    Case(name="opentelemetry, 1 %", around=opentelemetry),
    Case(name="text, a line for each job", around=partial(lines, TextFormatter())),
    Case(name="JSON, a line for each job", around=partial(lines, JsonFormatter())),
)


class Drained(NamedTuple):
    """One run."""

    rate: float
    """Jobs per second."""
    cost: float
    """Seconds of CPU time of the worker for each job: less noisy on a busy machine."""


def name_of(case: Case) -> str:
    return case.task.identifier if isinstance(case.task, Task) else case.task.__name__


async def fill(url: str, case: Case, jobs: int) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("truncate graphile_worker._private_py_history")
    async with make_worker_utils(connection_string=url) as utils:
        for first in range(0, jobs, BATCH):
            payloads = [{"number": number} for number in range(first, min(jobs, first + BATCH))]
            if case.task is unique:
                await utils.add_jobs([unique.spec(payload) for payload in payloads])
            else:
                await utils.add_jobs([JobSpec(name_of(case), payload) for payload in payloads])
    await connection.execute("vacuum analyze graphile_worker._private_jobs")
    await connection.close()


async def drain(url: str, case: Case, jobs: int) -> Drained:
    await fill(url, case, jobs)
    settings = case.options()
    tasks = {name_of(case): case.task} | ({"other": nothing} if "lanes" in settings else {})
    options = WorkerOptions(connection_string=url, concurrency=24)
    with case.around() as plugins:
        began, used = time.perf_counter(), time.process_time()
        await run_once(options=options, task_list=tasks, hooks=Hooks(plugins=plugins), **settings)
        return Drained(jobs / (time.perf_counter() - began), (time.process_time() - used) / jobs)


async def compare(url: str, jobs: int, rounds: int, cases: Sequence[Case]) -> None:
    await run_migrations(connection_string=url)
    found: dict[str, list[Drained]] = {case.name: [] for case in cases}
    await drain(url, cases[0], jobs)  # to warm up
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            found[case.name].append(await drain(url, case, jobs))
    plain = found[PLAIN]
    cost_of_plain = min(each.cost for each in plain)
    print(f"{'CASE':<28} {'JOBS/S':>8} {'SHARE':>6} {'CPU µs/JOB':>11} {'SHARE':>6}")
    for case in cases:
        runs = found[case.name]
        share = statistics.median(run.rate / other.rate for run, other in zip(runs, plain, strict=True))
        rate, cost = statistics.median(run.rate for run in runs), min(run.cost for run in runs)
        print(f"{case.name:<28} {rate:>8,.0f} {share:>6.3f} {cost * 1e6:>11.2f} {cost_of_plain / cost:>6.3f}")


def cost_of_counting(size: int, tasks: int) -> float:
    """Seconds per job, of the best run."""
    counts = WorkerCounts(duration_buckets=DURATION.buckets, wait_buckets=WAIT.buckets, max_tasks=200)
    batch = [
        Finished(
            Job(
                number, "{}", 0, 1e9, 1, 25, None, None, None, None, 1e9 + random.random(), 0, None, 1, None,
                "pool", f"task {number % tasks}",
            ),
            COMPLETED, "worker", random.random() / 1000,
        )
        for number in range(size)
    ]  # fmt: skip
    event = PoolOutcomesWritten(
        pool_id="pool", completed=size, failed=0, returned=0, seconds=0.0, finished=batch
    )
    best = float("inf")
    for _ in range(200):
        began = time.thread_time()
        counts._written(event)
        best = min(best, (time.thread_time() - began) / size)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=[case.name for case in CASES[1:]])
    arguments = parser.parse_args()
    cases = [case for case in CASES if case.name in (arguments.only or (case.name,)) or case.name == PLAIN]
    logging.getLogger("graphile_worker").addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory(prefix="graphile-worker-bench-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            asyncio.run(compare(server.url(), arguments.jobs, arguments.rounds, cases))
    print(f"\n{'JOBS PER WRITE':>14} {'ONE TASK':>9} {'FIVE TASKS':>10}   µs of CPU time for each job")
    for size in (1, 10, 100, 1000):
        one, five = (cost_of_counting(size, tasks) * 1e6 for tasks in (1, 5))
        print(f"{size:>14,} {one:>9.3f} {five:>10.3f}")


if __name__ == "__main__":
    main()
