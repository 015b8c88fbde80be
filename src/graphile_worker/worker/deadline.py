"""Deadline: ends a statement that gets no answer for too long.

It does what `asyncio.timeout` does, with one timer for all the statements of a session in place of one for
each: nearly all end in a thousandth of the time, and an announced job waits for whatever comes before it.
"""

from __future__ import annotations

import asyncio
import math


class Deadline:
    """For one piece of work at a time: `begin`, and `end` in any case."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._at = math.inf
        self._has_passed = self._is_missed = False
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, seconds: float) -> None:
        """Cancel the current task unless `end` is called in time."""
        self._task = task = asyncio.current_task()
        self._cancelling = 0 if task is None else task.cancelling()
        self._at = self._loop.time() + seconds
        self._has_passed = self._is_missed = False
        if self._timer is None:
            self._timer = self._loop.call_at(self._at, self._look)
        elif self._timer.when() > self._at:
            self._timer.cancel()
            self._timer = self._loop.call_at(self._at, self._look)

    def end(self) -> None:
        """The work is over."""
        task, self._task = self._task, None
        if self._has_passed and task is not None:
            self._is_missed = task.uncancel() <= self._cancelling

    def was_missed(self, error: BaseException) -> bool:
        """After `end`: whether the work failed because its time was up, and not because others cancel it."""
        return self._is_missed and isinstance(error, asyncio.CancelledError)

    def stop(self) -> None:
        """There will be no more work."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._look)
            return
        self._has_passed = True
        self._task.cancel()
