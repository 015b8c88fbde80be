"""Watermarks: how far a slow fetch has read in each priority, so that the next ones start there. Pure.

A fetch reads ready jobs by priority and run_at. It must read past rows that it cannot take: jobs of tasks
that only other workers have, or dead rows that a long transaction keeps from being vacuumed. When that makes
a fetch slow, each priority gets a watermark, and the next fetches start there. What turns up below a
watermark (a job with a run_at in the past, a returned job) is found by an occasional full fetch.

A full fetch may take long for other reasons: it waits for a lock, or a task blocks the event loop. Only what
the server needs to read past rows is a cost. Full fetches are rare enough to be a small share of the time,
and come sooner if a job was announced and not found, or if jobs were freed. Even a cost that was measured
wrongly hides nothing for long: the first full fetch comes after a poll interval, and the time until the next
at most doubles while they remain slow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ...database.statements.fetch import Ranges
from ...values.job import Job

SLOW = 0.020  # seconds: a faster fetch never sets watermarks
SLOW_WITHOUT_JOBS = 0.1  # seconds: the same if no job is waiting, so that only dead rows are read
SLOW_PER_JOB = 0.0002  # seconds that each fetched job may add on a busy machine
AS_SLOW = 3  # times the known cost, a full fetch may take without being measured again
FULL_FETCH_AFTER = 50  # times its cost, a full fetch is repeated, ...
FULL_FETCH_WITHIN = 30.0  # ... or after these seconds at the latest ...
FULL_FETCH_AFTER_AWAITED = 10  # ... or sooner, if a job must be below a watermark: after a poll interval ...
FEWEST_COSTS = 5  # ... unless that is shorter than these many costs
SLACK = 1.0  # seconds: a job's run_at is when its transaction began, and that commits later
DEFAULT_PRIORITY = 0
LOWEST, HIGHEST = -32768, 32767
NO_CEILING = HIGHEST + 1  # worse than every priority
MAX_FETCHED_PRIORITIES = 100
FROM_START = float("-inf")


class Reach(msgspec.Struct, frozen=True):
    """How far a fetch has read: to the end, or to its last job if it has left some."""

    priorities: frozenset[int]
    """Those of its jobs."""
    last: tuple[int, float] | None
    """Priority and run_at of the last job without a queue, if it may have left some; None: to the end."""


def reach_of(jobs: Sequence[Job], *, full: bool) -> Reach:
    """How far a fetch has read that found these jobs; `full` if more may be ready."""
    priorities = frozenset(job.priority for job in jobs)
    if not full:
        return Reach(priorities, None)
    plain = ((job.priority, job.raw_run_at) for job in jobs if job.job_queue_id is None)
    return Reach(priorities, max(plain, default=(LOWEST - 1, 0.0)))


class Watermarks:
    """Keeps the watermarks and knows when the next full fetch is due."""

    def __init__(self, poll_interval: float) -> None:
        self._poll_interval = poll_interval
        self._by_priority: dict[int, float] = {}
        self._fetched = {DEFAULT_PRIORITY}  # priorities of fetched jobs, which leave dead rows
        self.cost = 0.0
        """Seconds that the server needs to read past rows; 0 if that is fast."""
        self._wait = 0.0  # seconds until the next full fetch
        self._full_at = 0.0

    def is_full_due(self, now: float, *, awaited: bool = False) -> bool:
        """Whether the next fetch should be a full one, at this monotonic time."""
        return not self._by_priority or self.full_due_in(now, awaited=awaited) <= 0

    def full_due_in(self, now: float, *, awaited: bool = False) -> float:
        """Seconds until a full fetch is due; `awaited` if a job is probably below a watermark."""
        wait = self._wait
        if awaited:
            longest = max(self._poll_interval, FEWEST_COSTS * self.cost)
            wait = min(wait, longest, FULL_FETCH_AFTER_AWAITED * self.cost)
        return self._full_at + wait - now

    def full_fetch_took(self, seconds: float, jobs: int, ended_at: float) -> bool:
        """Record a full fetch and forget all watermarks; whether it was slow, for whatever reason."""
        self._by_priority.clear()
        self._full_at = ended_at
        if seconds > SLOW + SLOW_PER_JOB * jobs:
            return True
        self.cost = self._wait = 0.0
        return False

    def explain(self, seconds: float) -> bool:
        """Whether a full fetch that took so long was as slow as the last one whose cost was measured."""
        return seconds <= AS_SLOW * self.cost

    def set(
        self, priorities: Sequence[int], reach: Reach, now: float, *, cost: float, listing: float = 0.0
    ) -> None:
        """Set watermarks after a slow full fetch, unless reading past rows is not what made it slow.

        It has read everything due up to `now` (seconds since 1970). `cost`: seconds that the server needs to
        read past the rows that cannot be taken; `listing`: seconds more to list the priorities each time.
        """
        if len(self._fetched) < MAX_FETCHED_PRIORITIES:
            self._fetched.update(reach.priorities)
        if cost <= (SLOW if priorities else SLOW_WITHOUT_JOBS):
            self.cost = self._wait = 0.0
            return
        longest = min(FULL_FETCH_AFTER * (cost + listing), max(FULL_FETCH_WITHIN, FEWEST_COSTS * cost))
        self._wait = min(longest, max(2 * self._wait, self._poll_interval))
        self.cost = cost
        self._set(sorted(self._fetched.union(priorities)), reach, now)

    def _set(self, priorities: Sequence[int], reach: Reach, now: float) -> None:
        last = reach.last
        for priority in priorities:
            if last is None or priority < last[0]:
                self._raise(priority, now - SLACK)
            elif priority == last[0]:
                self._raise(priority, min(last[1], now - SLACK))
            else:
                self._by_priority.setdefault(priority, FROM_START)

    def advance(self, jobs: Sequence[Job], now: float, *, full: bool) -> None:
        """Raise the watermarks after a fetch above them."""
        unknown = {job.priority for job in jobs if job.job_queue_id is None} - self._by_priority.keys()
        for priority in unknown:  # in a gap; read from the start until the next full fetch
            self._by_priority[priority] = FROM_START
        self._set(sorted(self._by_priority.keys() - unknown), reach_of(jobs, full=full), now)

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
