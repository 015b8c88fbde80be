"""Maintenance on request: deleting what is no longer needed, and unlocking jobs of dead workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from .. import sqlstates
from ..db.connection import Connection
from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError
from ..pauses import PAUSED_BY
from ..schema_name import SchemaName
from ..spec import check_text
from ..sql import load
from .names import worker_task_names
from .unused_names import delete_unused

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
        known = await _names_of_workers(connection, schema)
        names = await delete_unused(connection, schema, "tasks", [*keep, *known])
    if "GC_JOB_QUEUES" in wanted:
        queues = await delete_unused(connection, schema, "queues")
    return CleanupReport(permafailed_jobs=jobs, task_identifiers=names, job_queues=queues)


async def _names_of_workers(connection: Connection, schema: SchemaName) -> set[str]:
    """The tasks of running workers, which have read the ids of their rows."""
    try:
        async with connection.transaction():  # a savepoint inside the caller's
            return await worker_task_names(connection, schema)
    except Exception as error:
        if sqlstate_of(error) not in (sqlstates.UNDEFINED_TABLE, sqlstates.INSUFFICIENT_PRIVILEGE):
            raise
        return set()  # no Python worker has run here, or this role may not read the table


async def force_unlock_workers(connection: Connection, schema: SchemaName, worker_ids: Iterable[str]) -> None:
    """Unlock all jobs and queues of these pools."""
    ids = checked_names("worker_ids", worker_ids)
    if PAUSED_BY in ids:
        raise InvalidArgumentError(
            "worker_ids",
            f"{PAUSED_BY!r} is not a worker: the queues it locks are paused; resume them",
        )
    await connection.execute(load("maintain/force_unlock_workers", schema), ids)


async def _delete_permafailed_jobs(
    connection: Connection, schema: SchemaName, on_jobs_deleted: Callable[[int], object]
) -> int:
    total, last_id = 0, 0
    while True:
        row = await connection.fetchrow(
            load("maintain/delete_permafailed_jobs", schema), last_id, DELETE_BATCH
        )
        deleted = 0 if row is None else row["deleted"]
        total += deleted
        on_jobs_deleted(total)
        if row is None or deleted < DELETE_BATCH:
            return total
        last_id = row["last_id"]


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
