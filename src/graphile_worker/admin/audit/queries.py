"""Reading the audit."""

from __future__ import annotations

from typing import Any

import msgspec

from ...database.connections.connection import Connection, Row
from ...database.sql import load
from ...history.audit import audit_tables
from ..answers import Listing
from ..database import Database
from ..jobs.changing import with_zone
from ..security.redact import Redactor
from . import AuditQuery, Entry

WORDS = {
    "run_now": "Run now",
    "retry": "Retry",
    "retry_carefully": "Careful retry",
    "reschedule": "Reschedule",
    "give_up": "Give up",
    "delete": "Delete",
    "cancel": "Cancel",
    "add_again": "Add again",
    "edit_payload": "Edit payload",
    "add_job": "Add a job",
    "undo": "Undo",
    "stop_operation": "Stop operation",
    "mute_error": "Mute error group",
    "unmute_error": "Unmute error group",
    "sign_in_refused": "Sign-in refused",
    "sign_out": "Sign out",
    "reveal_payload": "Reveal payload",
}


def words_for(action: str) -> str:
    """The name of an action for people."""
    return WORDS.get(action) or (action[:1].upper() + action[1:]).replace("_", " ")


async def list_entries(database: Database, query: AuditQuery) -> Listing[Entry] | None:
    """One page of the audit; None where the table is missing or must not be read."""
    async with database.read() as connection:
        if not (await audit_tables(connection, database.schema)).may_read:
            return None
        rows = await _rows(connection, database, query)
    entries = [entry_from(row) for row in rows[: query.limit]]
    return Listing(entries, next=str(entries[-1].id) if len(rows) > query.limit else None)


async def _rows(connection: Connection, database: Database, query: AuditQuery) -> list[Row]:
    schema, more = database.schema, query.limit + 1
    if query.job is not None:
        statement = load("admin/list_audit_of_job", schema)
        return list(await connection.fetch(statement, query.job, query.after, more))
    return list(
        await connection.fetch(
            load("admin/list_audit", schema),
            query.who or None, query.action or None, with_zone(query.since), with_zone(query.until),
            query.after, more,
        )
    )  # fmt: skip


async def of_job(database: Database, connection: Connection, job_id: int, limit: int = 20) -> list[Entry]:
    """What was done to one job, the latest first; empty where the table is missing."""
    if not (await audit_tables(connection, database.schema)).may_read:
        return []
    statement = load("admin/list_audit_of_job", database.schema)
    return [entry_from(row) for row in await connection.fetch(statement, job_id, None, limit)]


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
        row = await connection.fetchrow(load("admin/get_audit_entry", database.schema), audit_id)
    return None if row is None else entry_from(row)


def entry_from(row: Row) -> Entry:
    values: dict[str, Any] = dict(row.items())
    values["job_ids"] = list(values["job_ids"])
    values["details"] = msgspec.json.decode(Redactor().json(values["details"]))
    return Entry(**values)
