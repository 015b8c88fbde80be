"""The Runner: starts the parts of a worker, waits for them, and stops them together."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..database.connections.errors import translate_errors
from ..errors import WorkerStoppedError
from ..hooks import Events
from ..hooks.events import Stopped
from ..recovery.sweeper import StaleLocks
from ..tasks.services import AddsJobs, JobAdder
from ..worker.pool import WorkerPool
from .build import CLOSE_WITHIN, WorkerBuilder
from .services import EngineContext
from .signals import signal_handling

if TYPE_CHECKING:
    from ..cron import CronScheduler
    from ..recovery.service import Recovery

KILL_AFTER = 0.5  # seconds that `kill` allows for a graceful shutdown


class Runner(AddsJobs):
    """A worker that runs in the background of this event loop until it is stopped. Made by `run`."""

    def __init__(self, builder: WorkerBuilder) -> None:
        self.events: Events = builder.events
        """Register observers here."""
        self.signal: int | None = None
        """The signal that stopped the worker, if one did; a process should end with it."""
        self._events: Events = builder.hooks.events
        self._builder = builder
        self._engine = EngineContext(())
        self._pool: WorkerPool | None = None
        self._cron: CronScheduler | None = None
        self._stale_locks: StaleLocks | None = None
        self._recovery: Recovery | None = None
        self._end: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._signal_target = _SignalTarget(self)

    # -- for the user --------------------------------------------------------------------------------------

    @property
    def pool_id(self) -> str:
        """The pool's id: `locked_by` of the jobs that this worker has locked."""
        return self._running_pool.id

    @property
    def is_stopping(self) -> bool:
        """Whether shutdown has begun; stays true when it is complete."""
        return self._is_stopping

    @property
    def is_stopped(self) -> bool:
        """Whether the worker has ended and its connections are closed."""
        return self._end is not None and self._end.done()

    @property
    def _client(self) -> JobAdder:
        return self._builder.client

    async def wait(self) -> None:
        """Wait until the worker has ended; raises its error if it died of one."""
        self._events._exclude_current_task()
        await asyncio.shield(self._ended)

    async def stop(self, reason: str = "the program is stopping the worker") -> None:
        """Shut down gracefully: let running tasks end and write all outcomes. Stopping twice is an error."""
        if self._is_stopping:
            raise WorkerStoppedError("the worker is stopped already")
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await self.wait()

    async def kill(self, reason: str = "the worker was killed") -> None:
        """Shut down; tasks that still run after half a second are cancelled and their jobs returned."""
        self._begin_to_stop()
        self._running_pool.begin_shutdown(reason)
        await asyncio.wait((self._ended,), timeout=KILL_AFTER)
        self._running_pool.force_shutdown(reason)
        await self.wait()

    # -- life cycle ----------------------------------------------------------------------------------------

    @classmethod
    async def _start(cls, builder: WorkerBuilder) -> Runner:
        """Start every part; if one fails, nothing is left running."""
        runner = cls(builder)
        try:
            with translate_errors(builder.options.schema_name):
                pool = await runner._start_parts()
        except BaseException:
            await runner._discard_parts()
            raise
        if not builder.once:
            runner._stale_locks = builder.make_stale_locks(pool.id)
            runner._engine.call(runner._stale_locks.start)
            builder.log_ready(pool.id)
        runner._end = runner._engine.call(runner._start_waiting)
        return runner

    def _start_waiting(self) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._until_end(), name="graphile-worker runner")

    async def _start_parts(self) -> WorkerPool:
        builder = self._builder
        engine = self._engine = EngineContext(builder.hooks.table.engine_variables)
        handle_signals = builder.options.handle_signals
        if handle_signals:
            signal_handling().check()
        if builder.cron_items and not builder.once:
            self._cron = builder.make_cron()
            await engine.wait_for(self._cron.start())
        if builder.executors is not None:
            await engine.wait_for(builder.executors.start())
        self._pool = pool = engine.call(builder.make_pool)
        await builder.hooks.start_plugins(builder.worker_context(pool))
        self._recovery = builder.make_recovery(pool)
        await engine.wait_for(self._recovery.register())
        await engine.wait_for(pool.prepare())
        await engine.wait_for(self._recovery.proven())
        await engine.wait_for(pool.start())
        engine.call(self._recovery.start)
        if handle_signals:
            signal_handling().add(self._signal_target, self._events)
        return pool

    async def _discard_parts(self) -> None:
        if self._pool is not None:
            await self._pool.discard()
        if self._recovery is not None:
            await self._recovery.stop()
        if self._cron is not None:
            await self._cron.stop()
        await self._builder.hooks.stop_plugins()
        await self._builder.close()

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
        if not self._is_stopping:
            self._is_stopping = True
            self._events.emit(Stopped())
            if self._stale_locks is not None:
                self._stale_locks.begin_to_stop()
            if self._recovery is not None:
                self._recovery.begin_to_stop()

    async def _until_end(self) -> None:
        try:
            await self._wait_for_parts()
        except asyncio.CancelledError:
            # The program ends without stopping us, as when `asyncio.run` cancels the remaining tasks.
            self._begin_to_stop()
            await self._running_pool.end_after_cancellation("the program ended")
            raise
        finally:
            handling = signal_handling()
            self.signal = handling.received if self._builder.options.handle_signals else None
            handling.remove(self._signal_target)
            if self._cron is not None:
                await self._cron.stop()
            if self._recovery is not None:
                await self._recovery.stop()
            await self._events._drain()
            try:
                await self._builder.hooks.stop_plugins()
            finally:
                await self._builder.close()
        if (lifespan := self._builder.lifespan) is not None and lifespan.error is not None:
            raise lifespan.error

    async def _wait_for_parts(self) -> None:
        """The pool and the cron scheduler end together: if one fails, the other is stopped."""
        pool = self._running_pool
        waiting: set[asyncio.Future[None]] = {asyncio.ensure_future(pool.wait())}
        if self._cron is not None:
            waiting.add(asyncio.ensure_future(self._cron.wait()))
        done = await self._wait_for_first(waiting)
        self._begin_to_stop()
        pool.begin_shutdown(
            "recurring jobs cannot be scheduled any more" if done else "the lifespan of the app has ended"
        )
        if self._cron is not None:
            await self._cron.stop()
        if self._stale_locks is not None:
            with suppress(TimeoutError):  # it waits for a statement that the server may never answer
                await asyncio.wait_for(self._stale_locks.stop(), CLOSE_WITHIN)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in (*(future.exception() for future in done), *results):
            if isinstance(result, BaseException):
                raise result

    async def _wait_for_first(self, parts: set[asyncio.Future[None]]) -> set[asyncio.Future[None]]:
        """Wait until one of the parts has ended, or the lifespan of the app; those parts that have."""
        lifespan = self._builder.lifespan
        if lifespan is None:
            return (await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED))[0]
        ended = asyncio.ensure_future(lifespan.ended_early.wait())
        waiting: set[asyncio.Future[Any]] = {*parts, ended}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        return {part for part in parts if part.done()}


class _SignalTarget:
    """What signals may do to a Runner: stop it in the background, gracefully or by force."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def stop_by_signal(self, message: str) -> None:
        self._runner._begin_to_stop()
        self._runner._running_pool.begin_shutdown(message)

    def kill_by_signal(self, message: str) -> None:
        self._runner._running_pool.force_shutdown(message)

    def exit_if_blocked(self, margin: float | None, number: int) -> None:
        """End the process if its event loop is blocked: at once (None), or a margin after the grace."""
        seconds = 0.0 if margin is None else self._runner._builder.options.grace + margin
        self._runner._running_pool.exit_if_blocked(seconds, number)
