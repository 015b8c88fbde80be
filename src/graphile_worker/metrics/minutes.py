"""What a pool did per minute: the outcomes that it has written, counted by task, and written now and then.

Counted once for each written batch, because a call for each job would be noticeable. Counts, the sum of run
times and the longest one are exact. The histograms and the sum of wait times of a large batch come from a
sample of its jobs, weighted so that they add up to the exact number.

Written every third heartbeat or so, and when the pool ends; what was counted is added to what is there. If
the server refuses a statement, the statistics are kept for the next one. If it is unknown whether a statement
took effect, as after a lost connection, they are dropped: counts may miss some seconds, but nothing is
counted twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import frexp
from typing import NamedTuple

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import explained, is_surely_undone, sqlstate_of
from ..database.sql import load
from ..history.statistics import BUCKETS, SHIFT, bucket_of
from ..values.clock import uptime
from ..values.job import wait_of
from ..values.outcome import Completed, Finished
from ..values.schema_name import SchemaName

SAMPLED = 24  # jobs of a batch whose times go into the histograms
SAMPLED_OF_TASK = 4  # at least, however many tasks are in the batch
MINUTES_KEPT = 60  # that could not be written
LONGEST_INTERVAL = 12.0  # seconds between two writes; a crash loses what was counted since the last one
HEARTBEATS = 3  # between two writes, if that is shorter
UNAVAILABLE = (
    sqlstates.UNDEFINED_TABLE,
    sqlstates.UNDEFINED_COLUMN,
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.INSUFFICIENT_PRIVILEGE,
)

logger = logging.getLogger("graphile_worker.statistics")

_LAST = BUCKETS - 1


class TaskTotals:
    """What became of the jobs of one task in one minute."""

    __slots__ = (
        "completed",
        "failed",
        "longest",
        "permanently_failed",
        "run_seconds",
        "run_times",
        "wait_seconds",
        "wait_times",
    )

    def __init__(self) -> None:
        self.completed = self.failed = self.permanently_failed = 0
        self.run_seconds = self.wait_seconds = self.longest = 0.0
        self.run_times = [0] * BUCKETS
        self.wait_times = [0] * BUCKETS

    def add(self, other: TaskTotals) -> None:
        self.completed += other.completed
        self.failed += other.failed
        self.permanently_failed += other.permanently_failed
        self.run_seconds += other.run_seconds
        self.wait_seconds += other.wait_seconds
        self.longest = max(self.longest, other.longest)
        for mine, others in ((self.run_times, other.run_times), (self.wait_times, other.wait_times)):
            for bucket, count in enumerate(others):
                mine[bucket] += count


class MinuteStatistics(NamedTuple):
    """The statistics of one task in one minute, which is given in seconds since 1970."""

    minute: int
    task: str
    totals: TaskTotals


class StatisticsCounter:
    """The statistics of one pool that are not written yet. Thread-safe."""

    def __init__(self, tasks: Mapping[str, object], now: Callable[[], float] | None = None) -> None:
        """`tasks`: those of the pool, also when they change. `now`: seconds since 1970, without jumps."""
        self._tasks = tasks
        self.now = steady_time() if now is None else now
        """The clock of the minutes. Only the server knows what time it is: see `write_minutes`."""
        self._last_minute = 0
        self._mutex = threading.Lock()
        self._minutes: dict[tuple[int, str], TaskTotals] = {}
        self._turn = 0
        self._is_on = True

    def count(
        self, finished_jobs: Sequence[Finished], final: AbstractSet[int], *, has_failures: bool
    ) -> None:
        """Count completed and failed jobs that were written; failed ones in `final` are not retried."""
        if not self._is_on:
            return
        minute = self._last_minute = int(self.now()) // 60 * 60
        with self._mutex:
            if len(finished_jobs) == 1:
                self._count_one(
                    self._of(minute, finished_jobs[0].job.task_identifier), finished_jobs[0], final
                )
                return
            parts = (finished_jobs,) if len(self._tasks) == 1 else _by_task(finished_jobs)
            sampled = max(SAMPLED // len(parts), SAMPLED_OF_TASK)
            for part in parts:
                totals = self._of(minute, part[0].job.task_identifier)
                self._count_part(totals, part, sampled)
                if has_failures:
                    _count_failures(totals, part, final)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._minutes

    @property
    def is_active(self) -> bool:
        """Whether jobs were counted in this minute or the one before."""
        return self.now() - self._last_minute < 120

    def take(self) -> list[MinuteStatistics]:
        """Everything that was counted since the last call."""
        with self._mutex:
            taken, self._minutes = self._minutes, {}
        return [MinuteStatistics(minute, task, totals) for (minute, task), totals in taken.items()]

    def put_back(self, unwritten: Iterable[MinuteStatistics]) -> None:
        """Keep what could not be written for the next time; very old statistics are dropped."""
        with self._mutex:
            for minute, task, totals in unwritten:
                self._of(minute, task).add(totals)
            newest = max((minute for minute, _ in self._minutes), default=0)
            for key in [key for key in self._minutes if key[0] < newest - 60 * MINUTES_KEPT]:
                del self._minutes[key]

    def switch_off(self) -> None:
        """Count no more: the statistics cannot be written."""
        self._is_on = False
        self.take()

    def _of(self, minute: int, task: str) -> TaskTotals:
        totals = self._minutes.get((minute, task))
        if totals is None:
            totals = self._minutes[minute, task] = TaskTotals()
        return totals

    def _count_one(self, totals: TaskTotals, finished: Finished, final: AbstractSet[int]) -> None:
        """The same as for a batch, without what a single job does not need."""
        duration, wait = finished.duration, wait_of(finished.job)
        totals.run_seconds += duration
        totals.wait_seconds += wait
        if duration > totals.longest:
            totals.longest = duration
        totals.run_times[bucket_of(duration)] += 1
        totals.wait_times[bucket_of(wait)] += 1
        if isinstance(finished.outcome, Completed):
            totals.completed += 1
        elif finished.job.id in final:
            totals.permanently_failed += 1
        else:
            totals.failed += 1

    def _count_part(self, totals: TaskTotals, finished_jobs: Sequence[Finished], sampled: int) -> None:
        count, weight, more = len(finished_jobs), 1, 0
        durations = [finished.duration for finished in finished_jobs]
        longest = max(durations)
        totals.completed += count
        totals.run_seconds += sum(durations)
        if longest > totals.longest:
            totals.longest = longest
        if count > sampled:
            step = -(-count // sampled)
            self._turn += 1
            finished_jobs = finished_jobs[self._turn % step :: step]
            weight, more = divmod(count, len(finished_jobs))
        run_times, wait_times = totals.run_times, totals.wait_times
        for number, finished in enumerate(finished_jobs):
            jobs = weight + 1 if number < more else weight
            duration = finished.duration
            bucket = frexp(duration)[1] + SHIFT if duration else 0  # `bucket_of`, without the call
            run_times[0 if bucket < 0 else bucket if bucket < _LAST else _LAST] += jobs
            wait = wait_of(finished.job)
            totals.wait_seconds += wait * jobs
            bucket = frexp(wait)[1] + SHIFT if wait else 0
            wait_times[0 if bucket < 0 else bucket if bucket < _LAST else _LAST] += jobs


def steady_time() -> Callable[[], float]:
    """A clock that begins with the machine's time, and does not jump when that is set."""
    start, monotonic = time.time() - time.monotonic(), time.monotonic
    return lambda: start + monotonic()


def _by_task(finished_jobs: Sequence[Finished]) -> Collection[list[Finished]]:
    parts: defaultdict[str, list[Finished]] = defaultdict(list)
    for finished in finished_jobs:
        parts[finished.job.task_identifier].append(finished)
    return parts.values()


def _count_failures(totals: TaskTotals, finished_jobs: Sequence[Finished], final: AbstractSet[int]) -> None:
    """Move failures out of `completed`."""
    for finished in finished_jobs:
        if not isinstance(finished.outcome, Completed):  # a kept job has a class of its own
            totals.completed -= 1
            if finished.job.id in final:
                totals.permanently_failed += 1
            else:
                totals.failed += 1


class StatisticsWriter:
    """Writes what one pool has counted."""

    def __init__(
        self, counter: StatisticsCounter, schema: SchemaName, pool_id: str, *, heartbeat_interval: float
    ) -> None:
        self._counter = counter
        self._schema = schema
        self._pool_id = pool_id
        self.interval = min(LONGEST_INTERVAL, HEARTBEATS * heartbeat_interval)
        """Seconds between two writes."""
        self.has_written = False
        """Whether anything was written so far."""
        self._last_at = uptime()
        self._is_on = True

    @property
    def is_pending(self) -> bool:
        """Whether something was counted and not written yet."""
        return self._is_on and not self._counter.is_empty

    async def write_if_due(self, connection: Connection, timeout: float) -> None:
        """Write, unless that was done a moment ago or nothing was counted."""
        if uptime() - self._last_at > self.interval * 0.9:  # heartbeats are never quite on time
            await self.write(connection, timeout)

    async def write(self, connection: Connection, timeout: float) -> None:
        """Write what was counted; a failure is logged at most."""
        self._last_at = uptime()
        statistics = self._counter.take()
        if not statistics or not self._is_on:
            return
        try:
            await write_minutes(
                connection, self._schema, self._pool_id, statistics, now=self._counter.now(), timeout=timeout
            )
        except Exception as error:
            self._failed(error, statistics)
        else:
            self.has_written = True

    def _failed(self, error: Exception, statistics: list[MinuteStatistics]) -> None:
        if sqlstate_of(error) in UNAVAILABLE:
            self._is_on = False
            self._counter.switch_off()
            logger.warning("statistics are off: %s; jobs run as usual", explained(error))
        elif is_surely_undone(error):
            self._counter.put_back(statistics)
            logger.debug("statistics could not be written and are kept: %s", explained(error))
        else:
            logger.debug("statistics of the last seconds are lost: %s", explained(error))


async def write_minutes(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    statistics: Sequence[MinuteStatistics],
    *,
    now: float | None = None,
    timeout: float | None = None,
) -> None:
    """Add these statistics to those in the database; `now` is by the clock of the minutes, None if right.

    The server moves them by the difference to its own clock, to the nearest minute.
    """
    teach_arrays(connection)
    counted = [each.totals for each in statistics]
    await connection.execute(
        load("statistics/write_minutes", schema),
        pool_id,
        [float(each.minute) for each in statistics],
        [each.task for each in statistics],
        [each.completed for each in counted],
        [each.failed for each in counted],
        [each.permanently_failed for each in counted],
        [each.run_seconds for each in counted],
        [each.wait_seconds for each in counted],
        [each.longest for each in counted],
        [_as_array(each.run_times) for each in counted],
        [_as_array(each.wait_times) for each in counted],
        now,
        timeout=timeout,
    )


def _as_array(counts: list[int]) -> str:
    """An array as PostgreSQL reads it, without trailing zeros."""
    end = len(counts)
    while end and not counts[end - 1]:
        end -= 1
    return "{" + ",".join(map(str, counts[:end])) + "}"
