"""Writing back how jobs ended, and giving back those that did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from ..db.connection import Connection
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load
from .rows import taken_jobs

MANY = 100  # jobs; for less it does not matter how they are found
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


async def write_outcomes(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    outcomes: Outcomes,
    *,
    go_on: Continuation | None = None,
) -> list[Job]:
    """Write the outcomes and free the queues; with `go_on`, lock and return the next job of each queue."""
    if not outcomes.failed and not outcomes.queues:
        await _complete_jobs(connection, schema, pool_id, outcomes.completed)
        return []
    if not outcomes.failed and go_on is None:
        await connection.execute(load("queries/complete_queued_jobs", schema), outcomes.completed, pool_id)
        return []
    tasks = go_on.tasks if go_on is not None else {}
    rows = await connection.fetch(
        load("queries/write_outcomes", schema),
        pool_id,
        outcomes.completed,
        [failure.job_id for failure in outcomes.failed],
        [failure.message for failure in outcomes.failed],
        [failure.remaining_payload for failure in outcomes.failed],
        list(tasks) if go_on is not None else None,
        list(go_on.forbidden_flags) if go_on is not None and go_on.forbidden_flags else None,
        go_on.now if go_on is not None else None,
    )
    return taken_jobs(rows, pool_id, tasks)


async def _complete_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, job_ids: list[int]
) -> None:
    first, last = min(job_ids, default=0), max(job_ids, default=0)
    if len(job_ids) >= MANY and last - first < NEAR * len(job_ids):
        statement = load("queries/complete_adjacent_jobs", schema)
        await connection.execute(statement, job_ids, pool_id, first, last)
    else:
        await connection.execute(load("queries/complete_jobs", schema), job_ids, pool_id)


async def return_jobs(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    jobs: Sequence[Job],
    *,
    note: str | None = None,
    delay: float = 0.0,
) -> set[int]:
    """Unlock jobs that did not run to their end; the attempt does not count. The ids that went back.

    With `delay` they run again so many seconds later at the soonest, by the server's clock.
    """
    rows = await connection.fetch(
        load("queries/return_jobs", schema),
        pool_id,
        [job.id for job in jobs],
        note,
        [job.job_queue_id for job in jobs if job.job_queue_id is not None],
        delay,
    )
    return {row[0] for row in rows}


async def reset_locked(
    connection: Connection, schema: SchemaName, now: datetime | None = None
) -> tuple[int, int]:
    """Clear locks older than four hours; how many jobs and queues that freed."""
    row = await connection.fetchrow(load("queries/reset_locked", schema), now)
    return (row[0], row[1]) if row is not None else (0, 0)
