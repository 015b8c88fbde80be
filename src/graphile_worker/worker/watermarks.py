"""Watermarks: how far a slow fetch has read in each priority, so that the next ones start there. Pure.

A fetch reads ready jobs by priority and run_at. It must read past rows that it cannot take: jobs of tasks
that only other workers have, or dead rows that a long transaction keeps from being vacuumed. When that makes
a fetch slow, each priority gets a watermark, and the next fetches start there. What turns up below a
watermark (a job with a run_at in the past, a returned job) is found by an occasional full fetch. Full fetches
are rare enough to take a small share of the time, and come sooner after a notification whose job was not
found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..job import Job
from ..queries.fetch import Ranges

SLOW = 0.020  # seconds: a faster fetch never sets watermarks
SLOW_WITHOUT_JOBS = 0.1  # seconds: the same if no job is waiting, so that only dead rows are read
SLOW_PER_JOB = 0.0002  # seconds that each fetched job may add on a busy machine
FULL_FETCH_AFTER = 50  # times its own duration, a full fetch is repeated ...
FULL_FETCH_AFTER_ANNOUNCED = 10  # ... or sooner, if an announced job must be below a watermark
SLACK = 1.0  # seconds: a job's run_at is when its transaction began, and that commits later
DEFAULT_PRIORITY = 0
LOWEST, HIGHEST = -32768, 32767
MAX_FETCHED_PRIORITIES = 100
FROM_START = float("-inf")


class Watermarks:
    """Keeps the watermarks and knows when the next full fetch is due."""

    def __init__(self) -> None:
        self._by_priority: dict[int, float] = {}
        self._fetched = {DEFAULT_PRIORITY}  # priorities of fetched jobs, which leave dead rows
        self._cost = 0.0
        self._full_at = 0.0

    def is_full_due(self, now: float, *, announced: bool = False) -> bool:
        """Whether the next fetch should be a full one, at this monotonic time."""
        return not self._by_priority or self.full_due_in(now, announced=announced) <= 0

    def full_due_in(self, now: float, *, announced: bool = False) -> float:
        """Seconds until a full fetch is due, if there are watermarks."""
        wait = self._cost * (FULL_FETCH_AFTER_ANNOUNCED if announced else FULL_FETCH_AFTER)
        return self._full_at + wait - now

    def full_fetch_took(self, seconds: float, jobs: int, ended_at: float) -> bool:
        """Record a full fetch and forget all watermarks; whether it was slow enough to `set` new ones."""
        self._by_priority.clear()
        self._cost = seconds
        self._full_at = ended_at
        return seconds > SLOW + SLOW_PER_JOB * jobs

    def listing_took(self, seconds: float) -> None:
        """Add the cost of listing the priorities for `set`, which is part of a full fetch."""
        self._cost += seconds

    def set(self, priorities: Sequence[int], jobs: Sequence[Job], now: float, *, full: bool) -> None:
        """Set watermarks after a full fetch.

        It has read everything due up to `now` (seconds since 1970), or to its last job if it is `full`.
        """
        if len(self._fetched) < MAX_FETCHED_PRIORITIES:
            self._fetched.update(job.priority for job in jobs)
        if priorities or self._cost > SLOW_WITHOUT_JOBS:
            self._set(sorted(self._fetched.union(priorities)), jobs, now, full=full)

    def _set(self, priorities: Sequence[int], jobs: Sequence[Job], now: float, *, full: bool) -> None:
        plain = [(job.priority, job.raw_run_at) for job in jobs if job.job_queue_id is None]
        last, last_run_at = max(plain, default=(LOWEST - 1, 0.0))
        for priority in priorities:
            if not full or priority < last:
                self._raise(priority, now - SLACK)
            elif priority == last:
                self._raise(priority, min(last_run_at, now - SLACK))
            else:
                self._by_priority.setdefault(priority, FROM_START)

    def advance(self, jobs: Sequence[Job], now: float, *, full: bool) -> None:
        """Raise the watermarks after a fetch above them."""
        unknown = {job.priority for job in jobs if job.job_queue_id is None} - self._by_priority.keys()
        for priority in unknown:  # in a gap; read from the start until the next full fetch
            self._by_priority[priority] = FROM_START
        self._set(sorted(self._by_priority.keys() - unknown), jobs, now, full=full)

    def ranges(self) -> Ranges:
        """The ranges of priorities that a fetch above the watermarks reads."""
        return ranges(self._by_priority)

    def _raise(self, priority: int, watermark: float) -> None:
        self._by_priority[priority] = max(watermark, self._by_priority.get(priority, watermark))


def ranges(watermarks: Mapping[int, float], highest: int = HIGHEST) -> Ranges:
    """All priorities up to the highest: each one with a watermark, and the gaps between them."""
    low: list[int] = []
    high: list[int] = []
    since: list[float] = []
    begin = LOWEST
    for priority, watermark in sorted(watermarks.items()):
        _add_gap(low, high, since, begin, priority - 1)
        low.append(priority)
        high.append(priority)
        since.append(watermark)
        begin = priority + 1
    _add_gap(low, high, since, begin, highest)
    return low, high, since


def ranges_up_to(priority: int, within: Ranges | None) -> Ranges:
    """These ranges, or all priorities if None, up to a priority, which is the last range."""
    if within is None:
        return ranges({priority: FROM_START}, highest=priority)
    known = {low: since for low, high, since in zip(*within, strict=True) if low == high <= priority}
    return ranges({priority: FROM_START, **known}, highest=priority)


def _add_gap(low: list[int], high: list[int], since: list[float], begin: int, end: int) -> None:
    if begin <= end:
        low.append(begin)
        high.append(end)
        since.append(FROM_START)
