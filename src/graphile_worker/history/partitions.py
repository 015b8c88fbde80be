"""The partitions of the history: made ahead of need, dropped when their rows have expired."""

from __future__ import annotations

from collections.abc import Iterable

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.sql import load
from ..values.schema_name import SchemaName

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
