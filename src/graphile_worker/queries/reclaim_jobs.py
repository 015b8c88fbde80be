"""Giving back what a pool has locked without knowing it."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def reclaim_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, known: Sequence[int]
) -> list[int]:
    """Unlock the jobs of this pool that are not `known` to it, and its queues without a job; the job ids."""
    rows = await connection.fetch(load("queries/reclaim_jobs", schema), pool_id, list(known))
    return [row[0] for row in rows]
