"""FakeClock: a Clock that only moves when a test moves it, so that a day takes milliseconds.

Moving it wakes the tasks whose sleep is over, and waits until each of them sleeps again or has ended. Then
the test can check the result.

`ClockSchedule` moves the clock of a test from job to job, and adds recurring jobs at their minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..cron.due import DueMinute, cron_job, due_between
from ..cron.matcher import MINUTE
from ..database.connections.connection import Pool
from ..database.sql import load
from ..database.statements.schedules import CronMinute, register_crontabs, schedule_cron_jobs
from ..errors import InvalidArgumentError
from ..tasks.task import AnyTask
from ..values.schema_name import SchemaName
from ..values.spec import CronJob

if TYPE_CHECKING:
    from ..cron import ParsedCronItem

_PATIENCE = 60.0  # real seconds after which a waiting test is considered stuck


@dataclass(slots=True)
class _Sleeper:
    deadline: float
    alarm: asyncio.Future[None]
    task: asyncio.Task[Any] | None


class FakeClock:
    """Wall time and monotonic time under the control of a test, for the tasks of one event loop."""

    is_led = True

    def __init__(self, start: datetime) -> None:
        self._now = _in_utc(start)
        self._monotonic = 0.0
        self._sleepers: list[_Sleeper] = []
        self._changed = asyncio.Event()

    # -- the Clock protocol --------------------------------------------------------------------------------

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        alarm = asyncio.get_running_loop().create_future()
        sleeper = _Sleeper(self._monotonic + seconds, alarm, asyncio.current_task())
        self._sleepers.append(sleeper)
        self._changed.set()
        try:
            await alarm
        finally:
            if sleeper in self._sleepers:  # cancelled
                self._sleepers.remove(sleeper)

    # -- for tests -----------------------------------------------------------------------------------------

    @property
    def sleeping(self) -> int:
        """Number of tasks that sleep on this clock."""
        return len(self._sleepers)

    async def advance(self, by: timedelta | float, *, timeout: float = _PATIENCE) -> None:
        """Move time forward, wake the tasks that are due, and wait until they sleep again or have ended."""
        seconds = by.total_seconds() if isinstance(by, timedelta) else float(by)
        if seconds < 0:
            raise ValueError("time cannot pass backwards; use jump or set to move the wall clock back")
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        await self._settle(timeout)

    async def set(self, moment: datetime, *, timeout: float = _PATIENCE) -> None:
        """Move the wall clock to a moment: forward like `advance`, or back like `jump`."""
        by = _in_utc(moment) - self._now
        if by < timedelta():
            self.jump(by)
        else:
            await self.advance(by, timeout=timeout)

    def jump(self, by: timedelta | float) -> None:
        """Move the wall clock forward or back without letting time pass; no task wakes."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)

    async def until_sleeping(self, count: int = 1, *, timeout: float = _PATIENCE) -> None:
        """Wait until at least `count` tasks sleep on this clock."""
        await self._until(lambda: len(self._sleepers) >= count, timeout)

    async def _settle(self, timeout: float) -> None:
        while due := [sleeper for sleeper in self._sleepers if sleeper.deadline <= self._monotonic]:
            # One by one, earliest first, so that the order is deterministic.
            sleeper = min(due, key=lambda each: each.deadline)
            self._sleepers.remove(sleeper)
            sleeper.alarm.set_result(None)
            await self._until(lambda task=sleeper.task: self._is_at_rest(task), timeout)  # type: ignore[misc]

    def _is_at_rest(self, task: asyncio.Task[Any] | None) -> bool:
        return task is None or task.done() or any(sleeper.task is task for sleeper in self._sleepers)

    async def _until(self, condition: Callable[[], bool], timeout: float) -> None:
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                # The end of a task does not set the event, so check again after a short wait.
                try:
                    async with asyncio.timeout(0.005):
                        await self._changed.wait()
                except TimeoutError:
                    continue


def _in_utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"FakeClock needs a datetime with a time zone, got {moment!r}")
    return moment.astimezone(UTC)


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
