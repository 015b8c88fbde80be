"""PrefetchedJobs: jobs that wait for a slot, in the order in which they run: by priority, then by run_at."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from operator import attrgetter

from ..job import Job

NO_CEILING = 1 << 15  # worse than every priority

_run_order = attrgetter("priority", "raw_run_at")


class PrefetchedJobs(deque[Job]):
    """A deque, so that a slot takes the next job with a plain `popleft`."""

    __slots__ = ()

    def add(self, jobs: Sequence[Job]) -> None:
        """Add jobs, which are in run order, to the others.

        Usually they come after all others, which costs one comparison.
        """
        if self and jobs and _run_order(jobs[0]) < _run_order(self[-1]):
            merged = sorted([*self, *jobs], key=_run_order)  # linear for two sorted runs
            self.clear()
            self.extend(merged)
        else:
            self.extend(jobs)

    def drop(self, is_dropped: Callable[[Job], bool]) -> list[Job]:
        """Remove and return the jobs for which `is_dropped` is true."""
        dropped = [job for job in self if is_dropped(job)]
        if dropped:
            kept = [job for job in self if not is_dropped(job)]
            self.clear()
            self.extend(kept)
        return dropped

    def take_all(self) -> list[Job]:
        """Remove and return all jobs."""
        jobs = list(self)
        self.clear()
        return jobs
