"""`--processes N`: a parent that starts worker processes, passes signals on, and replaces one that crashed.

The parent runs no event loop and touches no database. A worker that ends with an error of its own stops all
of them, because the others would fail in the same way. One that was killed is replaced, and so is one that
vanished: a task called `os._exit`, say. If the parent itself is killed, its workers notice a closed pipe and
stop gracefully.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from ...signal_names import signal_name

logger = logging.getLogger("graphile_worker.processes")

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2, signal.SIGABRT)
WATCHED = (*PASSED_ON, signal.SIGCHLD)
LONGEST_PAUSE = 30.0
STEADY = 60.0
"""A process that lived so long did not crash at start-up; the pause before a replacement starts anew."""


def supervise(count: int, work: Callable[[], int], *, replace: bool) -> int:
    """Run `work` in so many processes; returns the exit status, in the parent and in each worker process."""
    return Supervisor(count, work, replace=replace).run()


class Supervisor:
    """The parent of the worker processes."""

    def __init__(self, count: int, work: Callable[[], int], *, replace: bool) -> None:
        self._count = count
        self._work = work
        self._replace = replace
        self._children: dict[int, float] = {}
        self._in_order: set[int] = set()
        self._signals: list[int] = []
        self._stopped_by: int | None = None
        self._stopping = False
        self._status = 0
        self._pause = 0.1
        self._next_start = 0.0

    def run(self) -> int:
        """Start the workers, watch them to their end."""
        self._lifeline = os.pipe()
        self._wakeup = os.pipe()
        self._reports = os.pipe()
        os.set_blocking(self._reports[0], False)
        os.set_blocking(self._wakeup[0], False)
        os.set_blocking(self._wakeup[1], False)
        self._old_handlers = {number: signal.signal(number, self._note) for number in WATCHED}
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        for _ in range(self._count):
            if self._start():
                return self._work_in_order()
        while self._children or self._missing():
            if self._missing() and time.monotonic() >= self._next_start and self._start():
                return self._work_in_order()
            self._wait()
            self._pass_on()
            self._reap()
        self._restore()
        if self._stopped_by is not None:
            signal.signal(self._stopped_by, signal.SIG_DFL)
            os.kill(os.getpid(), self._stopped_by)
        return self._status

    def _missing(self) -> bool:
        return not self._stopping and self._replace and len(self._children) < self._count

    def _start(self) -> bool:
        """Fork; True in the new process."""
        # No signal may arrive in the child before it has given up the parent's handlers.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_worker()
                return True
            self._children[pid] = time.monotonic()
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

    def _work_in_order(self) -> int:
        """In a worker process: do the work, and let the parent know that it has ended, well or not."""
        try:
            return self._work()
        finally:
            os.write(self._reports[1], b"%d\n" % os.getpid())

    def _become_worker(self) -> None:
        # A group of its own: Ctrl-C reaches the parent, which passes it on exactly once.
        os.setpgid(0, 0)
        os.close(self._lifeline[1])
        os.close(self._reports[0])
        self._restore()
        threading.Thread(target=self._watch_parent, name="graphile-worker parent", daemon=True).start()

    def _watch_parent(self) -> None:
        if os.read(self._lifeline[0], 1) == b"":
            os.kill(os.getpid(), signal.SIGTERM)

    def _restore(self) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        for end in self._wakeup:
            os.close(end)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _wait(self) -> None:
        timeout = max(0.0, self._next_start - time.monotonic()) if self._missing() else None
        select.select([self._wakeup[0]], [], [], timeout)
        while True:
            try:
                if not os.read(self._wakeup[0], 4096):
                    return
            except BlockingIOError:
                return

    def _pass_on(self) -> None:
        noted, self._signals = self._signals, []
        for number in noted:
            if number == signal.SIGCHLD:
                continue
            self._stopping = True
            self._stopped_by = self._stopped_by or number
            self._send(number)

    def _send(self, number: int) -> None:
        for pid in self._children:
            os.kill(pid, number)

    def _reap(self) -> None:
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._read_reports()
                lived = time.monotonic() - self._children.pop(pid)
                self._ended(pid, os.waitstatus_to_exitcode(status), lived)

    def _read_reports(self) -> None:
        with suppress(BlockingIOError):
            while said := os.read(self._reports[0], 4096):
                self._in_order.update(int(pid) for pid in said.split())

    def _ended(self, pid: int, code: int, lived: float) -> None:
        if code < 0:
            how = f"was ended by {signal_name(-code)}"
        elif pid in self._in_order:
            self._in_order.discard(pid)
            self._ended_in_order(pid, code)
            return
        else:
            how = f"vanished with status {code}; a task may have called os._exit"
        if self._stopping:
            self._status = max(self._status, code)
        elif code == -signal.SIGPIPE:
            # Nobody reads the log any more; a new process would find the same.
            self._stopping = True
            self._stopped_by = signal.SIGPIPE
            self._send(signal.SIGTERM)
        elif not self._replace:
            self._status = max(self._status, code, 1)
            logger.error("worker process %d %s", pid, how)
        else:
            self._pause = 0.1 if lived > STEADY else min(self._pause * 2, LONGEST_PAUSE)
            self._next_start = time.monotonic() + self._pause
            logger.error("worker process %d %s; starting another", pid, how)

    def _ended_in_order(self, pid: int, code: int) -> None:
        self._status = max(self._status, code)
        if not self._stopping and (code > 0 or self._replace):
            if code > 0:
                logger.error("worker process %d ended with status %d; stopping the others", pid, code)
            self._stopping = True
            self._send(signal.SIGTERM)
