"""Finding jobs: by the index that serves a filter, or by a walk of bounded time.

A walk reads the table in steps of 20,000 jobs, for about a second, and says how far it came.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.job_filter import (
    BEGINNING,
    FIRST_ID,
    JobFilter,
    RunPosition,
    ids_to_walk,
    index_variant,
)
from ...database.statements.limits import track_names
from ...database.statements.manage_jobs import attempts_made
from ...values.job import instant
from ...values.schema_name import SchemaName
from ..answers import Problem
from ..security.redact import Redactor
from . import JobRow, ListOrder
from .filters import FinishedFilter

STEP = 20_000
"""Jobs that one statement reads at most."""
BUDGET = 1.0
"""Seconds that a search may take before it answers with what it has."""
OF_PRIORITY = 200
"""Jobs of each priority that are read for a page in run order, at least."""
MAX_PAYLOAD = 64 * 1024
"""Bytes of a payload in a list."""


EndPosition = tuple[datetime, int]
"""When a job ended, and its id."""


class FoundJobs(msgspec.Struct):
    """What a search has found."""

    rows: list[Row]
    read: int = 0
    """Jobs that were read, as far as that is known."""
    position: int | RunPosition | EndPosition | None = None
    """Where to go on; None if the end was reached."""


def is_served(filter: JobFilter, order: ListOrder, *, has_failed_index: bool) -> bool:
    """Whether an index leads to the jobs, so that a page reads little more than it shows."""
    plain = replace(filter, state=None, id_from=None, id_to=None)
    if filter.job_key is not None:
        return True
    if order == "run_order" and has_failed_index:
        plain = replace(plain, queue_name=None)
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        return True
    if plain.has_conditions:
        return False
    if filter.state == "failed":
        return has_failed_index
    return filter.state != "retrying" and (filter.state is None or order == "run_order")


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
    has_queue_index: bool,
    payload: int = 0,
    budget: float = BUDGET,
) -> FoundJobs:
    """Up to `limit` waiting jobs, in the order in which workers take them."""
    position = BEGINNING if after is None else after
    state = filter.required_state
    more: tuple[object, ...] = ()
    is_read = replace(filter, state=None).has_conditions or filter.state == "retrying"
    name = f"admin/find_in_run_order@{state}" if state else "admin/find_in_run_order"
    if filter.queue_name is not None and has_queue_index:
        ids = await queue_ids(connection, schema, filter.queue_name)
        filter, more, name = replace(filter, queue_name=None), (ids,), "admin/find_in_run_order@queued"
        is_read = replace(filter, state=None).has_conditions
    statement = load(name, schema)
    conditions = (*filter.values, state)
    found = FoundJobs([])
    deadline = time.monotonic() + budget
    step = STEP if is_read else max(limit, OF_PRIORITY)
    while True:
        wanted = limit - len(found.rows)
        rows = await connection.fetch(statement, wanted, *conditions, *position, step, payload, *more)
        first = rows[0]
        new = [row for row in rows if row["id"] is not None]
        found.rows += new
        found.read += step if len(new) < wanted and first["last_id"] is not None else len(new)
        if first["last_id"] is None:
            return found
        position = (first["last_priority"], first["last_run_at"], first["last_id"])
        step = min(STEP, 4 * step)
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = position
            return found


async def queue_ids(connection: Connection, schema: SchemaName, name: str) -> list[int]:
    """The rows of a queue: its own, and its tracks."""
    tracks = await if_readable(connection, lambda: track_names(connection, schema, name))
    rows = await connection.fetch(load("names/queue_ids", schema), [name, *(tracks or ())])
    return [row["id"] for row in rows]


async def find_finished(
    connection: Connection,
    schema: SchemaName,
    filter: FinishedFilter,
    *,
    after: EndPosition | None,
    limit: int,
    payload: int = 0,
    budget: float = BUDGET,
) -> FoundJobs:
    """Up to `limit` finished jobs, the last to end first."""
    variant = "@task" if filter.task_identifier is not None else ""
    variant += "@outcome" if filter.outcome not in (None, "completed") else ""
    if filter.id_from is not None and filter.id_to is not None and filter.id_to - filter.id_from < STEP:
        variant = "@ids"
    has_ids = filter.id_from is not None or filter.id_to is not None
    is_walk = filter.has_unserved or filter.outcome == "completed" or has_ids
    statement = load(f"admin/find_finished{variant}", schema)
    conditions = (
        filter.outcome, filter.id_from, filter.id_to, filter.task_identifier, filter.queue_name,
        filter.job_key, filter.key_prefix, filter.locked_by, filter.duration_from, filter.duration_to,
        filter.error, filter.text,
    )  # fmt: skip
    step = STEP if is_walk else limit
    found = FoundJobs([])
    deadline = time.monotonic() + budget
    position: tuple[datetime | None, int] = (None, FIRST_ID) if after is None else after
    await connection.fetchrow(load("history/read_in_order", schema))
    while True:
        wanted = limit - len(found.rows)
        rows = await connection.fetch(
            statement,
            wanted,
            filter.finished_since,
            filter.finished_until,
            step,
            *position,
            *conditions,
            payload,
        )
        first = rows[0]
        new = [row for row in rows if row["job_id"] is not None]
        found.rows += [row for row in new if _shows(row, filter)]
        found.read += len(new) if len(new) >= wanted else step
        if first["last_job_id"] is None:
            return found
        position = (first["last_finished_at"], first["last_job_id"])
        if len(found.rows) >= limit or time.monotonic() > deadline:
            found.position = (first["last_finished_at"], first["last_job_id"])
            return found


def _shows(row: Row, filter: FinishedFilter) -> bool:
    """Whether a job that matches also matches without its secrets."""
    if filter.redactor is None or (filter.error is None and filter.text is None):
        return True
    error = filter.redactor.text(row["error"] or "").lower()
    if filter.error is not None and filter.error.lower() not in error:
        return False
    texts = (row["task_identifier"].lower(), (row["job_key"] or "").lower(), error)
    return filter.text is None or any(filter.text.lower() in text for text in texts)


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
    return JobRow(
        id=row["id"],
        task_identifier=row["task"],
        state=row["state"],
        queue_name=row["queue"],
        priority=row["priority"],
        run_at=instant(row["run_at"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        last_error=redactor.optional_text(row["last_error"]),
        created_at=instant(row["created_at"]),
        updated_at=instant(row["updated_at"]),
        key=row["key"],
        flags=_flags(row["flags"]),
        revision=row["revision"],
        locked_by=row["locked_by"],
        locked_at=None if row["locked_at"] is None else instant(row["locked_at"]),
        failed_at=None if row["failed_at"] is None else instant(row["failed_at"]),
        attempts_made=made,
        queue_locked_by=row["queue_locked_by"],
        payload=_payload(row["payload"], row["task"], redactor),
    )


def finished_row(row: Row, redactor: Redactor) -> JobRow:
    """A finished job of a list, redacted."""
    has_failed = row["state"] == "failed"
    return JobRow(
        id=row["job_id"],
        task_identifier=row["task_identifier"],
        state=row["state"],
        queue_name=row["queue_name"],
        priority=row["priority"],
        run_at=row["run_at"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        last_error=redactor.optional_text(row["error"]),
        created_at=row["created_at"],
        key=row["job_key"],
        flags=_flags(row["flags"]),
        failed_at=row["finished_at"] if has_failed else None,
        attempts_made=row["attempts"] if has_failed else None,
        payload=_payload(row["payload"], row["task_identifier"], redactor),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        duration=row["duration"],
        pool_id=row["pool_id"],
    )


def _flags(text: str | None) -> list[str]:
    return [] if text is None else sorted(msgspec.json.decode(text))


def _payload(text: str | None, task: str, redactor: Redactor) -> Any:
    return None if text is None else msgspec.Raw(redactor.payload(text, task).encode("utf-8", "replace"))


# -- cursors ------------------------------------------------------------------------------------------------

LONGEST_CURSOR = 500


def encode_cursor(kind: str, *values: Any) -> str:
    """A cursor for a list of this kind, such as its order."""
    return base64.urlsafe_b64encode(msgspec.json.encode([kind, *values])).decode().rstrip("=")


def decode_cursor(cursor: str, kind: str, types: Any) -> Any:
    """The values of a cursor; refused if it was made for another list, or by hand.

    `types` is the type of the values, such as `tuple[int]`.
    """
    try:
        if len(cursor) > LONGEST_CURSOR:
            raise ValueError
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
        if not isinstance(found, list) or not found:
            raise ValueError
        if found[0] != kind:
            raise Problem(400, "The cursor is for another list", f"It was not made for the order {kind}.")
        return msgspec.convert(found[1:], types)
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise bad_cursor() from None


def bad_cursor() -> Problem:
    return Problem(400, "The cursor is not valid", "Start again without it.")


def checked_id(value: int) -> int:
    """A value that a bigint holds."""
    if not -(2**63) <= value < 2**63:
        raise bad_cursor()
    return value


def checked_priority(value: int) -> int:
    if not -(2**15) <= value < 2**15:
        raise bad_cursor()
    return value
