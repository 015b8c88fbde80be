"""Statements that lock the next jobs of a pool; task identifiers and queue names, and their ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from ...values.flags import NO_RULES, FlagRules
from ...values.job import Job
from ...values.schema_name import SchemaName
from ..connections.connection import Connection, Row
from ..connections.encoding import array_text
from ..connections.errors import if_readable
from ..connections.statement import FetchedJobs, taken_jobs
from ..sql import load

JOB_COLUMNS = len(Job.__struct_fields__) - 2  # those of `parts/taken_columns`
MANY = 100  # jobs; creating this many takes as long as a round trip
MANY_PRIORITIES = 250  # for more it is faster to read the index of waiting jobs from end to end
Ranges = tuple[list[int], list[int], list[float]]
"""Ranges of priorities in ascending order: the lowest and highest of each, and the run_at to start from."""
FROM_START = float("-inf")
LOWEST, HIGHEST = -32768, 32767
NO_CEILING = HIGHEST + 1  # worse than every priority

JobsT = TypeVar("JobsT", bound=Sequence[Job], covariant=True)

_by_priority = attrgetter("priority", "raw_run_at")


def plain_jobs(rows: Sequence[Row], pool_id: str, tasks: Mapping[int, str]) -> Sequence[Job]:
    """The jobs of these rows in run order; those of many rows are made when they are needed."""
    if len(rows) < MANY:
        return whole_jobs(rows, pool_id, tasks)
    return FetchedJobs(len(rows), lambda: whole_jobs(rows, pool_id, tasks))


def whole_jobs(rows: Sequence[Row], pool_id: str, tasks: Mapping[int, str]) -> list[Job]:
    """The same, made at once."""
    return in_run_order(taken_jobs(rows, pool_id, tasks))


class FetchStatement(Generic[JobsT]):
    """Locks up to `limit` jobs by priority and run_at.

    With `ranges`, jobs without a queue are read in these ranges only.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Row], str, Mapping[int, str]], JobsT],
        *,
        everywhere: str = "",
        in_ranges: str = "",
    ) -> None:
        """The names of the statements; some fetches have only one of the two."""
        self._read = read
        self._everywhere = everywhere
        self._in_ranges = in_ranges

    async def __call__(
        self,
        connection: Connection,
        schema: SchemaName,
        *,
        pool_id: str,
        tasks: Mapping[int, str],
        limit: int,
        flags: FlagRules = NO_RULES,
        now: datetime | None = None,
        ranges: Ranges | None = None,
    ) -> JobsT:
        rows = await connection.fetch(
            load_routed(self._everywhere if ranges is None else self._in_ranges, schema, flags),
            *(pool_id, task_ids(tasks), limit, flag_terms(flags), now, *(ranges or ())),
        )
        return self._read(rows, pool_id, tasks)


get_jobs = FetchStatement(
    whole_jobs, everywhere="fetch/get_jobs", in_ranges="fetch/get_jobs_above_watermarks"
)
"""At most one job per named queue."""
get_wide_jobs = FetchStatement(
    whole_jobs, everywhere="fetch/get_jobs@wide", in_ranges="fetch/get_jobs_above_watermarks@wide"
)
"""Of a named queue as many as its concurrency allows."""
get_urgent_jobs = FetchStatement(whole_jobs, in_ranges="fetch/get_jobs_above_watermarks@urgent")
"""Like `get_jobs`, but none with a worse priority than the ranges."""
get_plain_jobs = FetchStatement(
    plain_jobs, everywhere="fetch/get_plain_jobs", in_ranges="fetch/get_plain_jobs_above_watermarks"
)
"""Faster, if no job of a named queue can be next; none otherwise."""
get_announced_jobs = FetchStatement(plain_jobs, everywhere="fetch/get_announced_jobs")
"""Even faster, if all have one priority and none waits in a named queue; none otherwise."""


class FairJobs(list[Job]):
    """Jobs of queues in turn, and where the next fetch starts."""

    last_queue = 0
    is_whole = True
    """Whether all queues with waiting jobs were visited."""


async def get_fair_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
    after: int,
    is_wide: bool,
) -> FairJobs:
    """Lock the next jobs of named queues in turn, starting after the queue with the id `after`."""
    rows = await connection.fetch(
        load_routed("fetch/get_fair_jobs@wide" if is_wide else "fetch/get_fair_jobs", schema, flags),
        *(pool_id, task_ids(tasks), limit, flag_terms(flags), now, after),
    )
    found = rows if rows[0][0] is not None else []
    jobs = FairJobs(taken_jobs((row[:JOB_COLUMNS] for row in found), pool_id, tasks))
    jobs.last_queue, jobs.is_whole = rows[0][JOB_COLUMNS:]
    return jobs


async def may_queues_be_next(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Mapping[int, str],
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
) -> bool:
    """Whether a job of a named queue may be next, so that `get_plain_jobs` finds none."""
    terms = "", task_ids(tasks), 0, flag_terms(flags), now
    return bool(await connection.fetchval(load_routed("fetch/may_queues_be_next", schema, flags), *terms))


class PriorityListing(NamedTuple):
    """What `list_priorities` found."""

    priorities: list[int]
    """The lowest priorities of waiting jobs without a queue."""
    now: float
    """The server's time, in seconds since 1970."""
    seconds: float
    """How long the server took to read, excluding the time that the statement waited."""
    is_cut: bool
    """Whether it stopped before it had read all rows."""


async def list_priorities(
    connection: Connection,
    schema: SchemaName,
    *,
    tasks: Mapping[int, str],
    limit: int = 0,
    flags: FlagRules = NO_RULES,
    now: datetime | None = None,
    most: int = MANY_PRIORITIES,
) -> PriorityListing:
    """List the priorities of waiting jobs, and measure how long it takes to find `limit` jobs of these tasks.

    Nothing is locked, and the number of rows read is bounded. With `limit` 0 no job is searched for.
    """
    rows = await connection.fetch(
        load_routed("fetch/list_priorities", schema, flags),
        *(most, task_ids(tasks), limit, flag_terms(flags), now),
    )
    return PriorityListing([row[0] for row in rows if row[0] is not None], *rows[0][1:])


def ranges(watermarks: Mapping[int, float], highest: int = HIGHEST) -> Ranges:
    """All priorities up to the highest: each one with a watermark, and the gaps between them."""
    low: list[int] = []
    high: list[int] = []
    since: list[float] = []
    begin = LOWEST
    for priority, watermark in sorted(watermarks.items()):
        _add_gap(low, high, since, begin, priority - 1)
        low.append(priority)
        high.append(priority)
        since.append(watermark)
        begin = priority + 1
    _add_gap(low, high, since, begin, highest)
    return low, high, since


def ranges_up_to(priority: int, within: Ranges | None) -> Ranges:
    """These ranges, or all priorities if None, up to a priority, which is the last range."""
    if within is None:
        return ranges({priority: FROM_START}, highest=priority)
    known = {low: since for low, high, since in zip(*within, strict=True) if low == high <= priority}
    return ranges({priority: FROM_START, **known}, highest=priority)


def _add_gap(low: list[int], high: list[int], since: list[float], begin: int, end: int) -> None:
    if begin <= end:
        low.append(begin)
        high.append(end)
        since.append(FROM_START)


def in_run_order(jobs: list[Job]) -> list[Job]:
    """These jobs, sorted in place."""
    jobs.sort(key=_by_priority)
    return jobs


def task_ids(tasks: Mapping[int, str]) -> str:
    """The ids of tasks as statements expect them."""
    return "{" + ",".join(map(str, tasks)) + "}"


def load_routed(name: str, schema: SchemaName, flags: FlagRules) -> str:
    """A statement, in the variant for workers that have other rules for flags than forbidden ones."""
    return load(f"{name}@routed" if flags.is_routed else name, schema)


def flag_terms(flags: FlagRules) -> list[str] | list[str | None] | None:
    """The rules for flags as the part `flag_rules` expects them, in the variant of `load_routed`."""
    if not flags.is_routed:
        return list(flags.forbidden) or None
    return [
        array_text(flags.forbidden) if flags.forbidden else None,
        array_text(flags.accepted) if flags.accepted else None,
        None if flags.allowlist is None else array_text(flags.allowlist),
    ]


async def register_tasks(
    connection: Connection, schema: SchemaName, identifiers: Sequence[str]
) -> dict[int, str]:
    """Task identifiers by id; those without a row get one."""
    wanted = list(identifiers)
    known = await _task_ids(connection, schema, wanted)
    if len(known) < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
        known = await _task_ids(connection, schema, wanted)
    return known


async def is_anything_waiting(connection: Connection, schema: SchemaName, identifiers: Sequence[str]) -> bool:
    """Whether any job waits, ready or scheduled. Task identifiers without a row get one."""
    wanted = list(identifiers)
    (found,) = await connection.fetch(load("names/is_anything_waiting", schema), wanted)
    if found["known_tasks"] < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
        await if_readable(connection, lambda: connection.execute(load("history/name_tasks", schema), wanted))
    return bool(found["is_anything_waiting"])


async def known_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """Every task identifier in the database, from jobs and from workers."""
    rows = await connection.fetch(load("names/known_task_names", schema))
    return {row["identifier"] for row in rows}


async def worker_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """The task identifiers of running Python workers; needs the table of workers."""
    rows = await connection.fetch(load("names/worker_task_names", schema), schema.name)
    return {row["identifier"] for row in rows}


async def was_task_known(connection: Connection, schema: SchemaName, identifier: str, job_id: int) -> bool:
    """Whether the task identifier was in the database before this job was added for it."""
    return bool(await connection.fetchval(load("names/was_task_known", schema), identifier, job_id))


async def get_queue_names(
    connection: Connection, schema: SchemaName, queue_ids: Sequence[int]
) -> list[str | None]:
    """The names of these queues, in the order of the ids; None for an unknown id."""
    rows = await connection.fetch(load("names/get_queue_names", schema), list(map(str, queue_ids)))
    return [row["queue_name"] for row in rows]


async def _task_ids(connection: Connection, schema: SchemaName, identifiers: list[str]) -> dict[int, str]:
    rows = await connection.fetch(load("names/get_task_ids", schema), identifiers)
    return {row[0]: row[1] for row in rows}
