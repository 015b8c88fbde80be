"""What workers of this package did, and samples of the backlog, which cover all runtimes.

Minutes are kept for two days, hours and days for 90 days. Periods up to two hours are read from the minutes,
longer ones from the hours, and then begin with a full hour. Whole days that are over are read from the days.
The cost depends on the number of tasks, not on the number of jobs.

Times are counted in histograms with a factor of two from bucket to bucket: small, and they can be added up.
Bucket 0 counts times below 1/8192 s. Bucket n counts times from 2**(n-14) s up to twice that; the last one
has no upper limit. Percentiles are interpolated within a bucket, so they are off by less than its width.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import frexp
from typing import Literal, get_args

import msgspec

from ..database.connections.connection import Connection, Row
from ..database.connections.encoding import teach_arrays
from ..database.sql import load
from ..errors import InvalidArgumentError
from ..values.job import instant, optional_instant
from ..values.schema_name import SchemaName

StatisticsGroup = Literal["minute", "hour", "day", "task", "pool"]
STATISTICS_GROUPS: tuple[StatisticsGroup, ...] = get_args(StatisticsGroup)
LONGEST_IN_MINUTES = timedelta(hours=2)
"""Longer periods are read from the hours."""
STEPS: dict[str, int] = {"minute": 60, "hour": 3600, "day": 86400}
"""Groups by time, in seconds. Days are those of UTC."""
MINUTES_KEPT = timedelta(hours=47)
"""Minutes are kept a little longer than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatistics:
    """What workers of this package did, in all or in one group."""

    start: datetime | None
    """The minute, the hour or the day; None if the statistics are not grouped by time."""
    task_identifier: str | None
    """None if the statistics are not grouped by task."""
    pool_id: str | None
    """None if the statistics are not grouped by pool, or are older than a few minutes."""
    completed: int
    failed: int
    """Attempts that failed and were to be retried."""
    permanently_failed: int
    run_seconds: float
    """The run time of all attempts together."""
    wait_seconds: float
    """The wait time of all attempts together: from when a job could run until a worker locked it."""
    longest: float
    """The longest run time in seconds."""
    run_times: Sequence[int]
    """Attempts by run time; the buckets are those of `graphile_worker.history.statistics`."""
    wait_times: Sequence[int]
    """Attempts by wait time."""

    @property
    def attempts(self) -> int:
        """All attempts that ended."""
        return self.completed + self.failed + self.permanently_failed

    def run_percentile(self, share: float) -> float | None:
        """The run time in seconds that this share of attempts did not exceed: 0.95 for p95."""
        return percentile(self.run_times, share, self.longest)

    def wait_percentile(self, share: float) -> float | None:
        """The wait time in seconds that this share of attempts did not exceed."""
        return percentile(self.wait_times, share)


class StatisticsList(list[TaskStatistics]):
    """Statistics by group, and the period that they cover."""

    def __init__(
        self, statistics: Sequence[TaskStatistics], *, since: datetime, until: datetime, is_recorded: bool
    ) -> None:
        super().__init__(statistics)
        self.since = since
        """The beginning of the first minute, hour or day."""
        self.until = until
        self.is_recorded = is_recorded
        """False if the tables for statistics are missing: run a migration."""


class BacklogSample(msgspec.Struct, frozen=True):
    """The jobs table at one moment, and what happened to it since the sample before, by all runtimes."""

    at: datetime
    seconds: float | None
    """Since the sample before; None for the first one."""
    added: int | None
    """Jobs that were added; None if unknown, as after a restart of the server."""
    deleted: int | None
    """Jobs that completed or were removed; None if unknown."""
    updated: int | None
    """Jobs that were locked, failed, returned or changed; None if unknown."""
    live: int
    """All jobs, as the server's statistics say."""
    ready: int
    scheduled: int
    failed: int
    """Permanently failed jobs."""
    is_estimate: bool
    """Whether `ready`, `scheduled` or `failed` is estimated. Up to 1,000 ready jobs are always counted."""
    oldest_wait: float
    """Seconds since the oldest ready job could run; 0 if none is ready."""


async def read_statistics(
    connection: Connection,
    schema: SchemaName,
    *,
    since: datetime,
    until: datetime | None,
    now: datetime,
    task_identifier: str | None = None,
    by: StatisticsGroup | Collection[StatisticsGroup] = (),
    is_recorded: bool = False,
) -> StatisticsList:
    """Statistics of a period, summed up for each group; without a group, at most one row.

    `until`: None for everything since then, also by workers whose clock is ahead of `now`.
    `is_recorded`: it is known that the tables exist.
    """
    groups = _checked_groups(by)
    end = until or now
    is_fine = _reads_minutes(groups, since, end, now)
    since = _floor(since, 60 if is_fine else 86400 if "day" in groups else 3600)
    has = None if is_recorded and is_fine else await _tables(connection, schema)
    if has is not None and not has["has_statistics"]:
        return StatisticsList([], since=since, until=end, is_recorded=False)
    teach_arrays(connection)
    values = (since, until, task_identifier)
    if has is None or is_fine:
        flags = ("minute" in groups, "task" in groups, "pool" in groups)
        rows = await connection.fetch(load("statistics/read_minutes", schema), *values, *flags)
    else:
        step = next((float(STEPS[name]) for name in STEPS if name in groups), None)
        days = _whole_days(since, until) if has["has_days"] and "hour" not in groups else None
        statement = "statistics/read_hours" if days is None else "statistics/read_days"
        rows = await connection.fetch(load(statement, schema), *values, step, "task" in groups, *(days or ()))
    return StatisticsList([_statistics(row) for row in rows], since=since, until=end, is_recorded=True)


async def read_samples(
    connection: Connection, schema: SchemaName, *, since: datetime, until: datetime | None
) -> list[BacklogSample]:
    """Samples of the backlog, one every ten seconds; none if the table is missing."""
    if not (await _tables(connection, schema))["has_statistics"]:
        return []
    rows = await connection.fetch(load("statistics/read_samples", schema), since, until)
    begin = since.timestamp()
    first = [_sample(None, rows[0])] if rows and rows[0]["at"] >= begin else []
    return [*first, *(_sample(earlier, row) for earlier, row in pairwise(rows))]


async def _tables(connection: Connection, schema: SchemaName) -> Row:
    (found,) = await connection.fetch(load("statistics/has_statistics", schema), schema.name)
    return found


def _whole_days(since: datetime, until: datetime | None) -> tuple[datetime, datetime | None] | None:
    """The beginning of the first day that is in the period as a whole, and the end of the last one."""
    first = _floor(since + timedelta(days=1) - timedelta(microseconds=1), 86400)
    last = None if until is None else _floor(until, 86400)
    return None if last is not None and last <= first else (first, last)


def _checked_groups(by: StatisticsGroup | Collection[StatisticsGroup]) -> frozenset[str]:
    groups = frozenset((by,) if isinstance(by, str) else by)
    if unknown := groups.difference(STATISTICS_GROUPS):
        names = ", ".join(STATISTICS_GROUPS)
        raise InvalidArgumentError("by", f"expected names from {names}; got {min(unknown)!r}")
    for coarse, others in (("day", {"minute", "hour", "pool"}), ("hour", {"minute", "pool"})):
        if coarse in groups and groups & others:
            names = " or ".join(repr(name) for name in STATISTICS_GROUPS if name in others)
            raise InvalidArgumentError("by", f"{coarse!r} cannot be combined with {names}")
    return groups


def _reads_minutes(groups: frozenset[str], since: datetime, until: datetime, now: datetime) -> bool:
    if groups & {"minute", "pool"}:
        return True
    is_kept = since > now - MINUTES_KEPT
    return not groups & {"hour", "day"} and is_kept and until - since <= LONGEST_IN_MINUTES


def _floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // seconds * seconds, UTC)


def _statistics(row: Row) -> TaskStatistics:
    return TaskStatistics(
        start=optional_instant(row["start"]),
        task_identifier=row["task"],
        pool_id=row["pool_id"] or None,
        completed=row["completed"],
        failed=row["failed"],
        permanently_failed=row["permanently_failed"],
        run_seconds=row["run_seconds"],
        wait_seconds=row["wait_seconds"],
        longest=row["longest"],
        run_times=row["run_times"],
        wait_times=row["wait_times"],
    )


def _sample(earlier: Row | None, row: Row) -> BacklogSample:
    """A day has thousands of them, so this is written for speed."""
    at, added, deleted, updated, *rest = row
    if earlier is None:
        return BacklogSample(instant(at), None, None, None, None, *rest)
    before, added_before, deleted_before, updated_before, *_ = earlier
    return BacklogSample(
        instant(at),
        at - before,
        _growth(added_before, added),
        _growth(deleted_before, deleted),
        _growth(updated_before, updated),
        *rest,
    )


def _growth(before: int, now: int) -> int | None:
    """How much a counter grew. It falls when the server has crashed or its statistics were reset."""
    return now - before if now >= before else None


BUCKETS = 28
"""The last one begins at 2**13 s, about two hours."""
SHIFT = 13
_SMALLEST = 2.0**-SHIFT  # seconds, the upper limit of bucket 0


def bucket_of(seconds: float) -> int:
    """The bucket that counts this time."""
    bucket = frexp(seconds)[1] + SHIFT if seconds else 0
    return 0 if bucket < 0 else bucket if bucket < BUCKETS else BUCKETS - 1


def limits_of(bucket: int) -> tuple[float, float]:
    """Where a bucket begins and ends, in seconds; the last one is taken to end as the others do."""
    if bucket == 0:
        return 0.0, _SMALLEST
    begin = _SMALLEST * 2.0 ** (bucket - 1)
    return begin, 2 * begin


def percentile(counts: Sequence[int], share: float, longest: float | None = None) -> float | None:
    """The time that this share (0 to 1) of all counted ones do not exceed; None if there are none.

    `longest`: the exact maximum, if known. No percentile exceeds it.
    """
    total = sum(counts)
    if not total:
        return None
    rank = share * total
    below = 0
    for bucket, count in enumerate(counts):
        if count and below + count >= rank:
            found = _within(bucket, (rank - below) / count)
            return found if longest is None else min(found, longest)
        below += count
    return longest  # only if rounding put the rank above the total


def _within(bucket: int, share: float) -> float:
    """Interpolated on a logarithmic scale, as the buckets are; bucket 0 begins at zero and is linear."""
    begin, end = limits_of(bucket)
    return end * share if bucket == 0 else begin * 2.0**share
