"""What the workers and clients of this process do, in plain numbers.

Counts what the workers of this process do, in plain numbers: a lock and a call for each job cost too much.

Successful jobs, which may be tens of thousands a second, are counted by written batch. Everything else is
rare enough for an event each. All of it happens on the event loop; scrapes read from another thread.

AddedJobs: counts the jobs that clients and workers of this process add.

Bounds the values of the label `task`: every value is a time series that Prometheus keeps.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ..errors import JobRefusedError
from ..hooks import LivePool, WorkerContext
from ..hooks.events import (
    JobCancelled,
    JobErrored,
    JobExpired,
    JobFailed,
    JobInterrupted,
    JobSnoozed,
    LocalQueueReturnJobs,
    PoolEvicted,
    PoolJobsFetched,
    PoolJobsReturned,
    PoolListenError,
    PoolLoopBlocked,
    PoolOutcomesWritten,
    PoolReleased,
    ResetLockedFailure,
    WorkerCreated,
    WorkerGetJobError,
    WorkerRecovered,
)
from ..values.job import Job
from ..values.outcome import Completed, Finished
from ..values.spec import CronJob, JobSpec
from .catalogue import OTHER
from .counter import wait_of, waits_of

T = TypeVar("T")

logger = logging.getLogger("graphile_worker.metrics")


class ByTask(dict[str, T], Generic[T]):
    """Something for each task, and one for all tasks beyond the bound. Use `found[name]`."""

    def __init__(self, make: Callable[[], T], max_tasks: int) -> None:
        super().__init__()
        self._make = make
        self._max_tasks = max_tasks

    def __missing__(self, name: str) -> T:
        if len(self) >= self._max_tasks:
            if OTHER not in self:
                logger.warning(
                    "there are more than %d tasks; the metrics of further ones have the label task=%r",
                    self._max_tasks,
                    OTHER,
                )
                self[OTHER] = self._make()
            return self[OTHER]
        made = self[name] = self._make()
        return made


FEW = 20  # jobs that are counted one by one


class Histogram:
    """How many values are in each bucket, and their sum. The last bucket has no upper bound."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Count one value; the upper bound of a bucket belongs to it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_all(self, values: list[float]) -> None:
        """Count many, which are sorted for that: twice as fast as one by one."""
        self.total += sum(values)
        values.sort()
        begin, count = 0, len(values)
        for bucket, bound in enumerate(self.bounds):
            end = bisect_right(values, bound, begin)
            self.counts[bucket] += end - begin
            begin = end
            if begin == count:
                return
        self.counts[-1] += count - begin


class TaskCounts:
    """The attempts of one task."""

    __slots__ = ("durations", "outcomes", "success", "waits")

    def __init__(self, duration_buckets: Sequence[float], wait_buckets: Sequence[float]) -> None:
        self.success = 0
        self.outcomes: Counter[str] = Counter()
        self.durations = Histogram(duration_buckets)
        self.waits = Histogram(wait_buckets)


class WorkerCounts:
    """What the workers of this process have done since it started."""

    def __init__(
        self, *, duration_buckets: Sequence[float], wait_buckets: Sequence[float], max_tasks: int
    ) -> None:
        self.tasks = ByTask(lambda: TaskCounts(duration_buckets, wait_buckets), max_tasks)
        self.fetched = self.returned = self.evicted = 0
        self.blocked_seconds = 0.0
        self.database_errors: Counter[str] = Counter()
        self.recovered: Counter[str] = Counter()
        self.cron_jobs: ByTask[Counter[str]] = ByTask(Counter, max_tasks)
        self.added: ByTask[Counter[str]] = ByTask(Counter, max_tasks)
        """By task and result."""
        self.pools: dict[str, LivePool] = {}
        """The pools that run now, by id."""
        self.schemas: set[str] = set()

    def watch(self, worker: WorkerContext) -> None:
        """Count what this worker does, until it ends; once, even if several plugins ask for it."""
        if worker.pool_id in self.pools:
            return
        self.pools[worker.pool_id] = worker.pool
        self.schemas.add(worker.options.schema)
        on = worker.events.on
        on(WorkerCreated, self._created)
        on(PoolOutcomesWritten, self._written)
        on(JobErrored, self._errored)
        on(JobFailed, self._failed)
        on(JobInterrupted, lambda event: self._ended(event.job, "interrupted"))
        on(JobSnoozed, lambda event: self._ended(event.job, "snoozed", event.duration))
        on(JobExpired, lambda event: self._ended(event.job, "expired"))
        on(JobCancelled, self._cancelled)
        on(PoolJobsFetched, self._fetched)
        on(PoolJobsReturned, self._returned)
        on(LocalQueueReturnJobs, self._returned)
        on(WorkerGetJobError, lambda _: self._database_failed("fetch"))
        on(PoolListenError, lambda _: self._database_failed("listen"))
        on(ResetLockedFailure, lambda _: self._database_failed("reset_locked"))
        on(WorkerRecovered, self._recovered)
        on(PoolEvicted, self._evicted)
        on(PoolLoopBlocked, self._blocked)
        on(PoolReleased, lambda event: self.forget(event.pool_id))

    def forget(self, pool_id: str) -> None:
        """The pool has ended; its counters stay."""
        self.pools.pop(pool_id, None)

    # -- jobs ----------------------------------------------------------------------------------------------

    def _created(self, event: WorkerCreated) -> None:
        """Counters begin at zero: a rate over one that appears with its first event misses that event."""
        for name in event.tasks:
            self.tasks[name]

    def _written(self, event: PoolOutcomesWritten) -> None:
        finished = event.finished
        if event.failed:
            finished = [each for each in finished if isinstance(each.outcome, Completed)]
        if len(finished) < FEW:
            for each in finished:
                self._succeeded(each.job, each.duration)
            return
        for name, part in _by_task(finished).items():
            counts = self.tasks[name]
            counts.success += len(part)
            counts.durations.add_all([each.duration for each in part])
            counts.waits.add_all(waits_of([each.job for each in part if each.job.attempts == 1]))

    def _succeeded(self, job: Job, duration: float) -> None:
        counts = self.tasks[job.task_identifier]
        counts.success += 1
        counts.durations.add(duration)
        if job.attempts == 1:
            counts.waits.add(wait_of(job))

    def _ended(self, job: Job, outcome: str, duration: float | None = None) -> None:
        counts = self.tasks[job.task_identifier]
        counts.outcomes[outcome] += 1
        if duration is not None:
            counts.durations.add(duration)
            if job.attempts == 1:
                counts.waits.add(wait_of(job))

    def _errored(self, event: JobErrored) -> None:
        if event.will_retry:  # else `JobFailed` follows
            self._ended(event.job, "error", event.duration)

    def _failed(self, event: JobFailed) -> None:
        self._ended(event.job, "failed", event.duration)

    def _cancelled(self, event: JobCancelled) -> None:
        self._ended(event.job, "cancelled", event.duration if event.has_started else None)

    # -- the rest ------------------------------------------------------------------------------------------

    def _fetched(self, event: PoolJobsFetched) -> None:
        self.fetched += event.count

    def _returned(self, event: PoolJobsReturned | LocalQueueReturnJobs) -> None:
        self.returned += len(event.jobs)

    def _database_failed(self, action: str) -> None:
        self.database_errors[action] += 1

    def _recovered(self, event: WorkerRecovered) -> None:
        for outcome in ("returned", "failed", "left", "cancelled"):
            self.recovered[outcome] += len(getattr(event, outcome))

    def _evicted(self, event: PoolEvicted) -> None:
        self.evicted += len(event.jobs)

    def _blocked(self, event: PoolLoopBlocked) -> None:
        self.blocked_seconds += event.seconds


def _by_task(finished: Sequence[Finished]) -> Mapping[str, Sequence[Finished]]:
    names = {each.job.task_identifier for each in finished}
    if len(names) == 1:
        return {names.pop(): finished}
    parts: dict[str, list[Finished]] = {name: [] for name in names}
    for each in finished:
        parts[each.job.task_identifier].append(each)
    return parts


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
