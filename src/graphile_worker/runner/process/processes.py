"""Several worker processes: their parent starts them, forwards signals, and replaces crashed ones.

The parent runs no event loop and opens no connection. A worker that exits with an error stops all of them,
because the others would fail in the same way. A killed worker is replaced, as is one that a task ended with
`os._exit`, and one that stopped because too many of its tasks did not end. On SIGHUP the parent stops its
workers and reloads, see `Reload`. If the parent is killed, its workers notice the closed pipe and shut down
gracefully.
"""

from __future__ import annotations

import logging
import math
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from ...values.text import signal_name
from .error_report import UNHEALTHY
from .signals import Reload, end_by_signal, flush_output, forwarded_signals, stop_when_parent_dies

if TYPE_CHECKING:
    from .reports import Observer
    from .systemd import Relay

logger = logging.getLogger("graphile_worker.processes")

FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0
"""Seconds before a crashed process is replaced; doubled with each crash."""
STABLE_AFTER = 60.0
"""A process that ran for this long did not crash at start-up: the delay is reset."""

OBSERVER_DELAY = 1.0
"""Seconds before an observer that ended is replaced."""
OBSERVER_ENDS_WITHIN = 3.0
"""Seconds until an observer that was asked to end is killed."""


class Supervisor:
    def __init__(
        self,
        count: int,
        work: Callable[[], int],
        *,
        replace: bool,
        kill_after: float,
        reload: Reload | None = None,
        observer: Observer | None = None,
        relay: Relay | None = None,
    ) -> None:
        """`work` runs in `count` processes, and returns an exit status.

        A process that is still there `kill_after` seconds after the first signal is killed. The observer runs
        in a process beside the workers, until all of them have ended. The relay is for systemd.
        """
        self._count = count
        self._work = work
        self._replace = replace
        self._kill_after = kill_after
        self._kill_at = math.inf
        self._reload = reload or Reload()
        self._observer = observer
        self._observer_pid: int | None = None
        self._next_observer = 0.0
        self._relay = relay
        self._is_reloading = False
        self._children: dict[int, float] = {}
        self._returned: set[int] = set()
        self._signals: list[int] = []
        self._stopped_by: int | None = None
        self._stopping = False
        self._status = 0
        self._delay = FIRST_DELAY
        self._next_start = 0.0

    def run(self) -> int:
        """Start the workers and supervise them until all have ended; returns the exit status."""
        self._parent_pipe = os.pipe()
        self._wakeup = os.pipe()
        self._reports = os.pipe()
        os.set_blocking(self._reports[0], False)
        os.set_blocking(self._wakeup[0], False)
        os.set_blocking(self._wakeup[1], False)
        self._handled = (*forwarded_signals(), signal.SIGCHLD)
        self._old_handlers = {number: signal.signal(number, self._record) for number in self._handled}
        self._old_wakeup = signal.set_wakeup_fd(self._wakeup[1], warn_on_full_buffer=False)
        if self._reload.is_wanted:
            signal.raise_signal(signal.SIGHUP)
        for _ in range(self._count):
            self._start()
        while self._children or self._missing():
            if self._missing() and time.monotonic() >= self._next_start:
                self._start()
            if self._is_observer_missing() and time.monotonic() >= self._next_observer:
                self._start_observer()
            self._wait()
            self._forward()
            self._reap()
            if self._relay is not None:
                self._relay.pass_on()
        self._end_observer()
        self._restore()
        if self._stopped_by is not None:
            return end_by_signal(self._stopped_by)
        return self._reload.start_again() if self._is_reloading else self._status

    def _missing(self) -> bool:
        return not self._stopping and self._replace and len(self._children) < self._count

    def _start(self) -> None:
        self._children[self._fork(self._work_without_observer)] = time.monotonic()

    def _work_without_observer(self) -> int:
        if self._observer is not None:
            self._observer.leave()
        return self._work()

    def _fork(self, work: Callable[[], int]) -> int:
        """Do the work in another process; returns its id."""
        # Blocked, so that no signal reaches the child while it still has the parent's handlers.
        old_mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._handled)
        try:
            flush_output()  # what is buffered is not the child's to write
            pid = os.fork()
            if pid == 0:
                self._work_and_exit(work, old_mask)
            return pid
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old_mask)

    def _work_and_exit(self, work: Callable[[], int], mask: Iterable[int]) -> NoReturn:
        """In another process: run `work`, report to the parent that it returned or raised, and exit.

        The code that called us, and what it registered with `atexit`, are left to the parent.
        """
        status = 1
        try:
            self._become_worker()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = work()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else int(error.code is not None)
        except KeyboardInterrupt:
            status = 128 + signal.SIGINT
        except BaseException:
            traceback.print_exc()
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, self._handled)
            flush_output()
            os.write(self._reports[1], b"%d\n" % os.getpid())
            os._exit(status)

    def _become_worker(self) -> None:
        # A separate process group: Ctrl-C reaches the parent only, which forwards it exactly once.
        os.setpgid(0, 0)
        os.close(self._parent_pipe[1])
        os.close(self._reports[0])
        self._restore()
        self._reload.disable()
        stop_when_parent_dies(self._parent_pipe[0], pid=os.getpid())

    def _restore(self) -> None:
        signal.set_wakeup_fd(self._old_wakeup)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        for end in self._wakeup:
            os.close(end)

    def _record(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)

    def _wait(self) -> None:
        until = min(
            self._kill_at,
            self._next_start if self._missing() else math.inf,
            self._next_observer if self._is_observer_missing() else math.inf,
        )
        reading = [self._wakeup[0], *(() if self._relay is None else (self._relay,))]
        select.select(reading, [], [], None if until == math.inf else max(0.0, until - time.monotonic()))
        with suppress(BlockingIOError):
            while os.read(self._wakeup[0], 4096):
                pass

    def _forward(self) -> None:
        received, self._signals = self._signals, []
        for number in received:
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGHUP and self._reload.is_enabled:
                self._begin_to_reload()
                continue
            self._stopping = True
            if self._relay is not None:
                self._relay.systemd.stopping()
            self._stopped_by = self._stopped_by or number
            self._kill_at = min(self._kill_at, time.monotonic() + self._kill_after)
            self._send(number)
        if time.monotonic() >= self._kill_at:
            self._kill_at = math.inf
            for pid in self._children:
                logger.error("worker process %d did not end in time; killing it", pid)
            self._send(signal.SIGKILL)

    def _begin_to_reload(self) -> None:
        if self._stopping:
            return
        logger.info("got SIGHUP; stopping the worker processes to restart them with the current code")
        self._stopping = self._is_reloading = True
        if self._relay is not None:
            self._relay.systemd.reloading()
        self._kill_at = time.monotonic() + self._kill_after
        self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for pid in self._children:
            os.kill(pid, number)

    # -- the observer --------------------------------------------------------------------------------------

    def _is_observer_missing(self) -> bool:
        return self._observer is not None and self._observer_pid is None and not self._stopping

    def _start_observer(self) -> None:
        if self._observer is not None:
            self._observer_pid = self._fork(self._observer.run)

    def _reap_observer(self) -> None:
        if self._observer_pid is None:
            return
        done, status = os.waitpid(self._observer_pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with status {code}"
            logger.error("the observer process %d %s; starting another", done, how)
            self._read_reports()
            self._returned.discard(done)
            self._observer_pid = None
            self._next_observer = time.monotonic() + OBSERVER_DELAY

    def _end_observer(self) -> None:
        """End it after the workers: it shows that they are stopping."""
        if self._observer_pid is not None:
            os.kill(self._observer_pid, signal.SIGTERM)
            deadline = time.monotonic() + OBSERVER_ENDS_WITHIN
            while not os.waitpid(self._observer_pid, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    os.kill(self._observer_pid, signal.SIGKILL)
                select.select([self._wakeup[0]], [], [], 0.05)
        if self._observer is not None:
            self._observer.discard()

    # -- the workers ---------------------------------------------------------------------------------------

    def _reap(self) -> None:
        self._reap_observer()
        for pid in list(self._children):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self._read_reports()
                seconds = time.monotonic() - self._children.pop(pid)
                self._ended(pid, os.waitstatus_to_exitcode(status), seconds)

    def _read_reports(self) -> None:
        with suppress(BlockingIOError):
            while reported := os.read(self._reports[0], 4096):
                self._returned.update(int(pid) for pid in reported.split())

    def _ended(self, pid: int, code: int, seconds: float) -> None:
        if code < 0:
            how = f"was killed by {signal_name(-code)}"
        elif pid in self._returned:
            self._returned.discard(pid)
            self._exited(pid, code, seconds)
            return
        else:
            how = f"exited abruptly with status {code}; a task may have called os._exit"
        if self._stopping:
            self._status = max(self._status, code)
        elif code == -signal.SIGPIPE:
            # The log has lost its reader; a new process would end in the same way.
            self._stopping = True
            self._stopped_by = signal.SIGPIPE
            self._send(signal.SIGTERM)
        elif not self._replace:
            self._status = max(self._status, code, 1)
            logger.error("worker process %d %s", pid, how)
        else:
            self._start_another_later(pid, how, seconds)

    def _start_another_later(self, pid: int, how: str, seconds: float) -> None:
        self._delay = FIRST_DELAY if seconds > STABLE_AFTER else min(self._delay * 2, LONGEST_DELAY)
        self._next_start = time.monotonic() + self._delay
        logger.error("worker process %d %s; starting another", pid, how)

    def _exited(self, pid: int, code: int, seconds: float) -> None:
        if code == UNHEALTHY and self._replace and not self._stopping:
            self._start_another_later(pid, "stopped because too many of its tasks did not end", seconds)
            return
        self._status = max(self._status, code)
        if not self._stopping and (code > 0 or self._replace):
            if code > 0:
                logger.error("worker process %d exited with status %d; stopping the others", pid, code)
            self._stopping = True
            self._send(signal.SIGTERM)
