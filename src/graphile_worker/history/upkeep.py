"""What one pool does for all: partitions ahead, dropping those that have expired, moving failed jobs here.

Each class is a maintenance task: see `recovery/maintenance/tasks.py`.
"""

from __future__ import annotations

from ..database.connections.connection import Connection
from ..database.sql import load
from ..values.options import WorkerOptions
from ..values.retention import RetentionPolicy
from ..values.schema_name import SchemaName
from .audit import purge_audit
from .error_groups import purge_error_groups
from .partitions import add_partitions, drop_expired
from .progress import purge_progress

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
    """All maintenance tasks of this module."""
    schema, errors = options.schema_name, options.error_retention
    tasks: list[AddPartitions | DropExpired | PurgeAudit | PurgeProgress | MoveFailed] = [
        AddPartitions(schema, retention_policy, errors),
        DropExpired(schema, errors),
        PurgeProgress(schema),
        PurgeAudit(schema),
    ]
    if options.failed_retention is not None:
        tasks.append(MoveFailed(schema, after=options.failed_retention, retention=options.history_retention))
    return tasks
