"""FeedPlugin: reports the worker's activity to its parent process.

It sums it up in a `Snapshot`, small enough that reporting it costs the same at any rate of jobs.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress

import msgspec

from ...errors.text import summarize
from ...hooks import Hooks, events
from ...hooks.faults import Supervised
from ...runner.process.reports import send

INTERVAL = 0.25  # seconds
MOST_RUNNING = 8
MOST_ERRORS = 5
LONGEST_NAME = 60
LONGEST_MESSAGE = 200


class ShownJob(msgspec.Struct, frozen=True):
    """A running job, and the seconds since it started."""

    id: int
    task: str
    seconds: float


class ShownError(msgspec.Struct, frozen=True):
    """A failed attempt; `at` is in seconds since 1970."""

    at: float
    job_id: int
    task: str
    attempt: int
    max_attempts: int
    message: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process at one moment: totals since it started, and the jobs and errors to show."""

    completed: int
    failed: int
    running: int
    jobs: list[ShownJob]
    """The longest-running jobs."""
    errors: list[ShownError]
    """The latest errors, oldest first."""


def error_of(at: float, job_id: int, task: str, attempt: int, max_attempts: int, message: str) -> ShownError:
    """A failure with its message on one line, truncated."""
    line = " ".join(message.split())
    if len(line) > LONGEST_MESSAGE:
        line = line[: LONGEST_MESSAGE - 1] + "…"
    return ShownError(at, job_id, task[:LONGEST_NAME], attempt, max_attempts, line)


class FeedPlugin:
    """Observes jobs and sends a snapshot four times a second."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._running: dict[int, tuple[str, float]] = {}
        self._completed = 0
        self._failed = 0
        self._errors: deque[ShownError] = deque(maxlen=MOST_ERRORS)
        self._writer: asyncio.StreamWriter | None = None
        self._loop = Supervised(self._run, "feed")

    def install(self, hooks: Hooks) -> None:
        on = hooks.events.on
        on(events.JobStarted, self._on_started)
        on(events.JobSucceeded, self._on_succeeded)
        on(events.JobErrored, self._on_errored)
        for ended in (events.JobCompleted, events.JobInterrupted, events.JobSnoozed, events.JobExpired):
            on(ended, self._on_ended)
        on(events.JobCancelled, self._on_ended)
        on(events.JobOutcomeDiscarded, self._on_ended)
        on(events.PoolCreated, lambda _: self._loop.start())

    async def stop(self) -> None:
        """Send the last snapshot."""
        await self._loop.stop()
        if self._writer is not None:
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await send(self._writer, self.snapshot(time.monotonic()))
            self._writer.close()

    def snapshot(self, now: float) -> Snapshot:
        """The summary at this time of the monotonic clock."""
        # A dict keeps the order in which they started.
        longest = list(self._running.items())[:MOST_RUNNING]
        return Snapshot(
            completed=self._completed,
            failed=self._failed,
            running=len(self._running),
            jobs=[
                ShownJob(job_id, task[:LONGEST_NAME], round(now - since, 1))
                for job_id, (task, since) in longest
            ],
            errors=list(self._errors),
        )

    def _on_started(self, event: events.JobStarted) -> None:
        self._running[event.job.id] = (event.job.task_identifier, time.monotonic())

    def _on_succeeded(self, _: events.JobSucceeded) -> None:
        self._completed += 1

    def _on_errored(self, event: events.JobErrored) -> None:
        job, message = event.job, summarize(event.error)
        self._failed += 1
        self._errors.append(
            error_of(time.time(), job.id, job.task_identifier, job.attempts, job.max_attempts, message)
        )

    def _on_ended(self, event: events.JobEvent) -> None:
        self._running.pop(event.job.id, None)

    async def _run(self) -> None:
        with suppress(OSError):  # the parent is gone, so this process will end
            _, self._writer = await asyncio.open_unix_connection(self._path)
            while True:
                await send(self._writer, self.snapshot(time.monotonic()))
                await asyncio.sleep(INTERVAL)
