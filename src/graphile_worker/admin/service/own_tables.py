"""Which Python-only tables there are: none in a schema that only Node or Rust has installed."""

from __future__ import annotations

from ...database.connections.connection import Connection
from ...database.sql import load
from ...values.schema_name import SchemaName

WORKERS = "_private_py_workers"
STATISTICS = frozenset({"_private_py_minutes", "_private_py_hours", "_private_py_samples"})
DAYS = "_private_py_days"
ERRORS = frozenset({"_private_py_errors", "_private_py_error_groups", "_private_py_task_names"})
HISTORY = frozenset({"_private_py_history", "_private_py_task_names"})
PAUSES = frozenset({"_private_py_pauses", "_private_py_queue_holds"})


async def own_tables(connection: Connection, schema: SchemaName) -> frozenset[str]:
    """The names of those that this role may read."""
    rows = await connection.fetch(load("admin/own_tables", schema), schema.name)
    return frozenset(row["name"] for row in rows)
