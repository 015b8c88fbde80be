"""Recurring jobs as the database knows them: which workers have them, their last runs, and their pauses.

Workers register the items of their crontab when they start. A schema that only Node installed knows nothing
but the identifiers, and when each was last added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import msgspec

from .. import sqlstates
from ..db.connection import Connection, Row
from ..db.errors import sqlstate_of
from ..errors import InvalidArgumentError, PermissionDeniedError, SchemaMissingError
from ..job import instant
from ..pauses import Pause
from ..schema_name import SchemaName
from ..spec import JobSpec, check_name
from ..sql import load
from ..unique import Unique
from .pauses import UNAVAILABLE, Until, check_terms, pause_from
from .spec_columns import time_and_delay

MAX_IDENTIFIER_LENGTH = 1_000
MAX_SCHEDULES = 500
"""How many are listed at once."""
JOB_OPTIONS = ("queue_name", "max_attempts", "job_key", "job_key_mode", "priority", "flags")


class ScheduleDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """One crontab item, as a worker registers it."""

    identifier: str
    task_identifier: str
    pattern: str | None
    """None if a function decides when it is due."""
    zone: str | None
    """The name of its time zone; None for UTC."""
    payload: str | None
    """JSON."""
    options: dict[str, Any]
    """The options of its jobs, those of the task included, and `backfill_period` in seconds."""
    source: str | None
    """The file and line, or where in the code it is defined."""


class RegisteredSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job in one running worker."""

    pool_id: str
    host: str | None = None
    pid: int | None = None
    app_version: str | None = None
    task_identifier: str
    pattern: str | None
    """None if a function decides when it is due."""
    zone: str | None
    """The name of its time zone; None for UTC."""
    payload: Any
    """Without `_cron`, which is added to it."""
    options: dict[str, Any]
    """The options of its jobs, and `backfill_period` in seconds."""
    source: str | None

    @property
    def definition(self) -> tuple[Any, ...]:
        """What two workers should agree on."""
        return (
            self.task_identifier,
            self.pattern,
            self.zone,
            msgspec.json.encode(self.payload, order="sorted"),
            msgspec.json.encode(self.options, order="sorted"),
        )


class ScheduleRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a recurring job has added."""

    job_id: int
    due_at: datetime


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job."""

    identifier: str
    known_since: datetime | None = None
    last_execution: datetime | None = None
    """The last minute for which a job was added, by any runtime, or skipped because of a pause."""
    workers: list[RegisteredSchedule] = []
    """The running workers that have it, the one that started last first; empty if only others have it."""
    runs: list[ScheduleRun] = []
    """The last 20 jobs that Python workers have added, the latest first."""
    pause: Pause | None = None

    @property
    def current(self) -> RegisteredSchedule | None:
        """Its definition in the worker that started last."""
        return self.workers[0] if self.workers else None

    @property
    def differs(self) -> bool:
        """Whether running workers define it in different ways, as when a deploy is half done."""
        return len({worker.definition for worker in self.workers}) > 1


async def register_schedules(
    connection: Connection,
    schema: SchemaName,
    pool_id: str,
    definitions: Sequence[ScheduleDefinition],
    *,
    timeout: float | None = None,
) -> None:
    """Register the crontab of a worker that has just started."""
    await connection.execute(
        load("schedules/register", schema),
        pool_id,
        [each.identifier for each in definitions],
        [each.task_identifier for each in definitions],
        [each.pattern for each in definitions],
        [each.zone for each in definitions],
        [each.payload for each in definitions],
        [msgspec.json.encode(each.options).decode() for each in definitions],
        [each.source for each in definitions],
        timeout=timeout,
    )


async def list_schedules(
    connection: Connection,
    schema: SchemaName,
    *,
    identifier: str | None = None,
    after: str | None = None,
    limit: int = MAX_SCHEDULES,
) -> list[Schedule]:
    """Recurring jobs by identifier; those of Node too, with what is known of them."""
    if not 1 <= limit <= MAX_SCHEDULES:
        raise InvalidArgumentError("limit", f"must be from 1 to {MAX_SCHEDULES}, got {limit}")
    statement = "schedules/list" if await has_schedules(connection, schema) else "schedules/list_known"
    rows = await connection.fetch(load(statement, schema), identifier, after, limit)
    return [_schedule(row) for row in rows]


async def has_schedules(connection: Connection, schema: SchemaName) -> bool:
    """Whether the tables exist, and this role may read them."""
    return bool(await connection.fetchval(load("schedules/has_schedules", schema), schema.quoted))


async def pause_schedule(
    connection: Connection, schema: SchemaName, identifier: str, until: Until, reason: str | None
) -> Pause:
    """Add no more jobs of a recurring job, for a time or until it is resumed."""
    _check_identifier(identifier)
    check_terms(until, reason)
    with _refusals():
        (row,) = await connection.fetch(
            load("schedules/pause", schema), identifier, *time_and_delay(until, None), reason or None
        )
    terms = {name: row[name] for name in ("reason", "since", "until")}
    return pause_from({**terms, "kind": "schedule", "name": identifier})


async def resume_schedule(connection: Connection, schema: SchemaName, identifier: str) -> bool:
    """End the pause of a recurring job; returns whether it was paused."""
    _check_identifier(identifier)
    with _refusals():
        was_paused: bool = await connection.fetchval(load("schedules/resume", schema), identifier)
    return was_paused


async def note_run(connection: Connection, schema: SchemaName, identifier: str, job_id: int) -> None:
    """Note a job that was added by hand."""
    await connection.execute(load("schedules/note_run", schema), identifier, job_id)


def manual_job(schedule: Schedule, minute: datetime) -> JobSpec:
    """The job of a recurring job that is run now; `_cron` in its payload says that it was by hand."""
    found = schedule.current
    if found is None:
        raise InvalidArgumentError(
            "identifier",
            f"no running Python worker has the recurring job {schedule.identifier!r}, so its task and "
            "payload are unknown; add the job yourself, or start the worker that has it",
        )
    payload = found.payload if isinstance(found.payload, dict) else {}
    marker = {"ts": minute.strftime("%Y-%m-%dT%H:%M:00.000Z"), "backfilled": False, "manual": True}
    options = {name: value for name in JOB_OPTIONS if (value := found.options.get(name)) is not None}
    if (unique := found.options.get("unique")) is not None:
        options.pop("job_key", None)
        options["unique"] = msgspec.convert(unique, Unique)
    return JobSpec(found.task_identifier, {**payload, "_cron": marker}, **options)


def _schedule(row: Row) -> Schedule:
    job_ids = msgspec.json.decode(row["job_ids"] or b"[]", type=list[int])
    due_at = msgspec.json.decode(row["due_at"] or b"[]", type=list[float])
    pause = None
    if row["is_paused"]:
        pause = pause_from(
            {
                "kind": "schedule",
                "name": row["identifier"],
                "since": row["paused_at"],
                "until": row["until"],
                "reason": row["reason"],
            }
        )
    return Schedule(
        identifier=row["identifier"],
        known_since=_instant(row["known_since"]),
        last_execution=_instant(row["last_execution"]),
        workers=msgspec.json.decode(row["definitions"] or b"[]", type=list[RegisteredSchedule]),
        runs=[
            ScheduleRun(job_id=job_id, due_at=instant(due))
            for job_id, due in zip(job_ids, due_at, strict=True)
        ],
        pause=pause,
    )


def _instant(seconds: float | None) -> datetime | None:
    return None if seconds is None else instant(seconds)


def _check_identifier(identifier: str) -> None:
    check_name("identifier", identifier, MAX_IDENTIFIER_LENGTH)


@contextmanager
def _refusals() -> Iterator[None]:
    """Say what to do if the tables are missing, or this role may not use them."""
    try:
        yield
    except Exception as error:
        state = sqlstate_of(error)
        if state not in UNAVAILABLE:
            raise
        if state == sqlstates.UNDEFINED_TABLE:
            raise SchemaMissingError(
                "the tables for recurring jobs are missing; to create them, run as the owner of the schema: "
                "graphile-worker migrate",
                sqlstate=state,
            ) from error
        raise PermissionDeniedError(
            f"this role may not pause recurring jobs ({error}); connect as the owner of the schema",
            sqlstate=state,
        ) from error
