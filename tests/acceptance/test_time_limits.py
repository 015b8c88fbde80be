"""Tasks that do not end when their time is up, in real processes: the worker goes on, and ends in time."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.dead import QUICK_ENVIRONMENT
from service.probes import address_of, probe
from support.worker_process import Start, WorkerProcess
from support.working import Jobs, headline, until

TASKS = """
import asyncio
import os
import time

from graphile_worker import task

@task(timeout=0.2)
async def swallow():
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

@task(timeout=0.2)
def stuck():
    while True:
        time.sleep(600)

@task
async def busy():
    while not os.path.exists("go_on"):
        await asyncio.sleep(0.01)

@task
async def hello():
    print(f"hello from {os.getpid()}", flush=True)
"""
EXECUTABLE = """#!/bin/sh
trap '' TERM
while true; do sleep 0.05; done
"""
GRACE = 2.0  # seconds

Begin = Callable[..., WorkerProcess]


@pytest.fixture
def begin(start: Start, folder: Path, database_url: str) -> Begin:
    """Start a worker with these tasks."""
    tasks = folder / "endless"
    tasks.mkdir()
    (tasks / "tasks.py").write_text(TASKS)
    (tasks / "ignore").write_text(EXECUTABLE)
    (tasks / "ignore").chmod(0o755)

    def begin(*arguments: object, **environment: str) -> WorkerProcess:
        limits = {"GRAPHILE_WORKER_TIMEOUT_GRACE": "0.2", **QUICK_ENVIRONMENT, **environment}
        return start(*arguments, url=database_url, tasks=tasks, **limits)

    return begin


async def is_unlocked(jobs: Jobs, job_id: int) -> bool:
    return any(row["id"] == job_id and row["locked_at"] is None for row in await jobs.all())


def processes_of(program: Path) -> list[int]:
    """The processes that run this script."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            if os.fsencode(program) in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


@pytest.mark.parametrize("kind", ["swallow", "stuck", "ignore"])
async def test_the_worker_goes_on_says_so_and_ends_in_time(
    begin: Begin, jobs: Jobs, folder: Path, kind: str
) -> None:
    flags = ["py:timeout=0.2"] if kind == "ignore" else None
    job_id = await jobs.add(kind, max_attempts=1, flags=flags)
    worker = begin("--grace", GRACE).wait_for("the task ran longer than its time limit of 0.2 s")
    if kind == "ignore":  # its own output may be missing: a busy machine may not get that far in time
        await until(lambda: not processes_of(folder / "endless" / kind))
    else:
        worker.wait_for(f"task {kind} (job {job_id}) leaked")
    await until(lambda: is_unlocked(jobs, job_id))
    assert headline(await jobs.one()) == "the task ran longer than its time limit of 0.2 s"
    await jobs.add("hello")
    worker.wait_for("hello from")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM  # the task would never end by itself
    assert "Task was destroyed" not in worker.output


@pytest.mark.parametrize("kind", ["swallow", "stuck"])
async def test_a_worker_with_too_many_such_tasks_exits_with_a_status_of_its_own(
    begin: Begin, jobs: Jobs, kind: str
) -> None:
    for _ in range(2):
        await jobs.add(kind, max_attempts=1)
    worker = begin("--grace", GRACE, GRAPHILE_WORKER_MAX_LEAKED_TASKS="1")
    assert worker.ended() == 58
    last = worker.output.strip().splitlines()[-1]
    assert "graphile-worker: error: 2 tasks did not end when asked to and still run" in worker.output, last
    assert await jobs.locked() == 0


async def test_a_probe_tells_that_the_worker_must_be_replaced(begin: Begin, jobs: Jobs, folder: Path) -> None:
    await jobs.add("busy")
    await jobs.add("stuck", max_attempts=1)
    worker = begin("-j", 2, "--http-port", 0, GRAPHILE_WORKER_MAX_LEAKED_TASKS="0")
    at = address_of(worker)

    async def must_be_replaced() -> bool:
        found = await probe(at, "/livez")
        return found.status == 503 and "the worker cannot continue: 1 task did not end" in found.problems

    await until(must_be_replaced)
    (folder / "go_on").touch()
    assert worker.ended() == 58
    assert await jobs.count() == 1


async def test_a_parent_replaces_a_worker_with_too_many_such_tasks(begin: Begin, jobs: Jobs) -> None:
    worker = begin("--processes", 2, "--grace", GRACE, GRAPHILE_WORKER_MAX_LEAKED_TASKS="0")
    worker.wait_for("ready: graphile-worker", times=2)
    await jobs.add("stuck", max_attempts=1)
    worker.wait_for("stopped because too many of its tasks did not end; starting another")
    worker.wait_for("ready: graphile-worker", times=3)
    await jobs.add("hello")
    worker.wait_for("hello from")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 128 + signal.SIGTERM
