"""How fast a worker is with metrics for Prometheus, compared with one without plugins, in the same run.

    python -m benchmarks.observability [--jobs 60000] [--rounds 7]

Starts a server of its own. Each round drains the same number of jobs that do nothing, without a plugin and
with each one, in turn, so that what else the machine does affects all of them alike. The second table is the
cost of counting alone, in µs of CPU time per job.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import asyncpg
from prometheus_client import CollectorRegistry

from graphile_worker import run_migrations, run_once
from graphile_worker.database.embedded import EmbeddedPostgres
from graphile_worker.hooks import Hooks, Plugin
from graphile_worker.hooks.events import PoolOutcomesWritten
from graphile_worker.metrics.catalogue import DURATION, WAIT
from graphile_worker.metrics.counts import WorkerCounts
from graphile_worker.metrics.prometheus import PrometheusPlugin
from graphile_worker.options import WorkerOptions
from graphile_worker.values.job import Job
from graphile_worker.values.outcome import COMPLETED, Finished

ADD = """
select count(*) from graphile_worker.add_jobs(array(
  select row('nothing', '{}'::json, null, null, null, null, null, null)::graphile_worker.job_spec
  from generate_series(1, $1::integer)
))
"""


def no_plugin() -> list[Plugin]:
    return []


def prometheus() -> list[Plugin]:
    return [PrometheusPlugin(CollectorRegistry())]


def opentelemetry() -> list[Plugin]:
    """Sampling 1 %, with the SDK's own exporter to nowhere; left out if the packages are missing."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    from graphile_worker.contrib.opentelemetry import OpenTelemetryPlugin

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.01)))
    return [OpenTelemetryPlugin(tracer_provider=provider)]


VARIANTS: dict[str, Callable[[], list[Plugin]]] = {
    "no plugin": no_plugin,
    "prometheus": prometheus,
    "opentelemetry 1 %": opentelemetry,
}


async def nothing() -> None: ...


class Drained(NamedTuple):
    """One run."""

    rate: float
    """Jobs per second."""
    cost: float
    """Seconds of CPU time of the worker for each job: less noisy on a busy machine."""


async def drain(url: str, jobs: int, plugins: list[Plugin]) -> Drained:
    connection = await asyncpg.connect(url)
    await connection.fetchval(ADD, jobs)
    await connection.execute("vacuum analyze graphile_worker._private_jobs")
    await connection.close()
    options = WorkerOptions(connection_string=url, concurrency=24)
    began, used = time.perf_counter(), time.process_time()
    await run_once(options=options, task_list={"nothing": nothing}, hooks=Hooks(plugins=plugins))
    return Drained(jobs / (time.perf_counter() - began), (time.process_time() - used) / jobs)


async def compare(url: str, jobs: int, rounds: int, variants: dict[str, Callable[[], list[Plugin]]]) -> None:
    await run_migrations(connection_string=url)
    found: dict[str, list[Drained]] = {name: [] for name in variants}
    await drain(url, jobs, [])  # to warm up
    for number in range(rounds):
        names = list(variants) if number % 2 == 0 else list(reversed(variants))
        for name in names:
            found[name].append(await drain(url, jobs, variants[name]()))
    rates = {name: statistics.median(each.rate for each in runs) for name, runs in found.items()}
    costs = {name: min(each.cost for each in runs) for name, runs in found.items()}
    print(f"{'PLUGIN':<18} {'JOBS/S':>8} {'SHARE':>6} {'CPU µs/JOB':>11} {'SHARE':>6}")
    for name in variants:
        share, of_cost = rates[name] / rates["no plugin"], costs["no plugin"] / costs[name]
        print(f"{name:<18} {rates[name]:>8,.0f} {share:>6.3f} {costs[name] * 1e6:>11.2f} {of_cost:>6.3f}")


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
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    variants = dict(VARIANTS)
    try:
        opentelemetry()
    except ImportError as error:
        print(f"without OpenTelemetry: {error}")
        del variants["opentelemetry 1 %"]
    with tempfile.TemporaryDirectory(prefix="graphile-worker-bench-") as folder:
        Path(folder).chmod(0o711)
        with EmbeddedPostgres(Path(folder) / "postgres") as server:
            asyncio.run(compare(server.url(), arguments.jobs, arguments.rounds, variants))
    print(f"\n{'JOBS PER WRITE':>14} {'ONE TASK':>9} {'FIVE TASKS':>10}")
    for size in (1, 10, 100, 1000):
        one, five = (cost_of_counting(size, tasks) * 1e6 for tasks in (1, 5))
        print(f"{size:>14,} {one:>9.3f} {five:>10.3f}")


if __name__ == "__main__":
    main()
