"""Ledger: which jobs this pool has locked, as far as it knows, and whether it may have locked others.

A connection that breaks in the middle of a statement leaves open whether the statement was committed. If it
was, jobs are locked of which this pool never heard, and nobody would run them while the pool lives. The
ledger tells them apart from those that are being run, so that they can be given back. The other way round,
it remembers jobs that others took away while they were being run here: their outcome is not ours to write.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..job import Job


class Ledger:
    """The jobs that one pool holds."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}
        self.in_doubt = False
        """Whether a statement that locks jobs may have been committed without our knowledge."""
        self.lost: dict[int, Job] = {}
        """Jobs that were taken from this pool and are not dropped everywhere yet.

        By identity: the pool may lock the same job again while its first run goes on in a thread.
        """

    def enter(self, jobs: Iterable[Job]) -> None:
        """These jobs were locked."""
        for job in jobs:
            self.jobs[job.id] = job

    def strike(self, jobs: Iterable[Job]) -> None:
        """These jobs were written or given back."""
        for job in jobs:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]

    def lose(self, jobs: Iterable[Job]) -> None:
        """These jobs were taken away."""
        for job in jobs:
            if self.jobs.get(job.id) is job:
                del self.jobs[job.id]
            self.lost[id(job)] = job

    def is_lost(self, job: Job) -> bool:
        """Whether this run of the job is none of ours any more."""
        return id(job) in self.lost

    def forget(self, job: Job) -> None:
        """Nothing more will be heard of this run."""
        self.lost.pop(id(job), None)
