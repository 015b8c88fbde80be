"""Statements about orphaned jobs, and about the locks of pools that are alive.

`reclaim_jobs` returns jobs that a pool has locked without knowing it, once no statement of it is in flight.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from ..database.connections.connection import Connection
from ..database.connections.encoding import fit_to_server, teach_arrays
from ..database.sql import load
from ..database.statements.write import delete_retired
from ..values.job import Job
from ..values.schema_name import SchemaName

RECOVERED = "Job recovered after worker interruption"
"""The last error of a recovered job; the Rust port writes the same."""
SAME_MOMENT = 0.001  # seconds between times that differ only by rounding

RecoveryAction = Literal["return", "fail", "give_up"]

logger = logging.getLogger("graphile_worker.recovery")


class OrphanedJob(msgspec.Struct, frozen=True):
    """A job of a dead pool, how often it was recovered before, and whether this recovery counts."""

    job: Job
    recoveries: int
    counts: bool


class Recovered(msgspec.Struct, frozen=True):
    """A recovered job: whether it can run again, and its last error.

    A job that was removed or replaced by its key while it ran cannot, whatever the decision was.
    """

    can_run: bool
    last_error: str
    is_cancelled: bool = False
    """Whether it was deleted, because it had been cancelled, or its key removed or used again."""
    is_retired: bool = False
    """Whether its key was removed or reused, and the decision was to return it."""

    @property
    def has_failed(self) -> bool:
        """Whether it failed permanently."""
        return not self.can_run and not self.is_cancelled


class Decision(msgspec.Struct, frozen=True):
    """What to do with an orphaned job: return it, count the attempt as failed, or fail it permanently."""

    job_id: int
    action: RecoveryAction
    message: str
    counts: bool
    task_identifier: str = ""
    """For the log."""


async def sweep_lock(connection: Connection, schema: SchemaName, *, within: str = "30s") -> bool:
    """Take the sweep lock until the transaction ends; return False if another sweep is in progress.

    `within`: then the server ends the transaction, so that a suspended worker does not keep the lock.
    """
    return bool(await connection.fetchval(load("recovery/sweep_lock", schema), within))


class SilentSweeper(msgspec.Struct, frozen=True):
    """A session that has the sweep lock and waits for its client in the middle of a statement."""

    pid: int
    began: float
    """When the statement began, in seconds since 1970."""


async def silent_sweeper(
    connection: Connection, schema: SchemaName, to_end: SilentSweeper | None = None
) -> SilentSweeper | None:
    """Such a session, if there is one. It is terminated if it is `to_end` in the same statement."""
    arguments = (None, None) if to_end is None else (to_end.pid, to_end.began)
    row = await connection.fetchrow(load("recovery/silent_sweeper", schema), *arguments)
    if row is None:
        return None
    if row["is_ended"]:
        logger.warning("terminated session %d: its worker stopped responding in a sweep", row["pid"])
        return None
    return SilentSweeper(row["pid"], row["began"])


async def orphaned_jobs(
    connection: Connection, schema: SchemaName, pool_ids: Sequence[str]
) -> list[OrphanedJob]:
    """The jobs that these dead pools have locked."""
    rows = await connection.fetch(load("recovery/orphaned_jobs", schema), list(pool_ids))
    found = []
    for row in rows:
        *columns, recoveries, counts = row
        found.append(OrphanedJob(Job(*columns), recoveries, counts))
    return found


async def delete_dead_workers(
    connection: Connection, schema: SchemaName, pool_ids: Sequence[str]
) -> set[str]:
    """Delete the rows of pools that are still dead; return their ids."""
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
    """Apply the decisions to jobs of these pools; return the recovered jobs by id."""
    teach_arrays(connection)
    rows = await connection.fetch(
        load("recovery/recover_jobs", schema),
        list(pool_ids),
        [decision.job_id for decision in decisions],
        [decision.action for decision in decisions],
        [fit_to_server(connection, decision.message) for decision in decisions],
        [decision.counts for decision in decisions],
        timedelta(seconds=delay),
        list(queues_to_leave),
    )
    return {
        row["id"]: Recovered(row["is_available"], row["last_error"], is_retired=row["is_retired"])
        for row in rows
    }


async def purge_recoveries(connection: Connection, schema: SchemaName) -> int:
    """Delete recovery counters of jobs that no longer exist; return how many."""
    count: int = await connection.fetchval(load("recovery/purge_recoveries", schema))
    return count


async def note_rerun(connection: Connection, schema: SchemaName, pool_id: str, job_id: int) -> None:
    """Record that the pool is about to run a recovered job."""
    await connection.execute(load("recovery/note_rerun", schema), pool_id, job_id)


async def still_locked(
    connection: Connection, schema: SchemaName, pool_id: str, job_ids: Sequence[int]
) -> set[int]:
    """Which of these jobs the pool still has locked."""
    rows = await connection.fetch(load("recovery/still_locked", schema), pool_id, list(job_ids))
    return {row["id"] for row in rows}


async def still_ours(
    connection: Connection, schema: SchemaName, pool_id: str, jobs: Iterable[Job]
) -> set[int]:
    """The ids of the given jobs that the pool still has locked.

    If the schema was dropped and installed again, another job may have the id, and a fetch that waited for
    the change may have locked it: such a job was added at another time.
    """
    known = {job.id: job for job in jobs}
    rows = await connection.fetch(load("recovery/still_locked", schema), pool_id, list(known))
    return {
        row["id"]
        for row in rows
        if abs(known[row["id"]].created_at.timestamp() - row["created_at"]) < SAME_MOMENT
    }


async def gone_jobs(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> set[int]:
    """Which of these jobs have no row."""
    rows = await connection.fetch(load("recovery/gone_jobs", schema), list(job_ids))
    return {row["id"] for row in rows}


async def renew_locks(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    job_ids: Sequence[int],
    now: datetime | None = None,
) -> int:
    """Renew locks that are more than an hour old; return how many."""
    teach_arrays(connection)
    statement = load("recovery/renew_locks", schema)
    count: int = await connection.fetchval(statement, pool_id, list(job_ids), now)
    return count


async def reclaim_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, known: Sequence[int], queues: Iterable[int] = ()
) -> list[int]:
    """Unlock the pool's jobs that are not `known` to it; return their ids.

    Its queues without a job are unlocked as well, except these, which it has locked for held batches.
    """
    async with connection.transaction():
        rows = await connection.fetch(
            load("recovery/reclaim_jobs", schema), pool_id, list(known), list(queues)
        )
        if retired := [row["id"] for row in rows if row["is_retired"]]:
            await delete_retired(connection, schema, retired)
    return [row["id"] for row in rows]


async def end_lost_sessions(connection: Connection, schema: SchemaName, pids: Sequence[int]) -> list[int]:
    """Terminate these abandoned sessions of ours; return those that were still alive."""
    rows = await connection.fetch(load("recovery/end_lost_sessions", schema), list(pids))
    return [row[0] for row in rows]
