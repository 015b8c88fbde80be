"""Finding jobs: by the index that serves a filter, or by a walk of bounded time.

A walk reads the table in steps of 20,000 jobs, for about a second, and says how far it came.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.attempts import attempts_made
from ...database.statements.job_filter import BEGINNING, JobFilter, RunPosition, ids_to_walk, index_variant
from ...values.job import instant
from ...values.schema_name import SchemaName
from ..security.redact import Redactor
from . import JobRow, ListOrder

STEP = 20_000
"""Jobs that one statement reads at most."""
BUDGET = 1.0
"""Seconds that a search may take before it answers with what it has."""
OF_PRIORITY = 200
"""Jobs of each priority that are read for a page in run order, at least."""
MAX_PAYLOAD = 64 * 1024
"""Bytes of a payload in a list."""


class FoundJobs(msgspec.Struct):
    """What a search has found."""

    rows: list[Row]
    read: int = 0
    """Jobs that were read, as far as that is known."""
    position: int | RunPosition | None = None
    """Where to go on; None if the end was reached."""


def is_served(filter: JobFilter, order: ListOrder, *, has_failed_index: bool) -> bool:
    """Whether an index leads to the jobs, so that a page reads little more than it shows."""
    plain = replace(filter, state=None, id_from=None, id_to=None)
    if filter.job_key is not None:
        return True
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        return True
    if plain.has_conditions:
        return False
    if filter.state == "failed":
        return has_failed_index
    return filter.state is None or order == "run_order"


async def find_by_id(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    order: ListOrder,
    *,
    after: int | None,
    limit: int,
    has_failed_index: bool,
    payload: int = 0,
    budget: float = BUDGET,
) -> FoundJobs:
    """Up to `limit` jobs by id, downwards or upwards."""
    is_down = order == "newest"
    start, end = ids_to_walk(filter, is_down=is_down)
    position = start if after is None else (min(after, start) if is_down else max(after, start))
    name = "admin/find_by_id" if is_down else "admin/find_by_id@upwards"
    statement = load(name + index_variant(filter, has_failed_index=has_failed_index), schema)
    conditions = (*filter.values, filter.required_state)
    found = FoundJobs([])
    deadline = time.monotonic() + budget
    while True:
        wanted = limit - len(found.rows)
        rows = await connection.fetch(statement, wanted, *conditions, position, STEP, payload)
        last_id = rows[0]["last_id"]
        new = [row for row in rows if row["id"] is not None]
        found.rows += new
        found.read += STEP if len(new) < wanted and last_id is not None else len(new)
        if last_id is None or (last_id <= end if is_down else last_id >= end):
            return found
        position = last_id
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = position
            return found


async def find_in_run_order(
    connection: Connection,
    schema: SchemaName,
    filter: JobFilter,
    *,
    after: RunPosition | None,
    limit: int,
    payload: int = 0,
    budget: float = BUDGET,
) -> FoundJobs:
    """Up to `limit` waiting jobs, in the order in which workers take them."""
    position = BEGINNING if after is None else after
    if filter.state is not None and not replace(filter, state=None).has_conditions:
        return await _find_waiting(connection, schema, filter.state, position, limit, payload)
    statement = load("admin/find_in_run_order", schema)
    conditions = (*filter.values, filter.required_state)
    found = FoundJobs([])
    deadline = time.monotonic() + budget
    step = STEP if filter.has_conditions else max(limit, OF_PRIORITY)
    while True:
        wanted = limit - len(found.rows)
        rows = await connection.fetch(statement, wanted, *conditions, *position, step, payload)
        first = rows[0]
        new = [row for row in rows if row["id"] is not None]
        found.rows += new
        found.read += step if len(new) < wanted and first["last_id"] is not None else len(new)
        if first["last_id"] is None:
            return found
        position = (first["last_priority"], first["last_run_at"], first["last_id"])
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = position
            return found


async def _find_waiting(
    connection: Connection, schema: SchemaName, state: str, after: RunPosition, limit: int, payload: int
) -> FoundJobs:
    statement = load("admin/find_waiting" if state == "ready" else "admin/find_waiting@scheduled", schema)
    rows = await connection.fetch(statement, limit, *after, max(limit, OF_PRIORITY), payload)
    found = FoundJobs(list(rows), len(rows))
    if len(rows) >= limit:
        last = rows[-1]
        found.position = (last["priority"], last["run_at"], last["id"])
    return found


async def find_these(
    connection: Connection, schema: SchemaName, ids: Sequence[int], *, payload: int = 0
) -> list[Row]:
    """Jobs by their ids, the newest first."""
    return list(await connection.fetch(load("admin/find_these", schema), list(ids), payload))


async def rows_from(
    connection: Connection, schema: SchemaName, rows: Sequence[Row], redactor: Redactor
) -> list[JobRow]:
    """Jobs of a list, redacted; permanently failed ones know how many attempts they had."""
    failed = [row["id"] for row in rows if row["state"] == "failed"]
    made = await attempts_made(connection, schema, failed)
    return [_row(row, redactor, made.get(row["id"])) for row in rows]


def _row(row: Row, redactor: Redactor, made: int | None) -> JobRow:
    task = row["task"]
    payload: Any = None
    if row["payload"] is not None:
        payload = msgspec.Raw(redactor.payload(row["payload"], task).encode("utf-8", "replace"))
    return JobRow(
        id=row["id"],
        task=task,
        state=row["state"],
        queue=row["queue"],
        priority=row["priority"],
        run_at=instant(row["run_at"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        last_error=redactor.optional_text(row["last_error"]),
        created_at=instant(row["created_at"]),
        key=row["key"],
        flags=[] if row["flags"] is None else sorted(msgspec.json.decode(row["flags"])),
        revision=row["revision"],
        locked_by=row["locked_by"],
        locked_at=None if row["locked_at"] is None else instant(row["locked_at"]),
        failed_at=None if row["failed_at"] is None else instant(row["failed_at"]),
        attempts_made=made,
        queue_locked_by=row["queue_locked_by"],
        payload=payload,
    )
