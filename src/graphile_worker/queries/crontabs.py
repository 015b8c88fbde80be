"""What the database knows about recurring jobs, and adding those of each minute exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from ..db.connection import Connection, Row
from ..errors import JobNotAddedError
from ..schema_name import SchemaName
from ..spec import CronJob
from ..sql import load
from .spec_columns import array_text, as_texts, columns_of
from .statement import Statement, load_statement

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
    columns = columns_of(minute.jobs)
    name = "cron/schedule_unique_cron_jobs" if minute.is_unique else "cron/schedule_cron_jobs"
    return Statement(
        load_statement(f"{name}@registered" if is_registered else name, schema),
        (
            minute.minute,
            minute.identifiers,
            columns.identifiers,
            columns.payloads,
            columns.queue_names,
            as_texts(columns.run_at),
            as_texts(columns.delays),
            as_texts(columns.max_attempts),
            columns.job_keys,
            as_texts(columns.priorities),
            [None if flags is None else array_text(flags) for flags in columns.flags],
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
