"""The audit: who did what through the dashboard, its API and the command line.

Jobs as they were before a change are kept with its row, so that it can be undone. The tables are optional.
Where they are missing, or this role may not write to them, nothing is recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..database.connections import sqlstates
from ..database.connections.connection import Connection
from ..database.connections.encoding import fit_to_server
from ..database.connections.errors import sqlstate_of
from ..database.sql import load
from ..values.schema_name import SchemaName

MAX_TEXT = 500
"""Characters of a name or a target."""
MAX_IDS = 200
"""Ids of jobs in one row; more are in the operation."""
KEPT_FOR = 180 * 86_400.0
"""Seconds that a row of the audit is kept."""
UNDO_WITHIN = 86_400.0
"""Seconds that jobs are kept as they were, for an undo."""
PURGE_STEP = 5_000

logger = logging.getLogger("graphile_worker.audit")


class Actor(msgspec.Struct, frozen=True):
    """Who does something."""

    name: str
    how: str = ""
    """How they signed in: `password`, `token`, `header`, `command line` …"""
    origin: str = ""
    """From where: an address, or the host of a command."""


class AuditTables(msgspec.Struct, frozen=True):
    """Whether there are tables to write to."""

    exist: bool
    may_read: bool
    may_write: bool


async def audit_tables(connection: Connection, schema: SchemaName) -> AuditTables:
    """Whether the tables exist, and what this role may do with them."""
    row: Any = await connection.fetchrow(
        load("admin/has_tables", schema), f"{schema.quoted}._private_py_audit"
    )
    return AuditTables(row["has_tables"], row["may_read"], row["may_write"])


async def record(
    connection: Connection,
    schema: SchemaName,
    actor: Actor,
    action: str,
    *,
    target: str = "",
    jobs: int = 0,
    job_ids: Sequence[int] = (),
    details: Mapping[str, Any] | None = None,
    operation_id: int | None = None,
) -> int | None:
    """Add a row; returns its id, or None where nothing can be recorded. Part of the caller's transaction."""
    tables = await audit_tables(connection, schema)
    if not tables.exist:
        return None
    if not tables.may_write:
        logger.warning("%s by %s is not in the audit: this role may not write to it", action, actor.name)
        return None
    texts = [clean(connection, text) for text in (actor.name, actor.how, actor.origin, action, target)]
    found = clean(connection, msgspec.json.encode(_storable(details or {})).decode(), limit=None)
    statement, ids = load("admin/record", schema), list(job_ids)[:MAX_IDS]
    try:
        async with connection.transaction():  # a savepoint: a refusal must not end the caller's transaction
            row_id: int = await connection.fetchval(statement, *texts, jobs, ids, found, operation_id)
    except Exception as error:
        if sqlstate_of(error) != sqlstates.INSUFFICIENT_PRIVILEGE:
            raise
        logger.warning("%s by %s is not in the audit: %s", action, actor.name, error)
        return None
    return row_id


def clean(connection: Connection, text: str, *, limit: int | None = MAX_TEXT) -> str:
    """Text that the database can store: cut, without NUL and half surrogate pairs."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "")
    return fit_to_server(connection, text if limit is None or len(text) <= limit else text[: limit - 1] + "…")


def _storable(value: Any) -> Any:
    """The value without half surrogate pairs, as plain JSON values."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(_storable(key)): _storable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(each) for each in value]
    return value


async def complete_record(
    connection: Connection,
    schema: SchemaName,
    audit_id: int,
    *,
    jobs: int,
    job_ids: Sequence[int] = (),
    target: str | None = None,
) -> None:
    """Say how many jobs were changed, once that is known."""
    text = None if target is None else clean(connection, target)
    ids = list(job_ids)[:MAX_IDS]
    await connection.execute(load("admin/complete_record", schema), audit_id, jobs, ids, text)


async def purge_audit(connection: Connection, schema: SchemaName, *, limit: int = PURGE_STEP) -> bool:
    """Delete what is older than its retention, in a bounded step; returns whether there may be more."""
    tables = await audit_tables(connection, schema)
    if not tables.may_write:
        return False
    counts: list[int] = [
        await connection.fetchval(load("admin/purge_before", schema), UNDO_WITHIN, limit),
        await connection.fetchval(load("admin/purge_audit", schema), KEPT_FOR, limit),
        await connection.fetchval(load("admin/purge_operations", schema), KEPT_FOR, limit),
    ]
    return max(counts) >= limit


MAX_KEPT = 50_000
"""Jobs of one action that are kept; an action on more cannot be undone."""


async def snapshot_jobs(
    connection: Connection, schema: SchemaName, audit_id: int, job_ids: Sequence[int]
) -> int:
    """Keep jobs as they are; call it before the change, in its transaction, with the rows locked."""
    kept: int = await connection.fetchval(load("admin/snapshot_jobs", schema), audit_id, list(job_ids))
    return kept


async def snapshot_added(
    connection: Connection, schema: SchemaName, audit_id: int, job_ids: Sequence[int]
) -> None:
    """Remember jobs that the action added."""
    await connection.execute(load("admin/snapshot_added", schema), audit_id, list(job_ids))


async def finalize_snapshot(
    connection: Connection, schema: SchemaName, audit_id: int, kept: Sequence[int], changed: Sequence[int]
) -> None:
    """After the change: forget jobs that it did not change, and note how it left the others.

    An undo compares that with the row: what was changed since is not put back.
    """
    await connection.execute(load("admin/finalize_snapshot", schema), audit_id, list(kept), list(changed))
