"""Locking the next jobs for a pool."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ..db.connection import Connection
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .rows import jobs_with_names


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
        load("queries/get_jobs", schema), pool_id, list(tasks), limit, _flags(forbidden_flags), now
    )
    return jobs_with_names(rows, tasks)


def _flags(forbidden: Sequence[str] | None) -> list[str] | None:
    return list(forbidden) if forbidden else None
