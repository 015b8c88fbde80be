"""What the workers and clients of this process do, in plain numbers.

A lock and a call for each job would cost too much. Successful jobs, which may be tens of thousands a second,
are counted by written batch; everything else is rare enough for an event each. All of it happens on the event
loop; scrapes read from another thread.

A new counter is declared in the catalogue and counted here, with `WorkerCounts.add`. What no event says needs
one first, in `hooks/events.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from ..errors import JobRefusedError
from ..hooks import LivePool, WorkerContext, events
from ..values import __version__
from ..values.job import TAG_FLAG, Job, wait_of, waits_of
from ..values.outcome import Completed, Finished
from ..values.spec import CronJob, JobSpec
from . import catalogue
from .families import Family, SampleValue, family

T = TypeVar("T")
Values = Iterator[tuple[tuple[str, ...], float]]
"""Values of a metric, each with the values of its labels."""
FEW = 20  # jobs that are counted one by one
TOTALS = [
    metric for metric in catalogue.WORKER_METRICS if metric.kind == "counter" and metric != catalogue.JOBS
]

logger = logging.getLogger("graphile_worker.metrics")


class ByTask(dict[str, T], Generic[T]):
    """Something for each task or tag, and one for all beyond the bound. Use `found[name]`."""

    def __init__(self, make: Callable[[], T], max_tasks: int, label: str = "task") -> None:
        super().__init__()
        self._make = make
        self._max_tasks = max_tasks
        self._label = label

    def __missing__(self, name: str) -> T:
        if len(self) >= self._max_tasks:
            if catalogue.OTHER not in self:
                logger.warning(
                    "there are more than %d %ss; the metrics of the others have the label %s=%r",
                    self._max_tasks,
                    self._label,
                    self._label,
                    catalogue.OTHER,
                )
                self[catalogue.OTHER] = self._make()
            return self[catalogue.OTHER]
        made = self[name] = self._make()
        return made


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
        self.totals = {
            metric.name: ByTask(lambda: defaultdict[str, float](float), max_tasks, *metric.labels[:1])
            for metric in TOTALS
        }
        """By metric, task or tag, and the other label; "" if there is none."""
        self._tagged = self.totals[catalogue.TAGGED.name]
        for metric in TOTALS:
            if metric.labels[:1] not in (("task",), ("tag",)):
                self.totals[metric.name][""].update(
                    dict.fromkeys(metric.from_zero if metric.labels else ("",), 0.0)
                )
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
        on(events.WorkerCreated, self._created)
        on(events.PoolOutcomesWritten, self._written)
        on(events.JobErrored, self._errored)
        on(events.JobFailed, self._failed)
        on(events.JobInterrupted, lambda event: self._ended(event.job, "interrupted"))
        on(events.JobSnoozed, lambda event: self._ended(event.job, "snoozed", event.duration))
        on(events.JobExpired, lambda event: self._ended(event.job, "expired"))
        on(events.JobCancelled, self._cancelled)
        on(events.PoolJobsFetched, lambda event: self.add(catalogue.FETCHED, event.count))
        on(events.PoolJobsReturned, lambda event: self.add(catalogue.RETURNED, len(event.jobs)))
        on(events.LocalQueueReturnJobs, lambda event: self.add(catalogue.RETURNED, len(event.jobs)))
        on(events.WorkerGetJobError, lambda _: self.add(catalogue.DATABASE_ERRORS, 1, "fetch"))
        on(events.PoolListenError, lambda _: self.add(catalogue.DATABASE_ERRORS, 1, "listen"))
        on(events.ResetLockedFailure, lambda _: self.add(catalogue.DATABASE_ERRORS, 1, "reset_locked"))
        on(events.WorkerRecovered, self._recovered)
        on(events.PoolEvicted, lambda event: self.add(catalogue.EVICTED, len(event.jobs)))
        on(events.PoolLoopBlocked, lambda event: self.add(catalogue.BLOCKED, event.seconds))
        on(events.PoolReleased, lambda event: self.forget(event.pool_id))

    def add(self, metric: catalogue.Metric, amount: float = 1, label: str = "") -> None:
        """Count something that does not belong to a task."""
        self.totals[metric.name][""][label] += amount

    def forget(self, pool_id: str) -> None:
        """The pool has ended; its counters stay."""
        self.pools.pop(pool_id, None)

    # -- jobs ----------------------------------------------------------------------------------------------

    def _created(self, event: events.WorkerCreated) -> None:
        """Counters begin at zero: a rate over one that appears with its first event misses that event."""
        for name in event.tasks:
            self.tasks[name]

    def _written(self, event: events.PoolOutcomesWritten) -> None:
        finished = event.finished
        if event.failed:
            finished = [each for each in finished if isinstance(each.outcome, Completed)]
        for each in finished:
            if each.job.raw_flags is not None:
                self._count_tags(each.job, "success")
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
        self._count_tags(job, outcome)
        if duration is not None:
            counts.durations.add(duration)
            if job.attempts == 1:
                counts.waits.add(wait_of(job))

    def _count_tags(self, job: Job, outcome: str) -> None:
        if job.raw_flags is not None and TAG_FLAG in job.raw_flags:
            for tag in job.tags:
                self._tagged[tag][outcome] += 1

    def _errored(self, event: events.JobErrored) -> None:
        if event.will_retry:  # else `JobFailed` follows
            self._ended(event.job, "error", event.duration)

    def _failed(self, event: events.JobFailed) -> None:
        self._ended(event.job, "failed", event.duration)

    def _cancelled(self, event: events.JobCancelled) -> None:
        self._ended(event.job, "cancelled", event.duration if event.has_started else None)

    def _recovered(self, event: events.WorkerRecovered) -> None:
        for outcome in catalogue.RECOVERED.from_zero:
            self.add(catalogue.RECOVERED, len(getattr(event, outcome)), outcome)

    # -- what Prometheus reads -----------------------------------------------------------------------------

    def families(self, prefix: str = catalogue.PREFIX) -> Iterator[Family]:
        """All metrics of a worker process. Called in another thread than the event loop's."""
        tasks = list(self.tasks.items())
        yield family(catalogue.JOBS, self._outcomes(), prefix)
        yield _histograms(catalogue.DURATION, [(task, counts.durations) for task, counts in tasks], prefix)
        yield _histograms(catalogue.WAIT, [(task, counts.waits) for task, counts in tasks], prefix)
        pools = list(self.pools.values())
        yield family(catalogue.RUNNING, self._running(pools), prefix)
        yield family(
            catalogue.SLOTS, [((), sum(pool.concurrency for pool in pools))] if pools else (), prefix
        )
        yield family(
            catalogue.LISTENING, [((), min(pool.is_listening for pool in pools))] if pools else (), prefix
        )
        yield family(catalogue.INFO, [((__version__, schema), 1) for schema in sorted(self.schemas)], prefix)
        for metric in TOTALS:
            yield family(metric, self._total(metric), prefix)

    def _outcomes(self) -> Values:
        for task, counts in list(self.tasks.items()):
            found = dict.fromkeys(catalogue.JOBS.from_zero, 0) | dict(counts.outcomes)
            found["success"] = counts.success
            for outcome, value in found.items():
                yield (task, outcome), value

    def _running(self, pools: Sequence[LivePool]) -> Values:
        if pools:
            now = Counter(dict.fromkeys(self.tasks, 0))
            for job in (job for pool in pools for job in pool.running):
                now[job.task_identifier if job.task_identifier in now else catalogue.OTHER] += 1
            for task, number in now.items():
                yield (task,), number

    def _total(self, metric: catalogue.Metric) -> Values:
        for task, found in list(self.totals[metric.name].items()):
            for label, value in list(found.items()):
                yield tuple(filter(None, (task, label))), value


def _histograms(metric: catalogue.Metric, histograms: Iterable[tuple[str, Histogram]], prefix: str) -> Family:
    """One for each task that has run; the buckets of Prometheus include all smaller ones."""
    found = family(metric, (), prefix)
    for task, histogram in histograms:
        counts, below, labels = tuple(histogram.counts), 0, (("task", task),)
        if not any(counts):  # a task that never ran needs no thirty lines
            continue
        for bound, count in zip((*map(repr, histogram.bounds), "+Inf"), counts, strict=True):
            below += count
            found.samples.append(SampleValue(f"{found.name}_bucket", (*labels, ("le", bound)), below))
        found.samples.append(SampleValue(f"{found.name}_count", labels, below))
        found.samples.append(SampleValue(f"{found.name}_sum", labels, histogram.total))
    return found


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
        self._added = counts.totals[catalogue.ADDED.name]
        self._recurring = counts.totals[catalogue.CRON_JOBS.name]

    def before(self, specs: Sequence[JobSpec]) -> tuple[Sequence[JobSpec], object]:
        return specs, specs

    def after(self, state: object, jobs: Sequence[Job] | None, error: BaseException | None) -> None:
        """Count what became of them; `jobs` is empty if another worker was first with a recurring job."""
        result = "added" if error is None else "refused" if isinstance(error, JobRefusedError) else "error"
        for spec in state if isinstance(state, Sequence) else ():
            if not isinstance(spec, CronJob):
                self._added[spec.task_identifier][result] += 1
            elif error is None and (jobs is None or jobs):
                self._recurring[spec.task_identifier][""] += 1
