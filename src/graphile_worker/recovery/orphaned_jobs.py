"""Taking jobs from worker pools that died, and keeping those of pools that live."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..db.encoding import fit_to_server
from ..job import Job
from ..schema_name import SchemaName
from ..sql import load

RECOVERED = "Job recovered after worker interruption"
"""The last error of a job that was taken from a dead worker; the Rust port writes the same."""

Verdict = Literal["return", "fail", "give_up"]


class OrphanedJob(msgspec.Struct, frozen=True):
    """A job of a dead pool: how often it was recovered before, and whether this time counts."""

    job: Job
    recoveries: int
    counts: bool


class Recovered(msgspec.Struct, frozen=True):
    """A job that was taken from a dead pool: whether it can run again, and what is noted as its last error.

    One that was removed or replaced by its key while it ran cannot, whatever was decided.
    """

    can_run: bool
    last_error: str


class Decision(msgspec.Struct, frozen=True):
    """What becomes of an orphaned job: back to the others, failed as if it had run, or given up."""

    job_id: int
    verdict: Verdict
    message: str
    counts: bool


async def sweep_lock(connection: Connection, schema: SchemaName) -> bool:
    """Whether nobody else sweeps now; holds until the transaction ends."""
    return bool(await connection.fetchval(load("recovery/sweep_lock", schema)))


async def dead_worker_jobs(
    connection: Connection, schema: SchemaName, pool_ids: Sequence[str]
) -> list[OrphanedJob]:
    """The jobs that these pools have locked."""
    rows = await connection.fetch(load("recovery/dead_worker_jobs", schema), list(pool_ids))
    found = []
    for row in rows:
        *columns, recoveries, counts = row
        found.append(OrphanedJob(Job(*columns), recoveries, counts))
    return found


async def delete_dead_workers(
    connection: Connection, schema: SchemaName, pool_ids: Sequence[str]
) -> set[str]:
    """Delete the rows of pools that are dead by now; the ids of those that were."""
    rows = await connection.fetch(load("recovery/delete_dead_workers", schema), list(pool_ids))
    return {row["id"] for row in rows}


async def recover_jobs(
    connection: Connection,
    schema: SchemaName,
    pool_ids: Sequence[str],
    decisions: Sequence[Decision],
    *,
    delay: float = 0.0,
    queues_to_leave: Sequence[int] = (),
) -> dict[int, Recovered]:
    """Do what was decided about the jobs of these pools; the jobs that it was done to, by id."""
    teach_arrays(connection)
    rows = await connection.fetch(
        load("recovery/recover_jobs", schema),
        list(pool_ids),
        [decision.job_id for decision in decisions],
        [decision.verdict for decision in decisions],
        [fit_to_server(connection, decision.message) for decision in decisions],
        [decision.counts for decision in decisions],
        timedelta(seconds=delay),
        list(queues_to_leave),
    )
    return {row["id"]: Recovered(row["is_available"], row["last_error"]) for row in rows}


async def forget_recoveries(connection: Connection, schema: SchemaName) -> int:
    """Forget the recoveries of jobs that are gone; how many."""
    count: int = await connection.fetchval(load("recovery/forget_recoveries", schema))
    return count


async def note_rerun(connection: Connection, schema: SchemaName, pool_id: str, job_id: int) -> None:
    """The pool is about to run a job whose last worker died."""
    await connection.execute(load("recovery/note_rerun", schema), pool_id, job_id)


async def still_locked(
    connection: Connection, schema: SchemaName, pool_id: str, job_ids: Sequence[int]
) -> set[int]:
    """Which of these jobs the pool still has."""
    rows = await connection.fetch(load("recovery/still_locked", schema), pool_id, list(job_ids))
    return {row["id"] for row in rows}


async def renew_locks(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    job_ids: Sequence[int],
    now: datetime | None = None,
) -> int:
    """Renew the locks that are more than an hour old; how many."""
    teach_arrays(connection)
    statement = load("recovery/renew_locks", schema)
    count: int = await connection.fetchval(statement, pool_id, list(job_ids), now)
    return count
