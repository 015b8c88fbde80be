"""FetchPlan: which statement a fetch sends next, and what it learns from the answer. Pure.

A fetch is a generator. It yields a statement, is sent the answer and the time, and returns the locked jobs:

    full fetch ──announced?─▶ ANNOUNCED ──none─▶ PLAIN ──none─▶ MAY_QUEUES_BE_NEXT ──yes─▶ WHOLE
        └─ was slow ─▶ ListPriorities: is it the server? ──yes─▶ the next fetches start at watermarks

    above watermarks ─▶ PLAIN ──none─▶ MAY_QUEUES_BE_NEXT ──yes─▶ WHOLE
        └─ none, although a job was announced ─▶ full fetch, if it is due

HELD comes first while jobs are short and many: it finds what PLAIN does before a job with a key is next, and
writes nothing (see `held_batches`). SERIES then comes before WHOLE: it finds jobs of named queues, many of
each, if they come before all others.
ANNOUNCED is the fast path: it finds jobs of one priority if no job waits in a named queue. PLAIN finds jobs
of all priorities if no named queue may be next. WHOLE finds everything. While there are wide queues, WIDE
takes the place of PLAIN and WHOLE. With limits there are only HELD, WHOLE and WIDE. A shorter statement
that was of no use is skipped for a while. Nothing here waits, reads a clock or touches the database;
`Fetcher` does.

While enough jobs are prefetched, a fetch may be limited to those of better priorities: PLAIN, then URGENT,
which is WHOLE within this limit.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from ...database.statements.fetch import (
    FROM_START,
    LOWEST,
    MANY_PRIORITIES,
    PriorityListing,
    Ranges,
    ranges,
    ranges_up_to,
)
from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job

Kind = Literal["held", "series", "announced", "plain", "whole", "wide", "fair", "urgent"]
HELD: Kind = "held"
SERIES: Kind = "series"
ANNOUNCED: Kind = "announced"
PLAIN: Kind = "plain"
WHOLE: Kind = "whole"
WIDE: Kind = "wide"
FAIR: Kind = "fair"
URGENT: Kind = "urgent"

Question = Literal["may queues be next"]
MAY_QUEUES_BE_NEXT: Question = "may queues be next"

SKIPPED = 50  # fetches for which a shorter statement is skipped after it was of no use
LIST_AGAIN_AFTER = 10.0  # seconds after which there may be fewer priorities
MOST_TIMES_READ = 20  # with very many rows, a fetch takes up to this many times as long as reading some
EXAMINE_AGAIN_AFTER = 1.0  # seconds after which it may be the server that makes a fetch slow, if it was not
POLL_INTERVAL = 2.0  # seconds

# Watermarks
SLOW = 0.005  # seconds: a faster fetch never sets watermarks
MOST_STATEMENTS = 3  # of an ordinary full fetch; that many round trips are no reason to call it slow
SLOW_PER_JOB = 0.00002  # seconds that each fetched job may add
AS_SLOW = 3  # times the known cost, a full fetch may take without being measured again
FULL_FETCH_AFTER = 50  # times its cost, a full fetch is repeated, ...
FULL_FETCH_WITHIN = 30.0  # ... or after these seconds at the latest ...
FULL_FETCH_AFTER_AWAITED = 10  # ... or sooner, if a job must be below a watermark: after a poll interval ...
FEWEST_COSTS = 5  # ... unless that is shorter than these many costs
SLACK = 1.0  # seconds: a job's run_at is when its transaction began, and that commits later
DEFAULT_PRIORITY = 0
MAX_FETCHED_PRIORITIES = 100


class Fetch(msgspec.Struct, frozen=True):
    """A statement that locks jobs; the answer is a sequence of jobs."""

    kind: Kind
    limit: int
    ranges: Ranges | None = None
    """Read only these ranges of priorities; None walks over the priorities of waiting jobs."""


class ListPriorities(msgspec.Struct, frozen=True):
    """A statement that lists the priorities of waiting jobs; the answer is a `PriorityListing`."""

    limit: int = 0
    """Also measure how long the server takes to find this many jobs; 0 skips the measurement."""


class Demand(msgspec.Struct, frozen=True):
    """What the pool wants now."""

    limit: int
    """How many jobs: free slots, and those to prefetch."""
    tasks: Mapping[int, str]
    """Ids and identifiers of the tasks that may run."""
    announced: bool = False
    """Whether a notification announced a job."""
    may_hold: bool = False
    """Whether jobs may run inside the transaction that fetches them."""
    one_at_a_time: bool = False
    """Whether the rules for flags may change from job to job."""
    flags: FlagRules = NO_RULES
    now: datetime | None = None
    """The worker's time; None for the server's."""
    up_to: int | None = None
    """Lock only jobs of this priority or a better one; None for all."""


T = TypeVar("T")
Step = Fetch | ListPriorities | Question
Steps = Generator[Step, tuple[Any, float], T]
"""Statements out; answers in, each with the monotonic time at which it came."""


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
    """How far a slow fetch has read in each priority, so that the next ones start there.

    A fetch reads ready jobs by priority and run_at. It must read past rows that it cannot take: jobs of
    tasks that only other workers have, or dead rows that a long transaction keeps from being vacuumed.
    When that makes a fetch slow, each priority gets a watermark, and the next fetches start there. What
    turns up below a watermark (a job with a run_at in the past, a returned job) is found by an occasional
    full fetch.

    A full fetch may take long for other reasons: it waits for a lock, or a task blocks the event loop.
    Only what the server needs to read past rows is a cost. Full fetches are rare enough to be a small
    share of the time, and come sooner if a job was announced and not found, or if jobs were freed. Even a
    cost that was measured wrongly hides nothing for long: the first full fetch comes after a poll
    interval, and the time until the next at most doubles while they remain slow.
    """

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
        if cost <= SLOW:
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


class FetchPlan:
    """Chooses the statements of one pool's fetches."""

    def __init__(
        self,
        *,
        has_queue_indexes: bool = True,
        is_limited: bool = False,
        poll_interval: float = POLL_INTERVAL,
    ) -> None:
        """Without indexes for named queues only WHOLE is of use. `is_limited`: HELD and WHOLE keep limits."""
        self._is_limited = is_limited
        self.is_wide = False
        """Whether there are queues that may run several jobs at once."""
        self.round_trip = 0.0
        """Seconds that each statement takes because the server is far away."""
        self._poll_interval = poll_interval
        self._watermarks = Watermarks(poll_interval)
        self._tasks: Mapping[int, str] = {}  # what the watermarks were set for
        self._fast_until = 0.0  # until then a slow fetch does not make us suspect the server
        self._is_awaited = False  # a job was announced and none was found since
        self._is_announced = False  # a job was announced since the last full fetch
        self._is_freed = False  # jobs were freed since the last full fetch
        self._skip_announced = 0  # fetches
        has_plain = has_queue_indexes and not is_limited
        self._skip_plain = 0 if has_plain else sys.maxsize  # fetches
        self._all_ranges: Ranges | None = None  # set while there are too many priorities to walk over
        self._listed_at = 0.0
        self._server_ahead = 0.0  # seconds since 1970 by the server's clock, less the monotonic time
        self.room: int | None = None
        """How many jobs the last statement could lock at most, if something bounds it beside its limit."""
        self.has_left_some = False
        """Whether the last statement may have left ready jobs although it found fewer than its limit."""

    def fetch(self, demand: Demand, began: float) -> Steps[Sequence[Job]]:
        """The statements of one fetch."""
        if demand.tasks is not self._tasks:
            self._change_tasks(demand.tasks)
        if demand.up_to is not None:
            return self._fetch_urgent(demand, demand.up_to)
        if demand.announced:
            self._is_awaited = self._is_announced = True
        if demand.one_at_a_time or self._watermarks.is_full_due(began, awaited=self._is_freed):
            return self._fetch_all(demand, began, try_announced=demand.announced)
        return self._fetch_above_watermarks(demand, began)

    def _fetch_urgent(self, demand: Demand, up_to: int) -> Steps[Sequence[Job]]:
        """PLAIN, and URGENT if a named queue may be next. It reads only a part, so nothing is learnt."""
        ranges = ranges_up_to(up_to, self._all_ranges or self._watermarks.ranges())
        jobs: Sequence[Job] = ()
        may_be_next = True
        if self._skip_plain <= 0:
            jobs, _ = yield Fetch(PLAIN, demand.limit, ranges)
            if not jobs:
                may_be_next, _ = yield MAY_QUEUES_BE_NEXT
        if not jobs and may_be_next:
            jobs, _ = yield Fetch(URGENT, demand.limit, ranges)
        return jobs

    def full_fetch_in(self, now: float) -> float | None:
        """Seconds until a full fetch may find a job below a watermark; None if none is expected there."""
        if not self._is_announced and not self._is_freed:
            return None
        return max(0.0, self._watermarks.full_due_in(now, awaited=self._is_awaited or self._is_freed))

    def jobs_freed(self) -> None:
        """Expect ready jobs below the watermarks: some were returned, unlocked or rescheduled."""
        self._is_freed = True

    def forget_watermarks(self) -> None:
        """Make the next fetch a full one, whatever it costs."""
        self._watermarks = Watermarks(self._poll_interval)

    def forget(self) -> None:
        """Forget what was learnt about waiting jobs."""
        self.forget_watermarks()
        self._all_ranges = None

    def _change_tasks(self, tasks: Mapping[int, str]) -> None:
        """Watermarks say what was read for these tasks: for a new one they say nothing."""
        if not tasks.keys() <= self._tasks.keys():
            self.forget_watermarks()
        self._tasks = tasks

    def _fetch_all(
        self, demand: Demand, began: float, *, try_announced: bool = False
    ) -> Steps[Sequence[Job]]:
        expected = self._is_awaited, self._is_announced, self._is_freed
        self._is_awaited = self._is_announced = self._is_freed = False
        try:
            jobs, ended = yield from self._lock_any(demand, began, try_announced=try_announced)
        except BaseException:  # what is expected was not looked for
            self._is_awaited |= expected[0]
            self._is_announced |= expected[1]
            self._is_freed |= expected[2]
            raise
        near = ended - began - MOST_STATEMENTS * self.round_trip
        is_slow = self._watermarks.full_fetch_took(near, len(jobs), ended)
        if is_slow and ended > self._fast_until:
            yield from self._examine(demand, jobs, began, ended)
        return jobs

    def _lock_any(
        self, demand: Demand, began: float, *, try_announced: bool
    ) -> Steps[tuple[Sequence[Job], float]]:
        """The jobs of a full fetch, and when they came."""
        if try_announced and not demand.may_hold:
            if self._skip_announced > 0:
                self._skip_announced -= 1
            elif self._skip_plain <= 0:
                announced: tuple[Sequence[Job], float] = yield Fetch(ANNOUNCED, demand.limit)
                self._skip_announced = 0 if announced[0] else SKIPPED
                if announced[0]:
                    return announced
        if self._all_ranges is not None and began > self._listed_at + LIST_AGAIN_AFTER:
            yield from self._list_priorities()
        return (yield from self._lock(demand, self._all_ranges))

    def _examine(self, demand: Demand, jobs: Sequence[Job], began: float, ended: float) -> Steps[None]:
        """Set watermarks if a full fetch was slow because it read past many rows."""
        watermarks, seconds = self._watermarks, ended - began
        reach = reach_of(jobs, full=self._is_full(demand, jobs))
        is_measured = not demand.one_at_a_time and not watermarks.explain(seconds)
        try:
            listing = yield from self._list_priorities(demand.limit if is_measured else 0)
        except Exception:  # do without watermarks: the jobs are locked and must reach the slots
            return
        if demand.one_at_a_time or watermarks is not self._watermarks:
            return
        cost, more = watermarks.cost, listing.seconds
        if is_measured:
            # If it stopped early, the fetch read for up to this many times as long; the rest was waiting.
            cost, more = listing.seconds * (MOST_TIMES_READ if listing.is_cut else 1), 0.0
        # Jobs that became due while the statement ran were not read.
        read_up_to = self._time_at(began, demand.now)
        watermarks.set(listing.priorities, reach, read_up_to, cost=min(seconds, cost), listing=more)
        if not watermarks.cost:
            self._fast_until = self._listed_at + EXAMINE_AGAIN_AFTER

    def _fetch_above_watermarks(self, demand: Demand, began: float) -> Steps[Sequence[Job]]:
        read_up_to = self._time_at(began, demand.now)
        jobs, ended = yield from self._lock(demand, self._watermarks.ranges())
        self._watermarks.advance(jobs, read_up_to, full=self._is_full(demand, jobs))
        if jobs:
            self._is_awaited = False
        elif self._is_awaited and self._watermarks.is_full_due(ended, awaited=True):
            return (yield from self._fetch_all(demand, ended))
        return jobs

    def _lock(self, demand: Demand, ranges: Ranges | None) -> Steps[tuple[Sequence[Job], float]]:
        """HELD and PLAIN, which find nothing if a named queue may be next; then WHOLE. Limits: no PLAIN."""
        limit = demand.limit
        if self.is_wide:
            return (yield Fetch(WIDE, limit, ranges))
        if self._skip_plain <= 0:
            if demand.may_hold:
                held: tuple[Sequence[Job] | None, float] = yield Fetch(HELD, limit, ranges)
                jobs, ended = held
            if not demand.may_hold or not jobs:  # HELD finds none with a key
                jobs, ended = yield Fetch(PLAIN, limit, ranges)
            if jobs:
                return jobs, ended
            may_be_next, ended = yield MAY_QUEUES_BE_NEXT
            if not may_be_next:
                return jobs, ended
            self._skip_plain = SKIPPED
        self._skip_plain -= 1
        if demand.may_hold:
            early: tuple[Sequence[Job] | None, float]
            early = yield Fetch(HELD, limit, ranges) if self._is_limited else Fetch(SERIES, limit)
            if early[0]:
                return early[0], early[1]
        whole: tuple[Sequence[Job], float] = yield Fetch(WHOLE, limit, ranges)
        was_plain_skipped = demand.may_hold and not self._is_limited
        if was_plain_skipped and whole[0] and all(job.job_queue_id is None for job in whole[0]):
            self._skip_plain = 0  # no queue is next any more
        return whole

    def _is_full(self, demand: Demand, jobs: Sequence[Job]) -> bool:
        """Whether more jobs may be ready than were locked."""
        return self.has_left_some or len(jobs) >= (demand.limit if self.room is None else self.room)

    def _list_priorities(self, limit: int = 0) -> Steps[PriorityListing]:
        """List the priorities of waiting jobs. If there are very many, list some and read the rest as one."""
        listing: PriorityListing
        listing, self._listed_at = yield ListPriorities(limit)
        self._server_ahead = listing.now - self._listed_at
        are_too_many = len(listing.priorities) >= MANY_PRIORITIES
        self._all_ranges = ranges(dict.fromkeys(listing.priorities, FROM_START)) if are_too_many else None
        return listing

    def _time_at(self, at: float, local: datetime | None) -> float:
        """Up to when jobs were certainly due at this monotonic time, in seconds since 1970.

        Jobs get their run_at by the server's clock. A worker that uses its own clock reads what is due by
        that one; if it is ahead, jobs are added later with a run_at that it has already read past.
        """
        server = at + self._server_ahead
        return server if local is None else min(server, local.timestamp())
