"""Adding one job through the database's function: any job, inside or outside a transaction.

`add_statement` and `job_from_row` are pure, so that an adapter for another driver needs nothing else:

    statement = add_statement(schema, spec)
    row = cursor.execute(*statement).fetchone()
    job = job_from_row(row, statement)

On a schema installed by Node or Rust an add with a key can get lost, if a worker locks the job with that key
at the same moment: Node's function returns an empty row, Rust's raises GWNOR. Such an add is retried.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..db.connection import Connection, Row
from ..db.errors import server_message, sqlstate_of
from ..errors import InvalidArgumentError
from ..job import Job
from ..payload import encode
from ..schema_name import SchemaName
from ..spec import DEFAULT_MAX_ATTEMPTS, DEFAULT_PRIORITY, JobSpec
from .foreign_schema import ADD_ATTEMPTS, LOST_ADD, lost_add_error
from .large_payloads import LARGE_PAYLOAD, warn_of_large_payload
from .spec_columns import time_and_delay
from .statement import Statement, load_statement
from .unique_jobs import COLUMNS, is_missing, missing_objects_error, unique_job

# Not JSON; a character, or a number, that `jsonb` cannot hold.
_INVALID_PAYLOAD = ("22P02", "22P05", "22003")


def add_statement(schema: SchemaName, spec: JobSpec, *, now: datetime | None = None) -> Statement:
    """The statement that adds one job; `now` replaces the server's clock. It returns one row."""
    run_at, delay = time_and_delay(spec.run_at, now)
    payload = encode(spec.payload)
    if len(payload) > LARGE_PAYLOAD:
        warn_of_large_payload(spec.task_identifier, payload)
    flags = None if spec.flags is None else list(spec.flags)
    options = (spec.task_identifier, payload, spec.queue_name, run_at, delay, spec.max_attempts)
    if spec.job_key is None:
        return Statement(load_statement("add/add_job_without_key", schema), (*options, spec.priority, flags))
    unique = spec.unique
    return Statement(
        load_statement("add/add_job" if unique is None else "add/add_unique_job", schema),
        (
            *options,
            spec.job_key,
            spec.priority,
            flags,
            (spec.job_key_mode or "replace") if unique is None else unique.while_,
        ),
    )


def job_from_row(row: Row | Sequence[Any] | None, statement: Statement) -> Job | None:
    """The job that `add_statement` has added; None if the add got lost and has to be repeated."""
    if row is None or row[0] is None:
        return None
    arguments = statement.arguments
    if len(row) < COLUMNS:
        return _job_without_key(row, arguments)
    if len(row) > COLUMNS:
        return unique_job(row, arguments[0])
    return Job(*row, arguments[0])  # type: ignore[call-arg]


def _job_without_key(row: Row | Sequence[Any], arguments: tuple[Any, ...]) -> Job:
    id_, run_at, created_at, flags, task_id, queue_id = row
    name, payload, _, _, _, max_attempts, priority, _ = arguments
    priority = DEFAULT_PRIORITY if priority is None else priority
    max_attempts = DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts
    return Job(id_, payload, priority, run_at, 0, max_attempts, None, created_at, created_at,
               None, None, 0, flags, task_id, queue_id, None, name)  # fmt: skip


async def add_job(
    connection: Connection, schema: SchemaName, spec: JobSpec, *, now: datetime | None = None
) -> Job:
    """Add one job; `now` replaces the server's clock."""
    statement = add_statement(schema, spec, now=now)
    for _ in range(ADD_ATTEMPTS):
        try:
            row = await connection.fetchrow(statement.sql, *statement.arguments)
        except Exception as error:
            if spec.unique is not None and is_missing(error):
                raise missing_objects_error(schema) from error
            # Inside a transaction the error has aborted it, so only the caller can start over.
            if sqlstate_of(error) != LOST_ADD or connection.is_in_transaction():
                raise
            continue
        job = job_from_row(row, statement)
        if job is not None:
            return job
    raise lost_add_error([spec.job_key])


def payload_error(error: Exception) -> InvalidArgumentError | None:
    """Our error, if adding failed because of a payload that only the server can judge.

    That is JSON text from the caller, and an array to be merged with another one. All other values
    are checked before.
    """
    if sqlstate_of(error) not in _INVALID_PAYLOAD:
        return None
    return InvalidArgumentError(
        "payload",
        "PostgreSQL cannot use it as JSON, or cannot append it to the payload of the waiting job with "
        f"the same key: {server_message(error)}",
    )
