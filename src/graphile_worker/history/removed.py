"""Keeps jobs that no worker finished: those that a client removes or fails, or that a sweep fails.

The former are kept if they ask for that. A sweep fails jobs whose workers died too often.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.encoding import teach_arrays
from ..database.connections.errors import sqlstate_of
from ..database.sql import load
from ..errors.text import message_of
from ..hooks.interceptors import Redactor, redacted_json, redacted_text
from ..values.job import Job
from ..values.retention import Retention, RetentionPolicy, is_awaited
from ..values.schema_name import SchemaName
from .records import FinishedState
from .upkeep import add_partitions, is_partition_missing

CANNOT_KEEP = (
    sqlstates.INSUFFICIENT_PRIVILEGE,
    sqlstates.INVALID_SCHEMA_NAME,
    sqlstates.UNDEFINED_FUNCTION,
    sqlstates.UNDEFINED_TABLE,
)
"""The role may not write to the history, or there is none."""

logger = logging.getLogger("graphile_worker.client")


class ManualOutcome(msgspec.Struct, frozen=True):
    """How a client ends jobs."""

    state: FinishedState
    reason: str | None = None
    """None leaves the last error of a failed job."""


async def keep_removed(
    connection: Connection,
    schema: SchemaName,
    jobs: Sequence[Job],
    outcome: ManualOutcome,
    *,
    history_retention: float,
    redactors: Sequence[Redactor] = (),
) -> None:
    """Keep those of the jobs that ask for it; call it in the transaction that removed them.

    Without rights on the history, or without a history, nothing is kept. `history_retention`: seconds to keep
    jobs that do not say it.
    """
    retention_policy = RetentionPolicy(default=Retention(history_retention))
    found = [
        (job, retention)
        for job in jobs
        if is_awaited(job.raw_flags)
        and (retention := retention_policy.for_completed(job.task_identifier, job.raw_flags)) is not None
    ]
    if not found:
        return
    seconds = {retention.seconds for _, retention in found}
    arguments = _arguments(found, outcome, redactors)
    try:
        async with connection.transaction():
            await add_partitions(connection, schema, history=seconds, errors=(), days_ahead=0)
            await connection.fetch(
                load("history/keep_removed", schema), outcome.state, schema.name, *arguments
            )
    except Exception as error:
        if sqlstate_of(error) not in CANNOT_KEEP and not is_partition_missing(error):
            raise
        logger.warning(
            "not kept in the history: %s (%s)",
            f"job {found[0][0].id}" if len(found) == 1 else f"{len(found):,} jobs",
            message_of(error),
        )


def _arguments(
    found: Sequence[tuple[Job, Retention]], outcome: ManualOutcome, redactors: Sequence[Redactor]
) -> list[list[object]]:
    """The columns of the rows to insert."""
    rows = [
        (
            job.id,
            job.task_id,
            job.job_queue_id,
            job.key,
            job.priority,
            job.attempts,
            job.max_attempts,
            job.raw_run_at if job.raw_created_at is None else job.raw_created_at,
            job.raw_run_at,
            job.raw_flags,
            _payload(job, redactors) if retention.payload else None,
            _error(job, outcome, redactors),
            retention.seconds,
        )
        for job, retention in found
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _payload(job: Job, redactors: Sequence[Redactor]) -> str:
    if not redactors:
        return job.raw_payload
    return redacted_json(redactors, "payload", job.task_identifier, job.raw_payload)


def _error(job: Job, outcome: ManualOutcome, redactors: Sequence[Redactor]) -> str | None:
    text = job.last_error if outcome.state == "failed" else outcome.reason
    if text is None or not redactors:
        return text
    return redacted_text(redactors, job.task_identifier, text)


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
        [job.attempts for job in jobs],
    )
