"""Long-running commands as separate processes whose output is captured."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support.command_line import COMMAND, clean_environment
from support.worker_process import WorkerProcess

Run = Callable[..., WorkerProcess]
"""`run("dev", "--plain", DATABASE_URL=…)`"""


@contextmanager
def running_in(directory: Path) -> Iterator[Run]:
    """Gives a function that starts commands; at the end they are stopped, or killed if necessary."""
    started: list[WorkerProcess] = []

    def run(*arguments: object, **environment: str) -> WorkerProcess:
        process = WorkerProcess(
            [*COMMAND, *map(str, arguments)], folder=directory, environment=clean_environment(**environment)
        )
        started.append(process)
        return process

    try:
        yield run
    finally:
        for process in started:
            if process.process.poll() is None:
                process.send(signal.SIGTERM)
                try:
                    process.process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.process.kill()
            process.close()


def command_without(*modules: str, script: str = "") -> list[str]:
    """The command where these packages are not installed."""
    lines = [
        "import sys",
        *(f"sys.modules[{name!r}] = None" for name in modules),
        script,
        "from graphile_worker.cli.main import main",
        "main(sys.argv[1:])",
    ]
    return [sys.executable, "-c", "\n".join(lines)]
