"""The Runner: starts the parts of a worker, waits for them, and ends them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack

from ..db.errors import translate_errors
from ..errors import WorkerStoppedError
from ..hooks import Events
from ..hooks.events import Stopped
from ..job import Job
from ..recovery.stale_locks import StaleLocks
from ..spec import JobOptions, JobSpec
from ..worker.pool import WorkerPool
from ..worker.signals import signal_handling
from .arguments import CLOSE_WITHIN
from .parts import Parts

if TYPE_CHECKING:
    from ..cron import CronScheduler
    from ..recovery.service import Recovery

KILL_AFTER = 0.5  # seconds that `kill` leaves to a graceful end


class Runner:
    """A worker that runs in the background of this event loop until it is stopped."""

    def __init__(self, parts: Parts, *, once: bool) -> None:
        self.events: Events = parts.events
        """Where to observe what happens."""
        self._events: Events = parts.hooks.events
        self._parts = parts
        self._once = once
        self._pool: WorkerPool | None = None
        self._cron: CronScheduler | None = None
        self._stale_locks: StaleLocks | None = None
        self._recovery: Recovery | None = None
        self._end: asyncio.Task[None] | None = None
        self.is_stopped = False
        """Whether it was told to stop, or has."""
        self.signal: int | None = None
        """The signal that stopped the worker, if one did; a process should end with it."""

    # -- for the user --------------------------------------------------------------------------------------

    @property
    def pool_id(self) -> str:
        """What stands in `locked_by` of the jobs that this worker holds."""
        return self._running_pool.id

    async def add_job(self, task: Any, payload: Any = None, **options: Unpack[JobOptions]) -> Job:
        """Add a job, as `WorkerUtils.add_job` does."""
        return await self._parts.client.add_job(task, payload, **options)

    async def add_jobs(self, specs: Iterable[JobSpec], *, return_jobs: bool = True) -> list[Job]:
        """Add many jobs, as `WorkerUtils.add_jobs` does."""
        return await self._parts.client.add_jobs(specs, return_jobs=return_jobs)

    async def wait(self) -> None:
        """Until the worker has ended; raises if it died of an error."""
        self._events.excuse_current()
        await asyncio.shield(self._ended)

    async def stop(self, reason: str = "the worker is stopping") -> None:
        """Stop gracefully: running tasks may end, everything is written. An error to do it twice."""
        if self.is_stopped:
            raise WorkerStoppedError("the worker is stopped already")
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await self.wait()

    async def kill(self, reason: str = "the worker was killed") -> None:
        """Stop; what still runs after half a second is cancelled and given back."""
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await asyncio.wait((self._ended,), timeout=KILL_AFTER)
        self._running_pool.force_shutdown(reason)
        await self.wait()

    # -- for signals ---------------------------------------------------------------------------------------

    def stop_by_signal(self, message: str) -> None:
        """Stop gracefully in the background."""
        self._begin_to_stop()
        self._running_pool.begin_shutdown(message)

    def kill_by_signal(self, message: str) -> None:
        """Stop by force in the background."""
        self._running_pool.force_shutdown(message)

    # -- life ----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; if that fails nothing is left running."""
        parts = self._parts
        try:
            with translate_errors(parts.options.schema_name):
                if parts.options.handle_signals:
                    signal_handling().check()
                if parts.cron_items and not self._once:
                    self._cron = parts.make_cron()
                    await self._cron.start()
                self._pool = parts.make_pool(once=self._once)
                self._recovery = parts.make_recovery(self._pool)
                await self._recovery.register()
                await self._pool.start()
                self._recovery.start()
                if parts.options.handle_signals:
                    signal_handling().add(self, self._events)
        except BaseException:
            if self._pool is not None:
                await self._pool.discard()
            if self._recovery is not None:
                await self._recovery.stop()
            if self._cron is not None:
                await self._cron.stop()
            await parts.resources.aclose()
            raise
        if not self._once:
            self._stale_locks = parts.make_stale_locks(self._pool.id)
            self._stale_locks.start()
            parts.say_ready(self._pool.id)
        self._end = asyncio.get_running_loop().create_task(self._until_end(), name="graphile-worker runner")

    @property
    def _running_pool(self) -> WorkerPool:
        if self._pool is None:
            raise WorkerStoppedError("the worker was not started")
        return self._pool

    @property
    def _ended(self) -> asyncio.Task[None]:
        if self._end is None:
            raise WorkerStoppedError("the worker was not started")
        return self._end

    def _begin_to_stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self._events.emit(Stopped())
            if self._stale_locks is not None:
                self._stale_locks.begin_to_stop()
            if self._recovery is not None:
                self._recovery.begin_to_stop()

    async def _until_end(self) -> None:
        try:
            await self._wait_for_parts()
        except asyncio.CancelledError:
            # The program ends without having stopped us, as when `asyncio.run` cancels what is left over.
            self._begin_to_stop()
            await self._running_pool.salvage("the program ended")
            raise
        finally:
            handling = signal_handling()
            self.signal = handling.received if self._parts.options.handle_signals else None
            handling.remove(self)
            if self._recovery is not None:
                await self._recovery.stop()
            await self._events.drain()
            await self._parts.resources.aclose()

    async def _wait_for_parts(self) -> None:
        """The pool and the scheduler end together; whichever fails first takes the other with it."""
        pool = self._running_pool
        waiting: set[asyncio.Future[None]] = {asyncio.ensure_future(pool.wait())}
        if self._cron is not None:
            waiting.add(asyncio.ensure_future(self._cron.wait()))
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        self._begin_to_stop()
        pool.begin_shutdown("recurring jobs cannot be scheduled any more")
        if self._cron is not None:
            await self._cron.stop()
        if self._stale_locks is not None:
            with suppress(TimeoutError):  # it waits for a statement, and the server may not answer any more
                await asyncio.wait_for(self._stale_locks.stop(), CLOSE_WITHIN)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in (*(future.exception() for future in done), *results):
            if isinstance(result, BaseException):
                raise result
