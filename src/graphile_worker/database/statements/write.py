"""Writes outcomes to the database and returns jobs that were not run to their end.

`delete_retired` deletes jobs whose key was removed or used again while a worker had them locked, when they
come back. Such a job has lost its key and its attempts, so no runtime runs it again. If its worker returns
it, or dies, it would stay among the failed jobs forever, and a retry would run what was removed. Jobs that
ran are not handled there: they have an outcome.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Any

import msgspec

from ...errors.text import message_of
from ...values.job import Job
from ...values.schema_name import SchemaName
from ..connections.connection import Connection, Row, savepoint
from ..connections.encoding import fit_to_server, stores_every_text, teach_arrays
from ..connections.errors import if_readable
from ..connections.statement import taken_jobs
from ..sql import load
from .add_many import add_jobs
from .control import CancelledJob, cancelled_among, end_cancelled
from .write_plan import (
    CANCELLED_IDS,
    MISSING_IDS,
    NEXT_JOBS,
    RETURNED_IDS,
    ROW_COUNT,
    Outcomes,
    WritePlan,
    WritePlanner,
)

logger = logging.getLogger("graphile_worker.worker")

Cancellable = Callable[[AbstractSet[int]], Sequence[CancelledJob]]
"""How to end those of these jobs of a batch that turn out to be cancelled."""

JOB_COLUMNS = len(Job.__struct_fields__) - 2  # all but the pool id and the task identifier


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    jobs: Sequence[Job] = ()
    """The next jobs of freed queues, now locked."""
    missing: Sequence[int] = ()
    """Ids of jobs that were not written: the row is gone, or another pool has it."""
    final: frozenset[int] = frozenset()
    """Ids of failed or returned jobs that will not run again, without those in `cancelled`.

    A set: every job of the batch is looked up in it, several times.
    """
    cancelled: Mapping[int, str | None] = {}
    """Ids of jobs that were cancelled and are deleted, and the reasons."""
    retired: frozenset[int] = frozenset()
    """Ids of returned jobs that are obsolete, because their key was removed or reused.

    They are deleted unless they were started.
    """


ALL_WRITTEN = Written()


class _SomeMissingError(Exception):
    """Rolls back a deletion that did not find every job."""


async def write(
    connection: Connection,
    schema: SchemaName,
    plan: WritePlan,
    *,
    cancellable: Cancellable | None = None,
    may_add: bool = True,
) -> Written:
    """Run the plan: one statement, or two if rows are missing and the first cannot say which.

    With `cancellable`, failed and returned jobs that cannot run again are ended if they were cancelled. A job
    may be cancelled while its outcome is on the way, and no single statement would notice that.
    `may_add`: add the jobs of failure handlers in the same transaction.
    """
    if may_add and plan.outcomes.handled:
        return await _write_and_add(connection, schema, plan, cancellable)
    if plan.outcomes.may_be_retired and not connection.is_in_transaction():
        async with connection.transaction():
            return await write(connection, schema, plan, cancellable=cancellable)
    statement = load(plan.statement, schema)
    if plan.answer is not ROW_COUNT:
        rows = await connection.fetch(statement, *_arguments(connection, plan))
        written = _READERS[plan.answer](plan, rows)
        if cancellable is not None and written.final:
            written = await _with_cancelled(connection, schema, written, cancellable)
        if plan.outcomes.may_be_retired and written.retired:
            await delete_retired(connection, schema, written.retired)
        return written
    if plan.if_incomplete is None:
        deleted = await connection.execute(statement, *plan.arguments)
        return ALL_WRITTEN if deleted == "DELETE 1" else Written(missing=plan.outcomes.completed)
    with suppress(_SomeMissingError):
        async with connection.transaction():
            deleted = await connection.execute(statement, *plan.arguments)
            if deleted != f"DELETE {len(plan.outcomes.completed)}":
                raise _SomeMissingError
        return ALL_WRITTEN
    return await write(connection, schema, plan.if_incomplete)


async def _with_cancelled(
    connection: Connection, schema: SchemaName, written: Written, cancellable: Cancellable
) -> Written:
    """End those of the jobs that were cancelled. What goes wrong here must not undo the write.

    The jobs are left over then, for the next pool that looks.
    """
    try:
        async with savepoint(connection):
            cancelled = await _end_cancelled(connection, schema, written.final, cancellable)
    except Exception as error:
        logger.debug("whether jobs were cancelled cannot be read now: %s", message_of(error))
        return written
    if not cancelled:
        return written
    return msgspec.structs.replace(written, final=written.final.difference(cancelled), cancelled=cancelled)


async def _end_cancelled(
    connection: Connection, schema: SchemaName, final: AbstractSet[int], cancellable: Cancellable
) -> dict[int, str | None]:
    """Look first: hardly ever was one of them cancelled, and to describe how to end each costs more."""
    asked = await cancelled_among(connection, schema, final)
    return await end_cancelled(connection, schema, cancellable(asked)) if asked else {}


async def _write_and_add(
    connection: Connection, schema: SchemaName, plan: WritePlan, cancellable: Cancellable | None
) -> Written:
    """Run the plan, and add a job of its handler for each permanent failure, or neither."""
    async with connection.transaction():
        written = await write(connection, schema, plan, cancellable=cancellable, may_add=False)
        if written.final and (specs := plan.jobs_to_add(written.final)):
            await add_jobs(connection, schema, specs, return_jobs=False)
            notified = {finished.job.id for finished in plan.outcomes.handled} & written.final
            await mark_notified(connection, schema, sorted(notified))
    return written


async def return_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, jobs: Sequence[Job]
) -> Written:
    """Unlock jobs that were never started, without using up the attempt."""
    if not jobs:
        return ALL_WRITTEN
    outcomes = Outcomes(
        returned=[job.id for job in jobs],
        queues=[job.job_queue_id for job in jobs if job.job_queue_id is not None],
        may_be_retired=any(job.key is not None for job in jobs),
    )
    return await write(connection, schema, WritePlanner(pool_id).plan(outcomes))


async def release_queue(connection: Connection, schema: SchemaName, pool_id: str, queue_id: int) -> None:
    """Unlock a queue of this pool although the job that has locked it stays locked."""
    await connection.execute(load("write/release_queue", schema), pool_id, queue_id)


def _arguments(connection: Connection, plan: WritePlan) -> Sequence[Any]:
    if not plan.texts_at or stores_every_text(connection):
        return plan.arguments
    arguments = list(plan.arguments)
    for index in plan.texts_at:
        texts = arguments[index]
        if isinstance(texts, list):
            arguments[index] = [text and fit_to_server(connection, text) for text in texts]
        elif texts is not None:
            arguments[index] = fit_to_server(connection, texts)
    return arguments


# -- reading answers ---------------------------------------------------------------------------------------


def _read_missing(plan: WritePlan, rows: Sequence[Row]) -> Written:
    return Written(missing=rows[0][0]) if rows else ALL_WRITTEN


def _read_next_jobs(plan: WritePlan, rows: Sequence[Row]) -> Written:
    first, failures = rows[0], plan.outcomes.failed
    deleted = first[JOB_COLUMNS]
    failed = (first[JOB_COLUMNS + 1] or ()) if failures else ()
    missing = [] if deleted is None else list(set(plan.outcomes.deleted).difference(deleted))
    if len(failed) < len(failures):
        missing += {failure.job_id for failure in failures}.difference(map(abs, failed))
    return Written(
        jobs=_next_jobs(plan, rows),
        missing=missing,
        final=frozenset(-job_id for job_id in failed if job_id < 0),
    )


def _next_jobs(plan: WritePlan, rows: Sequence[Row]) -> Sequence[Job]:
    if plan.continuation is None or rows[0][0] is None:
        return ()
    return taken_jobs((row[:JOB_COLUMNS] for row in rows), plan.arguments[0], plan.continuation.tasks)


def _read_returned(plan: WritePlan, rows: Sequence[Row]) -> Written:
    returned = [row[0] for row in rows]
    return Written(
        missing=list(set(plan.outcomes.returned).difference(map(abs, returned))),
        final=frozenset(-job_id for job_id in returned if job_id < 0),
        retired=frozenset(abs(row[0]) for row in rows if row[1]),
    )


def _read_cancelled(plan: WritePlan, rows: Sequence[Row]) -> Written:
    cancelled = {row["id"]: row["reason"] for row in rows}
    wanted = [each.job.id for each in plan.outcomes.cancelled]
    return Written(missing=[job_id for job_id in wanted if job_id not in cancelled], cancelled=cancelled)


_READERS = {
    CANCELLED_IDS: _read_cancelled,
    MISSING_IDS: _read_missing,
    NEXT_JOBS: _read_next_jobs,
    RETURNED_IDS: _read_returned,
}


async def delete_retired(
    connection: Connection, schema: SchemaName, job_ids: Collection[int]
) -> frozenset[int]:
    """Delete these jobs, in the transaction that has unlocked them; returns the ids of those deleted.

    Cancelled ones look the same and stay: the worker that ends them also records them.
    """
    cancelled = await if_readable(connection, lambda: cancelled_among(connection, schema, job_ids)) or ()
    wanted = [job_id for job_id in job_ids if job_id not in cancelled]
    if not wanted:
        return frozenset()
    teach_arrays(connection)
    rows = await connection.fetch(load("write/delete_retired_jobs", schema), wanted)
    deleted = frozenset(row["id"] for row in rows)
    logger.debug("deleted %d jobs whose keys were removed or used again: %s", len(deleted), sorted(deleted))
    return deleted


async def mark_notified(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> None:
    """Note that handlers were told of these failures. Without the table no one else tells them."""
    statement = load("write/mark_notified_failures", schema)
    await if_readable(connection, lambda: connection.execute(statement, list(job_ids)))
