"""Deadline: a timeout for the statements of a session.

Works like `asyncio.timeout`, but with one timer for all statements instead of one for each. Nearly all of
them take a thousandth of their time, and everything done before a fetch delays an announced job. And it
cancels again until the work ends: a cancelled transaction sends a rollback, and waits for that answer.
"""

from __future__ import annotations

import asyncio
import math

CLEAN_UP_WITHIN = 2.0  # seconds for what cancelled work does at its end, before it is cancelled again


class Deadline:
    """Call `begin` before each piece of work, and `end` after it in any case."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._at = math.inf
        self._cancels = 0
        self._is_missed = False
        self._timer: asyncio.TimerHandle | None = None  # may be set for an earlier time than needed

    def begin(self, seconds: float) -> None:
        """Cancel the current task unless `end` is called in time."""
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._at = self._loop.time() + seconds
        self._cancels = 0
        self._is_missed = False
        if self._timer is None:
            self._timer = self._loop.call_at(self._at, self._check)
        elif self._timer.when() > self._at:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._at, self._check)

    def end(self) -> None:
        """Stop the clock."""
        task, self._task = self._task, None
        if self._cancels and task is not None:
            for _ in range(self._cancels):
                task.uncancel()
            self._is_missed = task.cancelling() <= self._cancelling

    def was_missed(self, error: BaseException) -> bool:
        """After `end`: whether the work was cancelled by the deadline and by nothing else."""
        return self._is_missed and isinstance(error, asyncio.CancelledError)

    def stop(self) -> None:
        """Cancel the timer, at the end of the session."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._check)
            return
        self._cancels += 1
        self._task.cancel()
        self._at = self._loop.time() + CLEAN_UP_WITHIN
        self._timer = self._loop.call_at(self._at, self._check)
