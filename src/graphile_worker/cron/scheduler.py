"""CronScheduler: the loop that adds recurring jobs when their minute comes.

Any number of schedulers may run on one database; `cron/schedule_cron_jobs` makes sure that only one of them
adds each job. `due.py` decides what to do, this module does it. After a database failure the loop starts
over, and adds what became due in between.

Interceptors are called before the statement, while no lock is held. So every scheduler calls them for a job
that is due, and the first to run its statement decides what is added.

Jobs are due by the time of the database server, even if this machine's clock is wrong. All workers share the
rows that say up to when jobs were added. A worker whose clock is ahead would claim minutes in the future, and
no worker would add anything until then.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from itertools import chain

from ..database.connections.connection import Connection
from ..database.connections.errors import sqlstate_of
from ..database.connections.sqlstates import UNAVAILABLE_TABLE
from ..database.statements.schedules import (
    CronMinute,
    known_crontabs,
    register_crontabs,
    schedule_cron_jobs,
    server_time,
)
from ..errors import InvalidArgumentError, JobRefusedError
from ..errors.text import message_of
from ..hooks import Hooks
from ..hooks.events import (
    CronBackfill,
    CronBackfillItem,
    CronOverdueTimer,
    CronPrematureTimer,
    CronSchedule,
    CronScheduled,
    CronStarted,
    CronStarting,
    JobsAdded,
)
from ..hooks.faults import Supervised, is_our_end
from ..tasks.task import AnyTask
from ..values.clock import Clock, SystemClock
from ..values.payload import encode
from ..values.schema_name import SchemaName
from ..values.spec import CronJob
from ..values.text import duration
from .crontab import check_identifiers
from .due import (
    LONGEST_CATCH_UP,
    DueMinute,
    KnownCrontab,
    backoff,
    cron_job,
    due_for_backfill,
    due_when_late,
    first_tick,
    in_groups,
)
from .item import ParsedCronItem
from .item_jobs import WatchedMinutes, payload_problems
from .matcher import MINUTE, round_down

Acquire = Callable[[], AbstractAsyncContextManager[Connection]]

_TIMER_MARGIN = 0.001  # so that a timer never fires at the very end of the previous minute
_MAX_SLEEP = 60.0  # a longer wait means that the clock was set back; it may be set forward again
_STOP_TIMEOUT = 5.0
_AHEAD = 2 * MINUTE  # how far ahead of the clock an added minute may be
_GROUP_SIZE = 500  # past jobs per transaction; other workers wait while it lasts


class CronScheduler:
    """Adds the jobs of `items` over connections from `acquire`."""

    def __init__(
        self,
        acquire: Acquire,
        schema: SchemaName,
        items: Sequence[ParsedCronItem],
        *,
        hooks: Hooks | None = None,
        clock: Clock | None = None,
        tasks: Mapping[str, AnyTask] | None = None,
        logger: logging.Logger | logging.LoggerAdapter[logging.Logger] | None = None,
        jitter: Callable[[], float] = random.random,
        is_registered: bool = False,
        by_server_time: bool = False,
    ) -> None:
        """`tasks`: those of this worker; their options fill in what an item does not set.

        `is_registered`: the tables for recurring jobs exist. `by_server_time`: the clock is this
        machine's and may be wrong; otherwise it decides what is due.
        """
        self._acquire = acquire
        self._schema = schema
        self._items = tuple(items)
        check_identifiers(self._items)
        self._hooks = hooks or Hooks()
        self._events = self._hooks.events
        self._clock = clock or SystemClock()
        self._tasks = tasks
        self._logger = logger or logging.getLogger("graphile_worker.cron")
        self._jitter = jitter
        self._is_registered = is_registered
        self._by_server_time = by_server_time
        self._time = ServerTime(self._clock, self._logger)
        self._in_the_future: frozenset[str] = frozenset()
        """Items whose last run is in the future, and that have been reported."""
        self._failures = 0
        self._owed: datetime | None = None
        """The first minute whose jobs are not yet added; None until the first tick is known."""
        self._has_warned = False
        """Whether a clock that was set back has been reported."""
        self._is_sleeping = False
        self._is_stopping = False
        self._loop = Supervised(self._run, "cron")
        self._is_started = False

    async def start(self) -> None:
        """Start the loop in an asyncio task of its own; returns immediately."""
        if self._is_started:
            raise RuntimeError("this CronScheduler has already been started")
        self._is_started = True
        self._warn_of_unknown_tasks()
        self._warn_of_payloads()
        self._loop.start()

    async def stop(self) -> None:
        """Stop the loop after the statement in flight. Does nothing if the loop has ended."""
        self._is_stopping = True
        if self._is_sleeping:
            await self._loop.stop()
        else:
            await self._loop.end(within=_STOP_TIMEOUT)

    async def wait(self) -> None:
        """Wait until the loop has ended, which it does only after `stop`."""
        await self._loop.wait()

    # -- the loop ------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while not self._is_stopping:
            try:
                await self._backfill_and_tick()
            except BaseException as error:
                if is_our_end(error):
                    raise
                self._failures += 1
                delay = backoff(self._failures, self._jitter())
                self._logger.error(
                    "recurring jobs: attempt %d failed, retrying in %s: %s",
                    self._failures,
                    duration(delay),
                    error,
                    exc_info=error,
                )
                await self._sleep(delay)

    async def _backfill_and_tick(self) -> None:
        if self._items:
            await self._ask_the_server()
        start = self._time.now()
        self._events.emit(CronStarting(start=start, items=tuple(self._items)))
        if self._items:
            await self._backfill(start)
        if self._is_stopping:
            return
        self._events.emit(CronStarted(start=start))
        self._owed = expected = first_tick(start, self._owed)
        while not self._is_stopping:
            remaining = (expected - self._time.now()).total_seconds()
            await self._sleep(min(max(remaining, 0), _MAX_SLEEP) + _TIMER_MARGIN)
            expected = await self._tick(expected)

    async def _backfill(self, start: datetime) -> None:
        known = await self._known(start)
        if not self._by_server_time:
            ours = [known[item.identifier] for item in self._items if item.identifier in known]
            self._warn_of_the_future({each.identifier: each.last_execution for each in ours}, start)
        due = due_for_backfill(self._items, known, start, self._owed)
        for group in in_groups(due, _GROUP_SIZE):
            if self._is_stopping:
                return
            minutes = [await self._prepare(each, backfilled=True) for each in group]
            for minute, jobs, _ in minutes:
                if jobs:
                    items_to_backfill = _backfill_items(jobs, known)
                    self._events.emit(CronBackfill(items_to_backfill=items_to_backfill, timestamp=minute))
            await self._add(minutes)

    async def _known(self, start: datetime) -> dict[str, KnownCrontab]:
        """What the database knew about the items until now; new ones are registered."""
        async with self._acquire() as connection:
            rows = await known_crontabs(connection, self._schema)
            known = {row[0]: KnownCrontab(*row) for row in rows}
            new = [item.identifier for item in self._items if item.identifier not in known]
            if new:
                await register_crontabs(connection, self._schema, new, start)
        return known

    async def _tick(self, expected: datetime) -> datetime:
        """Add what is due from `expected` until now; returns the next minute to wait for."""
        current = round_down(self._time.now())
        due_minutes = due_when_late(self._items, expected, current)
        if self._by_server_time:
            first = next(due_minutes, None)
            if current != expected or first is not None:
                await self._ask_the_server()
            believed, current = current, round_down(self._time.now())
            if current == believed:
                due_minutes = chain(() if first is None else (first,), due_minutes)
            else:
                due_minutes = due_when_late(self._items, expected, current)
        if current < expected:
            if expected - current > LONGEST_CATCH_UP and not self._has_warned:
                self._has_warned = True
                self._logger.warning(
                    "recurring jobs: the clock was set back to %s; nothing is added before %s, since all "
                    "jobs up to then were added already",
                    current,
                    expected,
                )
            self._events.emit(CronPrematureTimer(current_timestamp=current, expected_timestamp=expected))
            return expected
        if current > expected:
            self._events.emit(CronOverdueTimer(current_timestamp=current, expected_timestamp=expected))
            if current - expected > LONGEST_CATCH_UP:
                self._logger.warning(
                    "recurring jobs: the clock jumped from %s to %s (set forward, or the machine was "
                    "suspended); runs missed in the last week or in an item's backfill period are added "
                    "now, older ones are skipped",
                    expected,
                    current,
                )
        self._has_warned = False
        for due in due_minutes:
            if self._is_stopping:
                return expected
            await self._schedule(due)
        self._failures = 0
        self._owed = current + MINUTE
        return self._owed

    async def _ask_the_server(self) -> None:
        """Compare the clocks, and warn of items that a wrong one has moved into the future."""
        if not self._by_server_time or not self._items:
            return
        async with self._acquire() as connection:
            asked_at, began = self._clock.now(), self._clock.monotonic()
            identifiers = [item.identifier for item in self._items]
            now, future = await server_time(connection, self._schema, identifiers, _AHEAD)
            took = self._clock.monotonic() - began
        self._time.compare(asked_at, now, took)
        self._warn_of_the_future(future, now)

    async def _schedule(self, due: DueMinute) -> None:
        prepared = await self._prepare(due, backfilled=False)
        minute, jobs, _ = prepared
        if jobs:
            self._events.emit(CronSchedule(timestamp=minute, jobs_and_identifiers=jobs))
        await self._add([prepared])
        self._owed = minute + MINUTE
        if jobs:
            self._events.emit(CronScheduled(timestamp=minute, jobs_and_identifiers=jobs))

    async def _prepare(self, due: DueMinute, *, backfilled: bool) -> CronMinute:
        """The jobs of one minute, after the `before_add` interceptors."""
        minute, items = due
        made = [self._job(item, minute, backfilled=backfilled) for item in items]
        jobs = [job for job in made if job is not None]
        refused = [item.identifier for item, job in zip(items, made, strict=True) if job is None]
        if not self._hooks.table.before_add:
            return CronMinute(minute, jobs, refused)
        intercepted = [await self._intercept(job) for job in jobs]
        refused += [job.identifier for job, kept in zip(jobs, intercepted, strict=True) if kept is None]
        return CronMinute(minute, [job for job in intercepted if job is not None], refused)

    def _job(self, item: ParsedCronItem, minute: datetime, *, backfilled: bool) -> CronJob | None:
        """The job of an item; None if the options of its task cannot be derived from its payload."""
        task = None if self._tasks is None else self._tasks.get(item.task_identifier)
        try:
            return cron_job(item, minute, backfilled=backfilled, task=task)
        except InvalidArgumentError as error:
            self._logger.error("recurring job %r is not added for %s: %s", item.identifier, minute, error)
            return None

    async def _intercept(self, job: CronJob) -> CronJob | None:
        """The job after the interceptors; None if one refused it, or failed.

        A failed interceptor must not hold up the other items, which a retry would do.
        """
        try:
            spec = await self._hooks._intercept_add(job)
            encode(spec.payload)
            return job.with_spec(spec)
        except JobRefusedError as error:
            self._logger.warning(
                "recurring job %r was refused for %s and is not added: %s", job.identifier, job.run_at, error
            )
        except BaseException as error:
            if is_our_end(error):
                raise
            self._logger.error(
                "recurring job %r is not added for %s: a before_add interceptor failed: %s",
                job.identifier,
                job.run_at,
                error,
                exc_info=error,
            )
        return None

    async def _add(self, minutes: Sequence[CronMinute]) -> None:
        if self._hooks.table.add_watchers:
            added = await self._add_watched(minutes)
        else:
            added = await self._add_all(minutes)
        if added and JobsAdded in self._events.observed:
            self._events.emit(JobsAdded(specs=added, jobs=(), source="crontab"))

    async def _add_watched(self, minutes: Sequence[CronMinute]) -> list[CronJob]:
        watched = WatchedMinutes(self._hooks.table.add_watchers, minutes)
        try:
            added = await self._add_all(watched.minutes)
        except BaseException as error:
            watched.failed(error)
            raise
        return watched.ended(added)

    async def _add_all(self, minutes: Sequence[CronMinute]) -> list[CronJob]:
        try:
            return await self._add_to_database(minutes)
        except Exception as error:
            if not self._is_registered or sqlstate_of(error) not in UNAVAILABLE_TABLE:
                raise
            self._is_registered = False
            self._logger.warning(
                "recurring jobs: this worker cannot see which of them are paused (%s); to obey pauses, run "
                "workers as the owner of the schema",
                message_of(error),
            )
            return await self._add_to_database(minutes)

    async def _add_to_database(self, minutes: Sequence[CronMinute]) -> list[CronJob]:
        is_observed = JobsAdded in self._events.observed or bool(self._hooks.table.add_watchers)
        async with self._acquire() as connection:
            return await schedule_cron_jobs(
                connection, self._schema, minutes, return_added=is_observed, is_registered=self._is_registered
            )

    async def _sleep(self, seconds: float) -> None:
        if self._is_stopping:
            return
        self._is_sleeping = True
        try:
            await self._clock.sleep(seconds)
        finally:
            self._is_sleeping = False

    def _warn_of_unknown_tasks(self) -> None:
        if self._tasks is None:
            return
        unknown = dict.fromkeys(
            item.task_identifier for item in self._items if item.task_identifier not in self._tasks
        )
        if unknown:
            self._logger.warning(
                "recurring jobs are added although this worker does not have their tasks: %s",
                ", ".join(map(repr, unknown)),
            )

    def _warn_of_payloads(self) -> None:
        for problem in payload_problems(self._items, self._tasks or {}):
            self._logger.warning("recurring jobs: %s; its jobs are added and will fail", problem)

    def _warn_of_the_future(self, last_executions: Mapping[str, datetime | None], now: datetime) -> None:
        """Warn of items that a wrong clock has run in the future: they do not run again before that time."""
        future = {
            identifier: last
            for identifier, last in last_executions.items()
            if last is not None and last - now > _AHEAD
        }
        table = f"{self._schema.quoted}._private_known_crontabs"
        for identifier in sorted(future.keys() - self._in_the_future):
            self._logger.warning(
                "recurring job %r was last added for %s, which is in the future, and is not added before "
                "then. If the clock of a worker is or was ahead, correct it. Then run: update %s set "
                "last_execution = now() where last_execution > now()",
                identifier,
                future[identifier],
                table,
            )
        self._in_the_future = frozenset(future)


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


AGREES_WITHIN = timedelta(seconds=2)
"""A smaller difference is ignored; then this machine's clock decides when a minute begins."""

Logger = logging.Logger | logging.LoggerAdapter[logging.Logger]


class ServerTime:
    """This machine's clock, corrected by its difference from the server's if that is large enough."""

    def __init__(self, clock: Clock, logger: Logger) -> None:
        self._clock = clock
        self._logger = logger
        self._difference = timedelta(0)
        """What has to be added to the machine's time."""

    def now(self) -> datetime:
        """The server's time."""
        return self._clock.now() + self._difference

    def compare(self, asked_at: datetime, server_time: datetime, took: float) -> None:
        """Learn from the server's answer to a query that was sent at `asked_at` by our clock."""
        uncertainty = timedelta(seconds=took / 2)
        difference = server_time - (asked_at + uncertainty)
        if abs(difference) <= AGREES_WITHIN + uncertainty:
            difference = timedelta(0)
        change = abs(difference - self._difference)
        if change <= AGREES_WITHIN + uncertainty:
            return  # each measurement differs slightly
        self._difference = difference
        if not difference:
            self._logger.info("recurring jobs: the clock of this machine agrees with the server's again")
            return
        seconds = timedelta(seconds=round(abs(difference).total_seconds()))
        self._logger.warning(
            "recurring jobs: the clock of this machine is %s %s the database server's; they are added by the "
            "server's time. Correct the clock, for example with NTP",
            seconds,
            "behind" if difference > timedelta(0) else "ahead of",
        )
