"""How a pool ends: no more fetching, held jobs go back, running tasks end or are cancelled, all is written.

Nothing here is skipped because something before it failed; what could not be done is said when the pool has
ended, to whoever waits for that.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from ..clock import Clock
from ..db.retry import Delays, is_refusal, with_retries
from ..error_text import message_of
from ..errors import JobInterruptedError, TasksLeftBehindError, WorkerStoppedError
from ..hooks import Events
from ..hooks.events import (
    PoolForcefulShutdown,
    PoolForcefulShutdownComplete,
    PoolForcefulShutdownError,
    PoolGracefulShutdown,
    PoolGracefulShutdownComplete,
    PoolGracefulShutdownError,
    PoolGracefulShutdownWorkerError,
    PoolReleased,
)
from ..job import Job
from ..options import WorkerOptions
from ..tasks.services import WorkerServices
from .listener import Listener
from .session import Sessions
from .sink import Sink
from .slots import Slots
from .source import JobSource

FORCED_WAIT = 5.0  # seconds that cancelled tasks have to clean up
LAST_WRITE = 10.0  # seconds at least for the outcomes to reach a database that is away while we stop
LAST_EVENTS = 1.0  # seconds at least for observers to end
LAST_TRIES = Delays(0.1, 0.5)


class Shutdown:
    """Ends one pool, gracefully or by force, and knows when it has ended and with which error."""

    def __init__(
        self,
        pool_id: str,
        options: WorkerOptions,
        events: Events,
        clock: Clock,
        *,
        services: WorkerServices,
        sessions: Sessions,
        source: JobSource,
        sink: Sink,
        end_background: Callable[[], Awaitable[None]],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        """`close` gives back what the pool has opened, at the very end."""
        self._pool_id = pool_id
        self._options = options
        self._events = events
        self._clock = clock
        self._services = services
        self._sessions = sessions
        self._source = source
        self._sink = sink
        self._end_background = end_background
        self._close = close
        self.slots: Slots | None = None
        self.listener: Listener | None = None
        self.fatal: BaseException | None = None
        """Why the pool cannot go on, if it cannot."""
        self._stopping: asyncio.Task[None] | None = None
        self._forced = asyncio.Event()
        self._forced_message = ""
        self._grace_ends = 0.0
        self._finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def wait(self) -> None:
        """Until the pool has ended; raises if it died of an error or had to be stopped by force."""
        await asyncio.shield(self._finished)

    @property
    def has_begun(self) -> bool:
        """Whether the pool is ending, or has ended."""
        return self._stopping is not None

    def begin(self, message: str, *, quietly: bool = False) -> None:
        """End gracefully, unless it is ending already."""
        if self._stopping is None:
            if not quietly:
                self._events.emit(PoolGracefulShutdown(pool_id=self._pool_id, message=message))
            self._start(message)

    def force(self, message: str) -> None:
        """End without waiting for tasks any longer."""
        if self._finished.done():
            return
        if not self._forced.is_set():
            self._events.emit(PoolForcefulShutdown(pool_id=self._pool_id, message=message))
            self._forced_message = message
            self._forced.set()
        self.begin(message)

    async def cancelled(self) -> bool:
        """After every task was cancelled: wait for the ending if it is one of them; False if it was complete.

        The program is cancelled too and may have called `stop` since then. That ending is not cancelled. Do
        not wait for it here: it waits for the sink, which has to be started again first.
        """
        if self._stopping is not None and self._stopping.cancelling():
            await asyncio.wait((self._stopping,))
        return not self._finished.done()

    async def begin_anew(self, message: str) -> None:
        """End by force: start again if the ending was cancelled, else only cut its waiting short."""
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
            self._shut_down(message), name="graphile-worker shutdown"
        )
        return self._stopping

    async def _shut_down(self, message: str) -> None:
        error: BaseException | None = self.fatal
        self._grace_ends = self._clock.monotonic() + self._options.grace
        try:
            if self.slots is not None:
                self.slots.release()
            deactivating = asyncio.ensure_future(self._deactivate())  # meanwhile tasks may end
            left = await self._end_running(message)
            await deactivating
            await self._write_rest()
            if left and error is None:
                error = TasksLeftBehindError(message, [(job.task_identifier, job.id) for job in left])
            self._tell_shut_down()
        except Exception as failure:
            self._events.emit(PoolGracefulShutdownError(pool_id=self._pool_id, error=failure))
            if self._forced.is_set():
                self._events.emit(PoolForcefulShutdownError(pool_id=self._pool_id, error=failure))
            error = error or failure
        finally:
            await self._close()
        self._events.emit(PoolReleased(pool_id=self._pool_id))
        await self._events._drain(
            max(LAST_EVENTS, self._grace_ends - self._clock.monotonic()), unless=self._forced
        )
        if self._finished.done():
            return
        if error is None:
            self._finished.set_result(None)
        else:
            self._finished.set_exception(error)
            self._finished.exception()  # whoever waits gets it; nobody waiting is no reason for a warning

    async def _deactivate(self) -> None:
        """Take no more jobs and give back those held; what cannot be done now `_write_rest` tries again."""
        listening = self.listener.stop() if self.listener is not None else asyncio.sleep(0)
        await asyncio.gather(
            self._in_time(self._source.release()),
            asyncio.wait_for(listening, LAST_WRITE),
            return_exceptions=True,
        )

    async def _end_running(self, message: str) -> list[Job]:
        """Wait for running tasks as long as allowed, then cancel them; those that would not even then."""
        slots, options = self.slots, self._options
        if slots is None:
            return []
        abort_after = min(options.graceful_shutdown_abort_timeout, options.grace)
        if not await self._slots_end(within=abort_after):
            self._services.abort_signal.set(message)
            await self._slots_end(within=options.grace - abort_after)
        reason = self._forced_message or f"Interrupted: {message}"
        cancelled = slots.running
        slots.cancel(reason)
        self._services.abort_signal.set(message)
        for job in cancelled:
            self._events.emit(
                PoolGracefulShutdownWorkerError(
                    pool_id=self._pool_id, error=JobInterruptedError(reason), job=job
                )
            )
        if not await self._slots_end(within=FORCED_WAIT, even_if_forced=True):
            left = slots.running
            for finished in slots.abandon(reason):
                self._sink.put(finished)
            return left
        return []

    async def _slots_end(self, *, within: float, even_if_forced: bool = False) -> bool:
        """Whether all slots ended in that time; a stop by force cuts the waiting short."""
        assert self.slots is not None  # noqa: S101 - checked by the caller
        ended = asyncio.ensure_future(self.slots.wait())
        waiting: list[asyncio.Future[Any]] = [ended]
        if not even_if_forced:
            waiting.append(asyncio.ensure_future(self._forced.wait()))
        await asyncio.wait(waiting, timeout=max(within, 0.0), return_when=asyncio.FIRST_COMPLETED)
        for waiter in waiting:
            waiter.cancel()
        return ended.done() and not ended.cancelled()

    async def _write_rest(self) -> None:
        """Write every outcome; then nothing may be locked by this pool any more, known or not."""

        async def write() -> None:
            await self._sink.close()
            # Before we let go: a statement that is cancelled leaves it in doubt what this pool holds.
            await self._end_background()
            await with_retries(
                self._sessions.let_go, clock=self._clock, max_attempts=sys.maxsize, fallback=LAST_TRIES
            )

        try:
            await self._in_time(write())
        except TimeoutError:
            self._sink.abandon()
            held = len(self._sessions.holdings.jobs)
            raise WorkerStoppedError(
                f"{self._what_is_wrong()}: {held} jobs could not be written or given back; they stay locked "
                f"by this worker ({self._pool_id}) and run again once it counts as dead"
            ) from None

    def _what_is_wrong(self) -> str:
        trouble = self._sink.trouble
        if trouble is None or not is_refusal(trouble):
            return "the database is away"
        return f"the database refuses what is written ({message_of(trouble)})"

    async def _in_time(self, work: Coroutine[Any, Any, None]) -> None:
        """Do it; TimeoutError if the database stays away longer than the grace, or some seconds."""
        task = asyncio.ensure_future(work)
        forced = asyncio.ensure_future(self._forced.wait())
        try:
            patience = max(LAST_WRITE, self._grace_ends - self._clock.monotonic())
            await asyncio.wait((task, forced), timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if forced.done():
                await asyncio.wait((task,), timeout=LAST_WRITE)
            if not task.done():
                raise TimeoutError
            task.result()
        finally:
            task.cancel()
            forced.cancel()

    def _tell_shut_down(self) -> None:
        self._events.emit(PoolGracefulShutdownComplete(pool_id=self._pool_id))
        if self._forced.is_set():
            self._events.emit(PoolForcefulShutdownComplete(pool_id=self._pool_id))
