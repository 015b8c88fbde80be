"""Where `dev` shows what happens: log lines, a live view at the bottom of the terminal, and the dashboard.

The dashboard is served, too, if its packages are installed.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import sys
import termios
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from ...config.settings import AdminOptions, split_address
from ...database.connections.dsn import masked
from ...errors import ConfigError
from ...errors.text import message_of
from ...runner.process.watch import Reader, WorkerLog, how_it_ended, names
from .database import DevDatabase
from .render import ViewState

if TYPE_CHECKING:
    import socket

    from rich.text import Text

    from ...client import WorkerUtils

REFRESH_INTERVAL = 0.25
COUNT_INTERVAL = 1.0
ERROR_PREFIX = "graphile-worker: error: "

logger = logging.getLogger("graphile_worker.dev")


class Display(WorkerLog):
    """Log lines, for pipes and files; the base of other displays."""

    reports: str | None = None
    """Where the worker sends reports on its jobs; None if they are not wanted."""

    def __init__(self, *, prints_command: bool) -> None:
        self._prints_command = prints_command

    def show_database(self, database: DevDatabase) -> None:
        """Show how to connect to the database."""
        shown = database.url if database.is_embedded else masked(database.url)
        extra = {"connection_string": shown, "database": database.name, "folder": database.directory}
        logger.info("%s is running", database.name, extra=extra)
        if not database.is_embedded:
            return
        logger.info("to connect: %s", database.psql_command)
        if self._prints_command:
            logger.info("graphile-worker commands in this directory use it by default; for applications:")
            self._print_alone(database.export_command)

    def show_dashboard(self, url: str) -> None:
        """Show where the dashboard is; the address signs in once."""
        if self._prints_command:
            logger.info("the dashboard is running; to sign in, once:")
            self._print_alone(url)
        else:
            logger.info("the dashboard is running", extra={"dashboard": url})

    def without_worker(self) -> None:
        """Show that no worker is started."""
        logger.info("no worker is started; waiting for Ctrl-C")

    @asynccontextmanager
    async def open(self, utils: WorkerUtils) -> AsyncIterator[None]:
        """Keep the display up to date while a worker is kept running."""
        yield

    def _print_alone(self, line: str) -> None:
        """On a line of its own, to be copied or evaluated."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


class LiveDisplay(Display):
    """A panel at the bottom of the terminal; the worker's output scrolls above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        from .render import render

        super().__init__(prints_command=True)
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
        self.on_line = self._on_line

    # -- output of the worker ------------------------------------------------------------------------------

    def _on_line(self, line: str) -> None:
        """Print a line of the worker above the panel."""
        from rich.text import Text

        if line.startswith(ERROR_PREFIX):
            self._last_error = line.removeprefix(ERROR_PREFIX).replace(f"{os.getcwd()}/", "")
        self._print(Text.from_ansi(line))

    # -- life of the worker --------------------------------------------------------------------------------

    def started(self, pid: int) -> None:
        self._last_error = ""
        self._state.started()

    def changed(self, paths: list[str]) -> None:
        self._state.restarts += 1
        self._state.ended("restarting", f"{names(paths)} changed")
        self._print_line(f"{names(paths)} changed; restarting the worker", "yellow")

    def reloading(self) -> None:
        self._state.restarts += 1
        self._state.ended("restarting", "got SIGHUP")
        self._print_line("got SIGHUP; restarting the worker", "yellow")

    def ended(self, status: int) -> None:
        self._state.ended("waiting", self._last_error or how_it_ended(status))
        self._print_line(f"{how_it_ended(status)}; waiting for the code to change", "bold red")

    def stopping(self) -> None:
        self._state.ended("stopping", "")

    def without_worker(self) -> None:
        self._state.status = "none"

    # -- the view ------------------------------------------------------------------------------------------

    def show_database(self, database: DevDatabase) -> None:
        self._state.database = database.name
        self._print_line(f"{database.name} is running.")
        if not database.is_embedded:
            return
        self._print_line(
            "graphile-worker commands in this directory use it. To connect, and for applications:"
        )
        self._print_line(f"  {database.psql_command}", "cyan")
        self._print_line(f"  {database.export_command}", "cyan")

    def show_dashboard(self, url: str) -> None:
        self._print_line("The dashboard, with a link that signs in once:")
        self._print_line(f"  {url}", "cyan")

    def log_stream(self) -> io.TextIOBase:
        """A stream for our own log, whose lines appear above the panel too."""
        return _LineStream(self._on_line)

    @asynccontextmanager
    async def open(self, utils: WorkerUtils) -> AsyncIterator[None]:
        from ...runner.process.reports import receiving
        from .feed import Snapshot

        taken = receiving(Snapshot, lambda report: self._state.update(report, time.monotonic()))
        async with taken as self.reports:
            tasks = [asyncio.create_task(self._count(utils)), asyncio.create_task(self._refresh())]
            try:
                with without_echo(sys.stdin.fileno()):
                    self._live.start()
                    try:
                        yield
                    finally:
                        if self._state.status != "none":
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
            await asyncio.sleep(REFRESH_INTERVAL)

    async def _count(self, utils: WorkerUtils) -> None:
        while True:
            try:
                found = await utils.statistics.jobs()
            except Exception as error:  # the server may be down for a while; the worker reports details
                self._state.counts, self._state.count_error = None, message_of(error)
            else:
                self._state.counts, self._state.is_estimate = found.jobs, found.is_estimate
                self._state.pauses = found.pauses
            await asyncio.sleep(COUNT_INTERVAL)

    def _print_line(self, line: str, style: str = "") -> None:
        from rich.text import Text

        self._print(Text(line, style))

    def _print(self, text: Text) -> None:
        """Print above the panel. The terminal wraps long lines, so that they can be copied whole."""
        with suppress(OSError):  # the terminal was closed; a signal will follow
            self._console.print(text, soft_wrap=True)


@contextmanager
def without_echo(terminal: int) -> Iterator[None]:
    """Keep keys such as Ctrl-C from appearing in the view."""
    if not os.isatty(terminal) or os.tcgetpgrp(terminal) != os.getpgrp():  # not ours in the background
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


class _LineStream(io.TextIOBase):
    """A stream that passes lines to a reader."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def write(self, text: str) -> int:
        for line in text.splitlines():
            self._reader(line)
        return len(text)


@asynccontextmanager
async def dev_dashboard(url: str, schema: str, display: Display) -> AsyncIterator[None]:
    """Serve the dashboard of a database while the block runs. What fails here does not stop the worker."""
    serving = asyncio.create_task(_serve(url, schema, display), name="dashboard")
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)


async def _serve(url: str, schema: str, display: Display) -> None:
    try:
        await asyncio.to_thread(import_module, "graphile_worker.admin.standalone")
    except ModuleNotFoundError as error:
        logger.debug("no dashboard: %s", message_of(error))
        return
    from ...admin.standalone import DashboardServer, standalone

    options = AdminOptions(environment="development", auth="token")
    try:
        host, endpoint = listen_nearby(options)
    except ConfigError as error:
        logger.warning("no dashboard: %s", message_of(error))
        return
    with endpoint:
        port = endpoint.getsockname()[1]
        built = standalone(options, host=host, port=port, connection_string=url, schema=schema)
        display.show_dashboard(built.url(host, port))
        await DashboardServer(built.app, built.admin).run_on(endpoint)


def listen_nearby(options: AdminOptions) -> tuple[str, socket.socket]:
    """A socket on the usual port, or on a free one if another dashboard has it."""
    from ...admin.standalone import listen

    host, port = split_address(options.listen)
    try:
        return host, listen(host, port)
    except ConfigError:
        return host, listen(host, 0)
