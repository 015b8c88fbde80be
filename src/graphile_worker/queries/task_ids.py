"""Task names and their ids."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def register_tasks(
    connection: Connection, schema: SchemaName, identifiers: Sequence[str]
) -> dict[int, str]:
    """Names by id; names that have no row yet get one."""
    wanted = list(identifiers)
    known = await _ids(connection, schema, wanted)
    if len(known) < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
        known = await _ids(connection, schema, wanted)
    return known


async def is_anything_waiting(connection: Connection, schema: SchemaName, identifiers: Sequence[str]) -> bool:
    """Whether any job waits that a worker could take, now or later; names that have no row yet get one."""
    wanted = list(identifiers)
    (found,) = await connection.fetch(load("names/is_anything_waiting", schema), wanted)
    if found["known_tasks"] < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
    return bool(found["is_anything_waiting"])


async def _ids(connection: Connection, schema: SchemaName, identifiers: list[str]) -> dict[int, str]:
    rows = await connection.fetch(load("names/get_task_ids", schema), identifiers)
    return {row[0]: row[1] for row in rows}
