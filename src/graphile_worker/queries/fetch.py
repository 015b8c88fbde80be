"""Locking the next jobs for a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from ..db.connection import Connection, Row
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .rows import JobBatch, taken_jobs

MANY = 100  # jobs; to make so many takes as long as a round trip
MANY_PRIORITIES = 250  # beyond that it is quicker to read the index of waiting jobs from end to end
Ranges = tuple[list[int], list[int], list[float]]
"""Of priorities, in ascending order: the lowest of each, the highest, and the run_at where it begins."""

_by_priority = attrgetter("priority", "raw_run_at")


async def get_plain_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    beyond: Ranges | None = None,
) -> Sequence[Job]:
    """The same as `get_jobs` but quicker, while no job of a named queue can be next; none if one may be."""
    rows = await connection.fetch(
        load("fetch/get_plain_jobs" if beyond is None else "fetch/get_plain_jobs_beyond", schema),
        *(pool_id, _ids(tasks), limit, _flags(forbidden_flags), now, *(beyond or ())),
    )
    return _plain_jobs(rows, pool_id, tasks)


async def get_announced_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    beyond: None = None,
) -> Sequence[Job]:
    """Quicker still, while jobs of one priority wait and none in a named queue; none if it is not so."""
    rows = await connection.fetch(
        load("fetch/get_announced_jobs", schema),
        *(pool_id, _ids(tasks), limit, _flags(forbidden_flags), now),
    )
    return _plain_jobs(rows, pool_id, tasks)


def _plain_jobs(rows: Sequence[Row], pool_id: str, tasks: Mapping[int, str]) -> Sequence[Job]:
    if len(rows) < MANY:
        return _in_order(taken_jobs(rows, pool_id, tasks))
    return JobBatch(len(rows), lambda: _in_order(taken_jobs(rows, pool_id, tasks)))


async def get_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
    beyond: Ranges | None = None,
) -> list[Job]:
    """Up to `limit` jobs, locked, by priority and run_at; at most one per named queue.

    With `beyond`, of the jobs without a queue only those in these ranges.
    """
    rows = await connection.fetch(
        load("fetch/get_jobs" if beyond is None else "fetch/get_jobs_beyond", schema),
        *(pool_id, _ids(tasks), limit, _flags(forbidden_flags), now, *(beyond or ())),
    )
    return _in_order(taken_jobs(rows, pool_id, tasks))


async def may_queues_be_next(connection: Connection, schema: SchemaName) -> bool:
    """Whether a job of a named queue may be next, which is why `get_plain_jobs` may have found nothing."""
    return bool(await connection.fetchval(load("fetch/may_queues_be_next", schema)))


async def list_priorities(
    connection: Connection, schema: SchemaName, limit: int = MANY_PRIORITIES
) -> tuple[list[int], float]:
    """The first priorities of waiting jobs without a queue, and the server's time in seconds since 1970."""
    rows = await connection.fetch(load("fetch/list_priorities", schema), limit)
    return [row[0] for row in rows if row[0] is not None], rows[0][1]


def _in_order(jobs: list[Job]) -> list[Job]:
    jobs.sort(key=_by_priority)
    return jobs


def _ids(tasks: Mapping[int, str]) -> str:
    return "{" + ",".join(map(str, tasks)) + "}"


def _flags(forbidden: Sequence[str] | None) -> list[str] | None:
    return list(forbidden) if forbidden else None
