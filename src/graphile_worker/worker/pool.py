"""WorkerPool: one pool of slots with its source, its sink and its listener; starts and stops them in order.

Stopping: no more jobs are fetched and those held go back; running tasks may go on until the abort signal,
then until they are cancelled; every outcome is written; then the connections are let go. A stop by force
skips the waiting. Either way a job that did not end goes back without losing an attempt.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from ..clock import Clock
from ..db.connection import Pool
from ..errors import JobInterruptedError, SchemaTooNewError, WorkerStoppedError
from ..hooks import Hooks
from ..hooks.events import (
    PoolCreated,
    PoolFatalError,
    PoolForcefulShutdown,
    PoolForcefulShutdownComplete,
    PoolForcefulShutdownError,
    PoolGracefulShutdown,
    PoolGracefulShutdownComplete,
    PoolGracefulShutdownError,
    PoolGracefulShutdownWorkerError,
    PoolReleased,
    WorkerGetJobError,
)
from ..job import Job
from ..migrate import SUPPORTED_REVISION
from ..options import WorkerOptions
from ..queries.write_outcomes import Continuation
from ..tasks.services import WorkerServices
from ..tasks.task import AnyTask
from ..tasks.threads import TaskThreads
from .execute import Executor
from .fetcher import Fetcher, FlagSource
from .listener import Listener
from .local_queue import LocalQueue
from .outcome import Finished, Interrupted
from .session import Session
from .sink import Sink
from .slots import Slots
from .source import AdaptiveSource, JobSource

FORCED_WAIT = 5.0  # seconds that cancelled tasks have to clean up
LAST_WRITE = 10.0  # seconds for the outcomes to reach a database that is away while we stop
REFRESH_TASKS = 60.0  # seconds; another process may have removed and re-made the row of a task name
SESSIONS_WITH_LISTENER = 3

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
    ) -> None:
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
        fetch_session = self._session()
        # A small pool of the caller's keeps one connection for tasks: fetching and writing share one then.
        shared = pool.get_max_size() < SESSIONS_WITH_LISTENER + 1
        write_session = fetch_session if shared else self._session()
        self._sessions = [fetch_session] if shared else [fetch_session, write_session]
        self._fetcher = Fetcher(
            fetch_session,
            schema,
            pool_id=self.id,
            identifiers=self._identifiers,
            forbidden_flags=forbidden_flags,
            clock=clock,
            use_local_time=options.use_local_time,
        )
        self._sink = Sink(
            write_session,
            schema,
            self._events,
            clock,
            pool_id=self.id,
            complete_delay=options.complete_job_batch_delay,
            fail_delay=options.fail_job_batch_delay,
            on_error=self._write_failed,
        )
        self._source = self._make_source()
        self._executor = Executor(tasks, services, self._threads, hooks)
        self._slots: Slots | None = None
        self._listener: Listener | None = None
        self._background: list[asyncio.Task[None]] = []
        self._stopping: asyncio.Task[None] | None = None
        self._forced = asyncio.Event()
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fatal: BaseException | None = None

    # -- starting ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register the tasks and begin to run jobs."""
        self._events.emit(PoolCreated(pool_id=self.id))
        try:
            await self._fetcher.register()
        except BaseException:
            await self._close_sessions()
            raise
        self._slots = Slots(
            self._options.concurrency,
            self._source,
            self._executor,
            self._sink.put,
            self._events,
            self._identifiers,
        )
        self._sink.start(go_on=self._continuation, adopt=self._adopt, freed=self._source.pulse)
        if not self.once:
            self._start_listening()
            self._start_background(self._poll(), "poll")
            self._start_background(self._refresh_tasks(), "task names")
        self._slots.start()
        self._source.start(self._slots)
        self._start_background(self._end_when_slots_end(), "end of slots")
        if self.once:
            self._start_background(self._drain(), "once")

    async def wait(self) -> None:
        """Until the pool has ended; raises if it died of an error or had to be stopped by force."""
        await asyncio.shield(self._finished)

    @property
    def running(self) -> list[Job]:
        """The jobs that run now."""
        return self._slots.running if self._slots is not None else []

    def _session(self) -> Session:
        options = self._options
        return Session(self._database, options.schema_name, prepared_statements=options.prepared_statements)

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
        )

    def _start_listening(self) -> None:
        if self._database.get_max_size() < SESSIONS_WITH_LISTENER:
            logger.warning(
                "pg_pool has %d connections; with less than %d the worker cannot listen and only polls",
                self._database.get_max_size(),
                SESSIONS_WITH_LISTENER,
            )
            return
        self._listener = Listener(
            self._database,
            self._events,
            self._clock,
            pool_id=self.id,
            on_jobs=self._source.pulse,
            on_migration=self._migrated,
            on_ready=self._source.pulse,
        )
        self._listener.start()

    def _start_background(self, coroutine: Any, name: str) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, name=f"graphile-worker {name}")
        self._background.append(task)

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

    async def _drain(self) -> None:
        """Run everything that can run now, named queues to their end, then stop."""
        assert self._slots is not None  # noqa: S101 - started before
        while True:
            before = self._sink.count
            await self._source.look()
            await self._settle(self._slots)
            if self._sink.count == before:
                break
        self._stop("nothing is left to run", quietly=True)

    async def _settle(self, slots: Slots) -> None:
        """Until nothing runs, nothing is held and everything is written; that may bring more jobs in turn."""
        while True:
            await slots.idle()
            await self._source.quiet()
            await self._sink.flush()
            if self._source.is_quiet and slots.is_idle:
                return

    async def _end_when_slots_end(self) -> None:
        assert self._slots is not None  # noqa: S101 - started before
        await self._slots.wait()
        if self._stopping is None:
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
        if breaking and number > SUPPORTED_REVISION:
            self._die(
                SchemaTooNewError(
                    f"the schema was upgraded to revision {number}, which this version does not understand "
                    f"(it knows up to {SUPPORTED_REVISION}); install a newer graphile-worker"
                ),
                "migrate",
            )

    def _fetch_failed(self, error: BaseException) -> None:
        self._events.emit(WorkerGetJobError(worker_id=self.id, error=error))
        if self.once:
            self._die(error, "getJob")

    def _write_failed(self, error: BaseException) -> None:
        logger.error("outcomes could not be written and are kept: %s", error)

    def _die(self, error: BaseException, action: str) -> None:
        if self._fatal is None:
            self._fatal = error
            if not (self.once and action == "getJob"):
                self._events.emit(PoolFatalError(pool_id=self.id, error=error, action=action))
        self._stop(f"the worker cannot go on: {error}")

    # -- stopping ------------------------------------------------------------------------------------------

    def begin_shutdown(self, message: str) -> None:
        """Stop gracefully: take no more jobs, let running ones end, write everything; see `wait`."""
        self._stop(message)

    def force_shutdown(self, message: str) -> None:
        """Cancel what runs now and give it back; see `wait`."""
        if self._finished.done():
            return
        if not self._forced.is_set():
            self._events.emit(PoolForcefulShutdown(pool_id=self.id, message=message))
            self._forced_message = message
            self._forced.set()
        self._stop(message)

    _forced_message = ""

    def _stop(self, message: str, *, quietly: bool = False) -> None:
        if self._stopping is None:
            if not quietly or not self.once:
                self._events.emit(PoolGracefulShutdown(pool_id=self.id, message=message))
            self._stopping = asyncio.get_running_loop().create_task(
                self._shut_down(message), name="graphile-worker shutdown"
            )

    async def _shut_down(self, message: str) -> None:
        error: BaseException | None = self._fatal
        try:
            await self._deactivate()
            left = await self._end_running(message)
            await self._write_rest()
            if left and error is None:
                names = ", ".join(f"{job.task_identifier} (job {job.id})" for job in left)
                error = WorkerStoppedError(f"{message}; these tasks did not end in time: {names}")
            self._tell_shut_down()
        except Exception as failure:
            self._events.emit(PoolGracefulShutdownError(pool_id=self.id, error=failure))
            if self._forced.is_set():
                self._events.emit(PoolForcefulShutdownError(pool_id=self.id, error=failure))
            error = error or failure
        finally:
            await self._close()
        self._events.emit(PoolReleased(pool_id=self.id))
        await self._events.drain()
        if self._finished.done():
            return
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)
            self._finished.exception()  # whoever waits gets it; nobody waiting is no reason for a warning

    async def _deactivate(self) -> None:
        if self._slots is not None:
            self._slots.release()
        listening = self._listener.stop() if self._listener is not None else asyncio.sleep(0)
        released, _ = await asyncio.gather(
            asyncio.wait_for(self._source.release(), LAST_WRITE), listening, return_exceptions=True
        )
        if isinstance(released, BaseException):
            raise WorkerStoppedError(f"jobs locked ahead could not be given back: {released}") from released

    async def _end_running(self, message: str) -> list[Job]:
        """Wait for running tasks as long as allowed, then cancel them; those that would not even then."""
        slots, options = self._slots, self._options
        if slots is None:
            return []
        grace = max(options.grace, options.graceful_shutdown_abort_timeout)
        if not await self._slots_end(within=options.graceful_shutdown_abort_timeout):
            self._services.abort_signal.set(message)
            await self._slots_end(within=grace - options.graceful_shutdown_abort_timeout)
        reason = f"Interrupted: {self._forced_message or message}"
        cancelled = slots.running
        slots.cancel(reason)
        self._services.abort_signal.set(message)
        for job in cancelled:
            self._events.emit(
                PoolGracefulShutdownWorkerError(pool_id=self.id, error=JobInterruptedError(reason), job=job)
            )
        if not await self._slots_end(within=FORCED_WAIT, even_if_forced=True):
            left = slots.running
            for finished in slots.abandon(reason):
                self._sink.put(finished)
            return left
        return []

    async def _slots_end(self, *, within: float, even_if_forced: bool = False) -> bool:
        """Whether all slots ended in that time; a stop by force cuts the waiting short."""
        assert self._slots is not None  # noqa: S101 - checked by the caller
        ended = asyncio.ensure_future(self._slots.wait())
        waiting: list[asyncio.Future[Any]] = [ended]
        if not even_if_forced:
            waiting.append(asyncio.ensure_future(self._forced.wait()))
        await asyncio.wait(waiting, timeout=max(within, 0.0), return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiting:
            waiter.cancel()
        return ended.done() and not ended.cancelled()

    async def _write_rest(self) -> None:
        try:
            async with asyncio.timeout(LAST_WRITE):
                await self._sink.close()
        except TimeoutError:
            lost = self._sink.abandon()
            raise WorkerStoppedError(
                f"the outcomes of {lost} jobs could not be written within {LAST_WRITE:.0f} s: the database "
                "is away; these jobs stay locked by this worker and run again once it counts as dead"
            ) from None

    def _tell_shut_down(self) -> None:
        self._events.emit(PoolGracefulShutdownComplete(pool_id=self.id))
        if self._forced.is_set():
            self._events.emit(PoolForcefulShutdownComplete(pool_id=self.id))

    async def _close(self) -> None:
        for task in self._background:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._threads.close()
        for stuck in self._threads.running:
            logger.warning("a thread could not be ended and is left behind: %s", stuck)
        await self._close_sessions()

    async def _close_sessions(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions), return_exceptions=True)
