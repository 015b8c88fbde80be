"""Jobs as they were before a change, kept with its row in the audit so that it can be undone."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load

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
    connection: Connection,
    schema: SchemaName,
    audit_id: int,
    kept: Sequence[int],
    changed: Sequence[int],
) -> None:
    """After the change: forget jobs that it did not change, and note how it left the others.

    An undo compares that with the row: what was changed since is not put back.
    """
    await connection.execute(load("admin/finalize_snapshot", schema), audit_id, list(kept), list(changed))
