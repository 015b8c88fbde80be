"""How many attempts permanently failed jobs really had, as far as the history knows it."""

from __future__ import annotations

from collections.abc import Sequence

from ...values.schema_name import SchemaName
from ..connections.connection import Connection
from ..connections.errors import if_readable
from ..sql import load


async def attempts_made(connection: Connection, schema: SchemaName, job_ids: Sequence[int]) -> dict[int, int]:
    """Those of these jobs that have failed permanently, with the attempt that was the last one.

    A job is missing if nothing tells: another runtime failed it, or nothing was kept. Empty where there is no
    history, or the role may not read it.
    """
    if not job_ids:
        return {}
    statement, ids = load("history/attempts_made", schema), list(map(str, job_ids))
    rows = await if_readable(connection, lambda: connection.fetch(statement, ids))
    return {row["id"]: row["attempts"] for row in rows or ()}
