"""Maintenance on request: deleting what is no longer needed, and unlocking jobs of dead workers.

Queues and task identifiers that no job refers to are deleted while clients add jobs. To add a job is to read
the rows of its queue and its task first. If such a row is deleted before the job is committed, the job can
never run. No foreign key prevents that, and functions of other runtimes add jobs, too. But a transaction
holds a lock on every table it has read. So the deletion locks the table, which blocks workers and clients; it
gives up after a short wait and retries.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import InvalidArgumentError
from ...values.job import PAUSED_BY
from ...values.schema_name import SchemaName
from ...values.spec import check_text
from ..connections import sqlstates
from ..connections.connection import Connection, Pool, pause
from ..connections.errors import if_readable, sqlstate_of
from ..connections.open import lend
from ..sql import load
from .fetch import worker_task_names

CleanupTask = Literal["DELETE_PERMAFAILED_JOBS", "GC_TASK_IDENTIFIERS", "GC_JOB_QUEUES"]
CLEANUP_TASKS: tuple[CleanupTask, ...] = get_args(CleanupTask)
"""In the order of execution: deleted jobs free task identifiers and queues."""
DELETE_BATCH = 10_000
"""Jobs per statement, so that no lock is held for long in a large table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What a cleanup deleted."""

    permafailed_jobs: int = 0
    task_identifiers: int = 0
    job_queues: int = 0


async def cleanup(
    connection: Connection,
    schema: SchemaName,
    tasks: Iterable[CleanupTask] | None = None,
    *,
    task_identifiers_to_keep: Iterable[str] | None = None,
    on_jobs_deleted: Callable[[int], object] = lambda total: None,
) -> CleanupReport:
    """Run these cleanups; the default is queues, and task identifiers if some are to be kept.

    `on_jobs_deleted` is called after each step with the number of jobs deleted so far.
    """
    wanted = _checked_tasks(tasks, keeps_names=task_identifiers_to_keep is not None)
    keep = checked_names("task_identifiers_to_keep", task_identifiers_to_keep or ())
    jobs = names = queues = 0
    if "DELETE_PERMAFAILED_JOBS" in wanted:
        jobs = await _delete_permafailed_jobs(connection, schema, on_jobs_deleted)
    if "GC_TASK_IDENTIFIERS" in wanted:
        # Running workers have read the ids of their rows. Without their table, no Python worker has run here.
        known = await if_readable(connection, lambda: worker_task_names(connection, schema)) or ()
        names = await delete_unused(connection, schema, "tasks", [*keep, *known])
    if "GC_JOB_QUEUES" in wanted:
        queues = await delete_unused(connection, schema, "queues")
    return CleanupReport(permafailed_jobs=jobs, task_identifiers=names, job_queues=queues)


async def force_unlock_workers(connection: Connection, schema: SchemaName, worker_ids: Iterable[str]) -> None:
    """Unlock all jobs and queues of these pools."""
    ids = checked_names("worker_ids", worker_ids)
    if PAUSED_BY in ids:
        raise InvalidArgumentError(
            "worker_ids", f"{PAUSED_BY!r} is not a worker: the queues it locks are paused; resume them"
        )
    await connection.execute(load("maintain/force_unlock_workers", schema), ids)


async def _delete_permafailed_jobs(
    connection: Connection, schema: SchemaName, on_jobs_deleted: Callable[[int], object]
) -> int:
    total, last_id = 0, 0
    while True:
        statement = load("maintain/delete_permafailed_jobs", schema)
        (row,) = await connection.fetch(statement, last_id, DELETE_BATCH)
        deleted: int = row["deleted"]
        last_id = row["last_id"]
        total += deleted
        on_jobs_deleted(total)
        if deleted < DELETE_BATCH:
            return total


def _checked_tasks(tasks: Iterable[str] | None, *, keeps_names: bool) -> set[str]:
    if tasks is None:
        return {"GC_JOB_QUEUES", "GC_TASK_IDENTIFIERS"} if keeps_names else {"GC_JOB_QUEUES"}
    given = checked_names("tasks", tasks)
    unknown = [task for task in given if task not in CLEANUP_TASKS]
    if unknown:
        allowed = ", ".join(CLEANUP_TASKS)
        raise InvalidArgumentError("tasks", f"allowed are {allowed}; got {', '.join(unknown)}")
    return set(given)


def checked_names(argument: str, values: Iterable[str]) -> list[str]:
    """The names as a list. Rejects a single text, which would be read letter by letter."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InvalidArgumentError(argument, f"expected a list of names, got {values!r}")
    names = list(values)
    for name in names:
        if not isinstance(name, str):
            raise InvalidArgumentError(argument, f"every name must be text, got {name!r}")
        check_text(argument, name)
    return names


LOCK_TIMEOUT = "200ms"
"""While we wait for the lock, everyone else waits behind us."""
ATTEMPTS = 5
PAUSE = 0.2  # seconds between two attempts
LOCK_FAILURES = (sqlstates.LOCK_NOT_AVAILABLE, sqlstates.DEADLOCK_DETECTED)

logger = logging.getLogger("graphile_worker")

Kind = Literal["queues", "tasks"]


async def delete_unused(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    """Delete unused rows; returns their number, 0 if an open transaction keeps the table locked.

    Inside a transaction of the caller the table stays locked until it ends.
    """
    if not await connection.fetchval(load(f"maintain/has_unused_{kind}", schema), *arguments):
        return 0
    for attempt in range(ATTEMPTS):
        if attempt:
            await pause(connection, PAUSE)
        try:
            return await _delete(connection, schema, kind, *arguments)
        except Exception as error:
            if sqlstate_of(error) not in LOCK_FAILURES:
                raise
    logger.warning(
        "unused %s were not deleted: an open transaction has read them; run the cleanup again later", kind
    )
    return 0


async def _delete(connection: Connection, schema: SchemaName, kind: Kind, *arguments: object) -> int:
    # The deletion must see what was committed while we waited for the lock: a new snapshot per statement.
    isolation = None if connection.is_in_transaction() else "read_committed"
    async with connection.transaction(isolation=isolation):
        previous = await connection.fetchval(load("control/limit_lock_waits", schema), LOCK_TIMEOUT)
        await connection.execute(load(f"maintain/lock_{kind}", schema))
        await connection.fetchval(load("control/limit_lock_waits", schema), previous)
        deleted: int = await connection.fetchval(load(f"maintain/delete_unused_{kind}", schema), *arguments)
        return deleted


@asynccontextmanager
async def own_session(
    pool: Pool, *, prepared_statements: bool, timeout: float | None = None
) -> AsyncIterator[Connection]:
    """A connection with our own timeouts; its session is reset before it returns to the pool.

    Without prepared statements there may be a pooler in transaction mode: settings would stay with a session
    that others use, so the role's timeouts apply. `timeout` is for getting and for returning it.
    """
    if not prepared_statements:
        async with pool.acquire(timeout=timeout) as connection:
            yield connection
        return
    async with lend(pool, timeout=timeout) as connection:
        await connection.execute(load("session/tune_own"))  # one round trip, without rows
        yield connection
