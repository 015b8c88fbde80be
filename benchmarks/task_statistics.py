"""What counting statistics costs the worker, in µs of CPU time per job, by the number of jobs in one write.

    python -m benchmarks.task_statistics

Needs no database. At 60,000 jobs per second, a job that does nothing takes 16 µs altogether.
"""

from __future__ import annotations

import random
import time

from graphile_worker.metrics.minutes import StatisticsCounter
from graphile_worker.values.job import Job
from graphile_worker.values.outcome import COMPLETED, Finished

RUNS = 30
JOBS = 5_000  # in one run


def finished(number: int, task: str) -> Finished:
    job = Job(
        number, "{}", 0, 1e9 + number, 1, 25, None, None, None, None, 1e9 + number + 0.004, 0, None, 1, None,
        "pool", task,
    )  # fmt: skip
    return Finished(job, COMPLETED, "worker", random.random() / 1000)


def cost(size: int, tasks: int) -> float:
    """Seconds per job, of the best run."""
    names = [f"task {number}" for number in range(tasks)]
    batch = [finished(number, names[number % tasks]) for number in range(size)]
    counter = StatisticsCounter(dict.fromkeys(names))
    writes = max(1, JOBS // size)
    best = float("inf")
    for _ in range(RUNS):
        began = time.thread_time()
        for _ in range(writes):
            counter.count(batch, frozenset(), has_failures=False)
        best = min(best, (time.thread_time() - began) / writes / size)
    return best


def main() -> None:
    print(f"{'JOBS PER WRITE':>14} {'ONE TASK':>9} {'FIVE TASKS':>10}")
    for size in (1, 10, 100, 500, 1000, 2000):
        one, five = (cost(size, tasks) * 1e6 for tasks in (1, 5))
        print(f"{size:>14,} {one:>9.3f} {five:>10.3f}")


if __name__ == "__main__":
    main()
