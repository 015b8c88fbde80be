"""Signals, the parent and the garbage collector of a process that runs a worker.

Signals between a process and the worker processes that it starts, and how a process ends by one.

The parent that started this process as its worker: `--watch`, `dev`, or `serve(watch=True)`.

The garbage collector of a process that starts up and then works for long.
"""

from __future__ import annotations

import gc
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


PARENT_PIPE = "_GRAPHILE_WORKER_PARENT_PIPE"
"""Environment variable with the descriptor of a pipe that is closed when the parent process dies."""
FEED_PIPE = "_GRAPHILE_WORKER_FEED_PIPE"
"""Environment variable with the descriptor of a pipe to which the worker reports its activity."""


class ParentProcess:
    """What the parent said in the environment; false if there is no such parent."""

    def __init__(self) -> None:
        # Removed from the environment, so that a command which a task starts has no such parent.
        self._pipe = os.environ.pop(PARENT_PIPE, None)
        feed = os.environ.pop(FEED_PIPE, None)
        self.feed = int(feed) if feed is not None else None
        """The descriptor for reports of activity, if the parent wants them."""
        self._process = os.getpid()

    def __bool__(self) -> bool:
        return self._pipe is not None

    def attach(self) -> None:
        """Stop when the parent dies."""
        if self._pipe is not None:
            pass  # merged

            stop_when_parent_dies(int(self._pipe), pid=self._process)


def collect_garbage() -> None:
    """Enable the collector, which `main` disabled; objects from start-up are permanent and not scanned."""
    gc.freeze()
    gc.enable()
