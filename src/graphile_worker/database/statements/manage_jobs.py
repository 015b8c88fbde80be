"""Changing jobs by id or by key: completing, failing, rescheduling, removing, cancelling.

`bulk_changes` does the same for all jobs that match a filter. Locked jobs stay as they are, unless they are
cancelled: waiting ones are deleted, and the workers of running ones are told to end them. A running job is
cut off first, as `remove_job` does it: without key and attempts, no runtime runs it again, whatever becomes
of its worker. The row in `_private_py_cancels` says why it has to end.

`cancel_left` cancels jobs that a step of a bulk change has skipped, because transactions had locked their
rows. Usually that is a held batch of a worker, which ends within a fraction of a second. Its jobs may run on,
and a cancel of all jobs of a task would have missed them.

`bounded_waits` is for changes of jobs that are named: a worker may hold them in its own transaction while
they run, and one whose event loop is blocked cannot end it. `yielding_locks` is for changes of several queues
at once, beside workers that lock the same rows in an order of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace

from ...errors import InvalidArgumentError, JobBusyError
from ...errors.text import message_of
from ...values.job import Job
from ...values.schema_name import SchemaName
from ...values.spec import MAX_JOB_KEY_LENGTH, check_name, check_run_at, check_smallint, check_text
from ..connections import sqlstates
from ..connections.connection import Connection
from ..connections.errors import if_readable, sqlstate_of
from ..connections.retry import is_conflict
from ..connections.statement import jobs_from_rows
from ..sql import load
from .add import time_and_delay

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


@dataclass(frozen=True, slots=True)
class FailedByHand:
    """Jobs that were failed permanently."""

    jobs: list[Job]
    """As they are now: all their attempts are used."""
    attempts_made: dict[int, int]
    """The attempts that each has really had."""

    @property
    def kept_as(self) -> list[Job]:
        """The jobs as the history has to show them."""
        return [replace(job, attempts=self.attempts_made[job.id]) for job in self.jobs]


async def permanently_fail_jobs(
    connection: Connection, schema: SchemaName, job_ids: Iterable[int], reason: str | None = None
) -> FailedByHand:
    """Fail these jobs permanently; returns those changed, by id. An empty reason means the default."""
    ids = _id_texts(job_ids)
    rows = await connection.fetch(load("manage/permanently_fail_jobs", schema), ids, *failure_values(reason))
    return FailedByHand([Job(*columns) for *columns, _ in rows], {row["id"]: row[-1] for row in rows})


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
    run_at: datetime | timedelta | None, priority: int | None, attempts: int | None, max_attempts: int | None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelReport:
    """The outcomes for the jobs that were to be cancelled. Each job is in one of the lists."""

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
    if sqlstate_of(error) not in sqlstates.UNAVAILABLE_TABLE or "_private_py_cancels" not in message_of(
        error
    ):
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
    statement, ids = load("control/cancel_reasons", schema), list(map(str, job_ids))
    rows = await if_readable(connection, lambda: connection.fetch(statement, ids))
    return {row["job_id"]: row["reason"] for row in rows or ()}


async def attempts_made(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> dict[int, int]:
    """Those of these jobs that have failed permanently, with the attempt that was the last one.

    A job is missing if nothing tells: another runtime failed it, or nothing was kept. Empty where there is no
    history, or the role may not read it.
    """
    if not job_ids:
        return {}
    statement, ids = load("history/attempts_made", schema), list(map(str, job_ids))
    rows = await if_readable(connection, lambda: connection.fetch(statement, ids))
    return {row["id"]: row["attempts"] for row in rows or ()}


BRIEFLY = "250ms"
"""Less than PostgreSQL's `deadlock_timeout`, after which it would end one of the transactions."""
PAUSE = 0.05  # seconds
ATTEMPTS = 20

MOST = "5s"
"""How long to wait for a named job. A worker that is not blocked holds its jobs for a fraction of that."""
BUSY = (
    "busy: another transaction, usually that of a worker running jobs, has locked one of these rows; nothing "
    "was changed, try again (if it lasts, `graphile-worker workers` says which worker is blocked)"
)

T = TypeVar("T")


async def bounded_waits(connection: Connection, schema: SchemaName, change: Callable[[], Awaitable[T]]) -> T:
    """The result of `change` in a transaction, or a savepoint. Raises JobBusyError after a long wait.

    A shorter `lock_timeout` of the session applies instead.
    """
    is_inside = connection.is_in_transaction()
    try:
        async with connection.transaction():
            earlier = await connection.fetchval(load("session/bound_lock_waits", schema), MOST)
            result = await change()
            if is_inside:  # the rest of the transaction is the caller's
                await _limit_waits(connection, schema, earlier)
            return result
    except Exception as error:
        if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:
            raise
        raise JobBusyError(BUSY, sqlstate=sqlstates.LOCK_NOT_AVAILABLE) from error


async def yielding_locks(connection: Connection, schema: SchemaName, change: Callable[[], Awaitable[T]]) -> T:
    """The result of `change` in a transaction, or a savepoint, that releases its locks if it has to wait.

    A worker that waits for one of them can then go on: otherwise one of the two would fail with a deadlock.
    The last attempt waits as long as the session allows. `change` must not release savepoints of its own:
    sessions that wait for a lock taken there would then wait for the end of the whole transaction.
    """
    for _ in range(ATTEMPTS):
        try:
            async with connection.transaction():
                earlier = await _limit_waits(connection, schema, BRIEFLY)
                result = await change()
                await _limit_waits(connection, schema, earlier)
                return result
        except Exception as error:
            if sqlstate_of(error) != sqlstates.LOCK_NOT_AVAILABLE:
                raise
        await connection.fetchval(load("control/wait", schema), PAUSE)  # those who wait for us go first
    async with connection.transaction():
        return await change()


async def _limit_waits(connection: Connection, schema: SchemaName, lock_timeout: str) -> str:
    earlier: str = await connection.fetchval(load("control/limit_lock_waits", schema), lock_timeout)
    return earlier


async def cancel_left(
    connection: Connection,
    schema: SchemaName,
    job_ids: Sequence[int],
    reason: str | None,
    on_kept: Callable[[Connection, list[Job]], Awaitable[None]] | None,
) -> CancelReport | None:
    """Wait for their transactions and cancel these jobs; None if that takes too long.

    `on_kept` gets those that were removed and ask to be kept, in the same transaction.
    """

    async def change() -> CancelReport:
        report = await cancel_jobs(connection, schema, job_ids, reason=reason)
        kept = [job for job in report.removed if job.raw_flags is not None]
        if kept and on_kept is not None:
            await on_kept(connection, kept)
        return report

    try:
        return await bounded_waits(connection, schema, change)
    except JobBusyError:
        return None
    except Exception as error:
        if is_conflict(error):  # all was rolled back
            return None
        raise
