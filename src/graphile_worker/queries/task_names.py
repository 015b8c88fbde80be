"""Which tasks the database knows by name: to tell a new task from a misspelt one."""

from __future__ import annotations

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def known_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """Names that jobs were added for or that workers brought."""
    rows = await connection.fetch(load("names/known_task_names", schema))
    return {row["identifier"] for row in rows}


async def worker_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """Names of the tasks that workers of this package have now; only where the table of workers exists."""
    rows = await connection.fetch(load("names/worker_task_names", schema))
    return {row["identifier"] for row in rows}
