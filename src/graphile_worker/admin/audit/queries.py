"""Reading the audit."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...database.statements.pauses import pauses_if_readable
from ...history.audit import audit_tables
from ...values.job import Pause
from ..answers import Listing
from ..database import Database
from ..security.identity import PERMISSION_FOR, Permission
from ..security.redact import Redactor


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the audit."""

    id: int
    at: datetime
    who: str
    how: str
    origin: str
    action: str
    target: str
    jobs: int
    job_ids: list[int]
    details: dict[str, Any]
    operation_id: int | None
    undone_by: int | None
    can_undo: bool


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of the audit to list, the latest first."""

    who: Annotated[str, msgspec.Meta(max_length=200)] = ""
    action: Annotated[str, msgspec.Meta(max_length=200)] = ""
    job: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    after: int | None = None
    """The id after which to go on: `next` of the page before."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


RESUMES: dict[str, Permission] = {
    "pause_queue": "queues.pause", "pause_task": "tasks.pause", "pause_all": "tasks.pause",
}  # fmt: skip
"""Actions that are undone by a resume, as long as the pause is there."""
SAME = timedelta(seconds=2)
"""A pause that began so much later is another one."""


def permission_for(action: str) -> Permission:
    """What an undo of this action needs: what the action needed."""
    more: dict[str, Permission] = {"edit_payload": "jobs.edit", "retry_carefully": "jobs.retry"}
    return (PERMISSION_FOR | RESUMES | more).get(action, "maintenance")


async def list_entries(database: Database, query: AuditQuery) -> Listing[Entry] | None:
    """One page of the audit; None where the table is missing or must not be read."""
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            return None
        rows = await _rows(connection, database, query)
        entries = await _entries(connection, database, rows[: query.limit])
    return Listing(entries, next=str(entries[-1].id) if len(rows) > query.limit else None)


async def _rows(connection: Connection, database: Database, query: AuditQuery) -> list[Row]:
    schema, more = database.schema, query.limit + 1
    if query.job is not None:
        statement = load("admin/list_audit_of_job", schema)
        return list(await connection.fetch(statement, query.job, query.after, more))
    return list(
        await connection.fetch(
            load("admin/list_audit", schema),
            query.who or None, query.action or None, query.since, query.until,
            query.after, more,
        )
    )  # fmt: skip


async def of_job(database: Database, connection: Connection, job_id: int, limit: int = 20) -> list[Entry]:
    """What was done to one job, the latest first; empty where the table is missing."""
    if not (await audit_tables(connection, database.schema)).may_read:
        return []
    statement = load("admin/list_audit_of_job", database.schema)
    return await _entries(connection, database, await connection.fetch(statement, job_id, None, limit))


async def names_and_actions(database: Database) -> tuple[list[str], list[str]]:
    """What the filters offer."""
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            return [], []
        names = await connection.fetch(load("admin/audit_names", database.schema))
        actions = await connection.fetch(load("admin/audit_actions", database.schema))
    return [row["who"] for row in names], [row["action"] for row in actions]


async def get_entry(database: Database, audit_id: int) -> Entry | None:
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            return None
        rows = await connection.fetch(load("admin/get_audit_entry", database.schema), audit_id)
        entries = await _entries(connection, database, rows)
    return entries[0] if entries else None


async def _entries(connection: Connection, database: Database, rows: Sequence[Row]) -> list[Entry]:
    """Rows as entries. What has been undone by hand since, a pause that was resumed, cannot be undone."""
    entries = [_entry(row) for row in rows]
    if not any(entry.can_undo and entry.action in RESUMES for entry in entries):
        return entries
    pauses = await pauses_if_readable(connection, database.schema)
    return [
        msgspec.structs.replace(entry, can_undo=False)
        if entry.action in RESUMES and not any(_is_of(pause, entry) for pause in pauses)
        else entry
        for entry in entries
    ]


def _is_of(pause: Pause, entry: Entry) -> bool:
    """Whether the entry began the pause, or changed it."""
    if pause.paused_at is not None and pause.paused_at > entry.at + SAME:
        return False
    name = str(entry.details.get("name") or entry.target)
    if entry.action == "pause_queue":
        return pause.queue_name is not None and pause.queue_name == name
    if entry.action == "pause_task":
        return pause.task_identifier is not None and name in (pause.task_identifier, pause.what)
    return pause.name is None


def _entry(row: Row) -> Entry:
    values: dict[str, Any] = dict(row.items())
    values["job_ids"] = list(values["job_ids"])
    details = msgspec.json.decode(Redactor().json(values["details"]))
    values["details"] = details if isinstance(details, dict) else {}
    return Entry(**values)
