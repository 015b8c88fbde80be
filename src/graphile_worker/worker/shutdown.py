"""How a pool ends: by a shutdown, or after its lease has lapsed.

`Shutdown`: stop fetching, return prefetched jobs, let running tasks end, write all outcomes, close. A
graceful one waits for running tasks until the abort signal, then until the grace is over, and cancels those
that are left. A forced one cancels them at once. Either way a job that did not end is returned without using
up an attempt. No step is skipped because an earlier one failed; errors are raised by `wait`.

`EvictionCheck`: after the lease lapsed, find out which jobs the pool still has. Other workers may have
declared the pool dead and recovered its jobs. Such jobs are dropped here: those that were prefetched are
forgotten, those that run are cancelled, and their outcomes are not written. A job whose row is gone, and
whose write got no answer, counts as written: this pool has most likely deleted it itself.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from ..database.connections.retry import Delays, is_refusal, with_retries
from ..errors import JobInterruptedError, LeakedTasksError, WorkerStoppedError
from ..errors.text import message_of
from ..hooks.events import (
    PoolEvicted,
    PoolForcefulShutdown,
    PoolForcefulShutdownComplete,
    PoolForcefulShutdownError,
    PoolGracefulShutdown,
    PoolGracefulShutdownComplete,
    PoolGracefulShutdownError,
    PoolGracefulShutdownWorkerError,
    PoolReleased,
)
from ..hooks.faults import is_our_end
from ..recovery.orphaned_jobs import gone_jobs, still_ours
from ..tasks.services import WorkerServices
from ..values.job import Job
from .context import BackgroundTasks, PoolContext
from .control.listener import Listener
from .lanes import Lanes
from .session import LockedJobs, Sessions, Statement
from .write.sink import Sink

FORCED_WAIT = 5.0  # seconds that cancelled tasks have to clean up
LAST_WRITE = 10.0  # seconds, whatever the grace, to write outcomes while the database is unavailable
MIN_OBSERVER_TIME = 1.0  # seconds, whatever the grace, for observers to end
RETURN_RETRIES = Delays(0.1, 0.5)
RESUME_AFTER = 0.5  # seconds

logger = logging.getLogger("graphile_worker.worker")


class Shutdown:
    """Shuts down one pool and holds its result: when it has ended, and with which error."""

    def __init__(
        self,
        context: PoolContext,
        services: WorkerServices,
        sessions: Sessions,
        lanes: Lanes,
        sink: Sink,
        background: BackgroundTasks,
        listener: Listener | None,
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """`close` releases threads and connections, as the last step."""
        self._pool_id = context.pool_id
        self._options = context.options
        self._events = context.events
        self._clock = context.clock
        self._services = services
        self._sessions = sessions
        self._lanes = lanes
        self._sink = sink
        self._background = background
        self._listener = listener
        self._close = close
        self.fatal: BaseException | None = None
        """The error of which the pool dies."""
        self._context = copy_context()  # not that of the program that stops the worker
        self._stopping: asyncio.Task[None] | None = None
        self._forced = asyncio.Event()
        self._forced_message = ""
        self._grace_ends = 0.0
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Wait until the pool has ended; raises if it died of an error or tasks leaked."""
        await asyncio.shield(self._finished)

    @property
    def has_begun(self) -> bool:
        """Whether the pool is shutting down or has ended."""
        return self._stopping is not None

    def begin(self, message: str, *, quietly: bool = False) -> None:
        """Shut down gracefully; does nothing if a shutdown has begun."""
        if self._stopping is None:
            if not quietly:
                self._events.emit(PoolGracefulShutdown(pool_id=self._pool_id, message=message))
            self._start(message)

    def force(self, message: str) -> None:
        """Shut down without waiting for tasks."""
        if self._finished.done():
            return
        if not self._forced.is_set():
            self._events.emit(PoolForcefulShutdown(pool_id=self._pool_id, message=message))
            self._forced_message = message
            self._forced.set()
        self.begin(message)

    async def must_resume(self) -> bool:
        """Whether a shutdown is left to do after every task of the event loop was cancelled.

        Waits for the shutdown if it was cancelled. The program may have called `stop` since then, and that
        shutdown is not cancelled. It waits for the sink, which must be restarted first: do not wait for it.
        """
        if self._stopping is not None and self._stopping.cancelling():
            await asyncio.wait((self._stopping,))
        return not self._finished.done()

    async def resume(self, message: str) -> None:
        """Force the shutdown that is under way, or start another one if it was cancelled."""
        if self._finished.done():
            return
        self._forced_message = self._forced_message or message
        self._forced.set()
        stopping = self._stopping
        if stopping is None or stopping.done():
            stopping = self._start(message)
        await asyncio.wait((stopping,))

    def _start(self, message: str) -> asyncio.Task[None]:
        self._stopping = asyncio.get_running_loop().create_task(
            self._shut_down(message), name="graphile-worker shutdown", context=self._context.copy()
        )
        self._stopping.add_done_callback(lambda _: self._ended(message))
        return self._stopping

    def _ended(self, message: str) -> None:
        """Others may have cancelled it; when a program ends, `resume` is faster."""
        if not self._finished.done():
            asyncio.get_running_loop().call_later(RESUME_AFTER, self._start_if_needed, message)

    def _start_if_needed(self, message: str) -> None:
        if not self._finished.done() and self._stopping is not None and self._stopping.done():
            logger.error("the shutdown was cancelled; restarting it")
            self._start(message)

    async def _shut_down(self, message: str) -> None:
        error: BaseException | None = self.fatal
        self._grace_ends = self._clock.monotonic() + self._options.grace
        try:
            for lane in self._lanes:
                lane.slots.release()
            deactivating = asyncio.ensure_future(self._deactivate())  # while tasks end
            leaked_tasks = await self._end_running(message)
            await deactivating
            await self._write_rest()
            if leaked_tasks and error is None:
                error = LeakedTasksError(message, [(job.task_identifier, job.id) for job in leaked_tasks])
            self._emit_complete()
        except BaseException as failure:
            if is_our_end(failure):
                raise
            self._events.emit(PoolGracefulShutdownError(pool_id=self._pool_id, error=failure))
            if self._forced.is_set():
                self._events.emit(PoolForcefulShutdownError(pool_id=self._pool_id, error=failure))
            error = error or failure
        finally:
            await self._close()
        self._events.emit(PoolReleased(pool_id=self._pool_id))
        await self._events._drain(
            max(MIN_OBSERVER_TIME, self._grace_ends - self._clock.monotonic()), unless=self._forced
        )
        if self._finished.done():
            return
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)
            self._finished.exception()  # no warning if it is never awaited

    async def _deactivate(self) -> None:
        """Stop fetching and listening, and return prefetched jobs; `_write_rest` retries what fails here."""
        listening = self._listener.stop() if self._listener is not None else asyncio.sleep(0)
        await asyncio.gather(
            *(self._within_grace(lane.source.release()) for lane in self._lanes),
            asyncio.wait_for(listening, LAST_WRITE),
            return_exceptions=True,
        )

    async def _end_running(self, message: str) -> list[Job]:
        """Wait for running tasks while there is time, then cancel them; the jobs that ignored even that."""
        lanes, options = self._lanes, self._options
        if not lanes.is_started:
            return []
        abort_after = min(options.graceful_shutdown_abort_timeout, options.grace)
        if not await self._wait_for_slots(within=abort_after):
            self._services.abort_signal.set(message)
            await self._wait_for_slots(within=options.grace - abort_after)
        reason = self._forced_message or f"Interrupted: {message}"
        cancelled = lanes.running
        for lane in lanes:
            lane.slots.cancel(reason)
        self._services.abort_signal.set(message)
        for job in cancelled:
            self._events.emit(
                PoolGracefulShutdownWorkerError(
                    pool_id=self._pool_id, error=JobInterruptedError(reason), job=job
                )
            )
        if not await self._wait_for_slots(within=FORCED_WAIT, ignore_force=True):
            left = lanes.running
            for lane in lanes:
                for finished in lane.slots.abandon(reason):
                    self._sink.put(finished)
            return left
        return []

    async def _wait_for_slots(self, *, within: float, ignore_force: bool = False) -> bool:
        """Whether all slots ended in that time; a forced shutdown cuts the wait short."""
        ended = asyncio.ensure_future(self._lanes.ended())
        waiting: list[asyncio.Future[Any]] = [ended]
        if not ignore_force:
            waiting.append(asyncio.ensure_future(self._forced.wait()))
        await asyncio.wait(waiting, timeout=max(within, 0.0), return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiting:
            waiter.cancel()
        return ended.done() and not ended.cancelled()

    async def _write_rest(self) -> None:
        """Write every outcome, then return every job that is still locked by this pool, known or not."""

        async def write() -> None:
            await self._sink.close()
            # Before jobs are returned: a cancelled statement leaves it in doubt what this pool has locked.
            await self._background.cancel()
            await with_retries(
                self._sessions.return_all,
                clock=self._clock,
                max_attempts=sys.maxsize,
                fallback=RETURN_RETRIES,
            )

        try:
            await self._within_grace(write())
        except TimeoutError:
            locked_jobs = self._sessions.locked_jobs
            left = len(locked_jobs.jobs) + len(locked_jobs.unsettled)
            self._sink.abandon()
            raise WorkerStoppedError(
                f"{self._database_problem()}: {left} jobs could not be written or returned; they stay locked "
                f"by this worker ({self._pool_id}) and run again once it is declared dead"
            ) from None

    def _database_problem(self) -> str:
        error = self._sink.last_error
        if error is None or not is_refusal(error):
            return "the database is unavailable"
        return f"the database refuses the outcomes ({message_of(error)})"

    async def _within_grace(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work`; TimeoutError if it takes longer than the grace and `LAST_WRITE`."""
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self._forced.wait())
        try:
            timeout = max(LAST_WRITE, self._grace_ends - self._clock.monotonic())
            await asyncio.wait((task, forced), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if forced.done():
                await asyncio.wait((task,), timeout=LAST_WRITE)
            if not task.done():
                raise TimeoutError
            task.result()
        finally:
            task.cancel()
            forced.cancel()

    def _emit_complete(self) -> None:
        self._events.emit(PoolGracefulShutdownComplete(pool_id=self._pool_id))
        if self._forced.is_set():
            self._events.emit(PoolForcefulShutdownComplete(pool_id=self._pool_id))


RETRY_DELAYS = Delays(0.1, 1.0)


class EvictionCheck:
    """Runs after each lapse of the lease and lets it open again."""

    def __init__(self, context: PoolContext, sessions: Sessions, lanes: Lanes, sink: Sink) -> None:
        self._context = context
        self._sessions = sessions
        self._lanes = lanes
        self._sink = sink

    async def run(self) -> None:
        """Drop the jobs that this pool has lost, then settle the lease."""
        lease, locked_jobs = self._sessions.lease, self._sessions.locked_jobs
        epoch = lease.epoch
        jobs = list(locked_jobs.jobs.values())
        schema, pool_id = self._context.schema, self._context.pool_id
        ours = await self._read(lambda connection: still_ours(connection, schema, pool_id, jobs))
        if maybe_deleted := list(self._sink.maybe_deleted()):  # no more is sent until the lease is settled
            ours |= await self._read(lambda connection: gone_jobs(connection, schema, maybe_deleted))
        lost = lost_jobs(locked_jobs, jobs, ours)
        running = set(map(id, self._lanes.running))
        lost += [job for job in locked_jobs.take_replaced() if id(job) in running]
        if lost:
            self.evict(lost)
        locked_jobs.doubt()  # a fetch that was given up may have been committed late
        lease.settle(epoch)
        self._lanes.pulse()
        with suppress(Exception):  # the next statement retries it
            await self._sessions.reclaim()

    async def _read(self, statement: Statement[set[int]]) -> set[int]:
        """Retried until the database answers."""
        return await with_retries(
            lambda: self._sessions.run(statement),
            clock=self._context.clock,
            max_attempts=sys.maxsize,
            fallback=RETRY_DELAYS,
        )

    def evict(self, lost: list[Job]) -> None:
        """Drop jobs that other workers have taken, and cancel those of them that run."""
        locked_jobs = self._sessions.locked_jobs
        locked_jobs.lose(lost)
        self._context.events.emit(PoolEvicted(pool_id=self._context.pool_id, jobs=lost))
        for job in self._lanes.drop(locked_jobs.is_lost):
            locked_jobs.forget(job)
        for lane in self._lanes:
            lane.slots.cancel_lost(locked_jobs.is_lost)


def lost_jobs(locked_jobs: LockedJobs, jobs: Iterable[Job], ours: Collection[int]) -> list[Job]:
    """Those that are not the pool's any more, without those that it finished or locked again since."""
    return [job for job in jobs if job.id not in ours and locked_jobs.jobs.get(job.id) is job]
