"""What the database remembers of recurring jobs, and adding those of each minute exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

import msgspec

from ..db.array_types import teach_arrays
from ..db.connection import Connection
from ..errors import JobNotAddedError
from ..hooks.events import CronJob
from ..schema_name import SchemaName
from ..sql import load

MinuteOfJobs = tuple[datetime, Sequence[CronJob]]

_KEYED_ADD_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class KnownCrontab:
    """One item as the database knows it."""

    identifier: str
    known_since: datetime
    last_execution: datetime | None


async def known_crontabs(connection: Connection, schema: SchemaName) -> dict[str, KnownCrontab]:
    """Every item any worker ever had, by identifier."""
    rows = await connection.fetch(load("cron/known_crontabs", schema))
    return {
        row["identifier"]: KnownCrontab(row["identifier"], row["known_since"], row["last_execution"])
        for row in rows
    }


async def register_crontabs(
    connection: Connection, schema: SchemaName, identifiers: Iterable[str], known_since: datetime
) -> None:
    """Note down new items; those another worker noted down meanwhile stay as they are."""
    await connection.execute(load("cron/register_crontabs", schema), list(identifiers), known_since)


async def schedule_cron_jobs(
    connection: Connection, schema: SchemaName, minutes: Sequence[MinuteOfJobs]
) -> None:
    """Add the jobs of one or more minutes, in order, as far as no worker added them yet.

    One minute is one statement. Several are one transaction: the same statements, sent together. The add_job
    of a schema that Node installed can come back empty for a key whose job is locked just then; the claim on
    the minute must not stand in that case, so keyed jobs go in a transaction too and are tried again.
    """
    teach_arrays(connection)
    if len(minutes) == 1 and not _has_keys(minutes[0]):
        await connection.fetch(load("cron/schedule_cron_jobs", schema), *_arguments(minutes[0]))
        return
    for _ in range(_KEYED_ADD_ATTEMPTS):
        try:
            async with connection.transaction():
                await _schedule_together(connection, schema, minutes)
                return
        except _CameBackEmpty:
            continue
    keys = sorted({job.job_key for _, jobs in minutes for job in jobs if job.job_key})
    raise JobNotAddedError(f"recurring jobs with the job keys {', '.join(keys)} could not be added")


class _CameBackEmpty(Exception):
    """Rolls a transaction back in which a keyed add was lost."""


async def _schedule_together(
    connection: Connection, schema: SchemaName, minutes: Sequence[MinuteOfJobs]
) -> None:
    statement = load("cron/schedule_cron_jobs", schema)
    if len(minutes) > 1:
        identifiers = {job.identifier for _, jobs in minutes for job in jobs}
        await connection.fetch(load("cron/lock_crontabs", schema), list(identifiers))
    for keyed, group in groupby(minutes, key=_has_keys):
        if not keyed:
            await connection.executemany(statement, map(_arguments, group))
            continue
        for minute in group:
            for row in await connection.fetch(statement, *_arguments(minute)):
                if row["job_id"] is None:
                    raise _CameBackEmpty


def _has_keys(minute: MinuteOfJobs) -> bool:
    return any(job.job_key for job in minute[1])


def _arguments(minute: MinuteOfJobs) -> tuple[object, ...]:
    moment, jobs = minute
    return (
        moment,
        [job.identifier for job in jobs],
        [job.task_identifier for job in jobs],
        [msgspec.json.encode(job.payload).decode() for job in jobs],
        [job.queue_name for job in jobs],
        [job.max_attempts for job in jobs],
        [job.job_key for job in jobs],
        [job.priority for job in jobs],
        [job.job_key_mode for job in jobs],
    )
