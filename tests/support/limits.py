"""A time limit for every test: stacks are printed, the test fails; if that does not end it, the run ends.

pytest-timeout interrupts the test with a signal, so that its fixtures can end what they started. A test that
swallows the interruption, or whose fixtures hang too, is ended with the whole run; the guard of the run then
ends its processes and servers.
"""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

LAST_RESORT = 2.0
"""The run ends after so many times the limit of a test."""


class TimeLimits:
    """A pytest plugin beside pytest-timeout."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._limit = 0.0

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(self, settings: Any) -> Any:
        result = yield
        if settings.timeout:
            _show_tasks_too()
            self._limit = LAST_RESORT * settings.timeout
            self._arm()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Any:
        try:
            return (yield)
        finally:
            self._limit = 0.0
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        # Others stop their timers at a failure, and pytest stops this one; but fixtures can hang after it.
        self._arm()

    @pytest.hookimpl(trylast=True)
    def pytest_enter_pdb(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def _arm(self) -> None:
        if self._limit:
            stderr = self._config.stash.get(fault_handler_stderr_fd_key, 2)  # the one that is not captured
            faulthandler.dump_traceback_later(self._limit, exit=True, file=stderr)


def _show_tasks_too() -> None:
    """Before the interruption, say what each asyncio task waits for; threads only show the event loop."""
    interrupt: Any = signal.getsignal(signal.SIGALRM)

    def handler(number: int, frame: FrameType | None) -> None:
        with suppress(RuntimeError):  # no loop runs here
            for task in asyncio.all_tasks():
                task.print_stack(file=sys.stderr)
        interrupt(number, frame)

    if callable(interrupt):
        signal.signal(signal.SIGALRM, handler)
