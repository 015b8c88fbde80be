"""Writes outcomes to the database and returns jobs that were not run to their end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..db.connection import Connection, Row
from ..db.encoding import fit_to_server
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .add_many import add_jobs
from .rows import taken_jobs
from .told_failures import mark_told
from .write_plan import MISSING_IDS, NEXT_JOBS, RETURNED_IDS, ROW_COUNT, Outcomes, WritePlan, WritePlanner

JOB_COLUMNS = len(Job.__struct_fields__) - 2  # all but the pool id and the task identifier


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a write."""

    jobs: Sequence[Job] = ()
    """The next jobs of freed queues, now locked."""
    missing: Sequence[int] = ()
    """Ids of jobs that were not written: the row is gone, or another pool holds it."""
    final: Sequence[int] = ()
    """Ids of failed or returned jobs that will not run again."""


ALL_WRITTEN = Written()


class _SomeMissingError(Exception):
    """Rolls back a deletion that did not find every job."""


async def write(
    connection: Connection, schema: SchemaName, plan: WritePlan, *, may_add: bool = True
) -> Written:
    """Run the plan: one statement, or two if rows are missing and the first cannot say which.

    `may_add`: add the jobs of failure handlers in the same transaction.
    """
    if may_add and plan.outcomes.handled:
        return await _write_and_add(connection, schema, plan)
    statement = load(plan.statement, schema)
    if plan.answer is not ROW_COUNT:
        rows = await connection.fetch(statement, *_arguments(connection, plan))
        return _READERS[plan.answer](plan, rows)
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


async def _write_and_add(connection: Connection, schema: SchemaName, plan: WritePlan) -> Written:
    """Run the plan, and add a job of its handler for each permanent failure, or neither."""
    async with connection.transaction():
        written = await write(connection, schema, plan, may_add=False)
        if written.final and (specs := plan.jobs_to_add(written.final)):
            await add_jobs(connection, schema, specs, return_jobs=False)
            told = {finished.job.id for finished in plan.outcomes.handled} & set(written.final)
            await mark_told(connection, schema, sorted(told))
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
    )
    return await write(connection, schema, WritePlanner(pool_id).plan(outcomes))


async def release_queue(connection: Connection, schema: SchemaName, pool_id: str, queue_id: int) -> None:
    """Unlock a queue of this pool although the job that holds it stays locked."""
    await connection.execute(load("write/release_queue", schema), pool_id, queue_id)


def _arguments(connection: Connection, plan: WritePlan) -> Sequence[Any]:
    if not plan.texts_at:
        return plan.arguments
    arguments = list(plan.arguments)
    for index in plan.texts_at:
        texts = arguments[index]
        if isinstance(texts, list):
            arguments[index] = [fit_to_server(connection, text) for text in texts]
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
        final=[-job_id for job_id in failed if job_id < 0],
    )


def _next_jobs(plan: WritePlan, rows: Sequence[Row]) -> Sequence[Job]:
    if plan.continuation is None or rows[0][0] is None:
        return ()
    return taken_jobs((row[:JOB_COLUMNS] for row in rows), plan.arguments[0], plan.continuation.tasks)


def _read_returned(plan: WritePlan, rows: Sequence[Row]) -> Written:
    returned = [row[0] for row in rows]
    return Written(
        missing=list(set(plan.outcomes.returned).difference(map(abs, returned))),
        final=[-job_id for job_id in returned if job_id < 0],
    )


_READERS = {
    MISSING_IDS: _read_missing,
    NEXT_JOBS: _read_next_jobs,
    RETURNED_IDS: _read_returned,
}
