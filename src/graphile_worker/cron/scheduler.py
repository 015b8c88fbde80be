"""CronScheduler: the loop that adds recurring jobs when their minute comes.

Any number of them may run on one database; the statement in `schedule_cron_jobs.sql` sees to it that one of
them adds each job. What to do is decided in `due.py`; here it is only done, and done again when the database
fails: the loop then starts from the beginning, and nothing that was due meanwhile is left out.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

from ..clock import Clock, SystemClock
from ..db.connection import Connection
from ..hooks.emitter import Events
from ..hooks.events import (
    CronBackfill,
    CronBackfillItem,
    CronJob,
    CronOverdueTimer,
    CronPrematureTimer,
    CronSchedule,
    CronScheduled,
    CronStarted,
    CronStarting,
)
from ..queries.crontabs import KnownCrontab, known_crontabs, register_crontabs, schedule_cron_jobs
from ..schema_name import SchemaName
from .check import check_identifiers
from .due import (
    LONGEST_CATCH_UP,
    DueMinute,
    cron_job,
    due_for_backfill,
    due_when_late,
    first_tick,
    in_groups,
    rest_after,
)
from .item import ParsedCronItem
from .matcher import MINUTE, round_down

Acquire = Callable[[], AbstractAsyncContextManager[Connection]]

_TIMER_MARGIN = 0.001  # so that a timer never rings in the last moment of the minute before
_LONGEST_TIMER = 60.0  # longer only after the clock was put back; it may be put forward again meanwhile
_STOP_PATIENCE = 5.0
_GROUP_SIZE = 500  # jobs of past minutes that are committed together; others wait for as long as that takes


class CronScheduler:
    """Adds the jobs of `items` through connections that `acquire` lends."""

    def __init__(
        self,
        acquire: Acquire,
        schema: SchemaName,
        items: Sequence[ParsedCronItem],
        *,
        events: Events | None = None,
        clock: Clock | None = None,
        known_tasks: Collection[str] | None = None,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._acquire = acquire
        self._schema = schema
        self._items = tuple(items)
        check_identifiers(self._items)
        self._events = events or Events()
        self._clock = clock or SystemClock()
        self._known_tasks = known_tasks
        self._logger = logger or logging.getLogger("graphile_worker.cron")
        self._chance = chance
        self._failures = 0
        self._owed: datetime | None = None
        """The first minute whose jobs are not added yet; None until the first tick is known."""
        self._has_warned = False
        """Whether a clock that was put back has been reported."""
        self._is_sleeping = False
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; returns at once. Backfill and ticks happen in a task of their own."""
        if self._task is not None:
            raise RuntimeError("this CronScheduler was started already")
        self._warn()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="graphile-worker cron")

    async def stop(self) -> None:
        """End the loop; a statement under way may finish first. Does nothing if it has ended."""
        self._is_stopping = True
        if self._task is None:
            return
        if self._is_sleeping:
            self._task.cancel()
        elif not self._task.done():
            await asyncio.wait([self._task], timeout=_STOP_PATIENCE)
            self._task.cancel()
        await self.wait()

    async def wait(self) -> None:
        """Wait until the loop has ended, which it does only after `stop`. Raises what it died of."""
        if self._task is not None:
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                await self._backfill_and_tick()
            except Exception as error:
                self._failures += 1
                rest = rest_after(self._failures, self._chance())
                self._logger.error(
                    "recurring jobs: attempt %d failed, starting again in %.1f s: %s",
                    self._failures,
                    rest,
                    error,
                    exc_info=error,
                )
                await self._sleep(rest)

    async def _backfill_and_tick(self) -> None:
        start = self._clock.now()
        self._events.emit(CronStarting(start=start))
        if self._items:
            await self._backfill(start)
        if self._is_stopping:
            return
        self._events.emit(CronStarted(start=start))
        self._owed = expected = first_tick(start, self._owed)
        while not self._is_stopping:
            rest = (expected - self._clock.now()).total_seconds()
            await self._sleep(min(max(rest, 0), _LONGEST_TIMER) + _TIMER_MARGIN)
            expected = await self._tick(expected)

    async def _backfill(self, start: datetime) -> None:
        async with self._acquire() as connection:
            known = await known_crontabs(connection, self._schema)
            new = [item.identifier for item in self._items if item.identifier not in known]
            if new:
                await register_crontabs(connection, self._schema, new, start)
            self._warn_of_the_future(known, start)
            due = due_for_backfill(self._items, known, start, self._owed)
            for group in in_groups(due, _GROUP_SIZE):
                if self._is_stopping:
                    return
                minutes = [
                    (minute, [cron_job(item, minute, backfilled=True) for item in items])
                    for minute, items in group
                ]
                for minute, jobs in minutes:
                    items_to_backfill = _backfill_items(jobs, known)
                    self._events.emit(CronBackfill(items_to_backfill=items_to_backfill, timestamp=minute))
                await schedule_cron_jobs(connection, self._schema, minutes)

    async def _tick(self, expected: datetime) -> datetime:
        """Do what is due at `expected`, or from then until now if it is late; the next minute to wait for."""
        current = round_down(self._clock.now())
        if current < expected:
            if expected - current > LONGEST_CATCH_UP and not self._has_warned:
                self._has_warned = True
                self._logger.warning(
                    "recurring jobs: the clock was put back to %s; nothing is added before %s, up to which "
                    "everything was added already",
                    current,
                    expected,
                )
            self._events.emit(CronPrematureTimer(current_timestamp=current, expected_timestamp=expected))
            return expected
        if current > expected:
            self._events.emit(CronOverdueTimer(current_timestamp=current, expected_timestamp=expected))
            if current - expected > LONGEST_CATCH_UP:
                self._logger.warning(
                    "recurring jobs: the clock went from %s to %s (put forward, or something was suspended); "
                    "runs missed in the last week or in an item's backfill period are added now, older ones "
                    "are left out",
                    expected,
                    current,
                )
        self._has_warned = False
        for due in due_when_late(self._items, expected, current):
            if self._is_stopping:
                return expected
            await self._schedule(due)
        self._failures = 0
        self._owed = current + MINUTE
        return self._owed

    async def _schedule(self, due: DueMinute) -> None:
        minute, items = due
        jobs = [cron_job(item, minute, backfilled=False) for item in items]
        self._events.emit(CronSchedule(timestamp=minute, jobs_and_identifiers=jobs))
        async with self._acquire() as connection:
            await schedule_cron_jobs(connection, self._schema, [(minute, jobs)])
        self._owed = minute + MINUTE
        self._events.emit(CronScheduled(timestamp=minute, jobs_and_identifiers=jobs))

    async def _sleep(self, seconds: float) -> None:
        if self._is_stopping:
            return
        self._is_sleeping = True
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_sleeping = False

    def _warn(self) -> None:
        for item in self._items:
            if self._known_tasks is not None and item.task not in self._known_tasks:
                self._logger.warning(
                    "recurring job %r: this worker has no task %r; its jobs are added all the same",
                    item.identifier,
                    item.task,
                )

    def _warn_of_the_future(self, known: dict[str, KnownCrontab], start: datetime) -> None:
        """An item that ran in the future, by a clock that was wrong, does not run again before that time."""
        for item in self._items:
            last = known[item.identifier].last_execution if item.identifier in known else None
            if last is not None and last - start > LONGEST_CATCH_UP:
                self._logger.warning(
                    "recurring job %r was last added for %s, in the future, and is not added before that; "
                    "if a clock was wrong then, set last_execution to null in its row of %s",
                    item.identifier,
                    last,
                    f"{self._schema.quoted}._private_known_crontabs",
                )


def _backfill_items(jobs: Sequence[CronJob], known: dict[str, KnownCrontab]) -> list[CronBackfillItem]:
    return [
        CronBackfillItem(
            identifier=job.identifier,
            job=job,
            known_since=known[job.identifier].known_since,
            last_execution=known[job.identifier].last_execution,
        )
        for job in jobs
    ]
