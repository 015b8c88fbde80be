"""Cancelling jobs: waiting ones are deleted, and the workers of running ones are told to end them.

A running job is cut off first, as `remove_job` does it: without key and attempts, no runtime runs it again,
whatever becomes of its worker. The row in `_private_py_cancels` says why it has to end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..error_text import message_of
from ..job import Job
from ..schema_name import SchemaName
from ..spec import MAX_JOB_KEY_LENGTH, check_name
from ..sql import load
from .manage_jobs import checked_ids, failure_values

CANNOT_ASK = (sqlstates.INSUFFICIENT_PRIVILEGE, sqlstates.UNDEFINED_TABLE)
"""This role may not use the table of cancelled jobs, or there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReport:
    """What became of the jobs that were to be cancelled. Each job is in one of the lists."""

    removed: list[Job] = field(default_factory=list)
    """Deleted before they could run."""
    asked: list[Job] = field(default_factory=list)
    """Running: their workers were asked to end them; `locked_by` names the pool. They are not retried."""
    running: list[Job] = field(default_factory=list)
    """Running, and left alone, because their workers could not be asked; `problem` says why."""
    gone: list[int] = field(default_factory=list)
    """Ids without a job: it has completed, or was deleted before."""
    problem: str | None = None
    """Why workers could not be asked."""


async def cancel_jobs(
    connection: Connection,
    schema: SchemaName,
    job_ids: Iterable[int] = (),
    *,
    job_key: str | None = None,
    reason: str | None = None,
) -> CancelReport:
    """Cancel the jobs with these ids, and the one with this key; call it in a transaction."""
    ids = checked_ids(job_ids)
    if job_key is not None:
        check_name("job_key", job_key, MAX_JOB_KEY_LENGTH)
    chosen, problem = (list(map(str, ids)), job_key), None
    try:
        async with connection.transaction():  # a savepoint
            rows = await connection.fetch(
                load("manage/cancel_jobs", schema), *chosen, *failure_values(reason), schema.name
            )
    except Exception as error:
        problem = why_workers_cannot_be_asked(error)
        if problem is None:
            raise
        rows = await connection.fetch(load("manage/cancel_waiting_jobs", schema), *chosen)
    found = [(Job(*values), is_removed) for *values, is_removed in rows]
    known = {job.id for job, _ in found}
    running = [job for job, is_removed in found if not is_removed]
    return CancelReport(
        removed=[job for job, is_removed in found if is_removed],
        asked=running if problem is None else [],
        running=[] if problem is None else running,
        gone=[job_id for job_id in dict.fromkeys(ids) if job_id not in known],
        problem=problem if running else None,
    )


def joined(reports: Sequence[CancelReport]) -> CancelReport:
    """One report about all of these jobs."""
    return CancelReport(
        removed=[job for report in reports for job in report.removed],
        asked=[job for report in reports for job in report.asked],
        running=[job for report in reports for job in report.running],
        gone=[job_id for report in reports for job_id in report.gone],
        problem=next((report.problem for report in reports if report.problem is not None), None),
    )


def why_workers_cannot_be_asked(error: Exception) -> str | None:
    """What to tell the caller; None if the error is about something else."""
    if sqlstate_of(error) not in CANNOT_ASK or "_private_py_cancels" not in message_of(error):
        return None
    if sqlstate_of(error) == sqlstates.UNDEFINED_TABLE:
        return "the schema has no table of cancelled jobs; to create it: graphile-worker migrate"
    return f"this role may not ask workers ({message_of(error)}); cancel as the owner of the schema"


async def cancel_reasons(
    connection: Connection, schema: SchemaName, job_ids: Sequence[int]
) -> dict[int, str | None]:
    """Those of these jobs that were cancelled while they ran, and the reasons.

    Empty where the table is missing or must not be read.
    """
    try:
        async with connection.transaction():  # a savepoint, if the transaction is the caller's
            rows = await connection.fetch(load("control/cancel_reasons", schema), list(map(str, job_ids)))
    except Exception as error:
        if sqlstate_of(error) not in CANNOT_ASK:
            raise
        return {}
    return {row["job_id"]: row["reason"] for row in rows}
