"""The worker of `dev`: a child process that is restarted when its code changes.

With `dev --no-worker` there is only the database, for a worker that is started elsewhere.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from ...config import Settings
from ...errors import ConfigError
from ...process.signals import REPORTS, forwarded_signals
from ...process.watch.files import Changes
from ...process.watch.watched import COMMAND, Reloader, WatchedChild, watched_files
from .database import DevDatabase
from .display import Display

GRACE = 5.0
"""Seconds for running jobs when the code changes; less than in production, because a developer waits."""
FORWARDED_FLAGS = {
    "schema": "--schema",
    "task_directory": "--tasks",
    "app": "--app",
    "crontab_file": "--crontab",
    "concurrency": "--jobs",
    "log_format": "--log-format",
    "log_level": "--log-level",
    "log_levels": "--log-level",
}
"""Options that the worker gets as flags if `dev` got them as flags."""


class DevWorker:
    """Keeps a worker running until a signal arrives."""

    def __init__(self, load: Callable[[], Settings], config_file: str | None) -> None:
        self._load = load
        self._config_file = config_file
        self._changes = Changes(watched_files(load(), config_file))

    async def run(self, database: DevDatabase, display: Display) -> int | None:
        """Returns the signal that stopped it."""
        settings = self._load()
        command = [*COMMAND, *_arguments(settings, self._config_file)]
        environment = _environment(database, display.reports)

        async def start() -> WatchedChild:
            return await WatchedChild.start(command, environment, on_line=display.on_line)

        reloader = Reloader(start, self._changes, display, grace=_grace(settings), refresh=self._refresh)
        await reloader.run()
        return reloader.signal

    def _refresh(self) -> None:
        try:
            self._changes.files = watched_files(self._load(), self._config_file)
        except ConfigError:  # the worker reports it
            return


def _arguments(settings: Settings, config_file: str | None) -> list[str]:
    """The worker's command line: our flags; it reads file and environment itself."""
    arguments = ["--no-watch", "--processes", "1", "--grace", str(_grace(settings))]
    if config_file is not None:
        arguments += ["--config", config_file]
    for option, flag in FORWARDED_FLAGS.items():
        if "command line" in settings.places.get(option, ""):
            owner = settings.worker if hasattr(settings.worker, option) else settings.process
            value = getattr(owner, option)
            given = [f"{name}={each}" for name, each in value.items()] if isinstance(value, dict) else [value]
            arguments += [part for each in given for part in (flag, str(each))]
    return arguments


def _environment(database: DevDatabase, reports: str | None) -> dict[str, str]:
    """`reports`: where the worker reports what it does."""
    environment = {"DATABASE_URL": database.url} | dict(os.environ)
    # Overrides DATABASE_URL and the file and, unlike a flag, does not appear in the process list.
    environment["GRAPHILE_WORKER_CONNECTION_STRING"] = database.url
    if reports is not None:  # the view counts completed jobs
        environment |= {REPORTS: reports, "PYTHONUNBUFFERED": "1", "NO_LOG_SUCCESS": "1"}
    return environment


def _grace(settings: Settings) -> float:
    return settings.worker.grace if "grace" in settings.places else GRACE


class NoWorker:
    """Waits in place of a worker."""

    async def run(self, database: DevDatabase, display: Display) -> int | None:
        """Wait until a signal arrives; returns it."""
        display.without_worker()
        loop = asyncio.get_running_loop()
        received = loop.create_future()

        def receive(number: int) -> None:
            if not received.done():
                received.set_result(number)

        handled = forwarded_signals()
        for number in handled:
            loop.add_signal_handler(number, receive, number)
        try:
            signal_number: int = await received
            return signal_number
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
