"""LoopWatchdog: notices from a thread of its own that the event loop is blocked, and by which job.

An `async def` task that computes or sleeps without `await` stops everything on its event loop: other jobs,
timers, signals. Nothing on the loop can report that, so a thread does. While jobs run it asks the loop for an
answer twice a second; while none runs it sleeps, so that an idle worker pays nothing.

After a signal the thread is also the last resort: if the loop is still blocked at the deadline, it ends the
process. The jobs are recovered as after a crash.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, Protocol

import msgspec

from ...errors.text import PACKAGE_FOLDER
from ...hooks.faults import report
from ...logging.job_context import job_fields
from ...logging.log_plugin import log_with_stack
from ...recovery.registry.pool_state import LoopBlockage
from ...values.job import Job
from ...values.text import duration, signal_name

CHECK_INTERVAL = 0.5  # seconds
IDLE_CHECKS = 10  # without a job, before the thread sleeps
LONGEST_SLEEP = 600.0  # seconds
BLOCKED_AFTER = 1.0  # seconds without a turn of the loop
FIRST_REMINDER = 5.0  # seconds of blockage; each further one after six times as long
REMINDER_FACTOR = 6.0
MAX_FRAMES = 20

logger = logging.getLogger("graphile_worker.worker")


class Watched(Protocol):
    """`Lanes`: the slots that run jobs on the loop."""

    on_busy: Callable[[], None] | None

    @property
    def is_idle(self) -> bool: ...


class LoopObserver(Protocol):
    """`WorkerPool`, which is told about blockages of the loop."""

    def loop_blocked(self, blockage: Blockage) -> None: ...
    def loop_unblocked(self, blockage: Blockage, seconds: float) -> None: ...


class Blockage(msgspec.Struct, frozen=True, kw_only=True):
    """The event loop does not turn: since when, and what runs on it."""

    since: float
    """By the clock `time.monotonic`."""
    job: Job | None
    stack: str

    @property
    def outline(self) -> LoopBlockage:
        """What is reported to other processes."""
        job = self.job
        if job is None:
            return LoopBlockage(None, None, self.since)
        return LoopBlockage(job.task_identifier, job.id, self.since)

    @property
    def culprit(self) -> str:
        """What blocks the loop, for log lines."""
        return self.outline.culprit

    @property
    def fields(self) -> dict[str, Any]:
        """The attributes of log records."""
        return {} if self.job is None else job_fields(self.job)


class LoopWatchdog:
    """Watches one event loop from start to stop."""

    def __init__(
        self,
        slots: Watched,
        runs_job: CodeType,
        observer: LoopObserver,
        exit_process: Callable[[Blockage, int], None] | None = None,
    ) -> None:
        """`runs_job` is the code that has the running job in a local variable `job`.

        `exit_process` is called in the watchdog's thread if the loop is still blocked at the deadline of
        `exit_by`.
        """
        self._slots = slots
        self._runs_job = runs_job
        self._observer = observer
        self._exit_process = exit_process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._is_stopped = False
        self._wake = threading.Event()
        self._exit_at: float | None = None
        self._signal_number = 0
        self._thread: threading.Thread | None = None
        self.current: Blockage | None = None
        """The blockage that lasts now."""
        self.count = 0
        """How often the loop was blocked so far."""
        self._delay: float | None = None

    def start(self) -> None:
        """Watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="graphile-worker watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; does not wait for it."""
        self._is_stopped = True
        self._wake.set()

    def take_delay(self) -> float | None:
        """How long the loop took to answer at most, since the last call, in seconds; None if not asked."""
        delay, self._delay = self._delay, None
        return delay

    def exit_by(self, seconds: float, signal_number: int) -> None:
        """After a signal: end the process if the loop is blocked this many seconds from now.

        Called by a signal handler, so it takes no lock: the main thread may hold it. It need not wake the
        thread, which sleeps only while no job runs.
        """
        self._signal_number = signal_number
        exit_at = time.monotonic() + seconds
        self._exit_at = exit_at if self._exit_at is None else min(self._exit_at, exit_at)

    # -- in the thread -------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._is_stopped:
            try:
                self._watch_until_stopped()
                return
            except BaseException as error:  # a log handler, for instance
                report(logger, "the watchdog of the event loop failed and continues", error=error)
                time.sleep(CHECK_INTERVAL)

    def _watch_until_stopped(self) -> None:
        idle_checks = 0
        while not self._is_stopped:
            if idle_checks < IDLE_CHECKS:
                self._wake.wait(CHECK_INTERVAL)
            else:
                self._sleep()
            self._wake.clear()
            if self._slots.is_idle and self._exit_at is None:
                idle_checks += 1
                continue
            idle_checks = 0
            turned = threading.Event()
            asked_at = time.monotonic()
            if self._is_stopped or not self._call(turned.set):
                return
            if not turned.wait(BLOCKED_AFTER):
                self._blocked(turned, asked_at)
            self._delay = max(self._delay or 0.0, time.monotonic() - asked_at)

    def _sleep(self) -> None:
        """Until a job starts, a signal comes or the worker ends."""
        self._slots.on_busy = self._wake.set
        if self._slots.is_idle and self._exit_at is None and not self._is_stopped:
            self._wake.wait(LONGEST_SLEEP)
        self._slots.on_busy = None

    def _call(self, function: Callable[..., object], *arguments: object) -> bool:
        """Call a function on the loop at its next turn; False if the loop is closed."""
        assert self._loop is not None  # noqa: S101 - set by start
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return False
        return True

    def _blocked(self, turned: threading.Event, since: float) -> None:
        """Report a blockage and its end."""
        self.count += 1
        remind_at = since + FIRST_REMINDER
        self._report(since)
        while not turned.wait(CHECK_INTERVAL) and not self._is_stopped:
            now = time.monotonic()
            if now >= remind_at:
                remind_at = since + (now - since) * REMINDER_FACTOR
                self._report(since)
            if self._exit_at is not None and now >= self._exit_at and self._exit_process is not None:
                self._exit_process(self._look(since), self._signal_number)
                return
        blockage, self.current = self.current, None
        if blockage is not None and turned.is_set():
            seconds = time.monotonic() - since
            logger.warning(
                "the event loop runs again; %s had blocked it for %s", blockage.culprit, duration(seconds),
                extra=blockage.fields,
            )  # fmt: skip
            self._call(self._observer.loop_unblocked, blockage, seconds)

    def _report(self, since: float) -> None:
        self.current = blockage = self._look(since)
        _log(
            logging.WARNING,
            blockage,
            "%s has blocked the event loop for %s",
            blockage.culprit,
            duration(round(time.monotonic() - since)),
        )
        try:
            self._observer.loop_blocked(blockage)
        except BaseException:
            logger.debug("the blocked event loop could not be reported", exc_info=True)

    def _look(self, since: float) -> Blockage:
        frame = sys._current_frames().get(self._loop_thread)
        return Blockage(since=since, job=self._job_of(frame), stack=stack_of(frame))

    def _job_of(self, frame: FrameType | None) -> Job | None:
        while frame is not None:
            if frame.f_code is self._runs_job:
                job = frame.f_locals.get("job")
                return job if isinstance(job, Job) else None
            frame = frame.f_back
        return None


def exit_process(blockage: Blockage, signal_number: int) -> None:
    """End the process at once, with the status that a shell shows for the signal."""
    _log(
        logging.CRITICAL,
        blockage,
        "%s still blocks the event loop after %s; ending the process, its jobs will be recovered",
        blockage.culprit,
        signal_name(signal_number),
    )
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(128 + signal_number)


def _log(level: int, blockage: Blockage, message: str, *arguments: object) -> None:
    """Log with the stack of the loop's thread in place of this thread's."""
    log_with_stack(logger, level, blockage.fields, blockage.stack, message, *arguments)


def stack_of(frame: FrameType | None) -> str:
    """The innermost frames as in a traceback, without those of this package and above."""
    if frame is None:
        return "  (no stack)"
    summary = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=MAX_FRAMES)
    own = [n for n, each in enumerate(summary) if each.filename.startswith(PACKAGE_FOLDER)]
    kept = summary[: own[0]] if own and own[0] > 0 else summary
    return "".join(traceback.StackSummary.from_list(list(reversed(kept))).format()).rstrip()
