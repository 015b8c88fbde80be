"""Upkeep of the history, which one pool does for all.

Partitions are made ahead of need and dropped when their rows have expired, the audit and progress are purged,
and failed jobs are moved here. Each class is a maintenance task: see `recovery/maintenance.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.sql import load
from ..values.options import WorkerOptions
from ..values.retention import RetentionPolicy
from ..values.schema_name import SchemaName
from .audit import purge_audit
from .error_groups import purge_error_groups
from .task_reports import purge_progress

STEP = 1_000  # jobs per statement


class AddPartitions:
    """Makes the partitions of the next days, so that no write has to."""

    name = "partitions"
    interval = 3600.0

    def __init__(self, schema: SchemaName, retention_policy: RetentionPolicy, error_retention: float) -> None:
        self._schema = schema
        self._history = {retention.seconds for retention in retention_policy.every()}
        self._errors = {error_retention} if error_retention > 0 else set()

    async def run(self, connection: Connection) -> bool:
        """Make what is missing."""
        await add_partitions(connection, self._schema, history=self._history, errors=self._errors)
        return False


class DropExpired:
    """Drops partitions whose rows have expired, and forgets old groups of errors."""

    name = "expired history"
    interval = 900.0

    def __init__(self, schema: SchemaName, error_retention: float) -> None:
        self._schema = schema
        self._error_retention = error_retention

    async def run(self, connection: Connection) -> bool:
        """Drop what has expired; return whether there may be more."""
        await drop_expired(connection, self._schema)
        if not self._error_retention:
            return False
        purged = await purge_error_groups(
            connection, self._schema, older_than=self._error_retention, limit=STEP
        )
        return purged >= STEP


class PurgeAudit:
    """Deletes rows of the audit after 180 days, and jobs as they were before changes after a day."""

    name = "audit"
    interval = 1800.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema

    async def run(self, connection: Connection) -> bool:
        """Delete some; return whether there may be more."""
        return await purge_audit(connection, self._schema)


class PurgeProgress:
    """Deletes the progress of jobs whose worker died."""

    name = "progress"
    interval = 300.0

    def __init__(self, schema: SchemaName) -> None:
        self._schema = schema

    async def run(self, connection: Connection) -> bool:
        """Delete what is left over."""
        await purge_progress(connection, self._schema)
        return False


class MoveFailed:
    """Moves jobs that failed permanently a while ago from the queue to the history."""

    name = "failed jobs"
    interval = 300.0

    def __init__(self, schema: SchemaName, *, after: float, retention: float) -> None:
        self._schema = schema
        self._after = after
        self._retention = retention

    async def run(self, connection: Connection) -> bool:
        """Move some; return whether there may be more."""
        await add_partitions(connection, self._schema, history=[self._retention], errors=[], days_ahead=0)
        statement = load("history/move_failed", self._schema)
        moved: int = await connection.fetchval(statement, self._after, self._retention, STEP)
        return moved >= STEP


def history_maintenance(
    options: WorkerOptions, retention_policy: RetentionPolicy
) -> list[AddPartitions | DropExpired | PurgeAudit | PurgeProgress | MoveFailed]:
    schema, errors = options.schema_name, options.history.error_retention
    tasks: list[AddPartitions | DropExpired | PurgeAudit | PurgeProgress | MoveFailed] = [
        AddPartitions(schema, retention_policy, errors),
        DropExpired(schema, errors),
        PurgeProgress(schema),
        PurgeAudit(schema),
    ]
    kept = options.history
    if kept.failed_retention is not None:
        tasks.append(MoveFailed(schema, after=kept.failed_retention, retention=kept.retention))
    return tasks


HISTORY, ERRORS = "_private_py_history", "_private_py_errors"
DAYS_AHEAD = 3
LOCK_WITHIN = "100ms"
"""Dropping a partition holds up every write that follows, so it waits only this long for those that run."""


def is_partition_missing(error: BaseException) -> bool:
    """Whether a row of the history found no partition."""
    return (
        sqlstate_of(error) == sqlstates.CHECK_VIOLATION
        and getattr(error, "constraint_name", None) is None
        and getattr(error, "table_name", None) in (HISTORY, ERRORS, None)  # PostgreSQL 12 does not say
        and not getattr(error, "context", None)  # nor does a trigger that raises such an error itself
    )


async def add_partitions(
    connection: Connection,
    schema: SchemaName,
    *,
    history: Iterable[float],
    errors: Iterable[float],
    days_ahead: int = DAYS_AHEAD,
) -> int:
    """Make what is missing for rows that are kept for these numbers of seconds; returns how many were."""
    added = 0
    for table, seconds in ((HISTORY, set(history)), (ERRORS, set(errors))):
        if seconds:
            added += await connection.fetchval(
                load("history/add_partitions", schema), _qualified(schema, table), sorted(seconds), days_ahead
            )
    return added


async def drop_expired(connection: Connection, schema: SchemaName) -> int:
    """Drop what has expired; raises a lock timeout if a long statement reads the table."""
    dropped = 0
    for table in (HISTORY, ERRORS):
        async with connection.transaction():
            await connection.execute(f"set local lock_timeout = '{LOCK_WITHIN}'")
            dropped += await connection.fetchval(
                load("history/drop_partitions", schema), _qualified(schema, table)
            )
    return dropped


async def name_tasks(connection: Connection, schema: SchemaName, identifiers: Iterable[str]) -> None:
    """Remember the names of these tasks."""
    await connection.execute(load("history/name_tasks", schema), list(identifiers))


def _qualified(schema: SchemaName, table: str) -> str:
    return f"{schema.quoted}.{table}"
