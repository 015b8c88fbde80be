"""Adding one job that has neither key nor queue, outside a transaction: the two quick ways."""

from __future__ import annotations

from datetime import datetime

from ..db.connection import Connection, Row
from ..job import Job
from ..payload import encode
from ..schema_name import SchemaName
from ..spec import JobSpec
from ..sql import load
from .result_order import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY
from .spec_columns import time_and_delay


async def insert_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> tuple[Job, bool] | None:
    """Add it, and whether workers were told of it; if not, others are at it and `announce_job` does that.

    None if the task is new to the database. `now` takes the place of the server's clock.
    """
    payload = encode(spec.payload)
    row = await connection.fetchrow(load("queries/insert_job", schema), *_values(spec, payload, now))
    return None if row is None else (_added(row, spec, payload), row[5])


async def announce_job(connection: Connection, schema: SchemaName) -> None:
    """Tell workers of a job that was added."""
    await connection.fetchrow(load("queries/announce_job", schema))


async def call_add_plain_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> Job | None:
    """Add and announce it by the procedure for times when many do so; None if the task is new."""
    payload = encode(spec.payload)
    row = await connection.fetchrow(load("queries/add_plain_job", schema), *_values(spec, payload, now))
    return None if row is None or row[0] is None else _added(row, spec, payload)


def _values(spec: JobSpec, payload: str, now: datetime | None) -> tuple[object, ...]:
    return (
        spec.identifier,
        payload,
        *time_and_delay(spec.run_at, now),
        spec.max_attempts,
        spec.priority,
        None if spec.flags is None else list(spec.flags),
    )


def _added(row: Row, spec: JobSpec, payload: str) -> Job:
    job_id, flags, run_at, created_at, task_id = row[:5]
    priority = DEFAULT_PRIORITY if spec.priority is None else spec.priority
    most = DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts
    return Job(job_id, payload, priority, run_at, 0, most, None, created_at, created_at,
               None, None, 0, flags, task_id, None, None, spec.identifier)  # fmt: skip
