"""Holdings: which jobs this pool has locked, as far as it knows, and whether it may have locked others.

A connection that breaks in the middle of a statement leaves open whether the statement was committed. If it
was, jobs are locked of which this pool never heard, and nobody would run them while the pool lives. The
holdings tells them apart from those that are being run, so that they can be given back. The other way round,
it remembers jobs that others took away while they were being run here: their outcome is not ours to write.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..job import Job


class Holdings:
    """The jobs that one pool holds."""

    def __init__(self) -> None:
        self._jobs: dict[int, Job] = {}
        self._entered: list[Sequence[Job]] = []  # not looked at yet: that may wait until there is time
        self.given_up: set[int] = set()
        """Jobs that have ended and stay locked, because the database refuses every outcome of theirs.

        They are left to recovery: to give them back would be refused as well, and hold up all others.
        """
        self.in_doubt = False
        """Whether a statement that locks jobs may have been committed without our knowledge."""
        self.lost: dict[int, Job] = {}
        """Jobs that were taken from this pool and are not dropped everywhere yet.

        By identity: the pool may lock the same job again while its first run goes on in a thread.
        """

    @property
    def jobs(self) -> dict[int, Job]:
        """By their ids."""
        if self._entered:
            entered, self._entered = self._entered, []
            for jobs in entered:
                for job in jobs:
                    self._jobs[job.id] = job
            if self.given_up:
                self.given_up.difference_update(self._jobs)
        return self._jobs

    @property
    def count(self) -> int:
        """How many jobs are held; may be read from any thread."""
        return len(self._jobs) + sum(map(len, self._entered))

    def enter(self, jobs: Sequence[Job]) -> None:
        """These jobs were locked."""
        self._entered.append(jobs)

    def strike(self, jobs: Iterable[Job]) -> None:
        """These jobs were written or given back."""
        held = self.jobs
        for job in jobs:
            if held.get(job.id) is job:
                del held[job.id]

    def give_up(self, job: Job) -> None:
        """This job has ended, but that cannot be written."""
        self.strike((job,))
        self.given_up.add(job.id)

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
