"""Pausing and resuming tasks and named queues.

A paused task is a row that Python workers read. A paused queue is locked: its row in the shared table is
locked by no pool and for ever, which every runtime obeys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any

from ...errors import InvalidArgumentError
from ...values.job import Pause, instant, optional_instant
from ...values.schema_name import SchemaName
from ...values.spec import MAX_IDENTIFIER_LENGTH, check_name, check_queue_name, is_track_name
from ..connections.connection import Connection, Row
from ..connections.encoding import teach_arrays
from ..connections.errors import if_readable, refusals
from ..sql import load
from .add import time_and_delay
from .limits import track_names
from .manage_jobs import yielding_locks

EVERY_TASK = ""
"""The name under which every task is paused."""

SCHEDULES = "schedules/list_pauses"
MAX_REASON_LENGTH = 1_000
"""Workers read the reasons every few seconds."""

TABLES = ("the tables for pauses are missing; to create them", "pause or resume")
"""For `refusals`."""

Until = datetime | timedelta | None


async def pause_task(
    connection: Connection, schema: SchemaName, identifier: str, until: Until, reason: str | None
) -> Pause:
    """Pause a task, or with `EVERY_TASK` everything."""
    if identifier != EVERY_TASK:
        check_name("task", identifier, MAX_IDENTIFIER_LENGTH)
    row = await _pause(connection, schema, "pause_task", identifier, until, reason)
    return pause_of("task", identifier, row)


async def pause_queue(
    connection: Connection, schema: SchemaName, queue_name: str, until: Until, reason: str | None
) -> Pause:
    """Pause a queue; it is created if no job was ever added to it."""
    check_queue_name(queue_name)

    async def pause() -> Row:
        row = await _pause(connection, schema, "pause_queue", queue_name, until, reason)
        for track in await track_names(connection, schema, queue_name):
            await _pause(connection, schema, "pause_queue", track, until, reason)
        return row

    with refusals(*TABLES):
        row = await yielding_locks(connection, schema, pause)
    return pause_of("queue", queue_name, row)


async def _pause(
    connection: Connection, schema: SchemaName, statement: str, name: str, until: Until, reason: str | None
) -> Row:
    check_terms(until, reason)
    with refusals(*TABLES):
        (row,) = await connection.fetch(
            load(f"control/{statement}", schema), name, *time_and_delay(until, None), reason or None
        )
    return row


def check_terms(until: Until, reason: str | None) -> None:
    """Reject an end that is not in the future, and a reason that is no text."""
    _check_until(until)
    check_reason(reason)


def check_reason(reason: str | None) -> None:
    """Reject a reason that is no text, or is too long."""
    if reason is not None:
        if not isinstance(reason, str):
            raise InvalidArgumentError("reason", f"expected text, got {reason!r}")
        if reason:
            check_name("reason", reason, MAX_REASON_LENGTH)


async def resume_task(connection: Connection, schema: SchemaName, identifier: str) -> bool:
    """End the pause of a task, or with `EVERY_TASK` of everything; returns whether there was one."""
    if identifier != EVERY_TASK:
        check_name("task", identifier, MAX_IDENTIFIER_LENGTH)
    with refusals(*TABLES):
        was_paused: bool = await connection.fetchval(load("control/resume_task", schema), identifier)
    return was_paused


async def resume_queue(connection: Connection, schema: SchemaName, queue_name: str) -> bool:
    """Free a queue that is paused, or return it to the pool that runs a job of it; whether it was paused."""
    check_queue_name(queue_name)

    async def resume() -> bool:
        tracks = await track_names(connection, schema, queue_name)
        was_paused = await _end_pauses(connection, schema, "paused_queue", queue_name) > 0
        for track in tracks:
            await _end_pauses(connection, schema, "paused_queue", track)
        return was_paused

    with refusals(*TABLES):
        if connection.is_in_transaction():
            return await yielding_locks(connection, schema, resume)
        return await resume()  # a transaction for each row


async def end_due_pauses(connection: Connection, schema: SchemaName) -> int:
    """Resume the queues whose pause is over; returns how many."""
    return await _end_pauses(connection, schema, "due_pauses")


async def _end_pauses(connection: Connection, schema: SchemaName, choice: str, *arguments: object) -> int:
    teach_arrays(connection)
    # Statements must see what was committed while they waited for locks: a new snapshot for each. Inside a
    # transaction there is no savepoint: its release would tie the locks to the transaction.
    is_inside = connection.is_in_transaction()
    async with nullcontext() if is_inside else connection.transaction(isolation="read_committed"):
        ended, running = await _unlock_queues(connection, schema, choice, *arguments)
    if running:  # a write may have waited for our transaction
        await connection.fetch(load("control/lock_jobs", schema), running)
    if running or not arguments:
        await connection.fetch(load("control/settle_queues", schema))
    return ended


async def _unlock_queues(
    connection: Connection, schema: SchemaName, choice: str, *arguments: object
) -> tuple[int, list[int]]:
    """How many queues were unlocked, and the ids of the jobs that still run in them."""
    pauses = await connection.fetch(load(f"control/{choice}", schema), *arguments)
    queue_ids = [pause["queue_id"] for pause in pauses]
    running = await _lock_running_jobs(connection, schema, pauses)
    ended: int = 0
    if pauses:
        ended = await connection.fetchval(load("control/end_pauses", schema), queue_ids, running)
    return ended, running


async def _lock_running_jobs(connection: Connection, schema: SchemaName, pauses: Sequence[Row]) -> list[int]:
    """Lock the rows of the jobs that still run in these queues, so that they do not end meanwhile.

    The end of a job that is just being written may lock the next job of its queue. No job is locked later:
    the queue is paused.
    """
    busy = [pause for pause in pauses if pause["holder"] is not None]
    if not busy:
        return []
    queue_ids, holders = [pause["queue_id"] for pause in busy], [pause["holder"] for pause in busy]
    await connection.fetch(load("control/wait_for_held_jobs", schema), queue_ids)
    while True:
        rows = await connection.fetch(load("control/running_jobs", schema), queue_ids, holders)
        found = [row["id"] for row in rows]
        if not found:
            return []
        locked = [row["id"] for row in await connection.fetch(load("control/lock_jobs", schema), found)]
        if locked == found:
            return found


async def list_pauses(
    connection: Connection, schema: SchemaName, *, has_schedules: bool | None = None
) -> list[Pause]:
    """What is paused: everything first, then tasks, queues and recurring jobs, by name.

    `has_schedules`: whether there is a table of paused recurring jobs, which is younger than the others and
    may be missing alone; None if that is not known.
    """
    with refusals(*TABLES):
        found = await _read_pauses(connection, schema, "control/list_pauses")
    if has_schedules is None:
        return [*found, *await _paused_schedules(connection, schema)]
    return [*found, *(await _read_pauses(connection, schema, SCHEDULES) if has_schedules else [])]


async def pauses_if_readable(connection: Connection, schema: SchemaName) -> list[Pause]:
    """The same; empty if the table is missing or this role may not read it."""
    found = await if_readable(connection, lambda: _read_pauses(connection, schema, "control/list_pauses"))
    return [*(found or []), *await _paused_schedules(connection, schema)]


async def _paused_schedules(connection: Connection, schema: SchemaName) -> list[Pause]:
    return await if_readable(connection, lambda: _read_pauses(connection, schema, SCHEDULES)) or []


async def _read_pauses(connection: Connection, schema: SchemaName, statement: str) -> list[Pause]:
    rows = await connection.fetch(load(statement, schema))
    return [pause_from(row) for row in rows if not is_of_track(row)]


def is_of_track(row: Row) -> bool:
    """Whether this is the pause of a track: its queue has one too."""
    return row["kind"] == "queue" and row["name"] is not None and is_track_name(row["name"])


def pause_of(kind: str, name: str | None, terms: Row | Mapping[str, Any]) -> Pause:
    """A pause of a task, a queue or a schedule; `EVERY_TASK` is the name of a pause of everything."""
    return Pause(
        task_identifier=(name or None) if kind == "task" else None,
        queue_name=name if kind == "queue" else None,
        schedule=name if kind == "schedule" else None,
        paused_at=instant(terms["since"]),
        until=optional_instant(terms["until"]),
        reason=terms["reason"],
    )


def pause_from(row: Row) -> Pause:
    """A pause from a row with `kind`, `name` and the terms."""
    return pause_of(row["kind"], row["name"], row)


def _check_until(until: Until) -> None:
    if until is None:
        return
    if isinstance(until, datetime):
        if until.utcoffset() is None:
            raise InvalidArgumentError(
                "until", f"{until!r} has no time zone; give it one, or give a timedelta from now"
            )
        is_over = until <= datetime.now(UTC)
    elif isinstance(until, timedelta):
        is_over = until <= timedelta(0)
    else:
        raise InvalidArgumentError(
            "until", f"expected a datetime with a time zone or a timedelta, got {until!r}"
        )
    if is_over:
        raise InvalidArgumentError("until", f"must be in the future, got {until}")
