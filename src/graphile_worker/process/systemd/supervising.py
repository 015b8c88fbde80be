"""Several worker processes: each reports to its parent over a pipe, and the parent speaks to systemd.

systemd accepts messages from the main process only. The parent is ready when all its workers are, shows the
sum of what they do, and stays silent if one of them does.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Collection
from contextlib import suppress

import msgspec

from .environment import Systemd
from .notifications import Notifications

READY, STATUS, ALIVE = b"r", b"s", b"a"
MESSAGE = 32
"""Bytes of a report: short enough for the kernel to write it as a whole."""


class _Worker(msgspec.Struct):
    """The last reports of a worker process."""

    seen_at: float
    running: int = 0
    slots: int = 0


class ReportPipe:
    """The receiver of reports in a worker process: passes them on to the parent."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def ready(self, slots: int) -> None:
        """The worker runs jobs."""
        self._write(READY, 0, slots)

    def status(self, running: int, slots: int) -> None:
        """What the worker does."""
        self._write(STATUS, running, slots)

    def alive(self) -> None:
        """The event loop turns."""
        self._write(ALIVE, 0, 0)

    def stopping(self) -> None:
        """The parent knows: it sent the signal."""

    def reloading(self) -> None:
        """A worker process does not reload by itself."""

    def _write(self, kind: bytes, running: int, slots: int) -> None:
        text = b"%s %d %d %d" % (kind, os.getpid(), running, slots)
        with suppress(OSError):  # the parent is gone, or very slow
            os.write(self._descriptor, text.ljust(MESSAGE))


class SystemdParent:
    """The parent's side: reads the reports of its workers and notifies systemd."""

    def __init__(self, systemd: Systemd, processes: int) -> None:
        self._processes = processes
        self._watchdog = systemd.watchdog
        self._notifications = Notifications(systemd.address)
        self.descriptor, self._writing = os.pipe()
        for end in (self.descriptor, self._writing):
            os.set_blocking(end, False)
        self._workers: dict[int, _Worker] = {}
        self._is_ready = self._is_stopping = False
        self._checked_at = 0.0

    def pipe(self) -> ReportPipe:
        """The receiver for a worker process."""
        return ReportPipe(self._writing)

    @property
    def next_turn(self) -> float:
        """When `turn` has to be called, by `time.monotonic`."""
        return math.inf if self._watchdog is None else self._checked_at + self._watchdog / 3

    def turn(self, children: Collection[int]) -> None:
        """Read what the workers reported, and pass it on."""
        is_new = self._read()
        for gone in self._workers.keys() - set(children):
            del self._workers[gone]
        if not self._is_ready and len(self._workers) >= self._processes and not self._is_stopping:
            self._is_ready = True
            self._notifications.ready(self._slots, self._processes)
        elif is_new and self._is_ready and not self._is_stopping:
            running = sum(worker.running for worker in self._workers.values())
            self._notifications.status(running, self._slots, self._processes)
        now = time.monotonic()
        if self._watchdog is not None and now >= self.next_turn:
            self._checked_at = now
            # One that starts has not reported yet, and does not count.
            if all(now - worker.seen_at < self._watchdog for worker in self._workers.values()):
                self._notifications.alive()

    def stopping(self) -> None:
        """A signal stops all workers."""
        if not self._is_stopping:
            self._is_stopping = True
            self._notifications.stopping()

    def reloading(self) -> None:
        """The workers stop, then the parent replaces itself."""
        self._is_stopping = True
        self._notifications.reloading()

    @property
    def _slots(self) -> int:
        return sum(worker.slots for worker in self._workers.values())

    def _read(self) -> bool:
        """Read the pipe; returns whether there is something new to show."""
        is_new = False
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, MESSAGE * 128):
                for first in range(0, len(data), MESSAGE):
                    is_new |= self._note(data[first : first + MESSAGE])
        return is_new

    def _note(self, report: bytes) -> bool:
        kind, pid, running, slots = report.split()
        now = time.monotonic()
        if kind == ALIVE:
            if (known := self._workers.get(int(pid))) is not None:
                known.seen_at = now
            return False
        self._workers[int(pid)] = _Worker(now, int(running), int(slots))
        return kind == STATUS
