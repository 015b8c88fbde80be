"""Where `dev` says what happens: lines in a log, or a live view under the lines on a terminal."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Protocol

from ...db.dsn import masked
from ...error_text import message_of
from ..commands.watch import LogTeller, how_it_ended, names
from ..live_view.state import ViewState
from ..watch.child import Reader
from ..watch.reloader import Teller
from .database import DevDatabase

if TYPE_CHECKING:
    from rich.text import Text

    from ...client import WorkerUtils

REFRESH = 0.25
COUNT_EVERY = 1.0
ERROR_PREFIX = "graphile-worker: error: "

logger = logging.getLogger("graphile_worker.dev")


class Stage(Teller, Protocol):
    """What `dev` needs of a place to say things."""

    @property
    def on_line(self) -> Reader | None:
        """Gets the worker's output; None leaves it where it goes by itself."""

    @property
    def on_feed(self) -> Reader | None:
        """Gets what the worker tells of its jobs."""

    def introduce(self, database: DevDatabase) -> None:
        """Say how to reach the database."""

    def showing(self, utils: WorkerUtils) -> AbstractAsyncContextManager[None]:
        """As long as the worker is kept running."""


class LogStage(LogTeller):
    """Plain lines, for pipes and files."""

    on_line: Reader | None = None
    on_feed: Reader | None = None

    def introduce(self, database: DevDatabase) -> None:
        shown = database.url if database.is_embedded else masked(database.url)
        extra = {"connection_string": shown, "database": database.name, "folder": database.folder}
        logger.info("%s is running", database.name, extra=extra)
        if not database.is_embedded:
            return
        logger.info("connect with: %s", database.psql_command)
        logger.info("for applications and other commands: %s", database.export_command)

    @asynccontextmanager
    async def showing(self, utils: WorkerUtils) -> AsyncIterator[None]:
        yield


class LiveStage:
    """A panel at the bottom of the terminal; what the worker prints goes by above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from ..live_view.render import render

        self._state = ViewState(database="")
        self._console = Console(highlight=False)
        self._live = Live(
            console=self._console,
            get_renderable=lambda: render(self._state),
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._last_error = ""

    # -- what the worker says ------------------------------------------------------------------------------

    def on_line(self, line: str) -> None:
        """Print a line of the worker above the panel."""
        from rich.text import Text

        if line.startswith(ERROR_PREFIX):
            self._last_error = line.removeprefix(ERROR_PREFIX).replace(f"{os.getcwd()}/", "")
        self._print(Text.from_ansi(line))

    def on_feed(self, line: str) -> None:
        """Take in what the worker does."""
        from ..live_view.feed import decode

        with suppress(ValueError):
            self._state.told(decode(line), time.monotonic())

    # -- what happens to the worker ------------------------------------------------------------------------

    def started(self, pid: int) -> None:
        self._last_error = ""
        self._state.started()

    def changed(self, paths: list[str]) -> None:
        self._state.restarts += 1
        self._state.ended("restarting", f"{names(paths)} changed")
        self._say(f"{names(paths)} changed; starting the worker anew", "yellow")

    def ended(self, status: int) -> None:
        self._state.ended("waiting", self._last_error or how_it_ended(status))
        self._say(f"{how_it_ended(status)}; waiting for a change of the code", "bold red")

    def stopping(self) -> None:
        self._state.ended("stopping", "")

    # -- the view ------------------------------------------------------------------------------------------

    def introduce(self, database: DevDatabase) -> None:
        self._state.database = database.name
        if not database.is_embedded:
            self._say(f"{database.name} is running.")
            return
        self._say(f"{database.name} is running. To connect, and for applications and other commands:")
        self._say(f"  {database.psql_command}", "cyan")
        self._say(f"  {database.export_command}", "cyan")

    def lines(self) -> io.TextIOBase:
        """A stream for our own log, which ends up above the panel like the worker's."""
        return _Lines(self.on_line)

    @asynccontextmanager
    async def showing(self, utils: WorkerUtils) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(self._count(utils)), asyncio.create_task(self._refresh())]
        try:
            with without_echo(sys.stdin.fileno()):
                self._live.start()
                try:
                    yield
                finally:
                    self._state.ended("stopped", "")
                    with suppress(OSError):
                        self._live.refresh()
                        self._live.stop()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self) -> None:
        while True:
            with suppress(OSError):
                self._live.refresh()
            await asyncio.sleep(REFRESH)

    async def _count(self, utils: WorkerUtils) -> None:
        while True:
            try:
                found = await utils.statistics()
            except Exception as error:  # the server may be away for a while; the worker says more about it
                self._state.counts, self._state.trouble = None, message_of(error)
            else:
                self._state.counts, self._state.is_estimate = found.jobs, found.is_estimate
            await asyncio.sleep(COUNT_EVERY)

    def _say(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._print(Text(line, style))

    def _print(self, text: Text) -> None:
        """Print above the panel; long lines are left to the terminal, so that they can be copied whole."""
        with suppress(OSError):  # the terminal was closed; a signal about that is on its way
            self._console.print(text, soft_wrap=True)


@contextmanager
def without_echo(terminal: int) -> Iterator[None]:
    """Keys that are typed, Ctrl-C among them, do not appear in the middle of the view."""
    if not os.isatty(terminal) or os.tcgetpgrp(terminal) != os.getpgrp():  # in the background: not ours
        yield
        return
    before = termios.tcgetattr(terminal)
    silent = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # it may have been closed
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


class _Lines(io.TextIOBase):
    """A stream that hands on whole lines."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._reader(line)
        return len(text)
