"""Recovery: all that keeps a worker's jobs its own while it lives, and gives them to others when it does not.

The runner holds one for each pool. Before the first job is locked the pool is written down, so that from then
on somebody notices if it dies. Its signs of life come from a thread with a connection of its own; if the
caller gave a pool of connections, from one of these on the worker's own event loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Protocol, TypeVar

from ..clock import Clock, uptime
from ..db.connection import Connection, Pool
from ..db.dsn import Dsn
from ..db.errors import sqlstate_of
from ..hooks import Hooks
from ..job import Job
from ..options import SMALLEST_POOL_FOR_RECOVERY, WorkerOptions
from ..version import __version__
from .connections import from_dsn, from_pool
from .heartbeat import UNAVAILABLE, Heartbeat
from .lease import Lease
from .orphaned_jobs import note_rerun, renew_locks
from .periodic import Periodic
from .rust_workers import BEAT_INTERVAL, RustWorkers
from .sweeper import Sweeper
from .worker_rows import WorkerCard, deregister_worker, register_worker

LEASE_SHARE = 2 / 3  # of the grace: jobs are not touched any more well before others may take them
ONCE_DELAY = 0.5  # seconds until a run that may be over soon opens the connection for its signs of life
RENEW_INTERVAL = 1800.0  # seconds between two looks for locks that are more than an hour old
RERUN_WITHIN = 2.0  # seconds to note that a job is run again
STOP_WITHIN = 3.0  # seconds for the goodbye

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.recovery")


class HoldsJobs(Protocol):
    """A pool, as recovery sees it."""

    id: str
    once: bool

    @property
    def lease(self) -> Lease: ...

    @property
    def held(self) -> list[int]: ...

    @property
    def is_settled(self) -> bool: ...

    async def run_statement(self, statement: Callable[[Connection], Awaitable[T]]) -> T: ...

    def before_rerun(self, function: Callable[[Job], Awaitable[None]]) -> None: ...


class Recovery:
    """Signs of life, sweeps and lock renewals of one pool."""

    def __init__(
        self,
        pool: HoldsJobs,
        options: WorkerOptions,
        database: Pool,
        dsn: Dsn | None,
        tasks: Sequence[str],
        hooks: Hooks,
        clock: Clock,
        *,
        has_tables: bool,
    ) -> None:
        self._pool = pool
        self._options = options
        self._schema = options.schema_name
        self._database = database
        self._dsn = dsn
        self._clock = clock
        self._has_tables = has_tables
        self._card = WorkerCard(
            id=pool.id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            tasks=sorted(tasks),
            concurrency=options.concurrency,
            heartbeat_interval=options.heartbeat_interval,
            grace=options.recovery_grace,
        )
        self._beside_rust = RustWorkers(
            self._schema, pool.id, self._card.pid, answer_within=self._card.grace / 3
        )
        self._started_at: datetime | None = None
        self._liveness: Heartbeat | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._first_sign = asyncio.Event()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._loops = [Periodic("renewing locks", self._renew, clock, first_after=RENEW_INTERVAL)]
        if options.recovery and has_tables and not pool.once:
            sweeper = Sweeper(
                pool.run_statement,
                options,
                hooks,
                clock,
                pool_id=pool.id,
                is_in_reach=lambda: pool.lease.is_open,
            )
            self._loops.append(sweeper.loop)

    # -- starting ------------------------------------------------------------------------------------------

    @staticmethod
    def connections_kept(options: WorkerOptions, database: Pool, dsn: Dsn | None) -> int:
        """How many connections of the caller's pool this takes for itself."""
        fits = dsn is None and database.get_max_size() >= SMALLEST_POOL_FOR_RECOVERY
        return 1 if options.recovery and fits else 0

    async def register(self) -> None:
        """Write the pool down before it locks a job; or say that nobody will notice if it dies."""
        if not self._options.recovery:
            return
        if not self._has_tables:
            self._is_off("the tables for it are not in the database")
            return
        if self._dsn is None and self._database.get_max_size() < SMALLEST_POOL_FOR_RECOVERY:
            size = self._database.get_max_size()
            self._is_off(f"pg_pool has {size} connections, and {SMALLEST_POOL_FOR_RECOVERY} are needed")
            return
        if self._dsn is not None and self._options.max_pool_size < SMALLEST_POOL_FOR_RECOVERY:
            size = self._options.max_pool_size
            self._is_off(f"max_pool_size is {size}, and {SMALLEST_POOL_FOR_RECOVERY} are needed")
            return
        sent_at = uptime()
        try:
            async with self._database.acquire() as connection:
                self._started_at = await register_worker(
                    connection, self._schema, self._card, liveness="lock"
                )
        except Exception as error:
            if sqlstate_of(error) not in UNAVAILABLE:
                raise
            self._is_off(str(error))
            return
        self._pool.lease.begin(self._card.grace * LEASE_SHARE, sent_at)
        self._pool.before_rerun(self._note_rerun)
        if self._dsn is None:
            # The first job may block the loop, and then nobody could take the lock any more.
            self._start_liveness()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._card.grace * LEASE_SHARE):
                    await self._first_sign.wait()

    def start(self) -> None:
        """Begin to show signs of life and to look for others."""
        for loop in self._loops:
            loop.start()
        if self._liveness is not None:
            return
        if self._started_at is not None:
            if self._pool.once:
                delay = min(ONCE_DELAY, self._card.heartbeat_interval / 2)
                self._timer = asyncio.get_running_loop().call_later(delay, self._start_liveness)
            else:
                self._start_liveness()
        else:
            alone = Periodic("heartbeats beside Rust", self._beat_beside_rust, self._clock, first_after=1.0)
            self._loops.append(alone)
            alone.start()

    def _is_off(self, reason: str) -> None:
        logger.warning(
            "recovery is off: %s; if this worker is killed, its jobs stay locked for four hours", reason
        )

    def _start_liveness(self) -> None:
        assert self._started_at is not None  # noqa: S101 - registered before
        prepared = self._options.prepared_statements
        dsn = self._dsn
        self._liveness = Heartbeat(
            self._card,
            self._schema,
            from_pool(self._database) if dsn is None else from_dsn(dsn, prepared_statements=prepared),
            self._beside_rust,
            started_at=self._started_at,
            on_sign=self._sign,
            on_unavailable=self._pool.lease.lift,
        )
        if dsn is None:
            self._task = asyncio.get_running_loop().create_task(
                self._liveness.run(), name="graphile-worker liveness"
            )
            self._task.add_done_callback(lambda _: self._ended.set())
        else:
            loop = asyncio.get_running_loop()
            threading.Thread(
                target=self._run_in_thread,
                args=(self._liveness, loop),
                name="graphile-worker liveness",
                daemon=True,
            ).start()

    def _run_in_thread(self, liveness: Heartbeat, loop: asyncio.AbstractEventLoop) -> None:
        try:
            asyncio.run(liveness.run())
        except Exception:
            logger.exception("the signs of life of this worker have ended")
        with suppress(RuntimeError):  # the worker's loop has ended before
            loop.call_soon_threadsafe(self._ended.set)

    # -- while it runs -------------------------------------------------------------------------------------

    def _sign(self, sent_at: float, was_swept: bool) -> bool:
        """A heartbeat arrived; called in the thread of the liveness."""
        try:
            self._pool.lease.prolong(sent_at, was_swept=was_swept)
        except RuntimeError:  # the worker's loop is closed
            return False
        if self._dsn is None:
            self._first_sign.set()
        return True

    async def _renew(self) -> float:
        held = self._pool.held
        if held:
            now = self._clock.now() if self._options.use_local_time else None
            await self._pool.run_statement(
                lambda connection: renew_locks(connection, self._schema, self._pool.id, held, now)
            )
        return RENEW_INTERVAL

    async def _beat_beside_rust(self) -> float:
        await self._pool.run_statement(self._beside_rust.beat_if_due)
        return BEAT_INTERVAL

    async def _note_rerun(self, job: Job) -> None:
        try:
            async with asyncio.timeout(RERUN_WITHIN):
                await self._pool.run_statement(
                    lambda connection: note_rerun(connection, self._schema, self._pool.id, job.id)
                )
        except Exception as error:  # then a death of this worker does not count against the job
            logger.debug("could not note that job %d is run again: %s", job.id, error)

    # -- stopping ------------------------------------------------------------------------------------------

    def begin_to_stop(self) -> None:
        """Sweep no more; signs of life go on until the pool has ended."""
        for loop in self._loops:
            loop.begin_to_stop()

    async def stop(self) -> None:
        """The pool has ended. If it holds nothing any more its row goes too; else others shall find it."""
        await asyncio.gather(*(loop.stop() for loop in self._loops))
        if self._timer is not None:
            self._timer.cancel()
        is_clean = self._pool.is_settled
        if self._liveness is not None:
            self._liveness.ask_to_stop(deregister=is_clean)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_WITHIN):
                    await self._ended.wait()
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait((self._task,))
        elif is_clean:
            with suppress(Exception):
                async with asyncio.timeout(STOP_WITHIN):
                    await self._leave()

    async def _leave(self) -> None:
        """Without a connection for signs of life: one of the pool will do."""
        async with self._database.acquire() as connection:
            if self._started_at is not None:
                await deregister_worker(connection, self._schema, self._pool.id)
            await self._beside_rust.leave(connection)
