"""A summary of a worker's activity, small enough that reporting it costs the same at any rate of jobs."""

from __future__ import annotations

from collections import deque

import msgspec

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
