"""Managing jobs by id or by key: complete, fail, reschedule, remove. Locked jobs stay as they are.

`bulk_changes` does the same for all jobs that match a filter, and `cancel` cancels jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from ..db.connection import Connection
from ..errors import InvalidArgumentError
from ..job import Job
from ..schema_name import SchemaName
from ..spec import MAX_JOB_KEY_LENGTH, check_name, check_run_at, check_smallint, check_text
from ..sql import load
from .rows import jobs_from_rows
from .spec_columns import time_and_delay

MAX_ID = 2**63 - 1


async def remove_job(connection: Connection, schema: SchemaName, job_key: str) -> Job | None:
    """Delete the job with this key; a running one loses its key instead. None if no job has the key."""
    check_name("job_key", job_key, MAX_JOB_KEY_LENGTH)
    row = await connection.fetchrow(load("manage/remove_job", schema), job_key)
    return None if row is None or row[0] is None else Job(*row)


async def complete_jobs(connection: Connection, schema: SchemaName, job_ids: Iterable[int]) -> list[Job]:
    """Delete these jobs; returns those deleted, by id."""
    rows = await connection.fetch(load("manage/complete_jobs_by_hand", schema), _id_texts(job_ids))
    return jobs_from_rows(rows)


async def permanently_fail_jobs(
    connection: Connection, schema: SchemaName, job_ids: Iterable[int], reason: str | None = None
) -> list[Job]:
    """Fail these jobs permanently; returns those changed, by id. An empty reason means the default."""
    ids = _id_texts(job_ids)
    rows = await connection.fetch(load("manage/permanently_fail_jobs", schema), ids, *failure_values(reason))
    return jobs_from_rows(rows)


async def reschedule_jobs(
    connection: Connection,
    schema: SchemaName,
    job_ids: Iterable[int],
    *,
    run_at: datetime | timedelta | None = None,
    priority: int | None = None,
    attempts: int | None = None,
    max_attempts: int | None = None,
) -> list[Job]:
    """Change the values that are not None; returns the jobs changed, by id."""
    ids = _id_texts(job_ids)
    values = schedule_values(run_at, priority, attempts, max_attempts)
    return jobs_from_rows(await connection.fetch(load("manage/reschedule_jobs", schema), ids, *values))


def failure_values(reason: str | None) -> tuple[str | None]:
    """The parameter of a permanent failure, checked."""
    if reason is not None:
        if not isinstance(reason, str):
            raise InvalidArgumentError("reason", f"expected text, got {reason!r}")
        check_text("reason", reason)
    return (reason or None,)


def schedule_values(
    run_at: datetime | timedelta | None,
    priority: int | None,
    attempts: int | None,
    max_attempts: int | None,
) -> tuple[object, ...]:
    """The parameters of a new schedule, checked."""
    if run_at is not None:
        check_run_at(run_at)
    for argument, value, least in (("attempts", attempts, 0), ("max_attempts", max_attempts, 1)):
        if value is not None:
            check_smallint(argument, value, least=least)
    if priority is not None:
        check_smallint("priority", priority)
    return (*time_and_delay(run_at, None), priority, attempts, max_attempts)


def _id_texts(job_ids: Iterable[int]) -> list[str]:
    """Valid ids as texts, see `as_texts`."""
    return list(map(str, checked_ids(job_ids)))


def checked_ids(job_ids: Iterable[int]) -> list[int]:
    """The ids as a list. Raises InvalidArgumentError for anything but ids that a job can have."""
    if isinstance(job_ids, str | bytes) or not isinstance(job_ids, Iterable):
        hint = "; a JobFilter is given as filter=" if type(job_ids).__name__ == "JobFilter" else ""
        raise InvalidArgumentError("job_ids", f"expected a list of job ids, got {job_ids!r}{hint}")
    ids = list(job_ids)
    for job_id in ids:
        if isinstance(job_id, bool) or not isinstance(job_id, int):
            raise InvalidArgumentError("job_ids", f"every id must be a whole number, got {job_id!r}")
        if abs(job_id) > MAX_ID:
            raise InvalidArgumentError("job_ids", f"no job has an id beyond {MAX_ID}, got {job_id}")
    return ids
