"""The same program as a child process, restarted when files change: `--watch` and `serve(watch=True)`.

The `Reloader` keeps one worker process running the latest code until a signal arrives. The process is the
ordinary command, or the program that called `serve`; only a new one guarantees that no old module survives.
It stops when its parent dies.

SIGHUP restarts the worker, unless there is a terminal that it comes from. A worker that ends on its own, for
example because its code cannot be imported, is restarted only after a change: the old code must not keep
running silently, nor the broken code restart in a loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path
from typing import Protocol

from ...config import Settings
from ...errors import ConfigError
from ...values.text import signal_name
from ..run_service import UNKNOWN_GRACE
from ..signals import PARENT_PIPE, end_by_signal, forwarded_signals, has_terminal
from .files import Changes, WatchedFiles

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


COMMAND = (sys.executable, "-P", "-m", "graphile_worker")
"""The command `graphile-worker`."""
LONGEST_LINE = 1024 * 1024

Reader = Callable[[str], object]
KILL_AFTER = 15.0  # seconds after the worker's own grace
BROKEN_PIPE = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""Exit statuses of a worker whose output lost its reader; a new worker would end in the same way."""


class WatchedChild:
    """A running worker. Its output goes to that of the parent, or to a reader."""

    def __init__(self, process: Process, parent_end: int, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._parent_end = parent_end
        self._readers = readers

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        on_line: Reader | None = None,
    ) -> WatchedChild:
        """Run a program; `on_line` gets its output."""
        child_end, parent_end = os.pipe()
        readers: list[asyncio.Task[None]] = []
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env={**environment, PARENT_PIPE: str(child_end)},
                pass_fds=(child_end,),
                stdin=DEVNULL,
                stdout=PIPE if on_line else None,
                stderr=PIPE if on_line else None,
                limit=LONGEST_LINE,
                process_group=0,  # Ctrl-C reaches the parent only, which forwards it exactly once
            )
        except BaseException:
            os.close(parent_end)
            raise
        finally:
            os.close(child_end)
        if on_line is not None:
            streams = (stream for stream in (process.stdout, process.stderr) if stream is not None)
            readers += [asyncio.create_task(_read(stream, on_line)) for stream in streams]
        return cls(process, parent_end, readers)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Wait until it ends and its output is read; returns the exit status, negative for a signal."""
        status = await self._process.wait()
        await asyncio.gather(*self._readers, return_exceptions=True)
        if self._parent_end >= 0:
            os.close(self._parent_end)
            self._parent_end = -1
        return status

    def send(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


async def _read(stream: asyncio.StreamReader, reader: Reader) -> None:
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # too long; the rest of it follows as another line
            continue
        if not line:
            return
        reader(line.decode(errors="replace").rstrip("\n"))


class WorkerObserver(Protocol):
    """Gets called when something happens to the worker process."""

    def started(self, pid: int) -> None: ...

    def changed(self, paths: list[str]) -> None: ...

    def reloading(self) -> None: ...

    def ended(self, status: int) -> None: ...

    def stopping(self) -> None: ...


class Reloader:
    """`start` starts a worker process; `refresh` is called before each start to update the watched files."""

    def __init__(
        self,
        start: Callable[[], Awaitable[WatchedChild]],
        changes: Changes,
        observer: WorkerObserver,
        *,
        grace: float,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._start = start
        self._changes = changes
        self._observer = observer
        self._kill_after = grace + KILL_AFTER
        self._refresh = refresh
        self._worker: WatchedChild | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._has_terminal = has_terminal()
        self.signal: int | None = None
        """The signal that stopped it."""

    async def run(self) -> None:
        """Run until a signal arrives and the worker has ended."""
        loop = asyncio.get_running_loop()
        handled = forwarded_signals()
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            while not self._stop.is_set():
                await self._one_worker()
        finally:
            for number in handled:
                loop.remove_signal_handler(number)

    async def _one_worker(self) -> None:
        """Run one worker until its code changes or a signal arrives."""
        self._reload.clear()
        self._refresh()
        self._changes.take_snapshot()
        worker = self._worker = await self._start()
        self._observer.started(worker.pid)
        ending = asyncio.ensure_future(worker.wait())
        stopping = asyncio.ensure_future(self._stop.wait())
        changing = asyncio.ensure_future(self._changes.wait())
        reloading = asyncio.ensure_future(self._reload.wait())
        restarts = (stopping, changing, reloading)
        try:
            await asyncio.wait((ending, *restarts), return_when=asyncio.FIRST_COMPLETED)
            if ending.done() and ending.result() in BROKEN_PIPE:
                self._on_signal(signal.SIGPIPE)
                return
            if ending.done() and not any(each.done() for each in restarts):
                self._observer.ended(ending.result())
                await asyncio.wait(restarts, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._observer.stopping()
            elif reloading.done():
                self._observer.reloading()
            else:
                self._observer.changed(changing.result())
                delete_bytecode(changing.result())
        finally:
            for waiting in restarts:
                waiting.cancel()
            await asyncio.gather(changing, return_exceptions=True)
            await self._end(worker, ending)

    async def _end(self, worker: WatchedChild, ending: asyncio.Future[int]) -> None:
        if not ending.done():
            worker.send(self.signal or signal.SIGTERM)
            await asyncio.wait((ending,), timeout=self._kill_after)
        if not ending.done():
            worker.send(signal.SIGKILL)
        await ending
        self._worker = None

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not self._has_terminal:
            self._reload.set()
        elif self.signal is None:
            self.signal = number
            self._stop.set()
        elif self._worker is not None:  # the worker escalates on repeated signals
            self._worker.send(number)


def delete_bytecode(paths: Iterable[str]) -> None:
    """Delete the compiled form of these files.

    Python takes it for fresh if the source has the same size and time in whole seconds, which is too coarse
    when a file is saved twice in a second.
    """
    for path in paths:
        if path.endswith(".py"):
            with suppress(OSError, NotImplementedError):
                os.unlink(cache_from_source(path))
