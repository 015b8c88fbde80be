"""FetchPlan: which statement a fetch sends next, and what it learns from the answer. Pure.

A fetch is a generator. It yields a statement, is sent the answer and the time, and returns the locked jobs:

    full fetch ──announced?─▶ ANNOUNCED ──none─▶ PLAIN ──none─▶ MAY_QUEUES_BE_NEXT ──yes─▶ WHOLE
        └─ was slow ─▶ LIST_PRIORITIES, and the next fetches start at watermarks

    above watermarks ─▶ PLAIN ──none─▶ MAY_QUEUES_BE_NEXT ──yes─▶ WHOLE
        └─ none, although a job was announced ─▶ full fetch, if it is due

HELD comes first while jobs are short and many: it finds what PLAIN does and writes nothing (see `holds`).
ANNOUNCED is the fast path: it finds jobs of one priority if no job waits in a named queue. PLAIN finds jobs
of all priorities if no named queue may be next. WHOLE finds everything. While there are wide queues, WIDE
takes the place of PLAIN and WHOLE. A shorter statement that was of no use is skipped for a while. Nothing
here waits, reads a clock or touches the database; `Fetcher` does.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeVar

import msgspec

from ..job import Job
from ..queries.fetch import MANY_PRIORITIES, Ranges
from .watermarks import FROM_START, Watermarks, ranges

Kind = Literal["held", "announced", "plain", "whole", "wide", "fair"]
HELD: Kind = "held"
ANNOUNCED: Kind = "announced"
PLAIN: Kind = "plain"
WHOLE: Kind = "whole"
WIDE: Kind = "wide"
FAIR: Kind = "fair"

Question = Literal["may queues be next", "list priorities"]
MAY_QUEUES_BE_NEXT: Question = "may queues be next"
LIST_PRIORITIES: Question = "list priorities"

SKIPPED = 50  # fetches for which a shorter statement is skipped after it was of no use
LIST_AGAIN_AFTER = 10.0  # seconds after which there may be fewer priorities


class Fetch(msgspec.Struct, frozen=True):
    """A statement that locks jobs; the answer is a sequence of jobs."""

    kind: Kind
    limit: int
    ranges: Ranges | None = None
    """Read only these ranges of priorities; None walks over the priorities of waiting jobs."""


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
    """Whether the forbidden flags may change from job to job."""
    forbidden_flags: Sequence[str] | None = None
    now: datetime | None = None
    """The worker's time; None for the server's."""


T = TypeVar("T")
Step = Fetch | Question
Steps = Generator[Step, tuple[Any, float], T]
"""Statements out; answers in, each with the monotonic time at which it came."""


class FetchPlan:
    """Chooses the statements of one pool's fetches."""

    def __init__(self, *, has_queue_indexes: bool = True) -> None:
        """Without indexes for named queues only WHOLE is of use."""
        self.is_wide = False
        """Whether there are queues that may run several jobs at once."""
        self._watermarks = Watermarks()
        self._tasks: Mapping[int, str] = {}  # what the watermarks were set for
        self._is_awaited = False  # a job was announced and none was found since
        self._is_announced = False  # a job was announced since the last full fetch
        self._skip_announced = 0  # fetches
        self._skip_plain = 0 if has_queue_indexes else sys.maxsize  # fetches
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
        if demand.announced:
            self._is_awaited = self._is_announced = True
        if demand.one_at_a_time or self._watermarks.is_full_due(began):
            return self._fetch_all(demand, began, try_announced=demand.announced)
        return self._fetch_above_watermarks(demand, began)

    def full_fetch_in(self, now: float) -> float | None:
        """Seconds until a full fetch may find an announced job below a watermark; None if there is none."""
        if not self._is_announced:
            return None
        return max(0.0, self._watermarks.full_due_in(now, announced=self._is_awaited))

    def forget_watermarks(self) -> None:
        """Make the next fetch a full one, whatever it costs."""
        self._watermarks = Watermarks()

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
        self._is_awaited = self._is_announced = False
        jobs: Sequence[Job] = ()
        ended = began
        if try_announced and not demand.may_hold:
            if self._skip_announced > 0:
                self._skip_announced -= 1
            elif self._skip_plain <= 0:
                jobs, ended = yield Fetch(ANNOUNCED, demand.limit)
                self._skip_announced = 0 if jobs else SKIPPED
        if not jobs:
            if self._all_ranges is not None and began > self._listed_at + LIST_AGAIN_AFTER:
                yield from self._list_priorities()
            jobs, ended = yield from self._lock(demand, self._all_ranges)
        if self._watermarks.full_fetch_took(ended - began, len(jobs), ended):
            yield from self._set_watermarks(demand, jobs, began, ended)
        return jobs

    def _fetch_above_watermarks(self, demand: Demand, began: float) -> Steps[Sequence[Job]]:
        read_up_to = self._time_of(demand, began)
        jobs, ended = yield from self._lock(demand, self._watermarks.ranges())
        self._watermarks.advance(jobs, read_up_to, full=self._is_full(demand, jobs))
        if jobs:
            self._is_awaited = False
        elif self._is_awaited and self._watermarks.is_full_due(ended, announced=True):
            return (yield from self._fetch_all(demand, ended))
        return jobs

    def _lock(self, demand: Demand, ranges: Ranges | None) -> Steps[tuple[Sequence[Job], float]]:
        """HELD and PLAIN, which find nothing if a named queue may be next; then WHOLE."""
        limit = demand.limit
        if self.is_wide:
            return (yield Fetch(WIDE, limit, ranges))
        if self._skip_plain <= 0:
            if demand.may_hold:
                held: tuple[Sequence[Job] | None, float] = yield Fetch(HELD, limit, ranges)
                jobs, ended = held
            if not demand.may_hold or jobs is None:
                jobs, ended = yield Fetch(PLAIN, limit, ranges)
            if jobs:
                return jobs, ended
            may_be_next, ended = yield MAY_QUEUES_BE_NEXT
            if not may_be_next:
                return jobs, ended
            self._skip_plain = SKIPPED
        self._skip_plain -= 1
        return (yield Fetch(WHOLE, limit, ranges))

    def _set_watermarks(self, demand: Demand, jobs: Sequence[Job], began: float, ended: float) -> Steps[None]:
        try:
            priorities = yield from self._list_priorities()
        except Exception:  # do without watermarks: the jobs are locked and must reach the slots
            return
        self._watermarks.listing_took(self._listed_at - ended)
        if not demand.one_at_a_time:
            # Jobs that became due while the statement ran were not read.
            read_up_to = self._time_of(demand, began)
            self._watermarks.set(priorities, jobs, read_up_to, full=self._is_full(demand, jobs))

    def _is_full(self, demand: Demand, jobs: Sequence[Job]) -> bool:
        """Whether more jobs may be ready than were locked."""
        return self.has_left_some or len(jobs) >= (demand.limit if self.room is None else self.room)

    def _list_priorities(self) -> Steps[list[int]]:
        """List the priorities of waiting jobs. If there are very many, list some and read the rest as one."""
        priorities: list[int]
        (priorities, server_time), self._listed_at = yield LIST_PRIORITIES
        self._server_ahead = server_time - self._listed_at
        are_too_many = len(priorities) >= MANY_PRIORITIES
        self._all_ranges = ranges(dict.fromkeys(priorities, FROM_START)) if are_too_many else None
        return priorities

    def _time_of(self, demand: Demand, at: float) -> float:
        """What a statement sent at this monotonic time takes for now, in seconds since 1970."""
        return at + self._server_ahead if demand.now is None else demand.now.timestamp()
