"""Names of queues by id."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def get_queue_names(
    connection: Connection, schema: SchemaName, queue_ids: Sequence[int]
) -> list[str | None]:
    """The names in the order of the ids given, None where there is no such queue."""
    rows = await connection.fetch(load("names/get_queue_names", schema), list(map(str, queue_ids)))
    return [row["queue_name"] for row in rows]
