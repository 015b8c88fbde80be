"""Task identifiers and queue names, and their ids in the database."""

from __future__ import annotations

from collections.abc import Sequence

from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load


async def register_tasks(
    connection: Connection, schema: SchemaName, identifiers: Sequence[str]
) -> dict[int, str]:
    """Task identifiers by id; those without a row get one."""
    wanted = list(identifiers)
    known = await _task_ids(connection, schema, wanted)
    if len(known) < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
        known = await _task_ids(connection, schema, wanted)
    return known


async def is_anything_waiting(connection: Connection, schema: SchemaName, identifiers: Sequence[str]) -> bool:
    """Whether any job waits, ready or scheduled. Task identifiers without a row get one."""
    wanted = list(identifiers)
    (found,) = await connection.fetch(load("names/is_anything_waiting", schema), wanted)
    if found["known_tasks"] < len(wanted):
        await connection.execute(load("names/register_tasks", schema), wanted)
    return bool(found["is_anything_waiting"])


async def known_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """Every task identifier in the database, from jobs and from workers."""
    rows = await connection.fetch(load("names/known_task_names", schema))
    return {row["identifier"] for row in rows}


async def worker_task_names(connection: Connection, schema: SchemaName) -> set[str]:
    """The task identifiers of running Python workers; needs the table of workers."""
    rows = await connection.fetch(load("names/worker_task_names", schema), schema.name)
    return {row["identifier"] for row in rows}


async def was_task_known(connection: Connection, schema: SchemaName, identifier: str, job_id: int) -> bool:
    """Whether the task identifier was in the database before this job was added for it."""
    return bool(await connection.fetchval(load("names/was_task_known", schema), identifier, job_id))


async def get_queue_names(
    connection: Connection, schema: SchemaName, queue_ids: Sequence[int]
) -> list[str | None]:
    """The names of these queues, in the order of the ids; None for an unknown id."""
    rows = await connection.fetch(load("names/get_queue_names", schema), list(map(str, queue_ids)))
    return [row["queue_name"] for row in rows]


async def _task_ids(connection: Connection, schema: SchemaName, identifiers: list[str]) -> dict[int, str]:
    rows = await connection.fetch(load("names/get_task_ids", schema), identifiers)
    return {row[0]: row[1] for row in rows}
