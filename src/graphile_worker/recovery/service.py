"""Recovery: protects a worker's jobs while it is alive and hands them to other workers when it dies.

The runner has one for each pool. The pool is registered before it locks its first job, so that its death does
not go unnoticed. Heartbeats come from a thread with a connection of its own or, if the caller passed a
connection pool, from the worker's event loop with a connection of that pool.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from contextvars import copy_context
from datetime import datetime
from typing import Protocol

from ..database.connections.connection import Connection, Pool
from ..database.connections.dsn import Dsn
from ..database.connections.errors import sqlstate_of
from ..database.statements.cleanup import own_session
from ..hooks import Hooks
from ..hooks.faults import Supervised, report
from ..logging.job_context import job_fields
from ..values import __version__
from ..values.clock import Clock, uptime
from ..values.job import Job
from ..values.options import SMALLEST_POOL_FOR_RECOVERY, WorkerOptions
from ..values.outcome import FailureHandler
from ..values.retention import RetentionPolicy
from .heartbeat import Heartbeat, RecoverablePool, from_dsn, from_pool
from .held_batches import PROVEN_AFTER, HoldGuard
from .maintenance import Maintenance, MaintenanceTask
from .orphaned_jobs import note_rerun, renew_locks
from .registry.pool_state import GetPlaces
from .registry.registering import Description, deregister_pool, register_pool
from .registry.rust_heartbeat import RustHeartbeat
from .registry.workers import UNAVAILABLE, Registration
from .sweep import StatementRunner
from .sweeper import Periodic, Sweeper, UnknownTasks

LEASE_SHARE = 2 / 3  # of the grace: the lease ends well before other workers may recover the jobs
MAINTENANCE_AFTER = 3.0  # seconds after the start
ONCE_DELAY = 0.5  # seconds until a run that may be short opens a connection for heartbeats
RENEW_INTERVAL = 1800.0  # seconds between renewals of locks that are more than an hour old
WRITE_TIMEOUT = 0.5  # seconds to write earlier outcomes before a job is run again
RERUN_TIMEOUT = 2.0  # seconds to record that a job is run again
STOP_TIMEOUT = 3.0  # seconds to deregister
BEAT_AGAIN_AFTER = 1.0  # seconds after a crash of the heartbeat

logger = logging.getLogger("graphile_worker.recovery")


class PoolStatistics(Protocol):
    """Writes what the pool has counted; failures are its own affair."""

    interval: float
    has_written: bool

    @property
    def is_pending(self) -> bool: ...

    async def write_if_due(self, connection: Connection, timeout: float) -> None: ...

    async def write(self, connection: Connection, timeout: float) -> None: ...


class Recovery:
    """Heartbeats, sweeps, lock renewals and maintenance tasks of one pool."""

    def __init__(
        self,
        pool: RecoverablePool,
        options: WorkerOptions,
        database: Pool,
        dsn: Dsn | None,
        tasks: Sequence[str],
        hooks: Hooks,
        clock: Clock,
        *,
        has_tables: bool,
        has_rust_register: bool = False,
        statistics: PoolStatistics | None = None,
        maintenance_tasks: Sequence[MaintenanceTask] = (),
        handlers: Mapping[str, FailureHandler] | None = None,
        retention_policy: RetentionPolicy | None = None,
        description: Description | None = None,
        get_places: GetPlaces | None = None,
    ) -> None:
        """`handlers`: what tasks have added when a job has failed permanently. `description`: see there.

        `has_rust_register`: whether the Rust port's table of workers is known to exist.

        `retention_policy`: which jobs that a sweep ends are kept; None if there is no history.
        """
        self._pool = pool
        self._options = options
        self._schema = options.schema_name
        self._database = database
        self._dsn = dsn
        self._hooks = hooks
        self._clock = clock
        self._has_tables = has_tables
        self._statistics = statistics
        self._maintenance_tasks = maintenance_tasks
        self._description = description
        self._get_places = get_places
        self._registration = _registration(pool, options, tasks)
        self._rust_heartbeat = RustHeartbeat(self._registration, self._schema, has_table=has_rust_register)
        self._started_at: datetime | None = None
        self._heartbeat: Heartbeat | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first_heartbeat = asyncio.Event()
        self._rerun_lock = asyncio.Lock()
        self._heartbeat_ended = asyncio.Event()
        self._beating: Supervised | None = None
        self._loops = [Periodic("lock renewal", self._renew_locks, clock, first_after=RENEW_INTERVAL)]
        if not pool.once:
            self._add_loops(tasks, handlers, retention_policy)

    def _add_loops(
        self,
        tasks: Sequence[str],
        handlers: Mapping[str, FailureHandler] | None,
        retention_policy: RetentionPolicy | None,
    ) -> None:
        """What a worker does regularly, unless it only drains the queue."""
        pool, options, clock = self._pool, self._options, self._clock
        if options.recovery.enabled and self._has_tables:
            sweeper = Sweeper(
                pool, options, self._hooks, clock, handlers=handlers, retention_policy=retention_policy
            )
            unknown = UnknownTasks(pool, options, clock, tasks)
            self._loops += [sweeper.loop, unknown.loop]
        if self._maintenance_tasks:
            shared = self._make_maintenance(pool.run_statement, is_alive=lambda: pool.lease.is_open)
            self._loops.append(Periodic("maintenance", shared.run_due, clock, first_after=MAINTENANCE_AFTER))

    # -- starting ------------------------------------------------------------------------------------------

    @staticmethod
    def connections_kept(options: WorkerOptions, database: Pool, dsn: Dsn | None) -> int:
        """How many connections of the caller's pool heartbeats occupy."""
        fits = dsn is None and database.get_max_size() >= SMALLEST_POOL_FOR_RECOVERY
        return 1 if options.recovery.enabled and fits else 0

    async def register(self) -> None:
        """Register the pool before it locks a job, or warn that its death would go unnoticed."""
        reason = self._obstacle()
        if reason is not None or not self._options.recovery.enabled:
            with suppress(TimeoutError):  # the table is locked; heartbeats try again
                await self._pool.run_statement(self._rust_heartbeat.send_if_due)
            if reason is not None:
                self._warn_off(reason)
            return
        sent_at = uptime()
        guard = HoldGuard(self._pool, self._schema, interval=self._options.recovery.sweep_interval)

        async def statements(connection: Connection) -> None:
            self._started_at = await register_pool(
                connection,
                self._schema,
                self._registration,
                self._description,
                self._rust_heartbeat,
                liveness="lock",
            )
            self._begin(sent_at)
            await guard.begin(connection)

        try:
            await self._pool.run_statement(statements)
        except Exception as error:
            if sqlstate_of(error) not in UNAVAILABLE:
                raise
            self._warn_off(str(error))
            return
        if self._pool.can_hold:
            self._loops.append(
                Periodic("the search for dead workers", guard.look, self._clock, first_after=PROVEN_AFTER)
            )

    def _begin(self, sent_at: float) -> None:
        """The pool is registered since it sent its registration at this time."""
        self._pool.lease.begin(self._registration.grace * LEASE_SHARE, sent_at)
        self._pool.before_rerun(self._note_rerun)
        if self._dsn is None:
            self._start_heartbeat()

    def _obstacle(self) -> str | None:
        """Why recovery is off although the options ask for it; None if it is not."""
        if not self._options.recovery.enabled:
            return None
        if not self._has_tables:
            return "its tables are missing in the database"
        if self._dsn is None:
            size, name = self._database.get_max_size(), "pg_pool has {} connections"
        else:
            size, name = self._options.max_pool_size, "max_pool_size is {}"
        if size < SMALLEST_POOL_FOR_RECOVERY:
            return f"{name.format(size)}; it needs {SMALLEST_POOL_FOR_RECOVERY}"
        return None

    async def proven(self) -> None:
        """Wait until a worker on the caller's pool has its lock: its first job may block the event loop."""
        if self._dsn is None and self._heartbeat is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._registration.grace * LEASE_SHARE):
                    await self._first_heartbeat.wait()

    def start(self) -> None:
        for loop in self._loops:
            loop.start()
        if self._heartbeat is not None:
            return
        if self._started_at is not None:
            if self._pool.once:
                delay = min(ONCE_DELAY, self._registration.heartbeat_interval / 2)
                self._timer = asyncio.get_running_loop().call_later(delay, self._start_heartbeat)
            else:
                self._start_heartbeat()
        else:
            interval = self._options.recovery.heartbeat_interval
            self._start_loop("Rust heartbeat", self._send_rust_heartbeat, interval)
            if self._statistics is not None:
                self._start_loop("statistics", self._write_due_statistics, self._statistics.interval)

    def _start_loop(self, what: str, function: Callable[[], Awaitable[float]], first_after: float) -> None:
        loop = Periodic(what, function, self._clock, first_after=first_after)
        self._loops.append(loop)
        loop.start()

    def _own_session(self) -> AbstractAsyncContextManager[Connection]:
        return own_session(self._database, prepared_statements=self._options.prepared_statements)

    def _warn_off(self, reason: str) -> None:
        logger.warning(
            "recovery is off: %s; if this worker is killed, its jobs stay locked for four hours", reason
        )

    def _start_heartbeat(self) -> None:
        assert self._started_at is not None  # noqa: S101 - registered before
        prepared = self._options.prepared_statements
        dsn = self._dsn
        self._heartbeat = Heartbeat(
            self._pool,
            self._registration,
            self._schema,
            from_pool(self._database) if dsn is None else from_dsn(dsn, prepared_statements=prepared),
            self._rust_heartbeat,
            started_at=self._started_at,
            on_heartbeat=self._renew_lease,
            write_statistics=self._write_statistics,
            description=self._description,
            get_places=self._get_places,
        )
        if dsn is None:
            heartbeat = self._heartbeat
            self._beating = Supervised(heartbeat.run, "heartbeat", is_over=lambda: heartbeat.is_stopping)
            self._beating.start()
        else:
            loop = asyncio.get_running_loop()
            self._hooks._on_loop_blocked(self._loop_blocked)
            threading.Thread(
                target=copy_context().run,
                args=(self._run_in_thread, self._heartbeat, loop),
                name="graphile-worker heartbeat",
                daemon=True,
            ).start()

    def _loop_blocked(self, culprit: str, since: float) -> None:
        """Called in the watchdog's thread: others must learn of it at once."""
        if self._heartbeat is not None:
            self._heartbeat.hurry()

    def _run_in_thread(self, heartbeat: Heartbeat, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            try:
                asyncio.run(heartbeat.run())
                break
            except BaseException as error:  # without heartbeats the pool may not touch its jobs
                report(logger, "the heartbeat crashed and is restarted", error=error)
                if heartbeat.is_stopping or loop.is_closed():
                    break
                time.sleep(BEAT_AGAIN_AFTER)
        with suppress(RuntimeError):  # the worker's loop is closed
            loop.call_soon_threadsafe(self._heartbeat_ended.set)

    # -- while running -------------------------------------------------------------------------------------

    def _renew_lease(self, sent_at: float, was_swept: bool) -> bool:
        """Called in the heartbeat thread; False if the pool's event loop is closed."""
        try:
            self._pool.lease.renew(sent_at, was_swept=was_swept)
        except RuntimeError:  # the worker's loop is closed
            return False
        if self._dsn is None:
            self._first_heartbeat.set()
        return True

    async def _renew_locks(self) -> float:
        locked = self._pool.locked
        if locked:
            now = self._clock.now() if self._options.use_local_time else None
            await self._pool.run_statement(
                lambda connection: renew_locks(connection, self._schema, self._pool.id, locked, now)
            )
        return RENEW_INTERVAL

    async def _send_rust_heartbeat(self) -> float:
        await self._pool.run_statement(self._rust_heartbeat.send_if_due)
        due_in = self._rust_heartbeat.due_in
        return self._options.recovery.heartbeat_interval if due_in is None else due_in

    async def _write_statistics(self, connection: Connection, is_last: bool) -> None:
        """Called after each heartbeat, in its thread."""
        if self._statistics is not None:
            write = self._statistics.write if is_last else self._statistics.write_if_due
            await write(connection, self._registration.grace / 3)

    async def _write_due_statistics(self) -> float:
        """Write statistics without heartbeats."""
        statistics = self._statistics
        if statistics is None:
            return RENEW_INTERVAL
        if statistics.is_pending:
            await self._pool.run_statement(lambda connection: statistics.write(connection, STOP_TIMEOUT))
        return statistics.interval

    def _make_maintenance(
        self, run: StatementRunner, is_alive: Callable[[], bool] = lambda: True
    ) -> Maintenance:
        return Maintenance(
            self._maintenance_tasks, run, self._schema, self._clock, pool_id=self._pool.id, is_alive=is_alive
        )

    async def _note_rerun(self, job: Job) -> None:
        async with AsyncExitStack() as stack:
            # A job that has just ended must not be blamed if this one kills the process. One at a time: jobs
            # that start together would all write before any of them has ended.
            with suppress(TimeoutError):
                async with asyncio.timeout(WRITE_TIMEOUT):
                    await stack.enter_async_context(self._rerun_lock)
                    await self._pool.write_outcomes()
            try:
                async with asyncio.timeout(RERUN_TIMEOUT):
                    await self._pool.run_statement(
                        lambda connection: note_rerun(connection, self._schema, self._pool.id, job.id)
                    )
            except Exception as error:  # then the death of this worker does not count against the job
                logger.debug(
                    "task %s (job %d): could not record that it runs again: %s",
                    job.task_identifier,
                    job.id,
                    error,
                    extra=job_fields(job),
                )

    # -- stopping ------------------------------------------------------------------------------------------

    def begin_to_stop(self) -> None:
        """Stop sweeping; heartbeats continue until the pool has ended."""
        for loop in self._loops:
            loop.begin_to_stop()

    async def stop(self) -> None:
        """Stop after the pool has ended. If it still has jobs, its row stays, so that a sweep finds them."""
        await asyncio.gather(*(loop.stop() for loop in self._loops))
        if self._timer is not None:
            self._timer.cancel()
        is_clean = self._pool.is_settled
        if self._heartbeat is not None:
            self._heartbeat.request_stop(deregister=is_clean)
            if self._beating is not None:
                await self._beating.end(within=STOP_TIMEOUT)
            else:
                with suppress(TimeoutError):
                    async with asyncio.timeout(STOP_TIMEOUT):
                        await self._heartbeat_ended.wait()
            await self._stop_statistics()
        else:
            await asyncio.gather(self._deregister_if(is_clean), self._stop_statistics())

    async def _deregister_if(self, is_clean: bool) -> None:
        """Deregister on a connection of the pool, as there is none for heartbeats."""
        if is_clean:
            with suppress(Exception):
                async with asyncio.timeout(STOP_TIMEOUT), self._own_session() as connection:
                    if self._started_at is None:
                        await self._rust_heartbeat.deregister(connection)
                    else:
                        await deregister_pool(connection, self._schema, self._pool.id, self._rust_heartbeat)

    async def _stop_statistics(self) -> None:
        """Write the last statistics. If all runs drain the queue and end, they do the maintenance too."""
        statistics = self._statistics
        if statistics is not None and (statistics.is_pending or (self._pool.once and statistics.has_written)):
            with suppress(Exception):
                async with asyncio.timeout(STOP_TIMEOUT), self._own_session() as connection:
                    await statistics.write(connection, STOP_TIMEOUT)
                    if self._pool.once:
                        await self._make_maintenance(lambda work: work(connection)).run_due()


def _registration(pool: RecoverablePool, options: WorkerOptions, tasks: Sequence[str]) -> Registration:
    return Registration(
        id=pool.id,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=__version__,
        tasks=sorted(tasks),
        concurrency=pool.concurrency,
        heartbeat_interval=options.recovery.heartbeat_interval,
        grace=options.recovery.grace,
    )
