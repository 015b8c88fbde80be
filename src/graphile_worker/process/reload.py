"""Reloading on SIGHUP: the process replaces itself with a new run of the same program.

The process id stays, so supervisors need not know. With a controlling terminal, SIGHUP says that the terminal
was closed, and stops the worker as other signals do.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from types import FrameType

from .signals import flush_output, is_ignored

logger = logging.getLogger("graphile_worker.reload")


def has_terminal() -> bool:
    """Whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def same_program() -> list[str]:
    """The command line that starts this program again."""
    return [sys.executable, *sys.orig_argv[1:]]


class Reload:
    """Whether this process reloads on SIGHUP. Off until `enable` is called."""

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
