"""Signals between a process and the worker processes that it starts, and how a process ends by one."""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGABRT)
"""Signals that a parent passes on to its workers."""


def forwarded_signals() -> tuple[signal.Signals, ...]:
    """Those of them that this process handles: under `nohup`, SIGHUP stays ignored."""
    return tuple(number for number in FORWARDED if number != signal.SIGHUP or not is_ignored(number))


def is_ignored(number: signal.Signals) -> bool:
    """Whether this process was started with the signal ignored."""
    return signal.getsignal(number) is signal.SIG_IGN


def end_by_signal(number: int) -> int:
    """End this process as the signal would have; if the signal is blocked, returns an exit status."""
    flush_output()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


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
