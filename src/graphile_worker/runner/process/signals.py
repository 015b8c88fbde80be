"""How a process that runs a worker gets signals, passes them on, ends by one, and starts again on SIGHUP."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

logger = logging.getLogger("graphile_worker.reload")

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGABRT)
"""Signals that a parent passes on to its workers."""


def forwarded_signals() -> tuple[signal.Signals, ...]:
    """Those of them that this process handles: under `nohup`, SIGHUP stays ignored."""
    return tuple(number for number in FORWARDED if number != signal.SIGHUP or not is_ignored(number))


def is_ignored(number: signal.Signals) -> bool:
    """Whether this process was started with the signal ignored."""
    return signal.getsignal(number) is signal.SIG_IGN


async def signal_received(numbers: Iterable[signal.Signals]) -> signal.Signals:
    """Wait until one of these signals arrives; returns it."""
    import asyncio  # which a command without an event loop does not need

    loop = asyncio.get_running_loop()
    received: asyncio.Future[signal.Signals] = loop.create_future()

    def receive(number: signal.Signals) -> None:
        if not received.done():
            received.set_result(number)

    for number in numbers:
        loop.add_signal_handler(number, receive, number)
    try:
        return await received
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


def end_by_signal(number: int) -> int:
    """End this process as the signal would have; if the signal is blocked, returns an exit status."""
    flush_output()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def exit_with(number: int, _: object) -> NoReturn:
    """A handler that ends the process with clean-up, before it has an event loop."""
    sys.exit(128 + number)


def flush_output() -> None:
    """Write what is buffered, before the process ends without Python's clean-up."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()


def stop_when_parent_dies(pipe: int, *, pid: int) -> None:
    """Send SIGTERM to `pid` when the parent's end of the pipe is closed, which its death does too."""

    def wait() -> None:
        if os.read(pipe, 1) == b"":
            os.kill(pid, signal.SIGTERM)

    threading.Thread(target=wait, name="graphile-worker parent", daemon=True).start()


def collect_garbage() -> None:
    """Enable the collector, which `main` disabled; objects from start-up are permanent and not scanned."""
    gc.freeze()
    gc.enable()


PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the descriptor of a pipe that is closed when the parent process dies."""
REPORTS = "_GRAPHILE_WORKER_REPORTS"
"""Environment variable with the path of a socket to which the worker reports what it does."""


class ParentProcess:
    """The parent that started this process as its worker: `--watch`, `dev` or `serve(watch=True)`.

    False if there is none.
    """

    def __init__(self) -> None:
        # Removed from the environment, so that a command which a task starts has no such parent.
        self._pipe = os.environ.pop(PARENT_PIPE, None)
        self.reports = os.environ.pop(REPORTS, None)
        """Where the parent wants reports, if it does."""
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return self._pipe is not None

    def attach(self) -> None:
        if self._pipe is not None:
            stop_when_parent_dies(int(self._pipe), pid=self._process)


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def same_program() -> list[str]:
    """The command line that starts this program again."""
    return [sys.executable, *sys.orig_argv[1:]]


class Reload:
    """Reloading on SIGHUP: the process replaces itself with a new run of the same program.

    Its id stays, so supervisors need not know. With a controlling terminal, SIGHUP says that the terminal was
    closed, and stops the worker as other signals do. Off until `enable` is called.
    """

    def __init__(self) -> None:
        self.is_enabled = False
        self.is_wanted = False
        """A SIGHUP came before the worker could handle it."""
        self.environment: dict[str, str] = {}
        """Variables that were removed from the environment, for the program that replaces this one."""
        self._directory = _current_directory()

    def enable(self) -> None:
        """Remember SIGHUP from now on, unless it has another meaning for this process."""
        if not has_terminal() and not is_ignored(signal.SIGHUP):
            self.is_enabled = True
            signal.signal(signal.SIGHUP, self._note)
        # `start_again` has blocked it for the time without a handler.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})

    def disable(self) -> None:
        """SIGHUP stops this process, because its parent reloads."""
        if self.is_enabled:
            self.is_enabled = False
            signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def start_again(self) -> int:
        """Replace this process with a new run of its program; returns an exit status if that fails."""
        command = same_program()
        logger.info("restarting with the current code")
        flush_output()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        try:
            os.chdir(self._directory)
            os.environ.update(self.environment)
            os.execv(command[0], command)  # noqa: S606 - the program that runs already
        except OSError as error:
            logger.error("%s cannot be started again: %s", command[0], error)
        return 1

    def _note(self, _: int, __: FrameType | None) -> None:
        self.is_wanted = True


def _current_directory() -> str:
    """As the shell names it: a symbolic link may point to a newer release when we start again."""
    named = os.environ.get("PWD")
    try:
        return named if named is not None and os.path.samefile(named, os.curdir) else os.getcwd()
    except OSError:  # deleted
        return os.curdir
