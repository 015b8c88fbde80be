"""Adding a job, and editing the payload of one that waits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from ...database.connections.connection import Connection
from ...database.connections.errors import if_readable
from ...database.sql import load
from ...database.statements.inspection import JobDetails
from ...history.audit import Actor, complete_record, finalize_snapshot, record, snapshot_jobs
from ...recovery.registry.workers import list_workers, running_tasks
from ...values.job_options import from_json, options_on
from ...values.spec import JobSpec
from ..answers import Problem, not_found
from ..database import Database
from ..security.redact import Redactor
from ..tasks.expected import problems_of, read_notes
from . import JobEdit, JobToAdd
from .changing import lock_jobs

MAX_PAYLOAD = 256 * 1024
"""Bytes of a payload in a form or in the API."""
MISFIT = "The payload is not what"
"""How the title of that problem begins."""


def checked_payload(text: bytes | str) -> str:
    """A JSON text as it was written, or a problem that says where it is wrong."""
    raw = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if len(raw.encode("utf-8", "replace")) > MAX_PAYLOAD:
        raise Problem(413, "The payload is too long", f"At most {MAX_PAYLOAD:,} bytes are accepted.")
    try:
        json.loads(raw, parse_constant=_refuse_constant)
        raw.encode("utf-8")
    except json.JSONDecodeError as error:
        raise Problem(
            400, "The payload is not JSON", f"Line {error.lineno}, column {error.colno}: {error.msg}."
        ) from None
    except (ValueError, RecursionError) as error:
        raise Problem(400, "The payload is not JSON", str(error)) from None
    return raw


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


async def add_job(database: Database, actor: Actor, new: JobToAdd, options: Mapping[str, Any]) -> JobDetails:
    """Add the job with these options of JobSpec and record it; returns it as it is in the table."""
    payload = checked_payload(bytes(new.payload))
    spec = JobSpec(new.task, msgspec.Raw(payload.encode()), **options)
    async with database.write() as connection:
        if new.check:
            await _check_fits(connection, database, new.task, payload)
        job = await database.utils.add_job(spec, connection=connection)
        await record(
            connection, database.schema, actor, "add_job", target=f"job {job.id}, {new.task}",
            jobs=1, job_ids=[job.id], details={"task": new.task},
        )  # fmt: skip
        details = await database.utils.jobs.get(job.id, connection=connection)
    if details is None:
        raise not_found(f"job {job.id}: it has completed already")
    return details


def options_in(new: JobToAdd) -> dict[str, Any]:
    """The options of JobSpec that the body of a request sets; an empty text is none."""
    values: dict[str, Any] = {}
    for option in options_on("dashboard"):
        value = getattr(new, option.short)
        try:
            values[option.name] = from_json(option, None if value in ("", []) else value)
        except ValueError as error:
            raise Problem(400, f"{option.short} is not valid", f"{error}.") from None
    return values


async def edit_payload(database: Database, actor: Actor, job_id: int, edit: JobEdit) -> JobDetails:
    """Replace the payload of a job that is not running and has not changed since it was read."""
    payload = checked_payload(bytes(edit.payload))
    async with database.write() as connection:
        if edit.check and (current := await database.utils.jobs.get(job_id, connection=connection)):
            await _check_fits(connection, database, current.task_identifier, payload)
        await _edit(connection, database, actor, job_id, edit.revision, payload)
        details = await database.utils.jobs.get(job_id, connection=connection)
    if details is None:
        raise not_found(f"job {job_id}")
    return details


async def _check_fits(connection: Connection, database: Database, task: str, payload: str) -> None:
    """Refuse a payload that the task cannot take, as far as workers say what it expects."""
    problems = problems_of(await read_notes(connection, database.schema, task, Redactor()), payload)
    if problems:
        raise Problem(400, f"{MISFIT} {task[:80]} expects", " ".join(problems))


async def _edit(
    connection: Connection, database: Database, actor: Actor, job_id: int, revision: int, payload: str
) -> None:
    schema = database.schema
    locked, busy = await lock_jobs(connection, schema, [job_id])
    if job_id in busy:
        raise _changed("A worker or another transaction has locked its row at the moment", {})
    before = await database.utils.jobs.get(job_id, connection=connection)
    if job_id not in locked or before is None:
        raise not_found(f"job {job_id}: it has completed, or was deleted")
    if before.locked_at is not None:
        raise _changed("It is running", {"locked_by": before.locked_by})
    if before.revision != revision:
        raise _changed("It was changed meanwhile", {"revision": before.revision})
    audit_id = await record(
        connection, schema, actor, "edit_payload", target=f"job {job_id}, {before.task_identifier}",
        jobs=1, job_ids=[job_id], details={"task": before.task_identifier, "revision": revision},
    )  # fmt: skip
    if audit_id is not None:
        await snapshot_jobs(connection, schema, audit_id, [job_id])
    found = await connection.fetchval(load("admin/edit_payload", schema), job_id, revision, payload)
    if found is None:
        raise _changed("It was changed meanwhile", {})
    if audit_id is not None:
        await finalize_snapshot(connection, schema, audit_id, [job_id], [job_id])
        await complete_record(
            connection,
            schema,
            audit_id,
            jobs=1,
            job_ids=[job_id],
            target=f"job {job_id}, {before.task_identifier}",
        )


def _changed(why: str, current: dict[str, Any]) -> Problem:
    return Problem(
        409, f"The payload was not changed: {why[0].lower()}{why[1:]}",
        "Read the job again, then decide.", current=current,
    )  # fmt: skip


async def registered_tasks(database: Database, connection: Connection) -> tuple[list[str], bool]:
    """Tasks for the form, and whether workers that run now have them; otherwise those of earlier ones.

    Names that someone once added a job for are not among them, because they may be misspelt.
    """

    async def read() -> list[str]:
        workers = await list_workers(connection, database.schema)
        return sorted((await running_tasks(connection, database.schema, workers)).tasks)

    if running := await if_readable(connection, read):
        return running, True
    statement = load("names/registered_task_names", database.schema)
    rows = await if_readable(connection, lambda: connection.fetch(statement))
    return sorted(row["identifier"] for row in rows or ()), False
