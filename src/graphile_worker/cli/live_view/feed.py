"""FeedPlugin: reports the worker's activity to its parent process, as JSON lines through a pipe.

A summary of a worker's activity, small enough that reporting it costs the same at any rate of jobs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

import msgspec

from ...errors.text import summarize
from ...hooks import Hooks
from ...hooks.events import (
    JobCancelled,
    JobCompleted,
    JobErrored,
    JobExpired,
    JobInterrupted,
    JobOutcomeDiscarded,
    JobSnoozed,
    JobStarted,
    JobSucceeded,
    PoolCreated,
    PoolReleased,
)

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


class Activity:
    """Collects the summary; independent of events and clocks."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, float]] = {}
        self._completed = 0
        self._failed = 0
        self._errors: deque[ShownError] = deque(maxlen=MOST_ERRORS)

    def started(self, job_id: int, task: str, now: float) -> None:
        """A job started at this time of the monotonic clock."""
        self._running[job_id] = (task, now)

    def completed(self) -> None:
        """A job completed."""
        self._completed += 1

    def failed(self, error: ShownError) -> None:
        """An attempt failed."""
        self._failed += 1
        self._errors.append(error)

    def ended(self, job_id: int) -> None:
        """A job is no longer running, whatever its outcome."""
        self._running.pop(job_id, None)

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


def error_of(at: float, job_id: int, task: str, attempt: int, max_attempts: int, message: str) -> ShownError:
    """A failure with its message on one line, truncated."""
    line = " ".join(message.split())
    if len(line) > LONGEST_MESSAGE:
        line = line[: LONGEST_MESSAGE - 1] + "…"
    return ShownError(at, job_id, task[:LONGEST_NAME], attempt, max_attempts, line)


INTERVAL = 0.25
ATOMIC_WRITE = 4096
"""A pipe takes a write of at most this many bytes completely or not at all."""


class FeedPlugin:
    """Observes jobs and writes a snapshot four times a second."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._activity = Activity()
        self._task: asyncio.Task[None] | None = None

    def install(self, hooks: Hooks) -> None:
        os.set_blocking(self._descriptor, False)  # a parent that does not read must not block the worker
        on = hooks.events.on
        on(JobStarted, self._on_started)
        on(JobSucceeded, lambda _: self._activity.completed())
        on(JobErrored, self._on_errored)
        on(JobCompleted, lambda event: self._activity.ended(event.job.id))
        on(JobInterrupted, lambda event: self._activity.ended(event.job.id))
        on(JobSnoozed, lambda event: self._activity.ended(event.job.id))
        on(JobExpired, lambda event: self._activity.ended(event.job.id))
        on(JobCancelled, lambda event: self._activity.ended(event.job.id))
        on(JobOutcomeDiscarded, lambda event: self._activity.ended(event.job.id))
        on(PoolCreated, self._on_created)
        on(PoolReleased, self._on_released)

    def _on_started(self, event: JobStarted) -> None:
        self._activity.started(event.job.id, event.job.task_identifier, time.monotonic())

    def _on_errored(self, event: JobErrored) -> None:
        job = event.job
        self._activity.failed(
            error_of(
                time.time(),
                job.id,
                job.task_identifier,
                job.attempts,
                job.max_attempts,
                summarize(event.error),
            )
        )

    def _on_created(self, _: PoolCreated) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker feed")

    def _on_released(self, _: PoolReleased) -> None:
        if self._task is not None:
            self._task.cancel()
        self._write()

    async def _run(self) -> None:
        while True:
            self._write()
            await asyncio.sleep(INTERVAL)

    def _write(self) -> None:
        try:
            os.write(self._descriptor, encode(self._activity.snapshot(time.monotonic())))
        except (BlockingIOError, BrokenPipeError):  # the next snapshot replaces it, or the parent is gone
            return


def encode(snapshot: Snapshot) -> bytes:
    """One line that fits into an atomic write; excess jobs and errors are dropped."""
    while len(line := msgspec.json.encode(snapshot)) >= ATOMIC_WRITE:
        keep = max(len(snapshot.jobs), len(snapshot.errors)) // 2
        snapshot = msgspec.structs.replace(
            snapshot, jobs=snapshot.jobs[:keep], errors=snapshot.errors[-keep:] if keep else []
        )
    return line + b"\n"


def decode(line: str) -> Snapshot:
    """The inverse of `encode`."""
    return msgspec.json.decode(line, type=Snapshot)
