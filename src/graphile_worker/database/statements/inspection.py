"""Reading jobs, queues and tasks, for the client and the command line. Read-only, without locks.

Counting a large table is slow. Counts are exact up to a certain size; beyond it they are estimated from a
random sample of the table's pages. Results say which of the two they are.

`ready_tasks` is cheap with a million jobs: it reads the first jobs of each priority. `KnownTasks` says which
names of tasks are good.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ...errors import InvalidArgumentError
from ...values.job import PAUSED_BY, Job, Pause, optional_instant
from ...values.schema_name import SchemaName
from ...values.text import count, did_you_mean, similar_names
from ..connections.connection import Connection, Row
from ..connections.errors import sqlstate_of
from ..sql import load
from .fetch import known_task_names, worker_task_names
from .job_filter import BEGINNING, ids_to_walk
from .job_filter import JOB_ORDERS as JOB_ORDERS
from .job_filter import JOB_STATES as JOB_STATES
from .job_filter import JobFilter as JobFilter
from .job_filter import JobOrder as JobOrder
from .job_filter import JobState as JobState
from .manage_jobs import attempts_made, checked_ids
from .pauses import pauses_if_readable

COUNTED_PAGES = 2000
"""Tables up to this size (16 MB with the usual pages, some 100,000 small jobs) are counted in full."""
SAMPLED_PAGES = 1000
DEFAULT_LIMIT = 50
MAX_LIMIT = 100_000
LONG_WAIT = 10.0  # seconds that a job may be ready before it seems that no worker takes it


class JobDetails(Job, frozen=True, gc=False):
    """A job with its queue's name and its state at the time it was read."""

    queue_name: str | None
    state: JobState
    raw_failed_at: float | None
    attempts_made: int | None = None
    """How many attempts a permanently failed job had; None if that is not known, and in other states."""

    @property
    def failed_at(self) -> datetime | None:
        """When the job failed permanently, derived from `run_at` and `updated_at`. None in other states."""
        return optional_instant(self.raw_failed_at)

    def to_dict(self) -> dict[str, Any]:
        """Plain values by column name, for printing."""
        more = {
            "queue_name": self.queue_name,
            "state": self.state,
            "failed_at": self.failed_at,
            "attempts_made": self.attempts_made,
        }
        return super().to_dict() | more


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCounts:
    """Jobs by state."""

    ready: int = 0
    scheduled: int = 0
    running: int = 0
    """Locked by a worker, which may not have started them yet."""
    failed: int = 0

    @property
    def total(self) -> int:
        return self.ready + self.scheduled + self.running + self.failed


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
    pauses: list[Pause] = field(default_factory=list)
    """What is paused. Paused queues are not among the locked ones."""


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
    concurrency: int = 1
    """How many of its jobs may run at once."""
    pause: Pause | None = None
    """None if it is not paused. A paused queue has no `locked_by`."""


async def get_job(connection: Connection, schema: SchemaName, job_id: int) -> JobDetails | None:
    """One job, or None."""
    row = await connection.fetchrow(load("inspect/get_job_by_id", schema), *checked_ids([job_id]))
    return None if row is None else (await _with_attempts(connection, schema, [JobDetails(*row)]))[0]


async def list_jobs(connection: Connection, schema: SchemaName, filter: JobFilter) -> list[JobDetails]:
    """The jobs that match the filter."""
    limit = DEFAULT_LIMIT if filter.limit is None else filter.limit
    if limit > MAX_LIMIT:
        raise InvalidArgumentError("limit", f"must be from 1 to {MAX_LIMIT}, got {limit}")
    name = f"{filter.order}_first"
    if filter.order == "run_order":
        name = "in_run_order" if sorts_within_groups(connection) else "in_run_order_before_13"
    state = filter.required_state
    if filter.job_key is not None:
        name += "@keyed"
    elif state is not None:
        name, state = f"{name}@{state}", None  # in the text, in the form that an index can serve
    statement = load(f"inspect/list_jobs_{name}", schema)
    rows = await connection.fetch(statement, limit, *filter.values, state, *_position(filter))
    return await _with_attempts(connection, schema, [JobDetails(*row) for row in rows])


async def _with_attempts(
    connection: Connection, schema: SchemaName, found: list[JobDetails]
) -> list[JobDetails]:
    """The same jobs; permanently failed ones know how many attempts they had."""
    failed = [job.id for job in found if job.state == "failed"]
    made = await attempts_made(connection, schema, failed) if failed else {}
    return [replace(job, attempts_made=made[job.id]) if job.id in made else job for job in found]


def _position(filter: JobFilter) -> tuple[object, ...]:
    """After which job a page begins: the last one of the previous page."""
    after = filter.after
    if filter.order == "run_order":
        return (after.priority, after.raw_run_at, after.id) if isinstance(after, Job) else BEGINNING
    is_down = filter.order == "newest"
    start, _ = ids_to_walk(filter, is_down=is_down)
    if after is None:
        return (start,)
    after_id = after.id if isinstance(after, Job) else after
    return (min(start, after_id) if is_down else max(start, after_id),)


async def statistics(connection: Connection, schema: SchemaName, *, exact: bool = False) -> Statistics:
    """Counts by state and task; `exact` counts every job, however long that takes."""
    percentage = await _percentage(connection, schema, exact)
    by_task = await _count_by_task(connection, schema, percentage)
    oldest = await connection.fetchval(load("inspect/oldest_ready_job", schema))
    (queues,) = await connection.fetch(load("inspect/count_queues", schema))
    total: Counter[str] = Counter()
    for counts in by_task.values():
        total.update(counts)
    return Statistics(
        jobs=JobCounts(**total),
        tasks={identifier: JobCounts(**counts) for identifier, counts in by_task.items()},
        is_estimate=percentage < 100,
        queues=queues["queues"],
        locked_queues=queues["locked"],
        oldest_ready_at=optional_instant(oldest),
        pauses=await pauses_if_readable(connection, schema),
    )


async def count_by_task(
    connection: Connection, schema: SchemaName, most_pages: int
) -> tuple[dict[str, dict[str, int]], bool]:
    """Jobs by task and state, and whether that is an estimate: tables with more pages are sampled."""
    pages = await jobs_table_pages(connection, schema)
    percentage = min(100.0, 100.0 * most_pages / max(pages, 1))
    return await _count_by_task(connection, schema, percentage), percentage < 100


async def _count_by_task(
    connection: Connection, schema: SchemaName, percentage: float
) -> dict[str, dict[str, int]]:
    rows = await connection.fetch(load("inspect/count_jobs", schema), percentage)
    found: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for row in rows:
        found[row["task_identifier"]][row["state"]] = _scaled(row["jobs"], percentage)
    return found


async def list_queues(
    connection: Connection, schema: SchemaName, *, limit: int = 100, exact: bool = False
) -> list[QueueSummary]:
    """Named queues, the longest first."""
    percentage = await _percentage(connection, schema, exact)
    rows = await connection.fetch(load("inspect/list_queues", schema), percentage, limit)
    pauses: dict[str | None, Pause] = {}
    if any(row["locked_by"] == PAUSED_BY for row in rows):
        pauses = {pause.queue_name: pause for pause in await pauses_if_readable(connection, schema)}
    return [_queue(row, percentage, pauses) for row in rows]


def _queue(row: Row, percentage: float, pauses: Mapping[str | None, Pause]) -> QueueSummary:
    name, is_paused = row["queue_name"], row["locked_by"] == PAUSED_BY
    return QueueSummary(
        queue_name=name,
        locked_by=None if is_paused else row["locked_by"],
        locked_at=None if is_paused else optional_instant(row["locked_at"]),
        jobs=_scaled(row["jobs"], percentage),
        ready=_scaled(row["ready"], percentage),
        is_estimate=percentage < 100,
        concurrency=max(1, row["concurrency"]),
        pause=pauses.get(name, Pause(queue_name=name)) if is_paused else None,
    )


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


READ_JOBS = 500
"""How many ready jobs of each priority are read."""


class ReadyTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its ready jobs, as far as they were read."""

    task_identifier: str
    jobs: int
    has_more: bool
    """Whether some ready jobs, perhaps of this task, were not read."""
    age: float
    """Seconds since the oldest could have run."""
    in_locked_queues: int
    """Jobs that wait until a named queue is unlocked; the next two fields are about the oldest."""
    queue_name: str | None
    locked_by: str | None
    free_age: float | None
    """Seconds since the oldest of the other jobs could have run."""
    flags: list[str]
    """Those of that job."""

    @property
    def number(self) -> str:
        """The number of jobs, for people."""
        return f"at least {count(self.jobs, 'job')}" if self.has_more else count(self.jobs, "job")

    @property
    def waiting(self) -> str:
        """The beginning of a sentence: `2 jobs wait`."""
        return f"{self.number} {'waits' if self.jobs == 1 else 'wait'}"


async def ready_tasks(
    connection: Connection, schema: SchemaName, *, now: datetime | None = None, limit: int = READ_JOBS
) -> list[ReadyTask]:
    """Tasks with ready jobs, the oldest job first. `now` replaces the server's clock.

    `limit`: how many jobs of each priority to read.
    """
    rows = await connection.fetch(load("names/ready_tasks", schema), now, limit)
    return [ReadyTask(**dict(row.items())) for row in rows]


MAX_DESCRIBED = 1_000
"""Tasks of one worker that are described."""
MAX_TYPE_LENGTH = 500
MAX_SCHEMA_LENGTH = 16_384


class TaskDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about one task."""

    runbook: str | None = None
    """The address of a page that says what to do when its jobs fail."""
    owner: str | None = None
    """The person or team that looks after it."""
    payload_type: str | None = None
    """The annotation of the payload; None if any JSON will do."""
    payload_schema: str | None = None
    """The same as JSON Schema; None if it cannot be expressed, or is too long."""


async def get_task_description(
    connection: Connection, schema: SchemaName, identifier: str
) -> TaskDescription | None:
    """What the worker that started last says about a task; None if none has said anything."""
    row: Any = await connection.fetchrow(load("names/get_task_description", schema), identifier)
    return None if row is None else TaskDescription(**dict(row.items()))


def sorts_within_groups(connection: Connection) -> bool:
    """Whether rows in index order can be sorted by one more column without reading beyond a limit.

    PostgreSQL 12 has no incremental sort: it would read and sort all rows. Statements for such lists have
    a variant for it. A server of unknown version is taken for a newer one.
    """
    version = getattr(connection.get_settings(), "server_version", "")
    return not version.startswith("12")


# -- which names of tasks are good: what workers have registered, not what someone once added a job for ------
# A misspelt name is in the table of tasks from its first job on, so that table proves nothing. Python workers
# register their tasks: those of running ones are in the table of workers, and those of any that ever ran are
# kept for the history. Node and Rust workers do not say what they have. A task of theirs is known by its
# jobs: some were attempted, or none of them waits for long.


@dataclass(frozen=True, slots=True)
class Doubt:
    """A name that may be misspelt."""

    name: str
    was_registered: bool
    """Whether a Python worker once had the task, which none that is running has."""
    meant: list[str]
    """Names that may be meant."""

    @property
    def reason(self) -> str:
        """What is wrong with the name: `no worker has registered`."""
        return "no running worker has" if self.was_registered else "no worker has registered"

    @property
    def question(self) -> str:
        """`; did you mean …?`, or empty."""
        return did_you_mean(self.meant)


@dataclass(frozen=True, slots=True)
class KnownTasks:
    """What is known about the names of tasks."""

    running: frozenset[str] = frozenset()
    """Of running Python workers."""
    registered: frozenset[str] = frozenset()
    """Of all Python workers that ever ran."""
    attempted: frozenset[str] = frozenset()
    """Tasks of jobs that some worker, of any runtime, has locked at least once; the newest jobs only."""
    recorded: frozenset[str] = frozenset()
    """Names in the table of tasks, good or not."""
    late: frozenset[str] = frozenset()
    """Tasks with jobs that have been ready for long."""

    def is_empty(self, local: frozenset[str] = frozenset()) -> bool:
        """Whether there is nothing to compare a name with: no worker has run yet."""
        return not (self.running or self.registered or self.attempted or local)

    def doubt(self, name: str, local: frozenset[str] = frozenset()) -> Doubt | None:
        """What speaks against a name; None if nothing does. `local`: tasks that the caller knows itself."""
        if name in self.running or name in local or self.is_empty(local):
            return None
        was_registered = name in self.registered
        meant = similar_names(name, self.running | local)
        if was_registered or name in self.attempted:  # perhaps its worker is not running now
            return Doubt(name, was_registered, meant) if meant else None
        meant = meant or similar_names(name, self.registered | self.attempted)
        is_of_others = name in self.recorded and name not in self.late
        return None if is_of_others and not meant else Doubt(name, False, meant)

    def is_proven(self, name: str, local: frozenset[str] = frozenset()) -> bool:
        """Whether some worker, or the caller, certainly has had the task.

        Where no Python worker has run, all are of other runtimes, and the table of tasks is all there is.
        """
        named = self.running | self.registered | local
        return name in named or name in self.attempted or (not named and name in self.recorded)


async def known_tasks(connection: Connection, schema: SchemaName) -> KnownTasks:
    """Read all of it. What the role may not read, or does not exist, is empty."""

    async def late() -> Iterable[str]:
        ready = await ready_tasks(connection, schema)
        return (task.task_identifier for task in ready if task.age >= LONG_WAIT)

    async def names(statement: str) -> Iterable[str]:
        return (row["identifier"] for row in await connection.fetch(load(statement, schema)))

    return KnownTasks(
        running=await _readable(worker_task_names(connection, schema)),
        registered=await _readable(names("names/registered_task_names")),
        attempted=await _readable(names("names/attempted_task_names")),
        recorded=await _readable(known_task_names(connection, schema)),
        late=await _readable(late()),
    )


async def _readable(query: Awaitable[Iterable[str]]) -> frozenset[str]:
    try:
        return frozenset(await query)
    except Exception as error:
        if sqlstate_of(error) is None:
            raise
        return frozenset()
