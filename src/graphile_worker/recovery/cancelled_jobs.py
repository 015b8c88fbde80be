"""Ends cancelled jobs whose worker did not: it died, failed the job before it knew, or is of another runtime.

Such a job cannot run again, and its row in `_private_py_cancels` says that it was cancelled. A sweep ends
those of dead workers. Pools see the others when they look what operators ask for, and end them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from .. import sqlstates
from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..error_text import message_of
from ..history.partitions import add_partitions
from ..job import Job
from ..queries.end_cancelled import CancelledJob, end_cancelled, leftover_cancels
from ..retention import Retention, RetentionPolicy
from ..schema_name import SchemaName
from ..sql import load

REFUSED = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE, sqlstates.UNDEFINED_FUNCTION)
"""This role may not use a table, or there is none."""

RETIRED = "its key was removed or used again"

logger = logging.getLogger("graphile_worker.recovery")


async def end_cancelled_jobs(
    connection: Connection, schema: SchemaName, jobs: Sequence[Job], retention_policy: RetentionPolicy | None
) -> dict[int, str | None]:
    """End those of these jobs that were cancelled and are not locked; return their ids and the reasons.

    `retention_policy`: which of them to keep; None if there is no history. Without rights on the history
    nothing is kept, and without rights on the cancelled jobs nothing is done.
    """
    cancelled = [CancelledJob(job=job, retention=_retention(job, retention_policy)) for job in jobs]
    try:
        return await _end(connection, schema, cancelled)
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("cancelled jobs are not kept: %s", message_of(error))
    try:
        return await _end(connection, schema, [CancelledJob(job=job) for job in jobs])
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("cancelled jobs cannot be read: %s", message_of(error))
        return {}


async def cancel_retired(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> None:
    """Mark jobs whose key was removed or reused as cancelled, if this role may."""
    teach_arrays(connection)
    try:
        async with connection.transaction():
            await connection.execute(load("control/mark_cancelled", schema), list(job_ids), RETIRED)
    except Exception as error:
        if sqlstate_of(error) not in REFUSED:
            raise
        logger.debug("removed jobs are not recorded in the history: %s", message_of(error))


async def _end(
    connection: Connection, schema: SchemaName, cancelled: Sequence[CancelledJob]
) -> dict[int, str | None]:
    seconds = {each.retention.seconds for each in cancelled if each.retention is not None}
    async with connection.transaction():
        if seconds:
            await add_partitions(connection, schema, history=seconds, errors=(), days_ahead=0)
        return await end_cancelled(connection, schema, cancelled)


def _retention(job: Job, retention_policy: RetentionPolicy | None) -> Retention | None:
    """Like a failure, but without the payload: redactors belong to the worker that runs the task."""
    retention = (
        None if retention_policy is None else retention_policy.for_failed(job.task_identifier, job.raw_flags)
    )
    return None if retention is None else msgspec.structs.replace(retention, payload=False)


async def end_leftover_jobs(
    connection: Connection, schema: SchemaName, retention_policy: RetentionPolicy | None
) -> None:
    """End what is left over, and forget cancels of jobs that are gone. Does no harm if two pools do it."""
    jobs = await leftover_cancels(connection, schema)
    ended = await end_cancelled_jobs(connection, schema, jobs, retention_policy) if jobs else {}
    for job in jobs:
        if job.id in ended:
            _log(job, ended[job.id])


def _log(job: Job, reason: str | None) -> None:
    logger.info(
        "task %s (job %d) was cancelled%s; deleted",
        job.task_identifier, job.id, f": {reason}" if reason else "",
        extra={"task_identifier": job.task_identifier, "job_id": job.id},
    )  # fmt: skip
