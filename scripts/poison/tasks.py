"""What the workers run, and a plugin that counts held jobs. They append to files, which no fault affects."""

from __future__ import annotations

import os
from pathlib import Path

from graphile_worker import JobHelpers, task
from graphile_worker.hooks import Hooks
from graphile_worker.hooks.events import PoolJobsFetched


def _opened(name: str) -> int:
    return os.open(Path(os.environ["POISON_FOLDER"], name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)


_runs, _held = _opened("runs"), _opened("held")


@task
async def short(helpers: JobHelpers) -> None:
    """Notes that it ran, and in which process."""
    os.write(_runs, f"{helpers.job.id} {os.getpid()}\n".encode())


@task
async def poison() -> None:
    """Ends the process at once."""
    os._exit(3)


class HeldJobs:
    """Notes how many jobs each held batch has."""

    def install(self, hooks: Hooks) -> None:
        @hooks.events.on(PoolJobsFetched)
        def note(event: PoolJobsFetched) -> None:
            if event.kind == "held":
                os.write(_held, f"{event.count}\n".encode())
