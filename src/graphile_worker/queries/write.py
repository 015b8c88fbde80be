"""Writing back how jobs ended, and giving back those that did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from ..db.connection import Connection, Row
from ..db.encoding import fit_to_server
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .rows import taken_jobs

MANY = 100  # jobs; for less it does not matter how they are found
VERY_MANY = 500  # for as many, two more round trips take less time than to return a row for each
NEAR = 2  # ids lie close together if at most every second one is among them


class Failure(msgspec.Struct, frozen=True):
    """A job that failed: its message, and what is left of its payload if a part succeeded."""

    job_id: int
    message: str
    remaining_payload: str | None = None


class Continuation(msgspec.Struct, frozen=True, kw_only=True):
    """What the next job of a freed queue must satisfy to be taken at once."""

    tasks: Mapping[int, str]
    forbidden_flags: Sequence[str] | None = None
    now: datetime | None = None


class Outcomes(msgspec.Struct, frozen=True, kw_only=True):
    """What one write is about."""

    completed: list[int] = msgspec.field(default_factory=list)
    failed: list[Failure] = msgspec.field(default_factory=list)
    queues: list[int] = msgspec.field(default_factory=list)
    """The queues that these jobs held."""


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one write."""

    jobs: Sequence[Job] = ()
    """The jobs with which freed queues go on."""
    missing: Sequence[int] = ()
    """Ids of jobs that were not written: their rows are gone, or others hold them by now."""
    final: Sequence[int] = ()
    """Ids of failed jobs that are not tried again."""


ALL_WRITTEN = Written()


async def write_outcomes(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    outcomes: Outcomes,
    *,
    go_on: Continuation | None = None,
) -> Written:
    """Write the outcomes and free the queues; with `go_on`, lock and return the next job of each queue."""
    if not outcomes.failed and not outcomes.queues:
        return _completed(await _complete_jobs(connection, schema, pool_id, outcomes.completed))
    if not outcomes.failed and go_on is None:
        statement = load("write/complete_queued_jobs", schema)
        return _completed(await connection.fetch(statement, outcomes.completed, pool_id))
    arguments = [pool_id, outcomes.completed, *_terms(go_on)]
    if not outcomes.failed:
        rows = await connection.fetch(load("write/complete_and_go_on", schema), *arguments)
        return Written(jobs=_next_jobs(rows, pool_id, go_on), missing=_not_deleted(outcomes, rows[0][-1]))
    rows = await connection.fetch(
        load("write/write_outcomes", schema),
        *arguments,
        [failure.job_id for failure in outcomes.failed],
        [fit_to_server(connection, failure.message) for failure in outcomes.failed],
        [failure.remaining_payload for failure in outcomes.failed],
    )
    *_, deleted, written = rows[0]
    failed = {failure.job_id for failure in outcomes.failed}.difference(map(abs, written or ()))
    return Written(
        jobs=_next_jobs(rows, pool_id, go_on),
        missing=(*_not_deleted(outcomes, deleted), *failed),
        final=[-job_id for job_id in written or () if job_id < 0],
    )


def _terms(go_on: Continuation | None) -> tuple[Any, ...]:
    if go_on is None:
        return None, None, None
    return list(go_on.tasks), list(go_on.forbidden_flags) if go_on.forbidden_flags else None, go_on.now


def _next_jobs(rows: Sequence[Row], pool_id: str, go_on: Continuation | None) -> Sequence[Job]:
    if go_on is None or rows[0][0] is None:
        return ()
    width = len(Job.__struct_fields__) - 2  # what follows is not about the job
    return taken_jobs((row[:width] for row in rows), pool_id, go_on.tasks)


def _not_deleted(outcomes: Outcomes, deleted: Sequence[int] | None) -> Sequence[int]:
    return () if deleted is None else list(set(outcomes.completed).difference(deleted))


def _completed(rows: Sequence[Row | tuple[list[int]]]) -> Written:
    return Written(missing=rows[0][0]) if rows else ALL_WRITTEN


async def _complete_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, job_ids: list[int]
) -> Sequence[Row | tuple[list[int]]]:
    if len(job_ids) == 1:  # the usual write of an idle worker: the number of rows says it all
        done = await connection.execute(load("write/complete_job", schema), job_ids[0], pool_id)
        return () if done == "DELETE 1" else [(job_ids,)]
    first, last = min(job_ids, default=0), max(job_ids, default=0)
    if len(job_ids) < MANY or last - first >= NEAR * len(job_ids):
        return await connection.fetch(load("write/complete_jobs", schema), job_ids, pool_id)
    if len(job_ids) >= VERY_MANY:
        statement = load("write/complete_many_jobs", schema)
        with suppress(_SomeMissingError):
            async with connection.transaction():
                done = await connection.execute(statement, job_ids, pool_id, first, last)
                if done != f"DELETE {len(job_ids)}":
                    raise _SomeMissingError
            return ()
    statement = load("write/complete_adjacent_jobs", schema)
    return await connection.fetch(statement, job_ids, pool_id, first, last)


class _SomeMissingError(Exception):
    """Not every job was there: the deletion is undone, to be done in the way that tells which were not."""


async def return_jobs(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    jobs: Sequence[Job],
    *,
    note: str | None = None,
    delay: float = 0.0,
) -> dict[int, bool]:
    """Unlock jobs that did not run to their end; the attempt does not count.

    The ids that were unlocked, and whether each can run again: one that was removed by its key cannot.
    With `delay`, in seconds, they run again after that at the soonest, by the server's clock.
    """
    rows = await connection.fetch(
        load("write/return_jobs", schema),
        pool_id,
        [job.id for job in jobs],
        None if note is None else fit_to_server(connection, note),
        [job.job_queue_id for job in jobs if job.job_queue_id is not None],
        delay,
    )
    return {row[0]: row[1] for row in rows}


async def release_queue(connection: Connection, schema: SchemaName, pool_id: str, queue_id: int) -> None:
    """Free a queue that this pool holds although the job for which it did so stays locked."""
    await connection.execute(load("write/release_queue", schema), pool_id, queue_id)
