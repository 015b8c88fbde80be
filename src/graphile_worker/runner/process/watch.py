"""The same program as a child process, restarted when files change: `--watch` and `serve(watch=True)`.

The `Reloader` keeps one worker process running the latest code until a signal arrives. The process is the
ordinary command, or the program that called `serve`; only a new one guarantees that no old module survives.
It stops when its parent dies.

SIGHUP restarts the worker, unless there is a terminal that it comes from. A worker that ends on its own, for
example because its code cannot be imported, is restarted only after a change: the old code must not keep
running silently, nor the broken code restart in a loop.

Watched are all Python files below the current directory, because tasks import the application, and all files
in the task directory, because any may be an executable task or be read by one. Comparing the files
themselves, instead of relying on notifications of the operating system, misses no change.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

from ...config import Settings
from ...errors import ConfigError
from ...values.text import signal_name
from .run_service import UNKNOWN_GRACE
from .signals import PARENT_PIPE, end_by_signal, forwarded_signals, has_terminal

COMMAND = (sys.executable, "-P", "-m", "graphile_worker")
"""The command `graphile-worker`."""
CONFIG_FILES = ("graphile_worker.toml", "pyproject.toml")
MOST_NAMES = 3
LONGEST_LINE = 1024 * 1024
KILL_AFTER = 15.0  # seconds after the worker's own grace
BROKEN_PIPE = (-signal.SIGPIPE, 128 + signal.SIGPIPE)
"""Exit statuses of a worker whose output lost its reader; a new worker would end in the same way."""

Reader = Callable[[str], object]

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
    reloader = Reloader(load, WorkerLog(), config_file=config_file, program=program)
    number = asyncio.run(reloader.run(command, os.environ))
    return end_by_signal(number) if number is not None else 0


class WorkerLog:
    """Logs what happens to the worker process."""

    on_line: Reader | None = None
    """Gets the worker's output; None if that is not captured."""

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
    if status < 0:
        return f"the worker was killed by {signal_name(-status)}"
    return f"the worker exited with status {status}"


class WatchedChild:
    """A running worker. Its output goes to that of the parent, or to a reader."""

    def __init__(self, process: Process, parent_end: int, readers: Sequence[asyncio.Task[None]]) -> None:
        self._process = process
        self._parent_end = parent_end
        self._readers = readers

    @classmethod
    async def start(
        cls, command: Sequence[str], environment: Mapping[str, str], *, on_line: Reader | None = None
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


class Reloader:
    """Keeps a worker running; tells `log` what happens to it."""

    def __init__(
        self,
        load: Callable[[], Settings],
        log: WorkerLog,
        *,
        config_file: str | None = None,
        program: str | None = None,
        grace: float | None = None,
    ) -> None:
        """`load` reads the settings, which say what to watch; `grace` is in place of theirs."""
        self._load = load
        self._log = log
        self._others = (config_file, program)
        settings = load()
        if grace is None:
            grace = UNKNOWN_GRACE if settings.grace is None else settings.grace
        self._kill_after = grace + KILL_AFTER
        self._changes = Changes(watched_files(settings, *self._others))
        self._worker: WatchedChild | None = None
        self._stop = asyncio.Event()
        self._reload = asyncio.Event()
        self._has_terminal = has_terminal()
        self._signal: int | None = None

    async def run(self, command: Sequence[str], environment: Mapping[str, str]) -> int | None:
        """Run until a signal arrives and the worker has ended; returns the signal."""
        loop = asyncio.get_running_loop()
        handled = forwarded_signals()
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            while not self._stop.is_set():
                await self._one_worker(command, environment)
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
        return self._signal

    async def _one_worker(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run one worker until its code changes or a signal arrives."""
        self._reload.clear()
        with suppress(ConfigError):  # the worker reports it; the files are the same as before
            self._changes.files = watched_files(self._load(), *self._others)
        self._changes.take_snapshot()
        worker = self._worker = await WatchedChild.start(command, environment, on_line=self._log.on_line)
        self._log.started(worker.pid)
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
                self._log.ended(ending.result())
                await asyncio.wait(restarts, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                self._log.stopping()
            elif reloading.done():
                self._log.reloading()
            else:
                self._log.changed(changing.result())
                delete_bytecode(changing.result())
        finally:
            for waiting in restarts:
                waiting.cancel()
            await asyncio.gather(changing, return_exceptions=True)
            await self._end(worker, ending)

    async def _end(self, worker: WatchedChild, ending: asyncio.Future[int]) -> None:
        if not ending.done():
            worker.send(self._signal or signal.SIGTERM)
            await asyncio.wait((ending,), timeout=self._kill_after)
        if not ending.done():
            worker.send(signal.SIGKILL)
        await ending
        self._worker = None

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGHUP and not self._has_terminal:
            self._reload.set()
        elif self._signal is None:
            self._signal = number
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


# -- watched files -----------------------------------------------------------------------------------------

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages"})
MAX_DIRECTORIES = 5_000
"""Limits the search: a worker may be started in a home directory."""

Fingerprint = dict[str, tuple[int, int]]
"""The modification time and size of each file."""


@dataclass(frozen=True, slots=True)
class WatchedFiles:
    """Python files below `root`, all files in `tasks`, and `others` if they exist."""

    root: Path
    tasks: Path
    others: tuple[Path, ...] = ()

    def directories(self) -> list[str]:
        found = {*_directories(self.root), *(_directories(self.tasks) if self.tasks.is_dir() else ())}
        parents = {str(path.parent) for path in (self.tasks, *self.others) if path.parent.is_dir()}
        return sorted(found | parents)

    def fingerprint(self) -> Fingerprint:
        """The current state of the files."""
        found: Fingerprint = {}
        for directory in _directories(self.root):
            _add(found, (entry for entry in _files(directory) if entry.name.endswith(".py")))
        for directory in _directories(self.tasks) if self.tasks.is_dir() else ():
            _add(found, (entry for entry in _files(directory) if _is_source(entry.name)))
        for path in (self.tasks, *self.others):
            if path.is_file():
                found[str(path)] = _stamp(path.stat())
        return found


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


def changed_files(before: Fingerprint, after: Fingerprint) -> list[str]:
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _directories(root: Path) -> Iterator[str]:
    """A directory and those below it that may contain code of the project."""
    waiting, count = [str(root)], 0
    while waiting:
        directory = waiting.pop()
        count += 1
        if count > MAX_DIRECTORIES:
            logger.debug("watching only %d of the directories below %s", MAX_DIRECTORIES, root)
            return
        yield directory
        try:
            with os.scandir(directory) as entries:
                inner = sorted(entry.path for entry in entries if _may_hold_code(entry))
        except OSError:
            continue
        waiting += reversed(inner)


def _may_hold_code(entry: os.DirEntry[str]) -> bool:
    if entry.name.startswith(".") or entry.name in SKIPPED or not entry.is_dir(follow_symlinks=False):
        return False
    return not os.path.exists(os.path.join(entry.path, "pyvenv.cfg"))


def _files(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return [entry for entry in entries if entry.is_file()]
    except OSError:
        return []


def _is_source(name: str) -> bool:
    """Whether it is neither a hidden file, a compiled module nor an editor's backup."""
    return not name.startswith((".", "#")) and not name.endswith(("~", ".pyc", ".swp", ".tmp"))


def _add(found: Fingerprint, entries: Iterable[os.DirEntry[str]]) -> None:
    for entry in entries:
        try:
            found[entry.path] = _stamp(entry.stat())
        except OSError:  # just deleted
            continue


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_mtime_ns, status.st_size


CHECK_INTERVAL = 2.0  # seconds; some file systems, such as network mounts, send no notifications
INSTALL_COMMAND = 'pip install "graphile-worker[watch]"'


class Changes:
    """Remembers the files at the last snapshot, and waits until they differ."""

    def __init__(self, files: WatchedFiles) -> None:
        self.files = files
        self._awatch = _import_awatch()
        self._snapshot: Fingerprint = {}

    def take_snapshot(self) -> None:
        """Compare with the files as they are now. Call it before the code is loaded, not after."""
        self._snapshot = self.files.fingerprint()

    async def wait(self) -> list[str]:
        """Wait until files differ; returns them."""
        while not (changed := self._changed()):
            directories = self.files.directories()
            try:
                await self._wait_for_notification(directories)
            except (OSError, RuntimeError) as error:  # out of watches, or a directory was just deleted
                logger.debug("no file notifications (%s); checking every second", error)
                await asyncio.sleep(1.0)
        return changed

    async def _wait_for_notification(self, directories: list[str]) -> None:
        """Wait until files or directories differ. Watches first and compares then, to miss no change."""
        reports: Any = self._awatch(
            *directories,
            watch_filter=None,
            recursive=False,
            rust_timeout=int(CHECK_INTERVAL * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
        )
        async with aclosing(reports):
            async for _ in reports:
                if self._changed() or self.files.directories() != directories:
                    return

    def _changed(self) -> list[str]:
        return changed_files(self._snapshot, self.files.fingerprint())


def _import_awatch() -> Any:
    try:
        from watchfiles import awatch
    except ImportError:
        raise ConfigError(
            f"watching files needs the package watchfiles; install it with: {INSTALL_COMMAND}"
        ) from None
    return awatch
