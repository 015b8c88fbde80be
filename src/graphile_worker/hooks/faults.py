"""What keeps the engine running when application code raises, or one of its asyncio tasks dies.

Hooks, rules, log handlers or a clock may raise anything, even `asyncio.CancelledError`, `GeneratorExit` or
`SystemExit`. That must end neither the worker nor the asyncio task of the engine that called them. So the
engine catches everything except what is meant for its own task: a cancellation that was requested, and the
closing of its coroutine.

A `Supervised` is an asyncio task of the engine that does not die unnoticed. It is restarted when it ends
without being asked to: because code that it called raised something unexpected, or because other code
cancelled it. Each time is logged with the traceback. If a task keeps dying, the worker ends.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
import traceback
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar

from ..errors import WorkerStoppedError
from ..errors.text import summarize
from ..values.clock import Clock, SystemClock

T = TypeVar("T")

logger = logging.getLogger("graphile_worker.worker")


def is_our_end(error: BaseException) -> bool:
    """Whether the asyncio task that runs this must end; otherwise the code that it called raised the error.

    Call it in the coroutine that caught the error, for what was raised below an `await`. A plain function
    cannot be cancelled: whatever it raises is its own error.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return is_closed(error)


def is_closed(error: BaseException) -> bool:
    """Whether the coroutine that caught this is being closed, for example at the end of an event loop.

    Python then raises GeneratorExit in the coroutine itself; one that a task raised comes from a call below.
    """
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


def as_exception(error: BaseException) -> Exception:
    """The error, or an ordinary one caused by it, which can be stored in a future and raised to a caller."""
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"code of the application raised {summarize(error)}")
    wrapped.__cause__ = error
    return wrapped


def call_guarded(function: Callable[..., T], *arguments: Any) -> T:
    """The result of a plain application function; whatever it raises becomes an Exception."""
    try:
        return function(*arguments)
    except Exception:
        raise
    except BaseException as error:
        raise as_exception(error) from error


def report(logger: logging.Logger, message: str, *arguments: object, error: BaseException) -> None:
    """Log what application code raised, with its traceback. Never raises, whatever log handlers do."""
    try:
        logger.error(message, *arguments, exc_info=error)
    except BaseException as failure:
        try:
            text = "".join(traceback.format_exception(failure))
            sys.stderr.write(f"a log handler failed on {message!r}:\n{text}")
        except BaseException:  # noqa: S110 - there is nowhere left to report it
            pass


FIRST_DELAY = 0.1  # seconds until it is restarted; doubled each time
LONGEST_DELAY = 30.0
MOST_DEATHS = 5  # in a row, each less than STEADY_AFTER after the last one, before it is given up
STEADY_AFTER = 60.0  # seconds

Work = Callable[[], Coroutine[Any, Any, None]]


async def logged(work: Coroutine[Any, Any, None], name: str) -> None:
    """Do some work once, in a task that is not awaited; what it raises is logged."""
    try:
        await work
    except BaseException as error:
        if is_our_end(error):
            raise
        report(logger, "the asyncio task %r failed", name, error=error)


class Supervised:
    """Runs `work` until it returns, or until it is ended or cancelled here."""

    def __init__(
        self,
        work: Work,
        name: str,
        *,
        on_fatal: Callable[[BaseException], None] | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_fatal` is called if it keeps dying; None to try forever.

        `is_over`: whether a task that died is no longer needed.
        """
        self.name = name
        self._work = work
        self._on_fatal = on_fatal
        self._is_over = is_over
        self._may_end = False
        self._deaths = 0
        self._started_at = 0.0
        self._fault: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()

    def start(self) -> None:
        """Run the work in its own asyncio task."""
        self._over.clear()
        self._may_end = False
        self._timer, self._fault = None, None
        self._started_at = time.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"graphile-worker {self.name}")
        self._task.add_done_callback(self._ended)

    @property
    def is_done(self) -> bool:
        """Whether it has ended for good."""
        return self._over.is_set()

    @property
    def is_dead(self) -> bool:
        """Whether it does not run, and was not asked to end."""
        return not self._may_end and (self._task is None or self._task.done())

    def is_current(self) -> bool:
        """Whether the caller runs in this task."""
        return self._task is not None and self._task is asyncio.current_task()

    async def end(self, *, within: float | None = None) -> None:
        """Wait until the work has returned by itself, and cancel it after `within` seconds.

        It is not started again. If the caller is cancelled, it is cancelled as well.
        """
        self._let_end()
        try:
            async with asyncio.timeout(within):
                await self._over.wait()
        except TimeoutError:
            await self.stop()
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def wait(self) -> None:
        """Wait until it has ended for good."""
        await self._over.wait()

    async def stop(self) -> None:
        """Cancel it and wait until it has ended."""
        self.cancel()
        await self._over.wait()

    def cancel(self) -> None:
        """Cancel it without waiting."""
        self._let_end()
        if self._task is not None:
            self._task.cancel()

    def _let_end(self) -> None:
        self._may_end = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            self._over.set()

    async def _run(self) -> None:
        try:
            await self._work()
        except BaseException as error:
            if is_our_end(error):
                raise
            self._fault = error  # not raised: SystemExit would end the event loop

    def _ended(self, task: asyncio.Task[None]) -> None:
        fault = self._fault
        if fault is None and task.cancelled():
            fault = asyncio.CancelledError("it was cancelled")
        elif fault is None:
            fault = task.exception()
        if self._may_end or fault is None:
            self._over.set()
            return
        if time.monotonic() - self._started_at > STEADY_AFTER:
            self._deaths = 0
        self._deaths += 1
        delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** (self._deaths - 1))
        # Log it later, too: when a program ends, asyncio cancels every task, and the worker stops by then.
        self._timer = asyncio.get_running_loop().call_later(delay, self._start_again, fault)

    def _start_again(self, fault: BaseException) -> None:
        self._timer = None
        if self._is_over():
            self._over.set()
            return
        is_cancelled = isinstance(fault, asyncio.CancelledError)
        if self._on_fatal is not None and self._deaths > MOST_DEATHS:
            report(logger, "the asyncio task %r keeps dying and is not restarted", self.name, error=fault)
            self._may_end = True
            self._over.set()
            reason = f"its asyncio task {self.name!r} is cancelled again and again"
            self._on_fatal(WorkerStoppedError(reason) if is_cancelled else as_exception(fault))
            return
        report(logger, "the asyncio task %r ended unexpectedly and is started again", self.name, error=fault)
        self.start()


class GuardedClock:
    """A clock of the application. What it raises is logged, and the machine's clock is used instead."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._machine = SystemClock()

    def now(self) -> datetime:
        """The wall time."""
        try:
            return self._clock.now()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.now()

    def monotonic(self) -> float:
        """Seconds that never go backwards."""
        try:
            return self._clock.monotonic()
        except BaseException as error:
            report(logger, "the clock failed", error=error)
            return self._machine.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for this many seconds."""
        try:
            await self._clock.sleep(seconds)
        except BaseException as error:
            if is_our_end(error):
                raise
            report(logger, "the clock failed", error=error)
            await asyncio.sleep(seconds)
