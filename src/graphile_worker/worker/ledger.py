"""Ledger: which jobs this pool has locked, as far as it knows, and whether it may have locked others.

A connection that breaks in the middle of a statement leaves open whether the statement was committed. If it
was, jobs are locked of which this pool never heard, and nobody would run them while the pool lives. The
ledger tells them apart from those that are being run, so that they can be given back.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..job import Job


class Ledger:
    """The ids of the jobs that one pool holds."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.in_doubt = False
        """Whether a statement that locks jobs may have been committed without our knowledge."""

    def enter(self, jobs: Iterable[Job]) -> None:
        """These jobs were locked."""
        self.ids.update(job.id for job in jobs)

    def strike(self, jobs: Iterable[Job]) -> None:
        """These jobs were written or given back."""
        self.ids.difference_update([job.id for job in jobs])
