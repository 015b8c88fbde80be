"""ClockSchedule: moves the clock of a test from job to job, and adds recurring jobs at their minutes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ..cron.due import DueMinute, cron_job, due_between
from ..cron.matcher import MINUTE
from ..database.connections.connection import Pool
from ..database.sql import load
from ..database.statements.schedules import CronMinute, register_crontabs, schedule_cron_jobs
from ..errors import InvalidArgumentError
from ..tasks.task import AnyTask
from ..values.schema_name import SchemaName
from ..values.spec import CronJob
from .fake_clock import FakeClock

if TYPE_CHECKING:
    from ..cron import ParsedCronItem


class ClockSchedule:
    """The time from now to `until`, with the minutes in which recurring jobs are due."""

    def __init__(
        self,
        clock: FakeClock,
        until: datetime | timedelta,
        items: Sequence[ParsedCronItem],
        tasks: Mapping[str, AnyTask],
    ) -> None:
        self._clock = clock
        self._items = items
        self._tasks = tasks
        self._end = _moment(clock, until)
        self._minutes: Iterator[DueMinute] = due_between(self._items, clock.now(), self._end + MINUTE)
        self._next_minute: DueMinute | None = None
        self._advance_minute()

    async def pass_time(
        self, pool: Pool, schema: SchemaName, identifiers: Sequence[str], drain: Callable[[], Awaitable[None]]
    ) -> None:
        """Move the clock to the end, and call `drain` whenever a job is due."""
        async with pool.acquire() as connection:
            names = [item.identifier for item in self._items]
            await register_crontabs(connection, schema, names, self._clock.now())
        while (moment := await self._next_moment(pool, schema, identifiers)) is not None:
            await self._clock.set(moment)
            await self._add_recurring(pool, schema)
            await drain()
        await self._clock.set(self._end)

    async def _next_moment(
        self, pool: Pool, schema: SchemaName, identifiers: Sequence[str]
    ) -> datetime | None:
        """The time of the next job, or None if there is none before the end."""
        statement = load("testing/next_run_at", schema)
        async with pool.acquire() as connection:
            due = await connection.fetchval(statement, list(identifiers), self._clock.now())
        moments = [due] if due is not None else []
        if self._next_minute is not None:
            moments.append(max(self._next_minute[0], self._clock.now()))
        return min((moment for moment in moments if moment <= self._end), default=None)

    async def _add_recurring(self, pool: Pool, schema: SchemaName) -> None:
        while self._next_minute is not None and self._next_minute[0] <= self._clock.now():
            minute, items = self._next_minute
            jobs = [self._job(item, minute) for item in items]
            async with pool.acquire() as connection:
                await schedule_cron_jobs(connection, schema, [CronMinute(minute, jobs)])
            self._advance_minute()

    def _job(self, item: ParsedCronItem, minute: datetime) -> CronJob:
        task = self._tasks.get(item.task_identifier)
        return cron_job(item, minute, backfilled=False, task=task)

    def _advance_minute(self) -> None:
        self._next_minute = next(self._minutes, None)
        if self._next_minute is not None and self._next_minute[0] > self._end:
            self._next_minute = None


def _moment(clock: FakeClock, until: datetime | timedelta) -> datetime:
    if isinstance(until, timedelta):
        end = clock.now() + until
    elif until.tzinfo is None:
        raise InvalidArgumentError("until", f"{until!r} has no time zone; give it one")
    else:
        end = until.astimezone(UTC)
    if end < clock.now():
        raise InvalidArgumentError("until", f"{end} is in the past; the clock says {clock.now()}")
    return end
