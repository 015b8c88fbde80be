"""Reclaiming: return jobs that a pool has locked without knowing it, once no statement of it is in flight."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..queries.retired import delete_retired
from ..schema_name import SchemaName
from ..sql import load


async def reclaim_jobs(
    connection: Connection, schema: SchemaName, pool_id: str, known: Sequence[int]
) -> list[int]:
    """Unlock the pool's jobs that are not `known` to it, and its queues without a job; return the job ids."""
    async with connection.transaction():
        rows = await connection.fetch(load("recovery/reclaim_jobs", schema), pool_id, list(known))
        if retired := [row["id"] for row in rows if row["is_retired"]]:
            await delete_retired(connection, schema, retired)
    return [row["id"] for row in rows]


async def end_lost_sessions(connection: Connection, schema: SchemaName, pids: Sequence[int]) -> list[int]:
    """Terminate these abandoned sessions of ours; return those that were still alive."""
    rows = await connection.fetch(load("recovery/end_lost_sessions", schema), list(pids))
    return [row[0] for row in rows]
