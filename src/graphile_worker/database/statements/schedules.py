"""Recurring jobs in the database: adding those of each minute exactly once, and what is known about them.

Known are the workers that have them, their last runs, and their pauses. Workers register the items of their
crontab when they start. A schema that only Node installed knows nothing but the identifiers, and when each
was last added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

import msgspec

from ...errors import InvalidArgumentError, JobNotAddedError
from ...values.job import Pause, instant, optional_instant
from ...values.schema_name import SchemaName
from ...values.spec import CronJob, JobSpec, Unique, check_name
from ..connections.connection import Connection, Row
from ..connections.errors import refusals
from ..connections.statement import Statement, load_statement
from ..sql import load
from .add import columns_of, time_and_delay
from .pauses import Until, check_terms, pause_of

MAX_IDENTIFIER_LENGTH = 1_000
MAX_SCHEDULES = 500
"""How many are listed at once."""
TABLES = ("the tables for recurring jobs are missing; to create them", "pause recurring jobs")
"""For `refusals`."""
STORED_OPTIONS = ("queue_name", "max_attempts", "job_key", "job_key_mode", "priority", "flags")
"""Options of its jobs that are registered as they are; all others but `unique` are flags."""


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
    with refusals(*TABLES):
        (row,) = await connection.fetch(
            load("schedules/pause", schema), identifier, *time_and_delay(until, None), reason or None
        )
    return pause_of("schedule", identifier, row)


async def resume_schedule(connection: Connection, schema: SchemaName, identifier: str) -> bool:
    """End the pause of a recurring job; returns whether it was paused."""
    _check_identifier(identifier)
    with refusals(*TABLES):
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
    options = {name: value for name in STORED_OPTIONS if (value := found.options.get(name)) is not None}
    if (unique := found.options.get("unique")) is not None:
        options.pop("job_key", None)
        options["unique"] = msgspec.convert(unique, Unique)
    return JobSpec(found.task_identifier, {**payload, "_cron": marker}, **options)


def _schedule(row: Row) -> Schedule:
    job_ids = msgspec.json.decode(row["job_ids"] or b"[]", type=list[int | None])
    due_at = msgspec.json.decode(row["due_at"] or b"[]", type=list[float | None])
    return Schedule(
        identifier=row["identifier"],
        known_since=optional_instant(row["known_since"]),
        last_execution=optional_instant(row["last_execution"]),
        workers=_definitions(row["definitions"] or "[]"),
        runs=[
            ScheduleRun(job_id=job_id, due_at=instant(due))
            for job_id, due in zip(job_ids, due_at, strict=False)
            if job_id is not None and due is not None
        ],
        pause=pause_of("schedule", row["identifier"], row) if row["is_paused"] else None,
    )


def _definitions(registered: str) -> list[RegisteredSchedule]:
    """Those of workers, without what another version has written differently."""
    found: list[RegisteredSchedule] = []
    for each in msgspec.json.decode(registered, type=list[dict[str, Any]]):
        options = each.get("options")
        with suppress(msgspec.ValidationError):
            known = {**each, "options": options if isinstance(options, dict) else {}}
            found.append(msgspec.convert(known, RegisteredSchedule))
    return found


def _check_identifier(identifier: str) -> None:
    check_name("identifier", identifier, MAX_IDENTIFIER_LENGTH)


_KEYED_ADD_ATTEMPTS = 5


class CronMinute(NamedTuple):
    """The recurring jobs of one minute."""

    minute: datetime
    jobs: Sequence[CronJob]
    refused: Sequence[str] = ()
    """Identifiers of items whose job an interceptor refused: the minute is dealt with, no job is added."""

    @property
    def identifiers(self) -> list[str]:
        return [*(job.identifier for job in self.jobs), *self.refused]

    @property
    def has_keys(self) -> bool:
        return any(job.job_key for job in self.jobs)

    @property
    def is_unique(self) -> bool:
        """Whether the jobs are unique by their arguments: all of them, or none; see `parts`."""
        return bool(self.jobs) and self.jobs[0].unique is not None

    @property
    def parts(self) -> list[CronMinute]:
        """The minute in two, if only some of its jobs are unique: they take another statement."""
        unique = [job for job in self.jobs if job.unique is not None]
        if not unique or (len(unique) == len(self.jobs) and not self.refused):
            return [self]
        others = [job for job in self.jobs if job.unique is None]
        return [CronMinute(self.minute, others, self.refused), CronMinute(self.minute, unique)]


async def known_crontabs(
    connection: Connection, schema: SchemaName
) -> list[tuple[str, datetime, datetime | None]]:
    """Identifier, known_since and last_execution of every item that any worker ever had."""
    rows = await connection.fetch(load("cron/known_crontabs", schema))
    return [(row["identifier"], row["known_since"], row["last_execution"]) for row in rows]


async def server_time(
    connection: Connection, schema: SchemaName, identifiers: Iterable[str], ahead: timedelta
) -> tuple[datetime, dict[str, datetime]]:
    """The server's time, and the items whose last_execution is later than `ahead` from then."""
    rows = await connection.fetch(load("cron/server_time", schema), list(identifiers), ahead)
    future = {row["identifier"]: row["last_execution"] for row in rows if row["identifier"] is not None}
    return rows[0]["now"], future


async def register_crontabs(
    connection: Connection, schema: SchemaName, identifiers: Iterable[str], known_since: datetime
) -> None:
    """Register new items; those that another worker has registered stay as they are."""
    await connection.execute(load("cron/register_crontabs", schema), list(identifiers), known_since)


def cron_statement(schema: SchemaName, minute: CronMinute, *, is_registered: bool = False) -> Statement:
    """The statement that adds the jobs of one minute, unless another worker was first.

    `is_registered`: the tables for recurring jobs exist, so obey their pauses and note their runs.
    """
    name = "cron/schedule_unique_cron_jobs" if minute.is_unique else "cron/schedule_cron_jobs"
    return Statement(
        load_statement(f"{name}@registered" if is_registered else name, schema),
        (
            minute.minute,
            minute.identifiers,
            *columns_of(minute.jobs).arrays,
            [job.job_key_mode if job.unique is None else job.unique.while_ for job in minute.jobs],
        ),
    )


async def schedule_cron_jobs(
    connection: Connection,
    schema: SchemaName,
    minutes: Sequence[CronMinute],
    *,
    return_added: bool = False,
    is_registered: bool = False,
) -> list[CronJob]:
    """Add the jobs of one or more minutes, in order, unless another worker was first.

    One minute is one statement; several are one transaction. The add_job of a schema that Node installed may
    return nothing for a key whose job is locked at that moment. Then the minute must not count as dealt with,
    so jobs with keys go in a transaction, too, which is retried.

    Returns the jobs that were added here, if `return_added`; otherwise the statements are pipelined.
    """
    minutes = [part for minute in minutes for part in minute.parts]
    if len(minutes) == 1 and not minutes[0].has_keys:
        statement = cron_statement(schema, minutes[0], is_registered=is_registered)
        rows = await connection.fetch(statement.sql, *statement.arguments)
        return _added(minutes[0], rows) if return_added else []
    for _ in range(_KEYED_ADD_ATTEMPTS):
        try:
            async with connection.transaction():
                return await _schedule_together(connection, schema, minutes, return_added, is_registered)
        except _LostAdd:
            continue
    keys = sorted({job.job_key for minute in minutes for job in minute.jobs if job.job_key})
    raise JobNotAddedError(f"recurring jobs with the job keys {', '.join(keys)} could not be added")


class _LostAdd(Exception):
    """Rolls back the transaction in which an add got lost."""


async def _schedule_together(
    connection: Connection,
    schema: SchemaName,
    minutes: Sequence[CronMinute],
    return_added: bool,
    is_registered: bool,
) -> list[CronJob]:
    added: list[CronJob] = []
    if len(minutes) > 1:
        identifiers = {identifier for minute in minutes for identifier in minute.identifiers}
        await connection.fetch(load("cron/lock_crontabs", schema), list(identifiers))
    for needs_rows, group in groupby(minutes, key=lambda minute: return_added or minute.has_keys):
        if not needs_rows:
            statements = [cron_statement(schema, minute, is_registered=is_registered) for minute in group]
            await connection.executemany(statements[0].sql, [each.arguments for each in statements])
            continue
        for minute in group:
            statement = cron_statement(schema, minute, is_registered=is_registered)
            rows = await connection.fetch(statement.sql, *statement.arguments)
            if any(row["job_id"] is None for row in rows):
                raise _LostAdd
            if return_added:
                added += _added(minute, rows)
    return added


def _added(minute: CronMinute, rows: Sequence[Row]) -> list[CronJob]:
    identifiers = {row["identifier"] for row in rows}
    return [job for job in minute.jobs if job.identifier in identifiers]
