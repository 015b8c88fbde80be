"""What `graphile-worker --watch` does: the same worker in a child process, and a parent that watches."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...config import Settings
from ...errors import ConfigError
from ...signal_names import signal_name
from ..watch.changes import Changes
from ..watch.child import WorkerProcess
from ..watch.files import WatchedFiles
from ..watch.reloader import Reloader, end_by

CONFIG_FILES = ("graphile_worker.toml", "pyproject.toml")
MOST_NAMES = 3

logger = logging.getLogger("graphile_worker.watch")


def run_watched(
    arguments: Sequence[str], load: Callable[[], Settings], *, config_file: str | None = None
) -> int:
    """Run the worker that the arguments ask for, anew after each change; returns the exit status."""
    reloader = asyncio.run(_run(arguments, load, config_file))
    return end_by(reloader.signal) if reloader.signal is not None else 0


async def _run(arguments: Sequence[str], load: Callable[[], Settings], config_file: str | None) -> Reloader:
    settings = load()
    changes = Changes(files_of(settings, config_file))

    async def start() -> WorkerProcess:
        return await WorkerProcess.start([*arguments, "--no-watch"], os.environ)

    def refresh() -> None:
        try:
            changes.files = files_of(load(), config_file)
        except ConfigError:  # the worker will say so itself; its files are where they were
            return

    reloader = Reloader(start, changes, LogTeller(), grace=settings.worker.grace, refresh=refresh)
    await reloader.run()
    return reloader


def files_of(settings: Settings, config_file: str | None) -> WatchedFiles:
    """What to watch for a worker with these settings in the current folder."""
    folder = Path.cwd()
    config = [folder / config_file] if config_file is not None else [folder / name for name in CONFIG_FILES]
    return WatchedFiles(
        root=folder,
        tasks=folder / settings.worker.task_directory.partition(":")[0],
        others=(folder / settings.worker.crontab_file, *config),
    )


class LogTeller:
    """Says in the log what happens to the worker process."""

    def started(self, pid: int) -> None:
        logger.debug("started the worker as process %d", pid)

    def changed(self, paths: list[str]) -> None:
        logger.info("%s changed; starting the worker anew", names(paths), extra={"paths": paths})

    def ended(self, status: int) -> None:
        logger.error("%s; waiting for a change of the code", how_it_ended(status), extra={"status": status})

    def stopping(self) -> None:
        logger.debug("stopping the worker")


def names(paths: Sequence[str]) -> str:
    """A few of the files, as seen from the current folder."""
    shown = [os.path.relpath(path) for path in paths[:MOST_NAMES]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        return f"the worker was ended by {signal_name(-status)}"
    return f"the worker ended with status {status}"
