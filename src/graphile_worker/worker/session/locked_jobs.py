"""LockedJobs: which jobs this pool knows it has locked, and whether it may have locked others.

If a connection breaks during a statement, the statement may still have been committed. It then has locked
jobs that this pool does not know of, and that stay locked while the pool is alive. This tells them
from the jobs that were locked knowingly, so that they can be returned. It also records lost jobs, which were
recovered by another worker while they ran here: this pool must not write their outcomes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from ...values.job import Job

MOST_REPLACED = 1_000  # jobs; far more than can run at once


class LockedJobs:
    """The jobs that one pool has locked."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._added: list[Sequence[Job]] = []  # not in `_jobs` yet: unpacking a batch can wait
        self._replaced: deque[Job] = deque(maxlen=MOST_REPLACED)
        self.given_up: set[int] = set()
        """Ids of jobs that have ended and stay locked, because the database refuses every outcome.

        They are left to recovery. To return them would be refused as well, and block all other jobs.
        """
        self.unsettled: Mapping[int, Job] = {}
        """Jobs of held batches whose transaction was lost: they may be locked by this pool."""
        self.kept: set[int] = set()
        """Ids of jobs of held batches that another thread locks, until it and their batches have ended."""
        self.doubts = 0
        """How often a statement may have locked jobs without this pool knowing it."""
        self._reclaimed = 0  # of those
        self.lost: dict[int, Job] = {}
        """Jobs that were recovered by another worker and are not dropped everywhere yet.

        By identity: the pool may lock the same job again while its first run continues in a thread.
        """

    @property
    def jobs(self) -> dict[int, Job]:
        """The jobs by id."""
        if self._added:
            added, self._added = self._added, []
            known = self._jobs
            for jobs in added:
                for job in jobs:
                    if job.id in known:
                        self._replaced.append(known[job.id])
                    known[job.id] = job
            if self.given_up:
                self.given_up.difference_update(self._jobs)
        return self._jobs

    def take_replaced(self) -> list[Job]:
        """Jobs whose id was locked again since the last call: their lock has ended unnoticed.

        The schema may have been dropped and installed again, so that another job has the id.
        """
        replaced = list(self._replaced)
        self._replaced.clear()
        return replaced

    @property
    def in_doubt(self) -> bool:
        """Whether jobs may be locked that this pool does not know of."""
        return self.doubts > self._reclaimed

    def doubt(self) -> None:
        """Jobs may be locked that are not among these; a reclaim that has begun does not settle it."""
        self.doubts += 1

    def reclaimed(self, doubts: int) -> None:
        """All unknown jobs were returned, as of when there were this many doubts."""
        self._reclaimed = doubts

    @property
    def count(self) -> int:
        """How many jobs are locked; may be read from any thread."""
        return len(self._jobs) + sum(map(len, self._added))

    def add(self, jobs: Sequence[Job]) -> None:
        """Record jobs that were locked."""
        self._added.append(jobs)

    def remove(self, jobs: Iterable[Job]) -> None:
        """Forget jobs whose outcome was written or that were returned."""
        jobs_by_id = self.jobs
        for job in jobs:
            if jobs_by_id.get(job.id) is job:
                del jobs_by_id[job.id]

    def give_up(self, job: Job) -> None:
        """Leave a job locked: it has ended, but its outcome cannot be written."""
        self.remove((job,))
        self.given_up.add(job.id)

    def lose(self, jobs: Iterable[Job]) -> None:
        """Record jobs that were recovered by another worker."""
        for job in jobs:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]
            self.lost[id(job)] = job

    def is_lost(self, job: Job) -> bool:
        """Whether this run of the job belongs to another worker now."""
        return id(job) in self.lost

    def forget(self, job: Job) -> None:
        """Forget a lost job whose run has ended here."""
        self.lost.pop(id(job), None)
