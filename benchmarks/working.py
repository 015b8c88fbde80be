"""How fast jobs run whose tasks do something, and what limits them.

    python -m benchmarks.working
    python -m benchmarks.working --only "wait 5 ms" query --slots 10 1000 --seconds 10 --rounds 5

Starts a server of its own. The cases take turns. The rate is that of the jobs after the first fifth, the
median of the rounds; the other columns belong to that round. SHARE is that of the ideal: slots divided by the
duration of a task, where the interpreter or the processors run so many at once, and not more than all
processors allow at this cost. WORKER and SERVER are µs of CPU time for each job, with that of the task.
PYTHON is how busy the worker's interpreter was, CPUS how busy all processors were with worker and server,
OTHERS with other programs. LIMIT is what to change first:

    tasks          the slots are busy with tasks nearly all the time: more slots, or faster tasks
    interpreter    one core is busy with the worker's Python code: more worker processes
    connections    tasks wait for one longer than for the answer to their query: a larger `max_pool_size`
    processors     worker and server together use all of them: more of them
    others         other programs use a good part of the processors: measure again on a quiet machine
    server         the worker waits for fetches and commits

A second table says whether a worker leaves something to a second one; see `benchmarks/sharing.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from statistics import median_low
from typing import Any

from benchmarks import sharing
from benchmarks.own_server import OwnServer, own_server
from benchmarks.scratch import Scratch, scratch
from benchmarks.worker_process import worker_process
from benchmarks.working_tasks import (
    compute,
    compute_in_process,
    compute_in_thread,
    query,
    read,
    wait,
    wait_in_process,
    wait_in_thread,
)

from graphile_worker import JobSpec, WorkerUtils, make_worker_utils
from graphile_worker.options import WorkerOptions

MODULE = "benchmarks.working_tasks"
CPUS = os.cpu_count() or 1
SECONDS = 2.0
TRIVIAL_RATE = 10_000  # jobs per second, about, on a small machine; says how many jobs are needed
NEARLY = 0.85
FEW_OTHERS = 0.15
BATCH_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """A load: tasks of one kind, in one way to run them."""

    load: str
    way: str
    task: Any
    payload: Callable[[int], Any]
    _: KW_ONLY
    seconds: float = 0.0
    """How long a task takes on average."""
    at_once: float = float("inf")
    """How many tasks can run at once, however many slots there are."""
    slots: tuple[int, ...] = (10,)
    bytes: int = 100
    """The size of a payload."""
    connections: int = WorkerOptions().max_pool_size

    @property
    def name(self) -> str:
        more = self.connections > WorkerOptions().max_pool_size
        return f"{self.load}, {self.connections} connections" if more else self.load

    def tasks_bound(self, slots: int) -> float:
        """Jobs per second that the tasks allow."""
        return min(slots, self.at_once) / self.seconds if self.seconds else float("inf")

    def jobs(self, slots: int, seconds: float) -> int:
        """How many jobs take about this long."""
        rate = min(self.tasks_bound(slots), TRIVIAL_RATE, 200_000_000 / self.bytes)
        return max(2 * slots, int(seconds * rate), 20)


def takes(seconds: float) -> Callable[[int], Any]:
    return lambda number: {"seconds": seconds}


def mixed(number: int) -> dict[str, float]:
    """Most do nothing, one in twenty takes 20 ms, one in two hundred 200 ms."""
    return {"seconds": 0.2 if number % 200 == 0 else 0.02 if number % 20 == 0 else 0.0}


MIXED_MEAN = sum(mixed(number)["seconds"] for number in range(200)) / 200


def text(size: int) -> Callable[[int], Any]:
    """Texts that PostgreSQL can compress as little as it can usual ones."""
    words = [f"{random.Random(number).getrandbits(40):x} " for number in range(5000)]

    def make(number: int) -> dict[str, str]:
        return {"text": "".join(random.Random(number).choices(words, k=size // 11 + 1))[:size]}

    return make


FEW, SOME, MANY = 10, 100, 1000
CASES = (
    Case("wait 5 ms", "async", wait, takes(0.005), seconds=0.005, slots=(FEW, SOME, MANY)),
    Case("wait 5 ms", "def", wait_in_thread, takes(0.005), seconds=0.005, slots=(FEW, SOME)),
    Case("wait 5 ms", "process", wait_in_process, takes(0.005), seconds=0.005, at_once=CPUS),
    Case("compute 1 ms", "async", compute, takes(0.001), seconds=0.001, at_once=1, slots=(FEW, SOME)),
    Case("compute 1 ms", "def", compute_in_thread, takes(0.001), seconds=0.001, at_once=1),
    Case("compute 1 ms", "process", compute_in_process, takes(0.001), seconds=0.001, at_once=CPUS),
    Case("query", "async", query, takes(0), slots=(FEW, SOME, MANY)),
    Case("query", "async", query, takes(0), slots=(SOME,), connections=30),
    Case("mixed", "async", wait, mixed, seconds=MIXED_MEAN, slots=(FEW, SOME)),
    *(
        Case(f"payload {size} kB", "async", read, text(size * 1000), bytes=size * 1000)
        for size in (1, 10, 100)
    ),
)
LOADS = tuple(dict.fromkeys(case.load for case in CASES))
WAYS = ("async", "def", "process")


@dataclass(frozen=True, slots=True)
class Run:
    """What a worker process reported."""

    executed: int
    rate: float
    worker: float
    server: float
    interpreter_busy: float
    machine_busy: float
    waiting_for_connections: float

    @property
    def cpus_busy(self) -> float:
        return self.rate * (self.worker + self.server) / CPUS

    @property
    def others_busy(self) -> float:
        """The share of the processors that other programs had."""
        return max(0.0, self.machine_busy / CPUS - self.cpus_busy)

    def ideal(self, tasks_bound: float) -> float:
        cost = self.worker + self.server
        return min(tasks_bound, CPUS / cost if cost else float("inf"))

    def limit(self, tasks_bound: float) -> str:
        """What keeps it from being faster."""
        if self.rate > NEARLY * tasks_bound:
            return "tasks"
        if self.waiting_for_connections > 0.5:
            return "connections"
        if self.interpreter_busy > NEARLY:
            return "interpreter"
        if self.cpus_busy + self.others_busy > NEARLY:
            return "processors" if self.others_busy < FEW_OTHERS else "others"
        return "server"


async def add(utils: WorkerUtils, case: Case, jobs: int) -> None:
    batch = max(1, min(5000, BATCH_BYTES // case.bytes))
    for first in range(0, jobs, batch):
        numbers = range(first, min(jobs, first + batch))
        await utils.add_jobs(
            [JobSpec(case.task.identifier, case.payload(number)) for number in numbers], return_jobs=False
        )


async def measure(place: Scratch, server: OwnServer, case: Case, slots: int, jobs: int) -> Run:
    await place.clear()
    async with make_worker_utils(options=place.options) as utils:
        await add(utils, case, jobs)
    await place.settle()
    options = place.options.with_values(concurrency=slots, max_pool_size=case.connections)
    async with worker_process("work", options, module=MODULE, jobs=jobs, server=server.pid) as worker:
        await worker.receive()
        await worker.begin()
        run = Run(**await worker.receive())
    if run.executed != jobs:
        raise RuntimeError(f"{run.executed:,} of {jobs:,} jobs ran")
    return run


def chosen_cases(
    loads: Sequence[str], ways: Sequence[str], slots: Sequence[int]
) -> Iterator[tuple[Case, int]]:
    for case in CASES:
        if case.load in loads and case.way in ways:
            yield from ((case, number) for number in slots or case.slots)


async def main(
    server: OwnServer, cases: Sequence[tuple[Case, int]], seconds: float, rounds: int, second_worker: bool
) -> None:
    async with scratch(server.url) as place:
        runs: list[list[Run]] = [[] for _ in cases]
        for _ in range(rounds):
            for (case, slots), found in zip(cases, runs, strict=True):
                found.append(await measure(place, server, case, slots, case.jobs(slots, seconds)))
        print(
            f"{'LOAD':<22} {'TASKS':<8} {'SLOTS':>5} {'JOBS':>7} {'JOBS/S':>8} {'SHARE':>5} "
            f"{'WORKER':>7} {'SERVER':>7} {'PYTHON':>6} {'CPUS':>5} {'OTHERS':>6}  LIMIT"
        )
        for (case, slots), found in zip(cases, runs, strict=True):
            rate = median_low(run.rate for run in found)
            run = next(each for each in found if each.rate == rate)
            bound = case.tasks_bound(slots)
            print(
                f"{case.name:<22} {case.way:<8} {slots:>5,} {case.jobs(slots, seconds):>7,} {rate:>8,.0f} "
                f"{rate / run.ideal(bound):>5.2f} {run.worker * 1e6:>7,.0f} {run.server * 1e6:>7,.0f} "
                f"{run.interpreter_busy:>6.0%} {run.cpus_busy:>5.0%} {run.others_busy:>6.0%}  "
                f"{run.limit(bound)}"
            )
        if second_worker:
            await sharing.compare(place, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=LOADS, choices=LOADS, metavar="LOAD", help=", ".join(LOADS)
    )
    parser.add_argument("--tasks", nargs="+", default=WAYS, choices=WAYS, help="how they are written and run")
    parser.add_argument(
        "--slots", nargs="+", type=int, default=[], metavar="N", help="instead of 10, 100, 1,000"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a run takes, about")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-second-worker", action="store_true", help="only the first table")
    chosen = parser.parse_args()
    logging.disable(logging.ERROR)
    picked = list(chosen_cases(chosen.only, chosen.tasks, chosen.slots))
    with own_server() as started:
        asyncio.run(main(started, picked, chosen.seconds, chosen.rounds, not chosen.no_second_worker))
