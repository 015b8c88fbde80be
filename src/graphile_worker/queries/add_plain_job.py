"""Adding one job that has neither key nor queue, by the procedure that many may call at the same time."""

from __future__ import annotations

from datetime import datetime

from ..db.connection import Connection
from ..job import Job
from ..payload import encode
from ..schema_name import SchemaName
from ..spec import JobSpec
from ..sql import load
from .result_order import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY
from .spec_columns import time_and_delay

MISSING = frozenset({"42883", "42501"})
"""No such procedure in the schema, or no right to call it: then `add_job` is the way."""


def fits(connection: Connection, spec: JobSpec) -> bool:
    """Whether the procedure may be called; it ends a transaction, so it must not be in one."""
    return spec.job_key is None and spec.queue_name is None and not connection.is_in_transaction()


async def add_plain_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> Job | None:
    """Add it; None if the task is new to the database. `now` takes the place of the server's clock."""
    payload = encode(spec.payload)
    row = await connection.fetchrow(
        load("queries/add_plain_job", schema),
        spec.identifier,
        payload,
        *time_and_delay(spec.run_at, now),
        spec.max_attempts,
        spec.priority,
        None if spec.flags is None else list(spec.flags),
    )
    if row is None or row[0] is None:
        return None
    job_id, flags, run_at, created_at, task_id = row
    priority = DEFAULT_PRIORITY if spec.priority is None else spec.priority
    most = DEFAULT_MAX_ATTEMPTS if spec.max_attempts is None else spec.max_attempts
    return Job(job_id, payload, priority, run_at, 0, most, None, created_at, created_at,
               None, None, 0, flags, task_id, None, None, spec.identifier)  # fmt: skip
