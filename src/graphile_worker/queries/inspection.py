"""Read-only queries about jobs and queues, for the client and the command line. They take no locks.

Counting a large table is slow. Counts are exact up to a certain size; beyond it they are estimated from a
random sample of the table's pages. Results say which of the two they are.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from ..db.connection import Connection
from ..errors import InvalidArgumentError
from ..job import Job, instant
from ..schema_name import SchemaName
from ..sql import load
from .manage_jobs import checked_ids

JobState = Literal["ready", "scheduled", "locked", "failed"]
"""May run now; may run later; taken by a worker; permanently failed."""
JOB_STATES: tuple[JobState, ...] = get_args(JobState)
JobOrder = Literal["oldest", "newest", "run_order"]
JOB_ORDERS: tuple[JobOrder, ...] = get_args(JobOrder)

COUNTED_PAGES = 2000
"""Tables up to this size (16 MB with the usual pages, some 100,000 small jobs) are counted in full."""
SAMPLED_PAGES = 1000
MAX_LIMIT = 100_000
CONDITIONS = "-- :conditions\n"
"""The line of a listing statement that is replaced by further conditions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """Which jobs to list. All conditions must hold; None means any."""

    state: JobState | None = None
    task_identifier: str | None = None
    queue_name: str | None = None
    job_key: str | None = None
    locked_by: str | None = None
    order: JobOrder = "oldest"
    """By ascending or descending id, or as workers take them (ready and scheduled jobs only)."""
    after: Job | int | None = None
    """The last job of the previous page, or its id; `run_order` needs the job."""
    limit: int = 50

    def __post_init__(self) -> None:
        _check_choice("state", self.state, (None, *JOB_STATES))
        _check_choice("order", self.order, JOB_ORDERS)
        if isinstance(self.limit, bool) or not isinstance(self.limit, int):
            raise InvalidArgumentError("limit", f"expected a whole number, got {self.limit!r}")
        if not 1 <= self.limit <= MAX_LIMIT:
            raise InvalidArgumentError("limit", f"must be from 1 to {MAX_LIMIT}, got {self.limit}")
        if self.order == "run_order":
            _check_choice("state", self.state, (None, "ready", "scheduled"), "with the order run_order")
            if isinstance(self.after, int):
                raise InvalidArgumentError("after", "expected the Job itself with the order run_order")


class JobDetails(Job, frozen=True, gc=False):
    """A job with its queue's name and its state at the time it was read."""

    queue_name: str | None
    state: JobState

    def to_dict(self) -> dict[str, Any]:
        """Plain values by column name, for printing."""
        return super().to_dict() | {"queue_name": self.queue_name, "state": self.state}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """Jobs by state."""

    ready: int = 0
    scheduled: int = 0
    locked: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.scheduled + self.locked + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """The state of the whole queue."""

    jobs: JobCounts
    tasks: dict[str, JobCounts]
    """By task identifier; an estimate may miss rare tasks."""
    is_estimate: bool
    """Whether `jobs` and `tasks` are estimated from a sample; the rest is exact."""
    queues: int
    locked_queues: int
    oldest_ready_at: datetime | None
    """The `run_at` of the job that has been ready the longest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """A named queue."""

    queue_name: str
    locked_by: str | None
    locked_at: datetime | None
    jobs: int
    ready: int
    is_estimate: bool
    """Whether `jobs` and `ready` are estimated from a sample."""


async def get_job(connection: Connection, schema: SchemaName, job_id: int) -> JobDetails | None:
    """One job, or None."""
    row = await connection.fetchrow(load("inspect/get_job_by_id", schema), *checked_ids([job_id]))
    return None if row is None else JobDetails(*row)


async def list_jobs(connection: Connection, schema: SchemaName, filter: JobFilter) -> list[JobDetails]:
    """The jobs that match the filter."""
    after = filter.after
    cursor: tuple[object, ...]
    if filter.order != "run_order":
        cursor = (after.id if isinstance(after, Job) else after,)
    elif isinstance(after, Job):
        cursor = (after.priority, after.raw_run_at, after.id)
    else:
        cursor = (None, None, None)
    values = (filter.limit, filter.task_identifier, filter.queue_name, filter.job_key, filter.locked_by)
    rows = await connection.fetch(_listing(filter, schema), *values, *cursor)
    return [JobDetails(*row) for row in rows]


def _listing(filter: JobFilter, schema: SchemaName) -> str:
    """The statement for this filter, with its conditions in the form that an index can serve."""
    is_in_run_order = filter.order == "run_order"
    name = "in_run_order" if is_in_run_order else f"{filter.order}_first"
    conditions = [f"listed_{filter.state}"] if filter.state is not None else []
    if filter.job_key is not None:
        conditions.append("listed_with_key")
    if is_in_run_order and filter.after is not None:
        conditions.append("listed_after")
    texts = "".join(load(f"parts/{each}", schema) for each in conditions)
    return load(f"inspect/list_jobs_{name}", schema).replace(CONDITIONS, texts)


async def statistics(connection: Connection, schema: SchemaName, *, exact: bool = False) -> Statistics:
    """Counts by state and task; `exact` counts every job, however long that takes."""
    percentage = await _percentage(connection, schema, exact)
    rows = await connection.fetch(load("inspect/count_jobs", schema), percentage)
    oldest = await connection.fetchval(load("inspect/oldest_ready_job", schema))
    queues = await connection.fetchrow(load("inspect/count_queues", schema))
    by_task: defaultdict[str, dict[str, int]] = defaultdict(dict)
    total = dict.fromkeys(JOB_STATES, 0)
    for row in rows:
        count = _scaled(row["jobs"], percentage)
        by_task[row["task_identifier"]][row["state"]] = count
        total[row["state"]] += count
    return Statistics(
        jobs=JobCounts(**total),
        tasks={identifier: JobCounts(**counts) for identifier, counts in by_task.items()},
        is_estimate=percentage < 100,
        queues=0 if queues is None else queues["queues"],
        locked_queues=0 if queues is None else queues["locked"],
        oldest_ready_at=_instant(oldest),
    )


async def list_queues(
    connection: Connection, schema: SchemaName, *, limit: int = 100, exact: bool = False
) -> list[QueueSummary]:
    """Named queues, the longest first."""
    percentage = await _percentage(connection, schema, exact)
    rows = await connection.fetch(load("inspect/list_queues", schema), percentage, limit)
    return [
        QueueSummary(
            queue_name=row["queue_name"],
            locked_by=row["locked_by"],
            locked_at=_instant(row["locked_at"]),
            jobs=_scaled(row["jobs"], percentage),
            ready=_scaled(row["ready"], percentage),
            is_estimate=percentage < 100,
        )
        for row in rows
    ]


async def _percentage(connection: Connection, schema: SchemaName, exact: bool) -> float:
    """How much of the jobs table to read, in per cent."""
    if exact:
        return 100.0
    pages = await jobs_table_pages(connection, schema)
    return 100.0 if pages <= COUNTED_PAGES else 100.0 * SAMPLED_PAGES / pages


async def jobs_table_pages(connection: Connection, schema: SchemaName) -> int:
    """The size of the jobs table."""
    table = f"{schema.quoted}._private_jobs"
    pages: int = await connection.fetchval(load("inspect/jobs_table_size", schema), table)
    return pages


def _scaled(count: int, percentage: float) -> int:
    return count if percentage >= 100 else round(count * 100 / percentage)


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else instant(seconds)


def _check_choice(argument: str, value: object, allowed: tuple[object, ...], when: str = "") -> None:
    if value not in allowed:
        names = ", ".join(str(name) for name in allowed if name is not None)
        raise InvalidArgumentError(
            argument, f"expected one of {names}{' ' + when if when else ''}; got {value!r}"
        )
