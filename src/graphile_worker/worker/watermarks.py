"""Watermarks: how far a slow scan has come, so that the next ones need not read the same rows again. Pure.

A fetch reads waiting jobs by priority and run_at. Rows that it cannot take stay in the way: jobs of tasks
that only other workers have, or dead rows that a long transaction keeps. When a fetch was slow for that
reason, each priority gets a mark up to which everything was seen, and the following fetches begin there. A
full fetch now and then finds what turned up behind a mark: a job with a run_at in the past, one that was
given back. It comes so seldom that it takes a small share of the time, and sooner when a notification
promised a job that was not found beyond the marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..job import Job
from ..queries.fetch import Ranges

SLOW = 0.020  # seconds: a fetch faster than this is never worth marks
SLOW_BESIDE_NOTHING = 0.1  # seconds: the same while no job waits, so that only dead rows are in the way
SLOW_PER_JOB = 0.0002  # seconds that a job itself may take in a fetch on a busy machine
SHARE = 50  # a full fetch is repeated after so many times as long as it took ...
SHARE_IF_PROMISED = 10  # ... and after so many times if there must be a job behind a mark
SLACK = 1.0  # seconds: transactions commit jobs whose run_at is when they began
DEFAULT_PRIORITY = 0
LOWEST, HIGHEST = -32768, 32767
MAX_SEEN = 100  # priorities


class Watermarks:
    """Decides between full fetches and fetches beyond the marks, and keeps the marks."""

    def __init__(self) -> None:
        self._by_priority: dict[int, float] = {}
        self._seen = {DEFAULT_PRIORITY}  # of jobs that ran here: their dead rows have these priorities
        self._cost = 0.0
        self._full_at = 0.0

    def is_full_due(self, now: float, *, promised: bool = False) -> bool:
        """Whether the next fetch should be a full one, at this monotonic time."""
        return not self._by_priority or self.full_due_in(now, promised=promised) <= 0

    def full_due_in(self, now: float, *, promised: bool = False) -> float:
        """Seconds until a full fetch is due, while there are marks."""
        return self._full_at + self._cost * (SHARE_IF_PROMISED if promised else SHARE) - now

    def full_fetch_took(self, seconds: float, jobs: int, ended_at: float) -> bool:
        """A full fetch is over; whether marks are needed (give them with `set`). Forgets the old ones."""
        self._by_priority.clear()
        self._cost = seconds
        self._full_at = ended_at
        return seconds > SLOW + SLOW_PER_JOB * jobs

    def listing_took(self, seconds: float) -> None:
        """What it cost to learn the priorities for `set`, which is a part of a full fetch."""
        self._cost += seconds

    def set(self, priorities: Sequence[int], jobs: Sequence[Job], now: float, *, full: bool) -> None:
        """What a full fetch has seen: everything due up to `now` (seconds since 1970), or to its last job."""
        if len(self._seen) < MAX_SEEN:
            self._seen.update(job.priority for job in jobs)
        if priorities or self._cost > SLOW_BESIDE_NOTHING:
            self._set(sorted(self._seen.union(priorities)), jobs, now, full=full)

    def _set(self, priorities: Sequence[int], jobs: Sequence[Job], now: float, *, full: bool) -> None:
        plain = [(job.priority, job.raw_run_at) for job in jobs if job.job_queue_id is None]
        last, last_run_at = max(plain, default=(LOWEST - 1, 0.0))
        for priority in priorities:
            if not full or priority < last:
                self._raise(priority, now - SLACK)
            elif priority == last:
                self._raise(priority, min(last_run_at, now - SLACK))
            else:
                self._by_priority.setdefault(priority, float("-inf"))

    def advance(self, jobs: Sequence[Job], now: float, *, full: bool) -> None:
        """The same after a fetch beyond the marks."""
        unknown = {job.priority for job in jobs if job.job_queue_id is None} - self._by_priority.keys()
        for priority in unknown:  # in a gap; read from its beginning until the next full fetch
            self._by_priority[priority] = float("-inf")
        self._set(sorted(self._by_priority.keys() - unknown), jobs, now, full=full)

    def ranges(self) -> Ranges:
        """Priorities with a mark and the gaps between them: the lowest, the highest, the mark of each."""
        return ranges(self._by_priority)

    def _raise(self, priority: int, mark: float) -> None:
        self._by_priority[priority] = max(mark, self._by_priority.get(priority, mark))


def ranges(marks: Mapping[int, float]) -> Ranges:
    """All priorities there can be: those with a mark, each by itself, and the gaps between them."""
    low: list[int] = []
    high: list[int] = []
    since: list[float] = []
    begin = LOWEST
    for priority, mark in sorted(marks.items()):
        _add_gap(low, high, since, begin, priority - 1)
        low.append(priority)
        high.append(priority)
        since.append(mark)
        begin = priority + 1
    _add_gap(low, high, since, begin, HIGHEST)
    return low, high, since


def _add_gap(low: list[int], high: list[int], since: list[float], begin: int, end: int) -> None:
    if begin <= end:
        low.append(begin)
        high.append(end)
        since.append(float("-inf"))
