"""Upkeep of the history, which one pool does for all.

Partitions are made ahead of need and dropped when their rows have expired, the audit and progress are purged,
and failed jobs are moved here.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, NamedTuple

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


class HistoryTask(NamedTuple):
    """A maintenance task: see `recovery/maintenance.py`."""

    name: str
    interval: float
    run: Callable[[Connection], Coroutine[Any, Any, bool]]


def history_maintenance(options: WorkerOptions, retention_policy: RetentionPolicy) -> list[HistoryTask]:
    schema, kept, error_retention = options.schema_name, options.history, options.history.error_retention
    history = {retention.seconds for retention in retention_policy.every()}
    errors = {error_retention} if error_retention > 0 else set()

    async def add(connection: Connection) -> bool:
        """Make the partitions of the next days, so that no write has to."""
        await add_partitions(connection, schema, history=history, errors=errors)
        return False

    async def drop(connection: Connection) -> bool:
        await drop_expired(connection, schema)
        if not error_retention:
            return False
        purged = await purge_error_groups(connection, schema, older_than=error_retention, limit=STEP)
        return purged >= STEP

    async def forget_progress(connection: Connection) -> bool:
        await purge_progress(connection, schema)
        return False

    tasks = [
        HistoryTask("partitions", 3600.0, add),
        HistoryTask("expired history", 900.0, drop),
        HistoryTask("progress", 300.0, forget_progress),
        HistoryTask("audit", 1800.0, partial(purge_audit, schema=schema)),
    ]
    if (after := kept.failed_retention) is not None:
        move = partial(move_failed, schema=schema, after=after, retention=kept.retention)
        tasks.append(HistoryTask("failed jobs", 300.0, move))
    return tasks


async def move_failed(connection: Connection, schema: SchemaName, *, after: float, retention: float) -> bool:
    """Move jobs that failed permanently a while ago to the history; returns whether there may be more."""
    await add_partitions(connection, schema, history=[retention], errors=[], days_ahead=0)
    moved: int = await connection.fetchval(load("history/move_failed", schema), after, retention, STEP)
    return moved >= STEP


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
    kept = _kept(schema, history, errors)
    if not kept[0]:
        return 0
    added: int = await connection.fetchval(load("history/add_partitions", schema), *kept, days_ahead)
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


async def prepare_history(
    connection: Connection,
    schema: SchemaName,
    identifiers: Iterable[str],
    *,
    history: Iterable[float],
    errors: Iterable[float],
) -> None:
    """Do both, in one round trip."""
    statement = load("history/prepare_history", schema)
    await connection.fetchval(statement, *_kept(schema, history, errors), DAYS_AHEAD, list(identifiers))


def _kept(
    schema: SchemaName, history: Iterable[float], errors: Iterable[float]
) -> tuple[list[str], list[float]]:
    """Tables, and for how many seconds they keep rows."""
    times = ((HISTORY, set(history)), (ERRORS, set(errors)))
    pairs = [(_qualified(schema, table), each) for table, seconds in times for each in sorted(seconds)]
    return [table for table, _ in pairs], [each for _, each in pairs]


def _qualified(schema: SchemaName, table: str) -> str:
    return f"{schema.quoted}.{table}"
