"""Series: the jobs of named queues in a held batch run one after the other. Pure.

A `HeldSeries` has the jobs of one batch, queue by queue. One job of each queue is with the source or runs;
when it has completed, the next one follows. The series of a queue ends early at a job that did anything but
complete: that job keeps the queue, and the rest is released. `SeriesPolicy` decides how many queues a batch
takes, and how many jobs of each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from ...values.job import Job
from .policy import SHARE, HoldPolicy, Workload

FEWEST_IN_SERIES = 10  # jobs of a batch; fewer are not worth two transactions
CONTINUED, MOST_CONTINUED = 2, 64  # jobs that writes lock one by one until a fetch looks for series
LONG = 20  # jobs of one queue; with more of each, fewer queues would gain nothing
SHORT = 2  # jobs of each queue on average; fewer cost as much as ordinary fetches


class HeldSeries:
    """The jobs of the queues of one batch."""

    def __init__(self, queues: Sequence[int], locked_at: datetime, epoch: int, jobs: Iterable[Job]) -> None:
        """`jobs`: those of each queue in run order; `epoch`: that of the lease."""
        self.queues = queues
        """Ids of all queues that were locked for the batch, with jobs or without."""
        self.locked_at = locked_at
        self.epoch = epoch
        self.began_at = 0.0
        """When its first jobs could start, by the monotonic clock."""
        self._waiting: dict[int, deque[Job]] = {}
        self.first: list[Job] = []
        """The first job of each queue."""
        self.waiting = 0
        """How many jobs follow others."""
        for job in jobs:
            queue_id = job.job_queue_id or 0
            waiting = self._waiting.get(queue_id)
            if waiting is None:
                self._waiting[queue_id] = deque()
                self.first.append(job)
            else:
                waiting.append(job)
                self.waiting += 1

    def next_after(self, job: Job) -> Job | None:
        """The job that follows this one, which has completed."""
        waiting = self._waiting[job.job_queue_id or 0]
        if not waiting:
            return None
        self.waiting -= 1
        return waiting.popleft()

    def end(self, job: Job) -> list[Job]:
        """Let nothing follow this job; returns what would have."""
        waiting = self._waiting[job.job_queue_id or 0]
        rest = list(waiting)
        waiting.clear()
        self.waiting -= len(rest)
        return rest

    def end_all(self) -> list[Job]:
        """Let nothing follow; returns what would have."""
        rest = [job for waiting in self._waiting.values() for job in waiting]
        for waiting in self._waiting.values():
            waiting.clear()
        self.waiting = 0
        return rest

    def without(self, outlasting: Iterable[Job]) -> list[int]:
        """The queues that none of these jobs keeps."""
        kept = {job.job_queue_id for job in outlasting}
        return [queue_id for queue_id in self.queues if queue_id not in kept]


class SeriesSize(msgspec.Struct, frozen=True):
    """How much a batch of series takes."""

    queues: int
    jobs: int
    longest: int
    """Jobs of one queue."""

    def of_each(self, queues: int) -> int:
        """How many jobs of each queue, if there are this many: all get the same share."""
        return min(self.longest, math.ceil(self.jobs / queues))


class SeriesPolicy(HoldPolicy):
    """Decides for the batches of series of one pool, and learns from how they end."""

    fewest = FEWEST_IN_SERIES

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self._depth: float = LONG  # jobs of a queue, at most
        self._pace = 0.0  # seconds for each job of the last batch
        self.continued = CONTINUED
        """After how many jobs that writes have locked one by one a fetch looks for series."""

    def tried(self) -> None:
        """A fetch looks for series: if it finds none, the next one looks later."""
        self.continued = min(2 * self.continued, MOST_CONTINUED)

    def size(self, workload: Workload, limit: int) -> SeriesSize | None:
        """How much the next batch takes; None if jobs are too slow for series."""
        jobs = min(limit, self.most)
        if self._pace:
            jobs = min(jobs, int(self.seconds * SHARE / self._pace))
        longest = jobs
        if workload.run_time:
            longest = min(jobs, int(self.seconds * SHARE / workload.run_time))
        if longest < FEWEST_IN_SERIES:
            return None
        queues = max(math.ceil(jobs / min(longest, self._depth)), workload.concurrency)
        return SeriesSize(queues=min(queues, jobs), jobs=jobs, longest=longest)

    def ran(self, jobs: int, seconds: float) -> None:
        """So many jobs of a batch have ended in this time."""
        if jobs >= FEWEST_IN_SERIES:
            self._pace = seconds / jobs

    def found(self, size: SeriesSize, queues: int, jobs: int) -> None:
        """A batch has taken this many queues and jobs."""
        self._depth = LONG if jobs >= size.jobs else min(LONG, max(1.0, jobs / queues))
        if jobs < FEWEST_IN_SERIES or jobs < SHORT * queues:
            self.hold_less()
        else:
            self.continued = CONTINUED
