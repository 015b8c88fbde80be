"""Names for the filter box and the forms: tasks and queues, a bounded number."""

from __future__ import annotations

from typing import Literal

from ...db.connection import Connection
from ...schema_name import SchemaName
from ...sql import load
from ..database import Database

MOST = 50

NameKind = Literal["task", "queue"]


async def complete(database: Database, kind: NameKind, text: str) -> list[str]:
    """Names of tasks that contain the text, or of queues that begin with it."""
    async with database.read() as connection:
        return await names(connection, database.schema, kind, text)


async def names(
    connection: Connection, schema: SchemaName, kind: NameKind, text: str = "", most: int = MOST
) -> list[str]:
    rows = await connection.fetch(load(f"admin/complete_{kind}s", schema), text, most)
    return [row["name"] for row in rows]
