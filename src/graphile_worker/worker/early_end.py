"""EarlyEnd: ends one running job before its task does.

The task is asked first, by its abort signal, and cancelled if it runs on the event loop. After the grace it
is cancelled once more. What still does not end is abandoned: its slot is replaced and the outcome is written
without it. A thread cannot be cancelled, so it has the grace to notice its signal, and is left behind then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, Protocol

from ..job import Job
from ..tasks.helpers import JobHelpers, current_helpers
from .causes import Cause
from .execute import Executor

LAST_CHANCE = 1.0  # seconds between the second cancellation and the end of the wait
HANDOVER = 0.05  # seconds for the result of a thread that has just ended to reach the event loop


class RunningJob(Protocol):
    """The slot that runs the job."""

    job: Job | None
    task: asyncio.Task[bool] | None
    context: Context | None


class EarlyEnd:
    """The end of one attempt; `stop` it when the attempt has ended."""

    __slots__ = ("_abandon", "_executor", "_on_wait", "_slot", "_timer", "_waits", "is_late", "job")

    def __init__(
        self,
        slot: RunningJob,
        job: Job,
        executor: Executor,
        *,
        abandon: Callable[[EarlyEnd], None],
        on_wait: Callable[[EarlyEnd], None],
    ) -> None:
        """`on_wait` is called when the grace is over for a task that is waited for without limit."""
        self._slot = slot
        self._executor = executor
        self._abandon = abandon
        self._on_wait = on_wait
        self._waits = False
        self._timer: asyncio.TimerHandle | None = None
        self.job = job
        self.is_late = False
        """Whether the task has used up its grace."""

    @property
    def cause(self) -> Cause | None:
        """Why the job is ended; None if it is not."""
        cause: Cause | None = self._helpers._cause
        return cause

    @property
    def call(self) -> Any:
        """The `TaskCall` of a job that an executor runs; None for others."""
        return self._helpers._call

    @property
    def _helpers(self) -> JobHelpers:
        assert self._slot.context is not None  # noqa: S101 - set while the slot runs
        return self._slot.context[current_helpers]

    def schedule(self, delay: float, begin: Callable[[], None]) -> None:
        """Call `begin` after this many seconds, unless the attempt ends first."""
        self._timer = asyncio.get_running_loop().call_later(delay, begin)

    def begin(self, cause: Cause, grace: float, *, waits: bool = False) -> None:
        """Ask the task to end, and see to it that the slot is free soon after the grace.

        `waits`: never abandon it, however long it takes to end.
        """
        helpers, known = self._helpers, self.cause
        if known is not None:
            if cause.rank > known.rank:
                helpers.abort_signal._cause = cause
            return
        self.stop()
        self._waits = waits
        helpers._end_early(cause, grace)
        if self._executor.is_async(self.job):
            self._cancel()
            self.schedule(grace, self._press)
        else:
            if helpers._in_thread is None:  # but in a hook, or in what the function returned
                self._cancel()
            self.schedule(grace, self._press)

    def stop(self) -> None:
        """The attempt has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def has_thread_ended(self) -> bool:
        """Whether the function has returned in its thread, and its result is on its way; or has not begun."""
        call = self._helpers._in_thread
        return call is not None and (call.done() or not self._executor.is_in_thread(self.job))

    def _press(self) -> None:
        if self.has_thread_ended:  # a cancellation would take the result from it
            self.schedule(HANDOVER, self._press)
            return
        if self._waits:
            self._on_wait(self)
            return
        self.is_late = True
        self._cancel()
        self.schedule(LAST_CHANCE, lambda: self._abandon(self))

    def _cancel(self) -> None:
        if self._slot.job is self.job and self._slot.task is not None:
            self._slot.task.cancel()
