"""Jobs whose end no worker of this package has written: cancelled ones, and failures with a handler.

A cancelled job is ended here if its worker did not: it died, failed the job before it knew, or is of another
runtime. Such a job cannot run again, and its row in `_private_py_cancels` says that it was cancelled. A sweep
ends those of dead workers. Pools see the others when they look what operators ask for, and end them.

`NotifyFailureHandlers` tells the handlers of `@task(on_failure=…)`. A worker adds the handler's job with the
failure itself. Node and Rust workers, and people who fail jobs by hand, do not know of handlers; one pool
looks for their failures every minute.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence

import msgspec

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import sqlstate_of
from ..database.sql import load
from ..database.statements.add_many import add_jobs
from ..database.statements.control import CancelledJob, end_cancelled, leftover_cancels
from ..database.statements.write_plan import CUT_OFF
from ..errors.text import message_of
from ..history.upkeep import add_partitions
from ..values.job import Job
from ..values.outcome import FailureHandler
from ..values.retention import Retention, RetentionPolicy
from ..values.schema_name import SchemaName

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


STEP = 200  # failures per transaction
PURGE = 1_000  # notes per transaction
NO_ERROR = "no error was stored"


class NotifyFailureHandlers:
    """A maintenance task of pools whose tasks have handlers: see `maintenance`."""

    interval = 60.0

    def __init__(self, schema: SchemaName, handlers: Mapping[str, FailureHandler]) -> None:
        """`handlers`: by the identifier of the task that fails."""
        self._schema = schema
        self._handlers = handlers
        tasks = hashlib.blake2b("\0".join(sorted(handlers)).encode(), digest_size=4).hexdigest()
        # Pools with the same handlers share the maintenance task; others have their own.
        self.name = f"failures of others ({tasks})"

    async def run(self, connection: Connection) -> bool:
        """Tell some; return whether there may be more."""
        schema, identifiers = self._schema, sorted(self._handlers)
        async with connection.transaction():
            await connection.execute(load("recovery/follow_failures", schema), identifiers)
            rows = await connection.fetch(
                load("recovery/unnotified_failures", schema), identifiers, CUT_OFF, STEP
            )
            jobs = [Job(*row) for row in rows]
            specs = [
                self._handlers[job.task_identifier].spec(job, job.last_error or NO_ERROR) for job in jobs
            ]
            await add_jobs(connection, schema, specs, return_jobs=False)
            await connection.execute(load("recovery/purge_notified_failures", schema), PURGE)
        return len(jobs) >= STEP
