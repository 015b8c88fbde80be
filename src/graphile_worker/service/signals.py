"""Signals between a command and the worker processes that it starts."""

from __future__ import annotations

import os
import signal
import threading

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGABRT)
"""Signals that a parent passes on to its workers."""


def end_by_signal(number: int) -> int:
    """End this process as the signal would have; if the signal is blocked, returns an exit status."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number


def stop_when_parent_dies(pipe: int, *, pid: int) -> None:
    """Send SIGTERM to `pid` when the parent's end of the pipe is closed, which its death does too."""

    def wait() -> None:
        if os.read(pipe, 1) == b"":
            os.kill(pid, signal.SIGTERM)

    threading.Thread(target=wait, name="graphile-worker parent", daemon=True).start()
