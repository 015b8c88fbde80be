"""Undo: puts back what is unchanged since. Deleted jobs come back with a new id."""

from __future__ import annotations

from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.sql import load
from ...database.statements.manage_jobs import complete_jobs
from ...history.audit import MAX_KEPT, Actor, complete_record, record
from ...values.schema_name import SchemaName
from ...values.text import count
from ..answers import Count, Problem, Skipped, not_found
from ..audit import queries as audit
from ..audit.queries import RESUMES, Entry, permission_for
from ..database import Database
from ..jobs.changing import ActionValues
from ..security.identity import Permission
from ..web.show import words_for
from . import queries
from .choosing import Chosen
from .queries import DryRun, Operation


class Restored(msgspec.Struct, frozen=True):
    """A job that is what it was before."""

    id: int
    new_id: int | None = None
    """The id under which a deleted job came back."""


class UndoAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What an undo did. More than 1,000 jobs are an operation of their own."""

    restored: list[Restored] = []
    left: list[Skipped] = []
    """Jobs that could not be put back."""
    operation_id: int | None = None
    message: str = ""


STEP = 1_000
"""Jobs of one transaction; an undo of more is an operation."""


class UndoStep(msgspec.Struct, frozen=True):
    """What one step of an undo did."""

    restored: list[Restored]
    left: list[Skipped]
    last_id: int
    is_last: bool


async def permission_to_stop(database: Database, operation: Operation) -> Permission:
    """What stopping an operation needs: what its action needs, or the action that it undoes."""
    if operation.action != "undo" or operation.chosen.audit_id is None:
        return permission_for(operation.action)
    return permission_for((await find_entry(database, operation.chosen.audit_id)).action)


async def undo(database: Database, actor: Actor, entry: Entry) -> UndoAnswer:
    """Undo one action."""
    if entry.undone_by is not None:
        raise Problem(409, "It has been undone already", f"See entry {entry.undone_by} of the audit.")
    if entry.action in RESUMES:
        if not entry.can_undo:
            raise Problem(409, "It has been undone already", "What was paused has been resumed since.")
        return await _resume(database, actor, entry)
    if entry.operation_id is not None:
        running = await queries.get(database, entry.operation_id)
        if running.is_active:
            raise Problem(409, "The operation is still running", "Stop it first, then undo it.")
    async with database.read() as connection:
        kept: int = await connection.fetchval(
            load("admin/count_before", database.schema), entry.id, MAX_KEPT + 1
        )
    if not kept:
        raise Problem(
            409,
            "This cannot be undone",
            f"The jobs as they were are kept for 24 hours, and only for actions on up to {MAX_KEPT:,} jobs.",
        )
    if kept > STEP:
        return await _begin(database, actor, entry, kept)
    return await _undo_now(database, actor, entry)


async def _undo_now(database: Database, actor: Actor, entry: Entry) -> UndoAnswer:
    schema = database.schema
    async with database.write() as connection:
        undo_id = await _claim(connection, schema, actor, entry)
        found = await undo_step(connection, schema, entry.id, 0)
        ids = [job.new_id or job.id for job in found.restored]
        await complete_record(connection, schema, undo_id, jobs=len(ids), job_ids=ids)
    return UndoAnswer(restored=found.restored, left=found.left, message=in_words(found))


async def _begin(database: Database, actor: Actor, entry: Entry, kept: int) -> UndoAnswer:
    """An undo of many jobs: an operation."""
    found = DryRun(action="undo", target=_target(entry), count=Count(kept))
    begun = await queries.begin(
        database, actor, Chosen(audit_id=entry.id), found, ActionValues(), undoes=entry.id
    )
    return UndoAnswer(operation_id=begun.id, message=f"Undoing {_target(entry)}.")


async def _claim(connection: Connection, schema: SchemaName, actor: Actor, entry: Entry) -> int:
    """Record the undo, and see to it that it happens once."""
    undo_id = await record(
        connection, schema, actor, "undo", target=_target(entry), details={"entry": entry.id}
    )
    if undo_id is None:
        raise queries.MISSING
    await queries.mark_undone(connection, schema, entry.id, undo_id)
    return undo_id


async def _resume(database: Database, actor: Actor, entry: Entry) -> UndoAnswer:
    name = str(entry.details.get("name") or entry.target)
    utils = database.utils
    async with database.write() as connection:
        await _claim(connection, database.schema, actor, entry)
        if entry.action == "pause_queue":
            was_paused = await utils.queues.resume(name, connection=connection)
        elif entry.action == "pause_task":
            was_paused = await utils.resume(task=name, connection=connection)
        else:
            was_paused = await utils.resume(all=True, connection=connection)
    what = name if entry.action != "pause_all" else "everything"
    return UndoAnswer(message=f"Resumed {what}." if was_paused else f"{what} was not paused any more.")


async def undo_step(
    connection: Connection, schema: SchemaName, audit_id: int, after: int, *, most: int = STEP
) -> UndoStep:
    """Put back the next jobs, in the caller's transaction."""
    kept = await connection.fetch(load("admin/before_to_undo", schema), audit_id, after, most)
    ids = [row["job_id"] for row in kept]
    now = {row["id"]: row for row in await connection.fetch(load("admin/lock_versions", schema), ids)}
    changed: list[int] = []
    deleted: list[int] = []
    added: list[int] = []
    left: list[Skipped] = []
    for row in kept:
        job_id, current = row["job_id"], now.get(row["job_id"])
        if row["changed_to"] is None:
            deleted.append(job_id)
        elif current is None:
            left.append(Skipped(job_id, "gone", "it has run to its end since, or was deleted"))
        elif current["is_running"]:
            left.append(Skipped(job_id, "running"))
        elif current["version"] != row["changed_to"]:
            left.append(Skipped(job_id, "changed", "it was changed, or has run, since"))
        else:
            (added if row["was_added"] else changed).append(job_id)
    if changed:
        await connection.execute(load("admin/restore_changed", schema), audit_id, changed)
    if added:
        await complete_jobs(connection, schema, added)
    back = await _restore_deleted(connection, schema, audit_id, deleted)
    left += [
        Skipped(job_id, "changed", "another job has its key by now")
        for job_id in deleted
        if job_id not in back
    ]
    if changed or back:
        await connection.fetchval(load("add/announce_jobs", schema), len(changed) + len(back))
    restored = [Restored(job_id, back.get(job_id)) for job_id in sorted([*changed, *added, *back])]
    return UndoStep(restored, left, ids[-1] if ids else after, len(ids) < most)


async def _restore_deleted(
    connection: Connection, schema: SchemaName, audit_id: int, job_ids: list[int]
) -> dict[int, int]:
    """Add deleted jobs again; returns the new ids by the old ones."""
    if not job_ids:
        return {}
    await connection.execute(load("admin/restore_tasks", schema), audit_id, job_ids)
    await connection.execute(load("admin/restore_queues", schema), audit_id, job_ids)
    table = f"{schema.quoted}._private_jobs"
    rows: Any = await connection.fetch(load("admin/restore_deleted", schema), audit_id, job_ids, table)
    return {row["job_id"]: row["new_id"] for row in rows}


def in_words(found: UndoStep) -> str:
    """What happened, in one or two sentences."""
    sentences = []
    if found.restored or not found.left:
        sentences.append(f"Undone for {count(len(found.restored), 'job')}.")
    renamed = [job for job in found.restored if job.new_id is not None]
    if len(renamed) == 1:
        sentences.append(f"Job {renamed[0].id} is back as job {renamed[0].new_id}.")
    elif renamed:
        sentences.append(f"{count(len(renamed), 'deleted job')} came back with new ids.")
    if found.left:
        sentences.append(
            f"{count(len(found.left), 'job')} could not be put back: changed, running or gone since."
        )
    return " ".join(sentences)


def _target(entry: Entry) -> str:
    return f"{words_for(entry.action)}: {entry.target}" if entry.target else entry.action


async def find_entry(database: Database, audit_id: int) -> Entry:
    found = await audit.get_entry(database, audit_id)
    if found is None:
        raise not_found("such entry in the audit")
    return found
