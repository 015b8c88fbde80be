"""Keeps jobs that were failed by a sweep, because their workers died too often."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..job import Job
from ..retention import RetentionPolicy
from ..schema_name import SchemaName
from ..sql import load
from .partitions import add_partitions


async def keep_recovered(
    connection: Connection,
    schema: SchemaName,
    jobs: Sequence[Job],
    retention_policy: RetentionPolicy,
    error_retention: float,
) -> None:
    """Keep what these jobs ended with; call it in the transaction that ended them.

    Like a failure, but without the payload: redactors belong to the worker that runs the task.
    `error_retention`: seconds to keep the errors, 0 not to keep them.
    """
    retentions = [retention_policy.for_failed(job.task_identifier, job.raw_flags) for job in jobs]
    seconds = [None if retention is None else retention.seconds for retention in retentions]
    if not error_retention and not any(retentions):
        return
    await add_partitions(
        connection,
        schema,
        history={each for each in seconds if each is not None},
        errors=[error_retention] if error_retention else [],
        days_ahead=0,
    )
    teach_arrays(connection)
    await connection.fetch(
        load("history/keep_recovered", schema),
        [job.id for job in jobs],
        seconds,
        error_retention or None,
        schema.name,
    )
