"""What each thing that a worker or a job can have costs, compared with plain jobs in the same run.

    python -m benchmarks.costs [--jobs 60000] [--rounds 7] [--only "a limit" "a timeout"]

Starts a server of its own. Each round drains the same number of jobs that do nothing, once for each case and
in turn, so that what else the machine does affects all of them alike. SHARE is the rate compared with that of
plain jobs in the same round, the median of the rounds. For each job, WORKER and SERVER are µs of CPU time and
LOG bytes of the server's log, all of the quietest round. MODEL is the rate that these costs predict for one
worker process (docs/scaling.md), and BOUND the rate that they allow: that of the event loop, or that of all
cores together. The second table is the cost of adding, the third that of counting alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import asyncpg
from benchmarks.own_server import CpuClock, own_server
from prometheus_client import CollectorRegistry

from graphile_worker import (
    JobSpec,
    Lane,
    Limit,
    Task,
    Unique,
    WorkerUtils,
    make_worker_utils,
    run,
    run_migrations,
    run_once,
    task,
)
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
FAILED_BEFORE = 9  # attempts of jobs that fail: the next one is hours later
STARTS = 5  # of a worker that has one job
SINGLE, MANY = 3000, 60_000  # jobs that are added one by one, and many at a time
WAITED = 0.5  # of the server's time, in which the worker has nothing to do
SETTLE = 0.5  # seconds for the server's processes to end; what they used is counted when they have


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


@task
async def failing() -> None:
    raise RuntimeError("fails on purpose")


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
    queues: int = 0
    """How many named queues the jobs are spread over."""
    around: Callable[[], AbstractContextManager[list[Plugin]]] = nothing_more


CASES = (
    Case(name=PLAIN),
    Case(name="a limit of concurrency", task=limited),
    Case(name="a limit of rate", task=rated),
    Case(name="everything kept", task=kept),
    Case(name="kept with payload, result", task=kept_with_payload),
    Case(name="a timeout", task=timed),
    Case(name="unique jobs", task=unique),
    Case(name="1,000 named queues", queues=1000),
    Case(name="every job fails", task=failing),
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
    server_cost: float
    """The same of the server; 0 where there is no /proc."""
    log: float
    """Bytes of the server's log (WAL) for each job."""


def name_of(case: Case) -> str:
    return case.task.identifier if isinstance(case.task, Task) else case.task.__name__


async def fill(connection: asyncpg.Connection, url: str, case: Case, jobs: int) -> None:
    await connection.execute("truncate graphile_worker._private_py_history, graphile_worker._private_jobs")
    async with make_worker_utils(connection_string=url) as utils:
        for first in range(0, jobs, BATCH):
            numbers = range(first, min(jobs, first + BATCH))
            if case.task is unique:
                await utils.add_jobs([unique.spec({"number": number}) for number in numbers])
                continue
            queues = [f"queue {number % case.queues}" if case.queues else None for number in numbers]
            specs = zip(numbers, queues, strict=True)
            await utils.add_jobs(
                [JobSpec(name_of(case), {"number": number}, queue_name=queue) for number, queue in specs]
            )
    if case.task is failing:  # or they run again, several times on a slow machine
        await connection.execute(f"update graphile_worker._private_jobs set attempts = {FAILED_BEFORE}")
    await connection.execute("vacuum analyze graphile_worker._private_jobs")


async def drain(url: str, clock: CpuClock, case: Case, jobs: int) -> Drained:
    connection = await asyncpg.connect(url)
    await fill(connection, url, case, jobs)
    settings = case.options()
    tasks = {name_of(case): case.task} | ({"other": nothing} if "lanes" in settings else {})
    options = WorkerOptions(connection_string=url, concurrency=24)
    await asyncio.sleep(SETTLE)
    log = await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'")
    with case.around() as plugins:
        server = clock.seconds()
        began, used = time.perf_counter(), time.process_time()
        await run_once(options=options, task_list=tasks, hooks=Hooks(plugins=plugins), **settings)
        seconds, used = time.perf_counter() - began, time.process_time() - used
    await asyncio.sleep(SETTLE)
    server = clock.seconds() - server
    log = await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'") - log
    await connection.close()
    return Drained(jobs / seconds, used / jobs, server / jobs, float(log) / jobs)


async def compare(url: str, clock: CpuClock, jobs: int, rounds: int, cases: Sequence[Case]) -> None:
    await run_migrations(connection_string=url)
    found: dict[str, list[Drained]] = {case.name: [] for case in cases}
    await drain(url, clock, cases[0], jobs)  # to warm up
    starts = [1 / (await drain(url, clock, cases[0], 1)).rate for _ in range(STARTS)]
    start = statistics.median(starts)
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            found[case.name].append(await drain(url, clock, case, jobs))
    plain = found[PLAIN]
    costs = f"{'WORKER':>7} {'SERVER':>7} {'LOG':>6} {'MODEL':>8} {'BOUND':>8}"
    print(f"{'CASE':<26} {'JOBS/S':>8} {'SHARE':>6} {costs}")
    cores = os.cpu_count() or 1
    for case in cases:
        runs = found[case.name]
        rate = statistics.median(run.rate for run in runs)
        share = statistics.median(run.rate / other.rate for run, other in zip(runs, plain, strict=True))
        cost, server = min(run.cost for run in runs) * 1e6, min(run.server_cost for run in runs) * 1e6
        log = min(run.log for run in runs)
        bound = min(1 / cost, cores / (cost + server)) * 1e6
        model = jobs / (start + jobs * (cost + WAITED * server) / 1e6)
        costs = f"{cost:>7.2f} {server:>7.2f} {log:>6,.0f} {model:>8,.0f}"
        print(f"{case.name:<26} {rate:>8,.0f} {share:>6.3f} {costs} {bound:>8,.0f}")
    print(f"start and stop: {start * 1000:.0f} ms")


async def add_one_by_one(utils: WorkerUtils, url: str) -> int:
    for _ in range(SINGLE):
        await utils.add_job("nothing", {"number": 1})
    return SINGLE


async def add_many(utils: WorkerUtils, url: str) -> int:
    for _ in range(MANY // BATCH):
        await utils.add_jobs([JobSpec("nothing", {"number": 1}) for _ in range(BATCH)])
    return MANY


async def add_and_run(utils: WorkerUtils, url: str) -> int:
    """Each when the one before it has run, on an idle worker."""
    has_run = asyncio.Event()

    async def told() -> None:
        has_run.set()

    async with run(connection_string=url, task_list={"told": told}):
        for _ in range(SINGLE):
            has_run.clear()
            await utils.add_job("told")
            await has_run.wait()
    return SINGLE


WAYS_TO_ADD: dict[str, Callable[[WorkerUtils, str], Awaitable[int]]] = {
    "one by one": add_one_by_one,
    f"{BATCH:,} at a time": add_many,
    "one by one, and run": add_and_run,
}


async def adding(url: str, clock: CpuClock) -> None:
    """Print what it costs to add a job."""
    print(f"\n{'ADDING':<26} {'JOBS/S':>8} {'':>6} {'PYTHON':>7} {'SERVER':>7} {'LOG':>6}")
    connection = await asyncpg.connect(url)
    for name, add in WAYS_TO_ADD.items():
        await connection.execute("truncate graphile_worker._private_jobs")
        async with make_worker_utils(connection_string=url) as utils:
            await utils.add_job("nothing", {"number": 0})
            log = await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'")
            server = clock.seconds()
            began, used = time.perf_counter(), time.process_time()
            jobs = await add(utils, url)
            seconds, used = time.perf_counter() - began, time.process_time() - used
            await asyncio.sleep(SETTLE)
            server = clock.seconds() - server
            log = await connection.fetchval("select pg_current_wal_insert_lsn() - '0/0'") - log
        print(
            f"{name:<26} {jobs / seconds:>8,.0f} {'':>6} {used / jobs * 1e6:>7.2f} "
            f"{server / jobs * 1e6:>7.2f} {float(log) / jobs:>6,.0f}"
        )
    await connection.close()


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
    with own_server() as server:
        clock = CpuClock(server.pid)
        asyncio.run(compare(server.url, clock, arguments.jobs, arguments.rounds, cases))
        asyncio.run(adding(server.url, clock))
    print(f"\n{'JOBS PER WRITE':>14} {'ONE TASK':>9} {'FIVE TASKS':>10}   µs of CPU time for each job")
    for size in (1, 10, 100, 1000):
        one, five = (cost_of_counting(size, tasks) * 1e6 for tasks in (1, 5))
        print(f"{size:>14,} {one:>9.3f} {five:>10.3f}")


if __name__ == "__main__":
    main()
