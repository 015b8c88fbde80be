"""Regular work of a worker: sweeps, clearing stale locks, and a search for unknown tasks.

- `Periodic` calls a function on the worker's event loop at intervals.
- `Sweeper` sweeps every few seconds. Every worker has one; an advisory lock lets only one sweep at a time.
  The interval has jitter, so that workers do not sweep in lockstep, and ends early when an unreachable worker
  is about to be declared dead.
- `StaleLocks` clears locks older than four hours, whatever runtime holds them (RL1, RL2). Every runtime does
  this. It is the last resort for jobs of workers that send no heartbeats.
- `UnknownTasks` warns about jobs that wait for a task which no running worker has. Every worker looks from
  time to time, soon after its start and then ever less often. Of the workers on one host only the oldest
  warns, and only once an hour about the same task.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime

from ..database.connections.connection import Connection, Pool
from ..database.connections.errors import explained
from ..database.sql import load
from ..database.statements.cleanup import own_session
from ..database.statements.inspection import ReadyTask, ready_tasks
from ..database.statements.pauses import pauses_if_readable
from ..database.statements.write import delete_retired
from ..errors import WorkerStoppedError
from ..hooks import Events, Hooks
from ..hooks.events import ResetLockedFailure, ResetLockedStarted, ResetLockedSuccess
from ..hooks.faults import Supervised, is_our_end
from ..values.clock import Clock, uptime
from ..values.options import WorkerOptions
from ..values.outcome import FailureHandler
from ..values.retention import RetentionPolicy
from ..values.schema_name import SchemaName
from ..values.text import did_you_mean, similar_names
from .heartbeat import RecoverablePool
from .orphaned_jobs import purge_recoveries
from .registry.workers import RunningTasks, delete_old_rust_workers, running_tasks
from .sweep import Sweep

STOP_TIMEOUT = 2.0  # seconds for a call in progress

logger = logging.getLogger("graphile_worker.recovery")


class Periodic:
    """One loop. An error is logged once until a call succeeds again."""

    def __init__(
        self,
        what: str,
        function: Callable[[], Awaitable[float]],
        clock: Clock,
        *,
        first_after: float,
        stop_timeout: float | None = STOP_TIMEOUT,
    ) -> None:
        """`function` returns the seconds until its next call; `what` names it in log lines.

        `stop_timeout`: how long `stop` waits for a call in progress before it cancels it; None for no limit.
        """
        self._what = what
        self._function = function
        self._clock = clock
        self._delay = first_after
        self._stop_timeout = stop_timeout
        self._is_failing = False
        self._sleep: asyncio.Future[None] | None = None
        self._stop_requested = asyncio.Event()
        self._loop = Supervised(self._run, what, is_over=self._stop_requested.is_set)

    def start(self) -> None:
        """Start the loop; the first call comes after `first_after`."""
        self._loop.start()

    def begin_to_stop(self) -> None:
        """Start no further call."""
        self._stop_requested.set()
        if self._sleep is not None:
            self._sleep.cancel()

    async def stop(self) -> None:
        """End the loop after a call in progress."""
        self.begin_to_stop()
        await self._loop.end(within=self._stop_timeout)

    async def _run(self) -> None:
        while not self._stop_requested.is_set():
            self._sleep = asyncio.ensure_future(self._clock.sleep(self._delay))
            try:
                await asyncio.wait((self._sleep,))
            finally:
                self._sleep.cancel()
            if self._stop_requested.is_set():
                return
            try:
                self._delay = await self._function()
                self._is_failing = False
            except WorkerStoppedError:  # the pool has ended by itself; this is asked to stop a little later
                return
            except BaseException as error:
                if is_our_end(error):
                    raise
                if self._stop_requested.is_set():
                    return
                if not self._is_failing:
                    logger.warning("%s failed: %s; retrying", self._what, explained(error))
                self._is_failing = True


JITTER = 0.2  # of an interval, either way
MARGIN = 0.05  # seconds after a worker is due to be declared dead
PURGE_EVERY = 100  # sweeps


class Sweeper:
    def __init__(
        self,
        pool: RecoverablePool,
        options: WorkerOptions,
        hooks: Hooks,
        clock: Clock,
        *,
        handlers: Mapping[str, FailureHandler] | None,
        retention_policy: RetentionPolicy | None,
    ) -> None:
        self._pool = pool
        self._options = options
        self._count = 0
        self._sweep = Sweep(
            pool.run_statement,
            options.schema_name,
            hooks,
            own_id=pool.id,
            delay=options.recovery.delay,
            max_recoveries=options.recovery.max_recoveries,
            resilient_flag=options.recovery.resilient_flag,
            handlers=handlers,
            retention_policy=retention_policy,
            error_retention=options.history.error_retention,
        )
        self.loop = Periodic("sweep", self._run_sweep, clock, first_after=self._delay() / 2)

    async def _run_sweep(self) -> float:
        delay = self._delay()
        if not self._pool.lease.is_open:  # a worker that is unreachable itself does not judge others
            return delay
        report = await self._sweep()
        self._count += 1
        if self._count % PURGE_EVERY == 0:
            await self._pool.run_statement(
                lambda connection: purge_recoveries(connection, self._options.schema_name)
            )
        return min([delay, *(dead_in + MARGIN for dead_in in report.lost.values())])

    def _delay(self) -> float:
        return _jittered(self._options.recovery.sweep_interval)


def _jittered(seconds: float) -> float:
    return seconds * (1 - JITTER + 2 * JITTER * random.random())  # noqa: S311


FIRST_WITHIN = 60.0  # seconds after the start
TIMEOUT = 120.0  # seconds


class StaleLocks(Periodic):
    """Clears stale locks at random intervals until stopped; a run in progress is finished."""

    def __init__(
        self,
        pool: Pool,
        options: WorkerOptions,
        events: Events,
        clock: Clock,
        *,
        pool_id: str,
        share: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(
            "stale locks",
            self._reset,
            clock,
            first_after=share() * min(FIRST_WITHIN, options.node.max_reset_locked_interval),
            stop_timeout=None,
        )
        self._pool = pool
        self._options = options
        self._events = events
        self._pool_id = pool_id
        self._share = share

    async def _reset(self) -> float:
        options = self._options
        shortest, longest = options.node.min_reset_locked_interval, options.node.max_reset_locked_interval
        delay = shortest + self._share() * (longest - shortest)
        self._events.emit(ResetLockedStarted(pool_id=self._pool_id))
        now = self._clock.now() if options.use_local_time else None
        failure: Exception | None = None
        try:
            # The timeout of `acquire` also limits the release, which would wait for a silent server.
            async with (
                asyncio.timeout(TIMEOUT),
                own_session(
                    self._pool, prepared_statements=options.prepared_statements, timeout=TIMEOUT
                ) as connection,
            ):
                await reset_locked(connection, options.schema_name, now)
                await delete_old_rust_workers(connection, options.schema_name)
        except Exception as error:
            failure = error
        shown = None if self._stop_requested.is_set() else delay
        if failure is not None:
            self._events.emit(ResetLockedFailure(pool_id=self._pool_id, error=failure, delay=shown))
        else:
            self._events.emit(ResetLockedSuccess(pool_id=self._pool_id, delay=shown))
        return delay


async def reset_locked(
    connection: Connection, schema: SchemaName, now: datetime | None = None
) -> tuple[int, int]:
    """Clear locks older than four hours; return how many jobs and queues were freed."""
    async with connection.transaction():
        row = await connection.fetchrow(load("recovery/reset_locked", schema), now)
        if row is None:
            return 0, 0
        if row["retired"]:
            await delete_retired(connection, schema, row["retired"])
    return row["jobs"], row["queues"]


FIRST_DELAY = 10.0  # seconds after the start; then twice as long each time
LONGEST_DELAY = 300.0
SHORTEST_WAIT = 10.0  # seconds that a job may be ready while its worker is restarted
WARN_AGAIN_AFTER = 3600.0

worker_logger = logging.getLogger("graphile_worker.worker")


class UnknownTasks:
    """The search for jobs that wait for a task which no running worker has, of one worker."""

    def __init__(
        self, pool: RecoverablePool, options: WorkerOptions, clock: Clock, tasks: Collection[str]
    ) -> None:
        self._pool = pool
        self._options = options
        self._clock = clock
        self._tasks = frozenset(tasks)
        self._delay = FIRST_DELAY
        self._warned_at: dict[str, float] = {}
        first_after = _jittered(FIRST_DELAY)
        self.loop = Periodic("search for unknown tasks", self._look, clock, first_after=first_after)

    async def _look(self) -> float:
        try:
            await self._search()
        except Exception as error:  # other parts of the worker report a server that is away
            worker_logger.debug("could not search for unknown tasks: %s", error)
        self._delay = min(2 * self._delay, LONGEST_DELAY)
        return _jittered(self._delay)

    async def _search(self) -> None:
        schema, run = self._options.schema_name, self._pool.run_statement
        now = self._clock.now() if self._options.use_local_time else None
        ready = await run(lambda connection: ready_tasks(connection, schema, now=now))
        unknown = [
            task
            for task in ready
            if task.task_identifier not in self._tasks and task.age >= SHORTEST_WAIT and self._may_warn(task)
        ]
        if unknown:
            running = await run(lambda connection: running_tasks(connection, schema))
            if self._is_oldest(running):
                paused = await run(lambda connection: pauses_if_readable(connection, schema))
                if any(pause.name is None for pause in paused):  # everything
                    return
                known = running.tasks.union(pause.task_identifier or "" for pause in paused)
                self._warn([task for task in unknown if task.task_identifier not in known], running)

    def _may_warn(self, task: ReadyTask) -> bool:
        warned_at = self._warned_at.get(task.task_identifier)
        return warned_at is None or uptime() - warned_at >= WARN_AGAIN_AFTER

    def _is_oldest(self, running: RunningTasks) -> bool:
        """Whether this is the oldest pool on its host; they are listed by age."""
        hosts = {pool.id: pool.host for pool in running.pools}
        host = hosts.get(self._pool.id)
        return host is not None and next(id_ for id_, of in hosts.items() if of == host) == self._pool.id

    def _warn(self, unknown: list[ReadyTask], running: RunningTasks) -> None:
        import shlex  # most workers never need it

        for task in unknown:
            name = task.task_identifier
            self._warned_at[name] = uptime()
            question = did_you_mean(similar_names(name, running.tasks)) or "."
            worker_logger.warning(
                "%s for the task %r, which %s has%s To list them: graphile-worker list --task %s",
                task.waiting,
                name,
                running.no_worker,
                question,
                shlex.quote(name),
            )
