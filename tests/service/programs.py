"""Programs that call `serve`, as real processes without a controlling terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.command_line import clean_environment
from support.worker_process import WorkerProcess

PROGRAM = """\
import asyncio, os
from graphile_worker import serve, task

@task
async def hello(payload, helpers):
    helpers.logger.info("hello from {version} in process %d", os.getpid())

@task
async def wait(payload, helpers):
    helpers.logger.info("waiting in process %d", os.getpid())
    while not os.path.exists("go_on"):
        await asyncio.sleep(0.01)

if __name__ == "__main__":
    serve(task_list=[hello, wait], {arguments})
    print("never printed")
"""

Start = Callable[..., WorkerProcess]
"""`start("worker.py", DATABASE_URL=…)`"""


def write_program(path: Path, arguments: str = "", *, version: str = "one") -> None:
    """A program that serves two tasks with these arguments."""
    path.write_text(PROGRAM.format(arguments=arguments, version=version))


@contextmanager
def starting_programs(folder: Path) -> Iterator[Start]:
    """A function that starts `python` with these arguments; programs left at the end are killed."""
    started: list[WorkerProcess] = []

    def start(*arguments: object, **environment: str) -> WorkerProcess:
        process = WorkerProcess(
            [sys.executable, *map(str, arguments)],
            folder=folder,
            environment=clean_environment(**environment),
            new_session=True,
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.close()
