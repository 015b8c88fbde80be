"""Tasks that do something, and the worker processes that run them for `working.py` and `sharing.py`."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, NamedTuple

from benchmarks.own_server import CpuClock, machine_seconds
from benchmarks.worker_process import Orders, begin, main, send

from graphile_worker import JobHelpers, run, run_once, task
from graphile_worker.hooks import Events
from graphile_worker.hooks.events import PoolOutcomesWritten
from graphile_worker.options import WorkerOptions

QUERY = "select count(*) from generate_series(1, 100)"


class Connections:
    """How long tasks waited for a connection, and how long for the answer to their query."""

    waited = queried = 0.0


@task
async def wait(payload: dict[str, float]) -> None:
    await asyncio.sleep(payload["seconds"])


@task
def wait_in_thread(payload: dict[str, float]) -> None:
    time.sleep(payload["seconds"])


@task(executor="process")
def wait_in_process(payload: dict[str, float]) -> None:
    time.sleep(payload["seconds"])


@task
async def compute(payload: dict[str, float]) -> None:
    _compute(payload["seconds"])


@task
def compute_in_thread(payload: dict[str, float]) -> None:
    _compute(payload["seconds"])


@task(executor="process")
def compute_in_process(payload: dict[str, float]) -> None:
    _compute(payload["seconds"])


@task
async def query(payload: dict[str, float], helpers: JobHelpers) -> None:
    asked = time.perf_counter()
    async with helpers.with_pg_client() as connection:
        given = time.perf_counter()
        await connection.fetch(QUERY)
    Connections.waited += given - asked
    Connections.queried += time.perf_counter() - given


@task
async def read(payload: dict[str, str]) -> None:
    assert payload["text"]


@task
async def slow(payload: dict[str, float]) -> None:
    send(time.monotonic())
    await asyncio.sleep(payload["seconds"])


@task
async def quick() -> None: ...


TASKS: list[Any] = [
    wait, wait_in_thread, wait_in_process, compute, compute_in_thread, compute_in_process, query, read,
]  # fmt: skip


def _compute(seconds: float) -> None:
    """Keep a processor busy for so long; what other threads use does not count."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Moment(NamedTuple):
    """What has happened until then, in jobs and seconds."""

    at: float
    jobs: int
    interpreter: float
    """CPU time of the worker without other processes: an event loop and threads share one interpreter."""
    worker: float
    server: float
    machine: float


class Progress:
    """Notes what was used when the first fifth of the outcomes was written, and when all were."""

    def __init__(self, jobs: int, server: int) -> None:
        self._jobs = jobs
        self._written = 0
        self._worker, self._server = CpuClock(os.getpid()), CpuClock(server)
        self.moments = [self._moment()]

    def written(self, event: PoolOutcomesWritten) -> None:
        self._written += event.completed + event.failed
        is_warm = len(self.moments) == 1 and self._written >= self._jobs / 5
        if is_warm or self._written == self._jobs:
            self.moments.append(self._moment())

    def _moment(self) -> Moment:
        return Moment(
            time.perf_counter(),
            self._written,
            time.process_time(),
            self._worker.seconds(),
            self._server.seconds(),
            machine_seconds(),
        )


async def work(options: WorkerOptions, orders: Orders) -> None:
    """Run all jobs and report what they needed, but for the first fifth, when processes start."""
    events = Events()
    await begin()
    progress = Progress(orders["jobs"], orders["server"])
    events.on(PoolOutcomesWritten, progress.written)
    await run_once(options=options, task_list=TASKS, events=events)
    start, first, *later = progress.moments
    end = later[-1] if later else first
    if first.jobs > end.jobs / 2:  # too few writes to leave the first ones out
        first = start
    used = Moment._make(after - before for before, after in zip(first, end, strict=True))
    busy = Connections.waited + Connections.queried
    send(
        {
            "executed": end.jobs,
            "rate": used.jobs / used.at,
            "worker": used.worker / used.jobs,
            "server": used.server / used.jobs,
            "interpreter_busy": used.interpreter / used.at,
            "machine_busy": used.machine / used.at,
            "waiting_for_connections": Connections.waited / busy if busy else 0.0,
        }
    )


async def share(options: WorkerOptions, orders: Orders) -> None:
    """Run jobs until the benchmark ends the process; report the time of each start on the shared clock."""
    await begin()
    tasks: list[Any] = [slow, quick]
    async with run(options=options, task_list=tasks) as runner:
        send({"up": time.monotonic()})
        await runner.wait()


if __name__ == "__main__":
    main({"work": work, "share": share})
