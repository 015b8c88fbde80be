"""The same program as a child process, restarted when files change: `--watch` and `serve(watch=True)`."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ...config import Settings
from ...errors import ConfigError
from ...values.text import signal_name
from ..run_service import UNKNOWN_GRACE
from ..signals import end_by_signal
from .files import Changes, WatchedFiles
from .reloader import Reloader, WatchedChild

CONFIG_FILES = ("graphile_worker.toml", "pyproject.toml")
MOST_NAMES = 3

logger = logging.getLogger("graphile_worker.watch")


def run_watched(
    command: Sequence[str],
    load: Callable[[], Settings],
    *,
    config_file: str | None = None,
    program: str | None = None,
) -> int:
    """Run a worker with this command and restart it after each change; returns the exit status.

    `program` is a file that counts too.
    """
    reloader = asyncio.run(_run(command, load, config_file, program))
    return end_by_signal(reloader.signal) if reloader.signal is not None else 0


async def _run(
    command: Sequence[str], load: Callable[[], Settings], config_file: str | None, program: str | None
) -> Reloader:
    settings = load()
    changes = Changes(watched_files(settings, config_file, program))

    async def start() -> WatchedChild:
        return await WatchedChild.start(command, os.environ)

    def refresh() -> None:
        try:
            changes.files = watched_files(load(), config_file, program)
        except ConfigError:  # the worker reports it; the files are the same as before
            return

    knows_grace = not settings.process.app or "grace" in settings.places  # the app may set it
    grace = settings.worker.grace if knows_grace else UNKNOWN_GRACE
    reloader = Reloader(start, changes, WorkerLog(), grace=grace, refresh=refresh)
    await reloader.run()
    return reloader


def watched_files(settings: Settings, config_file: str | None, program: str | None = None) -> WatchedFiles:
    """The files to watch for a worker with these settings in the current directory."""
    directory = Path.cwd()
    config = [directory / name for name in ([config_file] if config_file is not None else CONFIG_FILES)]
    return WatchedFiles(
        root=directory,
        tasks=directory / settings.worker.task_directory.partition(":")[0],
        others=(
            directory / settings.worker.crontab_file,
            *_app_file(settings),
            *config,
            *([directory / program] if program is not None else []),
        ),
    )


def _app_file(settings: Settings) -> list[Path]:
    """The file of an app that is named by it, as in ../worker.py:app."""
    place = (settings.process.app or "").rpartition(":")[0]
    return [Path.cwd() / place] if place.endswith(".py") else []


class WorkerLog:
    """Logs what happens to the worker process."""

    def started(self, pid: int) -> None:
        logger.debug("started the worker as process %d", pid)

    def changed(self, paths: list[str]) -> None:
        logger.info("%s changed; restarting the worker", names(paths), extra={"paths": paths})

    def ended(self, status: int) -> None:
        logger.error("%s; waiting for the code to change", how_it_ended(status), extra={"status": status})

    def reloading(self) -> None:
        logger.info("got SIGHUP; restarting the worker")

    def stopping(self) -> None:
        logger.debug("stopping the worker")


def names(paths: Sequence[str]) -> str:
    """The first few files, relative to the current directory."""
    shown = [os.path.relpath(path) for path in paths[:MOST_NAMES]]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def how_it_ended(status: int) -> str:
    """An exit status in words."""
    if status < 0:
        return f"the worker was killed by {signal_name(-status)}"
    return f"the worker exited with status {status}"
