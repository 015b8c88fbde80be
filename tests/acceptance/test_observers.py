"""An observer that never ends cannot keep the process alive past the grace or a second signal."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.command_line import clean_environment
from support.worker_process import WorkerProcess, until_disconnected
from support.working import Jobs

PROGRAM = """
import asyncio, logging, sys
from graphile_worker import run
from graphile_worker.hooks import Events
from graphile_worker.runner import end_by_signal
from graphile_worker.runner.signals import SignalHandling

logging.basicConfig(level="INFO")
SignalHandling.ignore_for = 0.0
events = Events()

@events.on("job:success")
async def never_ends(event):
    print("observing", flush=True)
    await asyncio.Event().wait()

async def quick():
    pass

async def main():
    async with run(task_list={"quick": quick}, events=events, grace=float(sys.argv[1])) as runner:
        await runner.wait()
    print("stopped by", runner.signal, flush=True)
    return runner.signal

end_by_signal(asyncio.run(main()))
"""

Start = Callable[[float], WorkerProcess]


@pytest.fixture
def start(folder: Path, database_url: str) -> Iterator[Start]:
    started: list[WorkerProcess] = []

    def start(grace: float) -> WorkerProcess:
        started.append(
            WorkerProcess(
                [sys.executable, "-c", PROGRAM, str(grace)],
                folder=folder,
                environment=clean_environment(DATABASE_URL=database_url),
            )
        )
        return started[-1]

    yield start
    for process in started:
        process.close()


async def test_an_observer_that_never_ends_is_left_behind_when_the_grace_is_over(
    start: Start, jobs: Jobs
) -> None:
    await jobs.add("quick")
    worker = start(0.5).wait_for("observing")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert f"stopped by {signal.SIGTERM}" in worker.output
    assert await jobs.count() == 0
    await until_disconnected(jobs)


async def test_a_second_signal_does_not_wait_for_an_observer(start: Start, jobs: Jobs) -> None:
    await jobs.add("quick")
    worker = start(3600.0).wait_for("observing")
    worker.send(signal.SIGTERM)
    worker.wait_for("got SIGTERM; waiting for running jobs")
    worker.send(signal.SIGTERM)
    assert worker.ended() == 143
    assert f"stopped by {signal.SIGTERM}" in worker.output
    await until_disconnected(jobs)
