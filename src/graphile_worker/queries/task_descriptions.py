"""What workers say about their tasks when they start: runbook, owner, and the payload that each expects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..schema_name import SchemaName
from ..sql import load

MAX_DESCRIBED = 1_000
"""Tasks of one worker that are described."""
MAX_TYPE_LENGTH = 500
MAX_SCHEMA_LENGTH = 16_384


class TaskDescription(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about one task."""

    runbook: str | None = None
    """The address of a page that says what to do when its jobs fail."""
    owner: str | None = None
    """The person or team that looks after it."""
    payload_type: str | None = None
    """The annotation of the payload; None if any JSON will do."""
    payload_schema: str | None = None
    """The same as JSON Schema; None if it cannot be expressed, or is too long."""


async def describe_tasks(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    *,
    forbidden_flags: Sequence[str] | None,
    tasks: Sequence[tuple[str, TaskDescription]],
    timeout: float | None = None,
) -> None:
    """Write what a worker says that has just started; `forbidden_flags` is None if they may change."""
    teach_arrays(connection)
    described = tasks[:MAX_DESCRIBED]
    await connection.execute(
        load("names/describe_tasks", schema),
        pool_id,
        None if forbidden_flags is None else list(forbidden_flags),
        [name for name, _ in described],
        [each.runbook for _, each in described],
        [each.owner for _, each in described],
        [each.payload_type for _, each in described],
        [each.payload_schema for _, each in described],
        timeout=timeout,
    )


async def get_task_description(
    connection: Connection, schema: SchemaName, identifier: str
) -> TaskDescription | None:
    """What the worker that started last says about a task; None if none has said anything."""
    row: Any = await connection.fetchrow(load("names/get_task_description", schema), identifier)
    if row is None:
        return None
    return TaskDescription(
        runbook=row["runbook"],
        owner=row["owner"],
        payload_type=row["payload_type"],
        payload_schema=row["payload_schema"],
    )
