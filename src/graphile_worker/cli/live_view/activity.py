"""What a worker is doing, summed up: so little that telling it costs the same at any number of jobs."""

from __future__ import annotations

from collections import deque

import msgspec

MOST_RUNNING = 8
MOST_ERRORS = 5
LONGEST_NAME = 60
LONGEST_MESSAGE = 200


class RunningJob(msgspec.Struct, frozen=True):
    """A job that runs now, and for how many seconds already."""

    id: int
    task: str
    seconds: float


class JobError(msgspec.Struct, frozen=True):
    """A job that failed; `at` is in seconds since 1970."""

    at: float
    job_id: int
    task: str
    attempt: int
    max_attempts: int
    message: str


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a worker process: totals since it started, and lists of the most telling few."""

    completed: int
    failed: int
    running: int
    jobs: list[RunningJob]
    """Those that have been running for longest."""
    errors: list[JobError]
    """The last ones, oldest first."""


class Activity:
    """Counts and remembers; knows neither events nor clocks."""

    def __init__(self) -> None:
        self._running: dict[int, tuple[str, float]] = {}
        self._completed = 0
        self._failed = 0
        self._errors: deque[JobError] = deque(maxlen=MOST_ERRORS)

    def started(self, job_id: int, task: str, now: float) -> None:
        """A job begins at this time of the monotonic clock."""
        self._running[job_id] = (task, now)

    def completed(self) -> None:
        """One ended well."""
        self._completed += 1

    def failed(self, error: JobError) -> None:
        """One ended badly."""
        self._failed += 1
        self._errors.append(error)

    def ended(self, job_id: int) -> None:
        """A job does not run any more, however it ended."""
        self._running.pop(job_id, None)

    def snapshot(self, now: float) -> Snapshot:
        """What there is to tell at this time of the monotonic clock."""
        # In the order in which they started, as a dict keeps them.
        longest = list(self._running.items())[:MOST_RUNNING]
        return Snapshot(
            completed=self._completed,
            failed=self._failed,
            running=len(self._running),
            jobs=[
                RunningJob(job_id, task[:LONGEST_NAME], round(now - since, 1))
                for job_id, (task, since) in longest
            ],
            errors=list(self._errors),
        )


def error_of(at: float, job_id: int, task: str, attempt: int, max_attempts: int, message: str) -> JobError:
    """A failure on one line, cut where it is too long to tell."""
    line = " ".join(message.split())
    if len(line) > LONGEST_MESSAGE:
        line = line[: LONGEST_MESSAGE - 1] + "…"
    return JobError(at, job_id, task[:LONGEST_NAME], attempt, max_attempts, line)
