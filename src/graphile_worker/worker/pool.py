"""WorkerPool: one pool of slots with its source, its sink and its listener; starts and stops them in order.

Stopping: no more jobs are fetched and those held go back; running tasks may go on until the abort signal,
then until they are cancelled; every outcome is written; then the connections are let go. A stop by force
skips the waiting. Either way a job that did not end goes back without losing an attempt.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..clock import Clock
from ..db.connection import Pool
from ..db.errors import is_schema_missing, translated_error
from ..db.retry import Backoff, Delays, is_retryable, with_retries
from ..error_text import describe
from ..errors import JobInterruptedError, SchemaTooNewError, WorkerStoppedError
from ..hooks import Hooks
from ..hooks.events import (
    PoolCreated,
    PoolEvicted,
    PoolFatalError,
    WorkerGetJobError,
)
from ..job import Job
from ..migrate.refusals import check_not_newer
from ..migrate.state import read_state
from ..options import WorkerOptions
from ..outcome import Finished, Interrupted
from ..queries.ping import ping
from ..queries.write import Continuation
from ..recovery.lease import Lease
from ..recovery.orphaned_jobs import still_locked
from ..tasks.services import WorkerServices
from ..tasks.task import AnyTask
from ..tasks.threads import TaskThreads
from .execute import Executor
from .failure_log import FailureLog
from .fetcher import Fetcher, FlagSource
from .listener import Listener
from .local_queue import LocalQueue
from .session import Sessions, Statement
from .shutdown import Shutdown
from .sink import Sink
from .slots import Slots
from .source import AdaptiveSource, JobSource

FIND_OUT = Delays(0.1, 1.0)
LOOK_AGAIN_AFTER = 1.0  # seconds between two looks into the ledger, however many migrations are announced
REFRESH_TASKS = 60.0  # seconds; another process may have removed and re-made the row of a task name
SESSIONS_WITH_LISTENER = 3
NOTHING_LEFT = "nothing is left to run"

T = TypeVar("T")
logger = logging.getLogger("graphile_worker.worker")


class WorkerPool:
    """Runs jobs until it is stopped (`once`: until there is nothing left to run)."""

    def __init__(
        self,
        options: WorkerOptions,
        pool: Pool,
        tasks: Mapping[str, AnyTask],
        services: WorkerServices,
        hooks: Hooks,
        clock: Clock,
        *,
        forbidden_flags: FlagSource = None,
        once: bool = False,
        reserved: int = 0,
        has_queue_indexes: bool = True,
    ) -> None:
        """`reserved`: connections of `pool` that somebody else keeps for as long as the pool lives."""
        self.id = f"{'otpool' if once else 'pool'}-{secrets.token_hex(9)}"
        self.once = once
        self._options = options
        self._database = pool
        self._services = services
        self._events = hooks.events
        self._clock = clock
        self._identifiers = tuple(tasks)
        self._threads = TaskThreads(options.concurrency)
        schema = options.schema_name
        self.lease = Lease(self._lapsed)
        """Whether this pool may touch its jobs; whoever shows that it lives keeps it open."""
        self._sessions = Sessions(
            pool, schema, self.id, self.lease, prepared_statements=options.prepared_statements
        )
        self._fetch_session = fetch_session = self._sessions.open()
        # A small pool of the caller's keeps one connection for tasks: fetching and writing share one then.
        shared = pool.get_max_size() < SESSIONS_WITH_LISTENER + 1 + reserved
        self._write_session = write_session = fetch_session if shared else self._sessions.open()
        fetching = FailureLog(
            clock, schema, "jobs cannot be fetched: %s; trying again", "jobs are fetched again"
        )
        self._writing = FailureLog(
            clock,
            schema,
            "outcomes could not be written and are kept: %s",
            "outcomes are written again",
            level=logging.ERROR,
        )
        self._fetcher = Fetcher(
            fetch_session,
            schema,
            pool_id=self.id,
            identifiers=self._identifiers,
            forbidden_flags=forbidden_flags,
            clock=clock,
            use_local_time=options.use_local_time,
            has_queue_indexes=has_queue_indexes,
            trouble=None if once else fetching,
        )
        self._sink = Sink(
            write_session,
            schema,
            self._events,
            clock,
            pool_id=self.id,
            complete_delay=options.complete_job_batch_delay,
            fail_delay=options.fail_job_batch_delay,
            interrupted_delay=options.interrupted_job_retry_delay,
            on_error=self._write_failed,
            on_written=self._writing.over,
        )
        self._source = self._make_source()
        self._executor = Executor(tasks, services, self._threads, hooks)
        self._slots: Slots | None = None
        self._listener: Listener | None = None
        self._background: list[asyncio.Task[None]] = []
        self._is_closed = False
        self._seen_ledger: tuple[int | None, ...] | None = None
        self._ledger_seen_at = self._migrated_at = -math.inf
        self._is_migration_suspected = False
        self._is_ledger_watched = False
        self._shutdown = Shutdown(
            self.id,
            options,
            self._events,
            clock,
            services=services,
            sessions=self._sessions,
            source=self._source,
            sink=self._sink,
            end_background=self._end_background,
            close=self._close,
        )

    # -- starting ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register the tasks and begin to run jobs."""
        self._events.emit(PoolCreated(pool_id=self.id))
        await self._fetcher.register()
        self._slots = self._shutdown.slots = Slots(
            self._options.concurrency,
            self._source,
            self._executor,
            self._sink.put,
            self._events,
            self._identifiers,
            on_fatal=lambda error: self._die(error, "run"),
        )
        self._sink.start(
            go_on=self._continuation,
            adopt=self._adopt,
            freed=self._source.pulse,
            on_full=self._slots.hold_up,
            on_room=self._slots.go_on,
        )
        self._start_background(
            self._sink.watch(lambda error: self._die(error, "write")), "watch over the sink"
        )
        if not self.once:
            self._start_listening()
            self._start_background(self._poll(), "poll")
            self._start_background(self._refresh_tasks(), "task names")
        self._slots.start()
        self._start_background(self._end_when_slots_end(), "end of slots")
        self._source.start(self._slots)
        if self.once:
            self._start_background(self._drain(), "once")

    async def wait(self) -> None:
        """Until the pool has ended; raises if it died of an error or had to be stopped by force."""
        await self._shutdown.wait()

    @property
    def held(self) -> list[int]:
        """The ids of the jobs that are locked by this pool: those that run and those locked ahead."""
        return list(self._sessions.holdings.jobs)

    @property
    def is_settled(self) -> bool:
        """Whether it is certain that nothing is locked by this pool."""
        holdings = self._sessions.holdings
        return not holdings.jobs and not holdings.in_doubt and not holdings.given_up

    def running_report(self) -> tuple[int, dict[int, float]]:
        """How many jobs are held, and when each running job was started; may be called from any thread."""
        slots = self._slots
        return self._sessions.holdings.count, slots.running_since if slots is not None else {}

    @property
    def running(self) -> list[Job]:
        """The jobs that run now."""
        return self._slots.running if self._slots is not None else []

    def _make_source(self) -> JobSource:
        options = self._options
        if options.local_queue is not None and not self._fetcher.has_flags:
            if options.local_queue.size < options.concurrency:
                logger.warning(
                    "local_queue.size is %d, less than concurrency, %d: some slots will often have no job",
                    options.local_queue.size,
                    options.concurrency,
                )
            return LocalQueue(
                self._fetcher, self._events, self._clock, options.local_queue, on_error=self._fetch_failed
            )
        # Forbidden flags must be seen by every fetch, so they go past a local queue, as in Node.
        return AdaptiveSource(
            self._fetcher,
            self._events,
            self._clock,
            concurrency=options.concurrency,
            prefetch=0.0 if options.local_queue is not None else options.prefetch,
            on_error=self._fetch_failed,
            frees_queues=lambda: self._sink.frees_queues,
        )

    def _start_listening(self) -> None:
        if self._database.get_max_size() < SESSIONS_WITH_LISTENER:
            logger.warning(
                "the worker has %d connections; with fewer than %d it cannot listen and only polls",
                self._database.get_max_size(),
                SESSIONS_WITH_LISTENER,
            )
            return
        self._listener = self._shutdown.listener = Listener(
            self._database,
            self._events,
            self._clock,
            pool_id=self.id,
            ping=self._ping,
            on_jobs=self._source.pulse,
            on_migration=self._migrated,
            on_ready=self._listening,
            is_tuned=self._options.prepared_statements,
        )
        self._listener.start()

    def _listening(self) -> None:
        """What was announced while nobody listened, jobs or a migration, was not heard."""
        self._source.pulse()
        self._suspect_migration()

    def _suspect_migration(self) -> None:
        """Look into the ledger, once for everybody who asks for it meanwhile."""
        self._is_migration_suspected = True
        if not self._is_ledger_watched:
            self._is_ledger_watched = True
            self._start_background(self._check_revision(), "revision")

    async def _check_revision(self) -> None:
        """While changes of the schema are announced, look; but not more than once a second."""
        backoff = Backoff()
        try:
            while self._is_migration_suspected:
                wait = self._ledger_seen_at + LOOK_AGAIN_AFTER - self._clock.monotonic()
                if wait > 0:
                    await self._clock.sleep(wait)
                self._is_migration_suspected = False
                self._ledger_seen_at = self._clock.monotonic()
                try:
                    await self._look_into_ledger()
                    backoff.reset()
                except SchemaTooNewError as error:
                    self._die(error, "migrate")
                except Exception as error:
                    logger.debug("could not look at the schema's revision: %s", error)
                    self._is_migration_suspected = is_retryable(error) and not self._is_closed
                    if self._is_migration_suspected:
                        await self._clock.sleep(backoff.next_delay(error))
        finally:
            self._is_ledger_watched = False

    async def _look_into_ledger(self) -> None:
        schema = self._options.schema_name
        state = await self.run_statement(lambda connection: read_state(connection, schema))
        seen = (state.jobs_table, state.revision, state.breaking_revision)
        before, self._seen_ledger = self._seen_ledger, seen
        if seen == before:
            return
        check_not_newer(state, schema)
        if before is not None:
            self._doubt_schema()

    async def _ping(self, channel: str) -> None:
        await self._fetch_session.run(lambda connection: ping(connection, channel))

    def _start_background(self, coroutine: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"graphile-worker {name}")
        self._background = [each for each in self._background if not each.done()] + [task]

    # -- while it runs -------------------------------------------------------------------------------------

    def nudge(self, count: int = 1) -> None:
        """Look for jobs now."""
        self._source.pulse(count)

    async def _poll(self) -> None:
        while True:
            await self._clock.sleep(self._options.poll_interval)
            self._source.poll()

    async def _refresh_tasks(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_TASKS)
            try:
                await self._fetcher.register()
            except Exception as error:
                self._fetch_failed(error)

    async def run_statement(self, statement: Statement[T]) -> T:
        """Run one statement on a connection that tasks cannot keep from us; nothing is retried."""
        if self._is_closed:
            raise WorkerStoppedError("the worker has ended")
        return await self._write_session.run(statement)

    def before_rerun(self, function: Callable[[Job], Awaitable[None]]) -> None:
        """Have this called before a job is run whose last worker died."""
        self._executor.before_rerun = function

    def _lapsed(self) -> None:
        """Others may have taken the pool for dead."""
        self._start_background(self._find_out_what_is_held(), "what is held")

    async def _find_out_what_is_held(self) -> None:
        """Drop the jobs that were given to others; then let the lease open."""
        epoch = self.lease.epoch
        jobs = list(self._sessions.holdings.jobs.values())
        still = await with_retries(
            lambda: self.run_statement(
                lambda connection: still_locked(
                    connection, self._options.schema_name, self.id, [job.id for job in jobs]
                )
            ),
            clock=self._clock,
            max_attempts=sys.maxsize,
            fallback=FIND_OUT,
        )
        holdings = self._sessions.holdings
        lost = [job for job in jobs if job.id not in still and holdings.jobs.get(job.id) is job]
        holdings.lose(lost)
        if lost:
            self._events.emit(PoolEvicted(pool_id=self.id, jobs=lost))
            for job in self._source.drop(holdings.is_lost):
                holdings.forget(job)
            if self._slots is not None:
                self._slots.cancel_lost(holdings.is_lost)
        holdings.in_doubt = True  # a fetch that nobody waits for any more may have been late
        self.lease.settle(epoch)
        self._source.pulse()
        with suppress(Exception):  # the next statement tries it again
            await self._sessions.reclaim()

    async def _drain(self) -> None:
        """Run everything that can run now, named queues to their end, then stop."""
        assert self._slots is not None  # noqa: S101 - started before
        while True:
            before = self._sink.count
            await self._source.look()
            await self._settle(self._slots)
            if self._sink.count == before or self._shutdown.has_begun:
                break
        self._shutdown.begin(NOTHING_LEFT, quietly=True)

    async def _settle(self, slots: Slots) -> None:
        """Until nothing runs, nothing is held and everything is written; that may bring more jobs in turn."""
        while True:
            await slots.idle()
            await self._source.quiet()
            await self._sink.flush()
            # A job that the last write brought along may have run by now.
            is_settled = self._source.is_quiet and slots.is_idle and self._sink.is_written
            if is_settled or self._shutdown.has_begun:
                return

    async def _end_when_slots_end(self) -> None:
        assert self._slots is not None  # noqa: S101 - started before
        await self._slots.wait()
        if not self._shutdown.has_begun:
            error = self._slots.error or WorkerStoppedError("every slot of the worker has ended")
            self._die(error, "run")

    def _continuation(self) -> Continuation | None:
        return self._fetcher.continuation() if self._source.may_go_on else None

    def _adopt(self, jobs: Sequence[Job]) -> None:
        if not self._source.is_released:
            self._source.adopt(jobs)
            return
        for job in jobs:  # locked while the pool was stopping: straight back
            self._sink.put(Finished(job, Interrupted(JobInterruptedError("")), "", 0.0))

    def _migrated(self, number: int, breaking: bool) -> None:
        """A change of a schema was announced.

        Any role of the database may say so, and of any schema: only what stands in our own ledger stops us.
        Until that is read no job is touched with what was learnt before, for the schema may have been dropped
        and installed again; but a flood of such messages does not keep us from working.
        """
        now = self._clock.monotonic()
        if now >= self._migrated_at + LOOK_AGAIN_AFTER:
            self._migrated_at = now
            self._doubt_schema()
        self._suspect_migration()

    def _doubt_schema(self) -> None:
        """Nothing that was learnt of the schema holds, neither ids of tasks nor that held jobs are there."""
        self._fetcher.forget()
        self.lease.doubt()

    def _fetch_failed(self, error: BaseException) -> None:
        self._events.emit(WorkerGetJobError(pool_id=self.id, error=error))
        if self.once:
            self._die(translated_error(error, schema=self._options.schema_name) or error, "getJob")
        elif is_schema_missing(error):
            self._doubt_schema()

    def _write_failed(self, error: BaseException) -> None:
        self._writing.failed(error)
        if is_schema_missing(error) and not self.once:
            self._doubt_schema()

    def _die(self, error: BaseException, action: str) -> None:
        if self._shutdown.fatal is None:
            self._shutdown.fatal = error
            if not (self.once and action == "getJob"):
                self._events.emit(PoolFatalError(pool_id=self.id, error=error, action=action))
        self._shutdown.begin(f"the worker cannot go on: {describe(error)}")

    # -- stopping ------------------------------------------------------------------------------------------

    def begin_shutdown(self, message: str) -> None:
        """Stop gracefully: take no more jobs, let running ones end, write everything; see `wait`."""
        self._shutdown.begin(message)

    async def discard(self) -> None:
        """End it although it did not start, or not wholly."""
        self._shutdown.begin("the worker could not start", quietly=True)
        with suppress(Exception):
            await self.wait()

    def force_shutdown(self, message: str) -> None:
        """Cancel what runs now and give it back; see `wait`."""
        self._shutdown.force(message)

    async def salvage(self, message: str) -> None:
        """Every task of the event loop was cancelled, ours too: write what is known, give back the rest."""
        self._executor.interruption = self._executor.interruption or f"Interrupted: {message}"
        if not await self._shutdown.cancelled():
            return
        self._is_closed = False  # an ending that was cancelled has closed it
        if self.lease.is_in_doubt:  # the task that was to find out is cancelled too, and writing waits for it
            self._lapsed()
        await self._sink.revive()
        await self._shutdown.begin_anew(message)

    async def _end_background(self) -> None:
        others = [task for task in self._background if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _close(self) -> None:
        self._is_closed = True
        await self._end_background()
        self._threads.close()
        for stuck in self._threads.running:
            logger.warning("a task in a thread cannot be ended and is left behind: %s", stuck)
        await self._sessions.close()
