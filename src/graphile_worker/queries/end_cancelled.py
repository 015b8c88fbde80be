"""Ends cancelled jobs: deletes them with what says that they are cancelled, and keeps them.

There are four who do that. A worker that ends a job because of it. A worker that learns from its write that
a job it has failed or returned cannot run again: it may have been cancelled in between. A sweep, for jobs of
dead workers. And any pool that sees what the others left.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..job import Job
from ..retention import Retention, is_awaited
from ..schema_name import SchemaName
from ..sql import load
from .rows import jobs_from_rows

LEFTOVERS = 1_000  # jobs per statement


class CancelledJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job to end, and what to keep of it."""

    job: Job
    retention: Retention | None = None
    payload: str | None = None
    """The payload to keep as JSON text, if it is redacted."""
    reason: str | None = None
    """The reason that its worker knows; that of the database counts."""
    seconds: float | None = None
    """How long the attempt took; None if the job did not start, or that is not known."""
    is_own: bool = False
    """Whether the job is as it was fetched: it still has its key and its number of attempts."""


def end_statement(
    pool_id: str | None, schema_name: str, jobs: Sequence[CancelledJob]
) -> tuple[str, tuple[Any, ...]]:
    """The path of the statement that ends these jobs, and its arguments. It returns ids and reasons."""
    arguments = (pool_id, [each.job.id for each in jobs], [each.reason for each in jobs], schema_name)
    if all(each.retention is None for each in jobs):
        return "control/end_cancelled", arguments
    return "control/end_and_keep_cancelled", (
        *arguments,
        [None if each.retention is None else each.retention.seconds for each in jobs],
        [each.retention is not None and each.retention.payload for each in jobs],
        [each.payload for each in jobs],
        [each.seconds for each in jobs],
        [each.job.attempts if each.is_own else None for each in jobs],
        [each.job.key if each.is_own else None for each in jobs],
        [each.job.locked_by if each.is_own else None for each in jobs],
        [each.job.id for each in jobs if is_awaited(each.job.raw_flags)],
    )


async def cancelled_among(
    connection: Connection, schema: SchemaName, job_ids: Collection[int]
) -> frozenset[int]:
    """Those of these jobs that were cancelled while a worker had them."""
    teach_arrays(connection)
    rows = await connection.fetch(load("control/cancelled_among", schema), list(job_ids))
    return frozenset(row["job_id"] for row in rows)


async def end_cancelled(
    connection: Connection, schema: SchemaName, jobs: Sequence[CancelledJob]
) -> dict[int, str | None]:
    """End those of the jobs that were cancelled and are not locked; return their ids and the reasons."""
    teach_arrays(connection)
    statement, arguments = end_statement(None, schema.name, jobs)
    rows = await connection.fetch(load(statement, schema), *arguments)
    return {row["id"]: row["reason"] for row in rows}


async def leftover_cancels(connection: Connection, schema: SchemaName) -> list[Job]:
    """Some of the jobs that were cancelled and ended otherwise; forgets cancels of jobs that are gone."""
    return jobs_from_rows(await connection.fetch(load("control/leftover_cancels", schema), LEFTOVERS))
