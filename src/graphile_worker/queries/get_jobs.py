"""Locking the next jobs for a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter

from ..db.connection import Connection
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .rows import JobBatch, jobs_with_names

MANY = 100  # jobs; to make so many takes as long as a round trip

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
) -> Sequence[Job]:
    """The same as `get_jobs` but quicker, while no job of a named queue waits; none if one does."""
    rows = await connection.fetch(
        load("queries/get_plain_jobs", schema), pool_id, _ids(tasks), limit, _flags(forbidden_flags), now
    )
    if len(rows) < MANY:
        return _in_order(jobs_with_names(rows, tasks))
    return JobBatch(len(rows), lambda: _in_order(jobs_with_names(rows, tasks)))


async def get_jobs(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    forbidden_flags: Sequence[str] | None = None,
    now: datetime | None = None,
) -> list[Job]:
    """Up to `limit` jobs, locked, by priority and run_at; at most one per named queue."""
    rows = await connection.fetch(
        load("queries/get_jobs", schema), pool_id, _ids(tasks), limit, _flags(forbidden_flags), now
    )
    return _in_order(jobs_with_names(rows, tasks))


async def get_jobs_beyond(
    connection: Connection,
    schema: SchemaName,
    *,
    pool_id: str,
    tasks: Mapping[int, str],
    limit: int,
    forbidden_flags: Sequence[str] | None,
    now: datetime | None,
    ranges: tuple[list[int], list[int], list[float]],
) -> list[Job]:
    """The same, but of jobs without a queue only those in these ranges: lowest, highest priority, run_at."""
    rows = await connection.fetch(
        load("queries/get_jobs_beyond", schema),
        pool_id,
        _ids(tasks),
        limit,
        _flags(forbidden_flags),
        now,
        *ranges,
    )
    return _in_order(jobs_with_names(rows, tasks))


async def is_queue_waiting(connection: Connection, schema: SchemaName) -> bool:
    """Whether any job of a named queue waits, which is why `get_plain_jobs` may have found nothing."""
    return bool(await connection.fetchval(load("queries/is_queue_waiting", schema)))


async def list_priorities(connection: Connection, schema: SchemaName) -> tuple[list[int], float]:
    """Priorities of waiting jobs without a queue, and the server's time in seconds since 1970."""
    rows = await connection.fetch(load("queries/list_priorities", schema))
    return [row[0] for row in rows if row[0] is not None], rows[0][1]


def _in_order(jobs: list[Job]) -> list[Job]:
    jobs.sort(key=_by_priority)
    return jobs


def _ids(tasks: Mapping[int, str]) -> list[str]:
    return [str(task_id) for task_id in tasks]


def _flags(forbidden: Sequence[str] | None) -> list[str] | None:
    return list(forbidden) if forbidden else None
