"""AddedJobs: counts the jobs that clients and workers of this process add."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import JobRefusedError
from ..job import Job
from ..spec import CronJob, JobSpec
from .counts import WorkerCounts


class AddedJobCounts:
    """Watches adds. One of a transaction that is rolled back later is counted, too."""

    def __init__(self, counts: WorkerCounts) -> None:
        self.counts = counts

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        """Keep the specs for `after`."""
        return specs, specs

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        """Count what became of them; `jobs` is empty if another worker was first with a recurring job."""
        result = "added" if error is None else "refused" if isinstance(error, JobRefusedError) else "error"
        for spec in state if isinstance(state, Sequence) else ():
            if not isinstance(spec, CronJob):
                self.counts.added[spec.task_identifier][result] += 1
            elif error is None and (jobs is None or jobs):
                self.counts.cron_jobs[spec.task_identifier]["added"] += 1
